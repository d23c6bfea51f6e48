//! `[[figures]]`.

use super::layout::{Filter, Reader, TableKind};
use bentpipe_config::{Number, Wrong, brief};

/// A figure: lines, each for one value of every axis of the lines.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// Numbers of the axes whose values are the lines.
    pub series: Vec<usize>,
    /// What is drawn.
    pub kind: FigureKind,
    /// Which points count.
    pub filter: Filter,
}

/// What a figure draws.
#[derive(Clone, Debug, PartialEq)]
pub enum FigureKind {
    /// Segments received in order against time, of single runs.
    TimeSequence,
    /// Means of measures against the values of an axis.
    Lines(Lines),
    /// The cumulative distribution of the sizes of the cross traffic's transfers.
    Sizes,
}

/// What a figure of lines draws.
#[derive(Clone, Debug, PartialEq)]
pub struct Lines {
    /// Number of the axis along which lines are drawn.
    pub x: usize,
    /// How its values are placed.
    pub scale: Scale,
    /// What is measured: a line each, for each of the series.
    pub measures: Vec<String>,
    /// What is shown of them.
    pub shows: TableKind,
    /// What is drawn around the means.
    pub band: Band,
    /// Up to where a second panel enlarges, in the numbers of the x axis.
    pub zoom: Option<f64>,
}

/// How the values of an axis are placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// One beside the other, whatever they are.
    #[default]
    Category,
    /// By the number that the label is.
    Linear,
    /// By its logarithm; what is not above zero is not drawn.
    Log,
}

/// What is drawn around a mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Band {
    /// Nothing.
    #[default]
    Nothing,
    /// From the least to the greatest of the seeds.
    Range,
    /// The 95% confidence interval of the mean.
    Interval,
}

impl Reader<'_, '_, '_> {
    pub(super) fn figure(mut self) -> Option<Figure> {
        let (name, title) = self.heading();
        let kind = self.table.required::<String>("kind", "\"time-sequence\"")?;
        let series = match kind.as_str() {
            "sizes" => Some(Vec::new()),
            _ => self.series(),
        };
        let kind = match kind.as_str() {
            "time-sequence" => Some(FigureKind::TimeSequence),
            "sizes" => Some(FigureKind::Sizes),
            "lines" => self.lines().map(FigureKind::Lines),
            _ => {
                let what = format!("unknown kind of figure `{}`", brief(&kind));
                let names = ["time-sequence", "lines", "sizes"];
                self.table.problem("kind", Wrong::name(what, &kind, &names));
                return None;
            }
        };
        let filter = self.filter();
        let (series, kind, filter) = (series?, kind?, filter?);
        let mut used = series.clone();
        if let FigureKind::Lines(lines) = &kind {
            used.push(lines.x);
            used.extend(lines.shows.contrast().map(|contrast| contrast.axis));
        }
        if kind != FigureKind::Sizes {
            self.all_fixed(used, &filter);
        }
        self.table.finish();
        Some(Figure {
            name: name?,
            title: title?,
            series,
            kind,
            filter,
        })
    }

    /// `series`: one axis, or an array of them.
    fn series(&mut self) -> Option<Vec<usize>> {
        let names = self.one_or_more("series", "\"variant\"")?;
        let axes = names.iter().map(|name| self.axis_named("series", name));
        axes.collect()
    }

    fn one_or_more(&mut self, key: &'static str, example: &str) -> Option<Vec<String>> {
        if self.table.is_array(key) {
            self.table.values(key, &format!("[{example}]"))
        } else {
            self.table.required(key, example).map(|one| vec![one])
        }
    }

    fn lines(&mut self) -> Option<Lines> {
        let x = self.axis("x");
        let measures = self.one_or_more("measure", "\"goodput\"")?;
        let known = measures.iter().all(|one| self.is_measure("measure", one));
        let shows = self.kind("show");
        let scales = [
            ("category", Scale::Category),
            ("linear", Scale::Linear),
            ("log", Scale::Log),
        ];
        let bands = [
            ("none", Band::Nothing),
            ("range", Band::Range),
            ("interval", Band::Interval),
        ];
        let scale = self.word("scale", scales);
        let band = self.word("band", bands);
        let zoom = self.table.optional::<Number>("zoom").map(|zoom| zoom.0);
        Some(Lines {
            x: x?,
            scale: scale?,
            measures: known.then_some(measures)?,
            shows: shows?,
            band: band?,
            zoom,
        })
    }

    /// One of `words`; without the key their first.
    fn word<T: Copy>(&mut self, key: &'static str, words: [(&str, T); 3]) -> Option<T> {
        let word = self.table.or(key, words[0].0.to_owned());
        let found = words.iter().find(|(name, _)| *name == word);
        if found.is_none() {
            let what = format!("unknown {key} `{}`", brief(&word));
            let names = words.map(|(name, _)| name);
            self.table.problem(key, Wrong::name(what, &word, &names));
        }
        found.map(|(_, value)| *value)
    }
}
