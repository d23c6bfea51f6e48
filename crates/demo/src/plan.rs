//! What the demo measures: its rows, loss rates, measures, and the runs they need.

use crate::cell;
use bentpipe_base::{Bytes, Probability, Rate};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The link of the demo: 10 Mb/s, 300 ms each way, a queue of one bandwidth-delay product.
pub const LINK_RATE: Rate = Rate::from_bits_per_sec(10_000_000);
/// One way.
pub const DELAY: Duration = Duration::from_millis(300);
/// Share of the packets that arrive corrupted, in both directions.
pub const LOSSES: [f64; 3] = [0.0, 0.01, 0.05];
/// How long a bulk transfer lasts.
pub const BULK: Duration = Duration::from_secs(30);
/// When a short transfer is given up.
pub const CUTOFF: Duration = Duration::from_secs(60);
/// Runs of a short transfer that is over soon; the figure is their median.
pub const REPEATS: u64 = 3;
/// A short transfer expected to last longer is run once: three would not fit into five minutes.
const SOON: Duration = Duration::from_secs(20);

/// How the terminal and the server are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Mode {
    /// The hub only routes.
    #[serde(rename = "end-to-end")]
    EndToEnd,
    /// The hub is our gateway.
    #[serde(rename = "split")]
    Split,
}

/// One row of the table.
#[derive(Debug, PartialEq, Eq)]
pub struct Variant {
    /// Its name in file names and in the report's colours.
    pub key: &'static str,
    /// Its name in the table.
    pub label: &'static str,
    /// Its name where room is short.
    pub short: &'static str,
    /// With or without the gateway.
    pub mode: Mode,
    /// The congestion control that meets the satellite link, by its name in the kernel.
    pub cc: &'static str,
    /// Whether the terminal keeps the receive buffers of a stock Linux.
    pub stock_buffers: bool,
}

impl Variant {
    const fn new(
        key: &'static str,
        mode: Mode,
        cc: &'static str,
        label: &'static str,
        short: &'static str,
    ) -> Self {
        let stock_buffers = false;
        Self {
            key,
            label,
            short,
            mode,
            cc,
            stock_buffers,
        }
    }

    /// Whether this is the configuration that we recommend.
    pub fn ours(&self) -> bool {
        self.cc == "bentpipe_rate" && !self.stock_buffers
    }

    /// Its name in one line: "split, bentpipe_rate (ours)".
    pub fn title(&self) -> String {
        match self.mode {
            Mode::EndToEnd => format!("end to end, {}", self.label),
            Mode::Split => format!("split, {}", self.label),
        }
    }
}

/// The rows, in the order of the table.
pub const VARIANTS: [Variant; 8] = [
    Variant::new("e2e-reno", Mode::EndToEnd, "reno", "reno", "reno"),
    Variant::new("e2e-cubic", Mode::EndToEnd, "cubic", "cubic", "cubic"),
    Variant::new("e2e-bbr", Mode::EndToEnd, "bbr", "bbr", "bbr"),
    Variant::new(
        "e2e-hybla",
        Mode::EndToEnd,
        "bentpipe_hybla",
        "bentpipe_hybla",
        "hybla",
    ),
    Variant::new("split-cubic", Mode::Split, "cubic", "cubic", "cubic"),
    Variant::new(
        "split-hybla",
        Mode::Split,
        "bentpipe_hybla",
        "bentpipe_hybla (as PEPsal)",
        "hybla",
    ),
    Variant::new(
        "split-rate",
        Mode::Split,
        "bentpipe_rate",
        "bentpipe_rate (ours)",
        "rate (ours)",
    ),
    Variant {
        stock_buffers: true,
        ..Variant::new(
            "split-rate-stock",
            Mode::Split,
            "bentpipe_rate",
            "bentpipe_rate, stock terminal",
            "rate, stock",
        )
    },
];

/// What one run measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum Measure {
    /// Goodput of a bulk transfer over its whole time.
    #[serde(rename = "goodput")]
    Bulk,
    /// Time for 100 kB, from connect() to the last byte.
    #[serde(rename = "t_100kB")]
    Small,
    /// Time for 2 MB, likewise.
    #[serde(rename = "t_2MB")]
    Large,
}

impl Measure {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bulk, Self::Small, Self::Large];

    /// How much is transferred; `None` for as much as the time allows.
    pub fn size(self) -> Option<Bytes> {
        match self {
            Self::Bulk => None,
            Self::Small => Some(Bytes(100_000)),
            Self::Large => Some(Bytes(2_000_000)),
        }
    }

    fn slug(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Small => "100kB",
            Self::Large => "2MB",
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bulk => "bulk",
            Self::Small => "100 kB",
            Self::Large => "2 MB",
        })
    }
}

