//! `[[statements]]`: what a paper says in words, and how it is checked.

use super::layout::{Filter, Reader, TableKind};
use bentpipe_config::{Wrong, brief};
use core::fmt;
use core::str::FromStr;

/// A statement of a paper, and the check that it is put to.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    /// Its name.
    pub id: String,
    /// The paper's words.
    pub text: String,
    /// Where the paper says so.
    pub place: String,
    /// Why it holds or not, in our words.
    pub why: Option<String>,
    /// What is measured; none where the sizes of the cross traffic are asked for.
    pub measure: String,
    /// What the measure is compared with: in percent of it; of a difference or a percentage what is
    /// subtracted, shown as it is.
    pub against: Option<String>,
    /// What is taken of the measure at each point.
    pub shows: TableKind,
    /// Which points count.
    pub filter: Filter,
    /// Number of the axis for each of whose values the check is made.
    pub each: Option<usize>,
    /// One figure of them all.
    pub take: Take,
    /// What the figure must be.
    pub holds: Bound,
}

/// How the values of all points become one figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Take {
    /// The least: a bound from below then holds for all of them.
    Least,
    /// The greatest: a bound from above then holds for all of them.
    Greatest,
    /// Their mean.
    Mean,
    /// The greatest absolute value.
    Largest,
    /// The greatest standard deviation over the seeds in percent of the mean.
    Spread,
    /// The first value of axis number `along` at which `when` holds.
    First {
        /// Number of the axis; its labels are numbers.
        along: usize,
        /// What must hold there.
        when: Bound,
    },
    /// How deep the deepest dip along an axis is below the lower of its two shores.
    Dip {
        /// Number of the axis.
        along: usize,
    },
    /// Kendall's rank correlation with the order along an axis: 1 always rises, -1 always falls.
    Trend {
        /// Number of the axis.
        along: usize,
    },
}

/// What a figure must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// `> x`
    Above(f64),
    /// `>= x`
    AtLeast(f64),
    /// `< x`
    Below(f64),
    /// `<= x`
    AtMost(f64),
    /// `x..y`, both included.
    Within(f64, f64),
}

impl Bound {
    /// Whether `value` is right.
    pub fn admits(&self, value: f64) -> bool {
        match *self {
            Self::Above(bound) => value > bound,
            Self::AtLeast(bound) => value >= bound,
            Self::Below(bound) => value < bound,
            Self::AtMost(bound) => value <= bound,
            Self::Within(low, high) => (low..=high).contains(&value),
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Above(bound) => write!(f, "> {bound}"),
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
            Self::Below(bound) => write!(f, "< {bound}"),
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
            Self::Within(low, high) => write!(f, "{low} to {high}"),
        }
    }
}

/// From a number to its bound.
type Sign = fn(f64) -> Bound;

/// A text is no [`Bound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no bound; write `>= 150`, `> 0`, `<= 20`, `< 5` or `300..500`")]
pub struct ParseBoundError;

impl FromStr for Bound {
    type Err = ParseBoundError;

    fn from_str(text: &str) -> Result<Self, ParseBoundError> {
        let number = |text: &str| {
            let number: Result<f64, _> = text.trim().parse();
            number
                .ok()
                .filter(|number| number.is_finite())
                .ok_or(ParseBoundError)
        };
        if let Some((low, high)) = text.split_once("..") {
            let (low, high) = (number(low)?, number(high)?);
            return (low <= high)
                .then_some(Self::Within(low, high))
                .ok_or(ParseBoundError);
        }
        // The longer signs first, as they begin like the shorter.
        let signs: [(&str, Sign); 4] = [
            (">=", Self::AtLeast),
            ("<=", Self::AtMost),
            (">", Self::Above),
            ("<", Self::Below),
        ];
        for (sign, bound) in signs {
            if let Some(rest) = text.trim().strip_prefix(sign) {
                return number(rest).map(bound);
            }
        }
        Err(ParseBoundError)
    }
}

/// The words of `take`.
const TAKES: [&str; 8] = [
    "least", "greatest", "mean", "largest", "spread", "first", "dip", "trend",
];

/// What is asked of the sizes of the cross traffic: their share of at most ten segments.
pub const SMALL_SHARE: &str = "small_share";

impl Reader<'_, '_, '_> {
    pub(super) fn statement(mut self) -> Option<Statement> {
        let id = self.table.required::<String>("id", "\"sender-gain\"");
        let text = self.table.required::<String>("text", "\"...\"");
        let place = self
            .table
            .required::<String>("place", "\"section 4, figure 6\"");
        let why = self.table.optional::<String>("why");
        let measure = self.table.required::<String>("measure", "\"goodput\"")?;
        let known = measure == SMALL_SHARE || self.is_measure("measure", &measure);
        let against = self.table.optional::<String>("against");
        let compared = against
            .as_ref()
            .is_none_or(|one| self.is_measure("against", one));
        let shows = self.kind("show");
        let each = if self.table.has("each") {
            Some(self.axis("each")?)
        } else {
            None
        };
        let take = self.take();
        let holds = self.bound("holds");
        let filter = self.filter();
        let (take, filter, shows) = (take?, filter?, shows?);
        if let Take::First { along, .. } | Take::Dip { along } | Take::Trend { along } = take {
            let contrast = shows.contrast().map(|contrast| contrast.axis);
            let used = [Some(along), each, contrast];
            self.all_fixed(used.into_iter().flatten().collect(), &filter);
        }
        self.table.finish();
        Some(Statement {
            id: id?,
            text: text?,
            place: place?,
            why,
            measure: known.then_some(measure)?,
            against: compared.then_some(against)?,
            shows,
            filter,
            each,
            take,
            holds: holds?,
        })
    }

    fn take(&mut self) -> Option<Take> {
        let word = self.table.required::<String>("take", "\"least\"")?;
        let take = match word.as_str() {
            "least" => Take::Least,
            "greatest" => Take::Greatest,
            "mean" => Take::Mean,
            "largest" => Take::Largest,
            "spread" => Take::Spread,
            "first" => {
                let when = self.bound("when");
                let along = self.axis("along")?;
                Take::First { along, when: when? }
            }
            "dip" => Take::Dip {
                along: self.axis("along")?,
            },
            "trend" => Take::Trend {
                along: self.axis("along")?,
            },
            _ => {
                let what = format!("`{}` cannot be taken", brief(&word));
                self.table.problem("take", Wrong::name(what, &word, &TAKES));
                return None;
            }
        };
        Some(take)
    }

    fn bound(&mut self, key: &'static str) -> Option<Bound> {
        let text = self.table.required::<String>(key, "\">= 150\"")?;
        let bound = text.parse().ok();
        if bound.is_none() {
            let what = format!("`{}` is no bound", brief(&text));
            let expected = "`>= 150`, `> 0`, `<= 20`, `< 5` or `300..500`";
            self.table.problem(key, Wrong::new(what, expected));
        }
        bound
    }
}
