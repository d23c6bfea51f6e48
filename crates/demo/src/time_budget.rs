//! What the demo has time for.

use crate::plan::{self, Cell, Selection};
use std::time::Duration;

/// No repetition is begun after this time.
const REPETITIONS_UNTIL: Duration = Duration::from_secs(300);
/// What is begun is over by then, but for what decides.
pub const BOUND: Duration = Duration::from_secs(420);
/// The time that tables and report take.
const REPORTING: Duration = Duration::from_secs(5);

/// Whether there is time for a run that had `tries` already, `passed` after the start. First tries of what the exit
/// code depends on always have it.
pub fn admit(selection: &Selection, cell: &Cell, tries: u32, passed: Duration) -> bool {
    let until = match (cell.seed, tries) {
        (1, 0) if plan::decides(selection, cell) => return true,
        (2.., 0) => REPETITIONS_UNTIL,
        _ => BOUND,
    };
    passed + cell.estimate() + REPORTING <= until
}

/// What there was no time for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shed {
    /// Runs of what has a figure all the same.
    pub repetitions: usize,
    /// Runs of what has none.
    pub cells: usize,
}

impl Shed {
    /// Counts `cell`.
    pub fn note(&mut self, cell: &Cell) {
        if cell.seed == 1 {
            self.cells += 1;
        } else {
            self.repetitions += 1;
        }
    }

    /// In words, if anything was left out.
    pub fn words(self) -> Option<String> {
        let repetitions = match self.repetitions {
            1 => "1 repetition was left out".to_owned(),
            count => format!("{count} repetitions were left out"),
        };
        let cells = match self.cells {
            1 => "1 cell was not run".to_owned(),
            count => format!("{count} cells were not run"),
        };
        match (self.repetitions, self.cells) {
            (0, 0) => None,
            (_, 0) => Some(repetitions),
            (0, _) => Some(cells),
            _ => Some(format!("{repetitions} and {cells}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_to_what_decides_then_to_what_is_measured_once_then_to_what_is_run_again() {
        let all = Selection::default();
        let admit = |cell: &Cell, tries, passed| admit(&all, cell, tries, passed);
        let cells = plan::groups(&all).concat();
        let (deciding, others): (Vec<_>, Vec<_>) =
            cells.iter().partition(|cell| plan::decides(&all, cell));
        let names: Vec<String> = deciding.iter().map(|cell| cell.name()).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let once = others.iter().find(|cell| cell.seed == 1).unwrap();
        let again = others.iter().find(|cell| cell.seed == 2).unwrap();
        let late = REPETITIONS_UNTIL;
        assert!(admit(once, 0, late) && admit(once, 1, late) && !admit(again, 0, late));
        assert!(admit(again, 0, Duration::from_secs(200)));
        for cell in deciding {
            let hour = Duration::from_secs(3600);
            assert!(admit(cell, 0, hour) && !admit(cell, 1, hour));
        }
        // What else is begun is over, and told, within seven minutes.
        for passed in 0..=BOUND.as_secs() {
            let passed = Duration::from_secs(passed);
            for cell in &cells {
                let ends = passed + cell.estimate();
                let first = others.contains(&cell) && admit(cell, 0, passed);
                assert!(!first || ends < BOUND, "{}", cell.name());
                assert!(!admit(cell, 1, passed) || ends < BOUND, "{}", cell.name());
            }
        }
    }

    #[test]
    fn what_was_left_out_is_said() {
        let cells = plan::groups(&Selection::default()).concat();
        let mut shed = Shed::default();
        assert_eq!(shed.words(), None);
        let seed = |seed| cells.iter().find(|cell| cell.seed == seed).unwrap();
        shed.note(seed(2));
        shed.note(seed(3));
        assert_eq!(shed.words().unwrap(), "2 repetitions were left out");
        shed.note(seed(1));
        let both = "2 repetitions were left out and 1 cell was not run";
        assert_eq!(shed.words().unwrap(), both);
    }
}