/// One run: one scenario on one emulated link.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Its row.
    pub variant: &'static Variant,
    /// Index into [`LOSSES`].
    pub loss: usize,
    /// What it measures.
    pub measure: Measure,
    /// Seed of the link's losses.
    pub seed: u64,
    /// How long its bulk transfer lasts.
    pub bulk: Duration,
}

impl Cell {
    /// A name that is unique in the demo and fit for a file: `split-rate-1%-2MB-seed2` without
    /// the percent sign.
    pub fn name(&self) -> String {
        let Self {
            variant,
            measure,
            seed,
            ..
        } = self;
        format!(
            "{}-loss{}-{}-seed{seed}",
            variant.key,
            self.percent(),
            measure.slug()
        )
    }

    /// The loss in percent, for names.
    fn percent(&self) -> f64 {
        (LOSSES[self.loss] * 1e4).round() / 1e2
    }

    /// What a person calls it.
    pub fn title(&self) -> String {
        format!(
            "{}, {}% loss, {}",
            self.variant.title(),
            self.percent(),
            self.measure
        )
    }

    /// The packet-error rate of its link.
    pub fn loss(&self) -> Probability {
        Probability::new(LOSSES[self.loss]).expect("the table holds probabilities")
    }

    /// The goodput that no TCP can exceed on its link, in Mb/s: the rate less headers and losses.
    pub fn limit_mbps(loss: usize) -> f64 {
        let cell = Self {
            variant: &VARIANTS[0],
            loss,
            measure: Measure::Bulk,
            seed: 1,
            bulk: BULK,
        };
        cell::limit(&cell).map_or(0.0, Rate::mbps)
    }

    /// About how long it runs; orders the runs and feeds the time left.
    pub fn estimate(&self) -> Duration {
        let seconds = match self.measure {
            Measure::Bulk => return self.bulk + OVERHEAD,
            Measure::Small => short_estimate(self.variant, self.loss, [2.5, 4.0, 6.0], 2.0),
            Measure::Large => short_estimate(self.variant, self.loss, [5.7, 50.0, 60.0], 3.5),
        };
        Duration::from_secs_f64(seconds) + OVERHEAD
    }
}

/// Namespaces, emulator, gateway: there and gone again.
const OVERHEAD: Duration = Duration::from_millis(2000);

/// Seconds of a short transfer: `by_loss` for a sender that takes loss for congestion, near
/// `clean` for the others.
fn short_estimate(variant: &Variant, loss: usize, by_loss: [f64; 3], clean: f64) -> f64 {
    match variant.cc {
        "reno" | "cubic" => by_loss[loss],
        "bentpipe_rate" => clean + 0.5 * loss as f64,
        _ => (clean + by_loss[0]) / 2.0 + 3.0 * loss as f64,
    }
}

/// What of the plan to run.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Keys of the rows; empty for all.
    pub only: Vec<String>,
    /// A sample that ends within a minute: three rows, 0 and 5% loss, short transfers, one run each.
    pub quick: bool,
}

/// The rows that `selection` asks for.
pub fn variants(selection: &Selection) -> Vec<&'static Variant> {
    const QUICK: [&str; 3] = ["e2e-cubic", "split-cubic", "split-rate"];
    let wanted = |variant: &&Variant| {
        let quick = !selection.quick || QUICK.contains(&variant.key);
        if selection.only.is_empty() {
            quick
        } else {
            selection.only.iter().any(|key| key == variant.key)
        }
    };
    VARIANTS.iter().filter(wanted).collect()
}

/// The loss rates that `selection` asks for, as indices into [`LOSSES`].
pub fn losses(selection: &Selection) -> Vec<usize> {
    if selection.quick {
        vec![0, 2]
    } else {
        (0..LOSSES.len()).collect()
    }
}

/// How long the bulk transfers of `selection` last.
pub fn bulk(selection: &Selection) -> Duration {
    if selection.quick {
        Duration::from_secs(8)
    } else {
        BULK
    }
}

/// The rows of the main contrast: what most servers do, and what we recommend.
pub const CONTRAST: [&str; 2] = ["e2e-cubic", "split-rate"];
/// The loss rate at which it is shown, an index into [`LOSSES`].
const CONTRAST_LOSS: usize = 1;

/// The loss rate at which the main contrast of `selection` is judged; `None` where a row of it was not asked for.
pub fn contrast(selection: &Selection) -> Option<usize> {
    let rows = variants(selection);
    let asked = CONTRAST.map(|key| rows.iter().any(|variant| variant.key == key));
    let losses = losses(selection);
    let last = losses.last().copied();
    let loss = losses.into_iter().find(|loss| *loss == CONTRAST_LOSS);
    (asked == [true; 2]).then_some(loss.or(last)?)
}

/// Whether the exit code of `selection` depends on `cell`: it is run whatever the time.
pub fn decides(selection: &Selection, cell: &Cell) -> bool {
    let asked = match contrast(selection) {
        Some(loss) => cell.loss == loss && CONTRAST.contains(&cell.variant.key),
        None => true,
    };
    asked && cell.measure == Measure::Bulk
}

/// All runs of `selection` in two groups: those of the main contrast, which are done within a minute, and the
/// others; in these the repetitions come last, else the longest first, so that the last ones to end are short.
/// A sample is over before it would need a contrast.
pub fn groups(selection: &Selection) -> Vec<Vec<Cell>> {
    let mut cells = cells(selection);
    cells.sort_by_key(|cell| (cell.seed > 1, std::cmp::Reverse(cell.estimate())));
    let loss = contrast(selection).filter(|_| !selection.quick);
    let (first, rest) = cells.into_iter().partition(|cell| {
        let short = cell.measure != Measure::Large && cell.seed == 1;
        short && Some(cell.loss) == loss && CONTRAST.contains(&cell.variant.key)
    });
    vec![first, rest]
}

fn cells(selection: &Selection) -> Vec<Cell> {
    let mut cells = Vec::new();
    let bulk = bulk(selection);
    for variant in variants(selection) {
        for loss in losses(selection) {
            for measure in Measure::ALL {
                if selection.quick && measure == Measure::Large {
                    continue;
                }
                let first = Cell {
                    variant,
                    loss,
                    measure,
                    seed: 1,
                    bulk,
                };
                let once = selection.quick || measure == Measure::Bulk || first.estimate() > SOON;
                let repeats = if once { 1 } else { REPEATS };
                cells.extend((1..=repeats).map(|seed| Cell {
                    seed,
                    ..first.clone()
                }));
            }
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_full_plan_has_every_measure_of_every_row_and_fits_into_five_minutes_on_eight_links() {
        let cells = cells(&Selection::default());
        let names: BTreeSet<String> = cells.iter().map(Cell::name).collect();
        assert_eq!(names.len(), cells.len(), "names are unique");
        let kinds: BTreeSet<_> = cells
            .iter()
            .map(|cell| (cell.variant.key, cell.loss, cell.measure))
            .collect();
        assert_eq!(
            kinds.len(),
            VARIANTS.len() * LOSSES.len() * Measure::ALL.len()
        );
        let total: Duration = cells.iter().map(Cell::estimate).sum();
        assert!(total / 8 < Duration::from_secs(280), "{total:?}");
        let groups = groups(&Selection::default());
        assert_eq!(groups.concat().len(), cells.len());
        let order = |cell: &Cell| (cell.seed == 1, cell.estimate());
        let rest = groups[1].iter().map(order);
        assert!(rest.is_sorted_by(|a, b| (a.0, a.1) >= (b.0, b.1)));
    }

    #[test]
    fn the_main_contrast_comes_first_and_within_a_minute() {
        let first = &groups(&Selection::default())[0];
        let names: BTreeSet<String> = first.iter().map(Cell::name).collect();
        let expected = [
            "e2e-cubic-loss1-100kB-seed1",
            "e2e-cubic-loss1-bulk-seed1",
            "split-rate-loss1-100kB-seed1",
            "split-rate-loss1-bulk-seed1",
        ];
        assert_eq!(names, expected.map(str::to_owned).into());
        let longest = first.iter().map(Cell::estimate).max();
        assert!(longest < Some(Duration::from_secs(50)), "{longest:?}");
        let one = Selection {
            only: vec!["e2e-cubic".into()],
            quick: false,
        };
        assert!(groups(&one)[0].is_empty() && contrast(&one).is_none());
    }

    #[test]
    fn the_limit_is_the_payload_that_arrives() {
        let limits = [9.653, 9.557, 9.171];
        for (loss, limit) in limits.into_iter().enumerate() {
            assert!(
                (Cell::limit_mbps(loss) - limit).abs() < 0.001,
                "{}",
                Cell::limit_mbps(loss)
            );
        }
    }

    #[test]
    fn only_chooses_rows_by_key() {
        let selection = Selection {
            only: vec!["split-rate".into()],
            quick: false,
        };
        assert!(cells(&selection).iter().all(|cell| cell.variant.ours()));
    }
}
