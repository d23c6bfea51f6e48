//! The main contrast of the demo: what it shows first, and on what its exit code depends.

use crate::Event;
use crate::plan::{self, CONTRAST, Cell, DELAY, LINK_RATE, LOSSES, Measure, Selection};
use crate::results::{Figures, Row, paused};

/// Gathers the figures of the first runs, to show them before the others begin.
#[derive(Debug, Default)]
pub struct Contrast {
    seen: Vec<(Cell, Figures)>,
    shown: bool,
}

impl Contrast {
    /// Takes note of `event`; the text to show once the first runs have ended, if they brought anything.
    pub fn hear(&mut self, event: &Event<'_>) -> Option<String> {
        match event {
            Event::Ended(outcome) => {
                let figures = outcome.result.as_ref().ok()?;
                self.seen.push((outcome.cell.clone(), figures.clone()));
            }
            Event::Again(cell, _, Some(figures)) => {
                self.seen.push(((*cell).clone(), (*figures).clone()));
            }
            Event::Group if !self.shown => {
                self.shown = true;
                return self.text();
            }
            _ => {}
        }
        None
    }

    fn text(&self) -> Option<String> {
        let loss = self.seen.first()?.0.loss;
        let bulk = CONTRAST.map(|key| Some(self.of(key, Measure::Bulk)?.1.goodput_mbps));
        let lines = CONTRAST.map(|key| self.line(key));
        let factor = match bulk {
            [Some(before), Some(after)] if before > 0.0 => {
                format!(", {:.0} times as much", after / before)
            }
            _ => String::new(),
        };
        Some(format!(
            "A download over {} Mb/s and {} ms, {}% of the packets lost in each direction:\n{}\n{}{factor}\n\
             The whole table follows in some minutes.\n",
            LINK_RATE.mbps(),
            2 * DELAY.as_millis(),
            LOSSES[loss] * 100.0,
            lines[0],
            lines[1],
        ))
    }

    fn of(&self, key: &str, measure: Measure) -> Option<&(Cell, Figures)> {
        let mut seen = self.seen.iter();
        seen.find(|(cell, _)| cell.variant.key == key && cell.measure == measure)
    }

    fn line(&self, key: &str) -> String {
        let variant = plan::VARIANTS.iter().find(|variant| variant.key == key);
        let title = variant
            .expect("the contrast is of variants of the plan")
            .title();
        let mark = |run: &Figures| match run.host_paused_ms {
            Some(pause) => format!(" ({})", paused(pause)),
            None => String::new(),
        };
        let bulk = self
            .of(key, Measure::Bulk)
            .map_or("failed".into(), |(_, run)| {
                format!("{:.2} Mb/s{}", run.goodput_mbps, mark(run))
            });
        let small = self.of(key, Measure::Small).and_then(|(_, run)| {
            let seconds = run.completion_s?;
            Some(format!(", 100 kB in {seconds:.1} s{}", mark(run)))
        });
        format!("  {title:<30} {bulk:>9}{}", small.unwrap_or_default())
    }
}

/// Whether the main contrast stands: both of its rows were measured, and ours carries more. Where it was not asked
/// for, whether all rows have their goodput.
///
/// # Errors
/// What is missing, in words.
pub fn judge(selection: &Selection, rows: &[Row]) -> Result<(), String> {
    let goodput = |key: &str, loss: usize| {
        let row = rows
            .iter()
            .find(|row| row.variant.key == key && row.loss == loss);
        row.and_then(|row| row.goodput_mbps)
    };
    if let Some(loss) = plan::contrast(selection) {
        let percent = LOSSES[loss] * 100.0;
        return match CONTRAST.map(|key| goodput(key, loss)) {
            [Some(before), Some(after)] if after > before => Ok(()),
            [Some(before), Some(after)] => Err(format!(
                "at {percent}% loss the gateway carried {after:.2} Mb/s, cubic end to end {before:.2}"
            )),
            _ => Err(format!("the bulk transfers at {percent}% loss failed")),
        };
    }
    let missing = rows.iter().find(|row| row.goodput_mbps.is_none());
    missing.map_or(Ok(()), |row| {
        let percent = LOSSES[row.loss] * 100.0;
        let title = row.variant.title();
        Err(format!(
            "{title}, {percent}% loss: the bulk transfer failed"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::groups;
    use crate::results::{Outcome, rows};

    fn outcome(cell: &Cell, result: Result<f64, &str>, host_paused_ms: Option<f64>) -> Outcome {
        let figures = |goodput_mbps| Figures {
            goodput_mbps,
            completion_s: Some(1.5),
            host_paused_ms,
            ..Figures::default()
        };
        Outcome {
            cell: cell.clone(),
            result: result.map(figures).map_err(str::to_owned),
            attempts: 1,
        }
    }

    #[test]
    fn the_contrast_is_shown_once_with_what_disturbed_it() {
        let mut contrast = Contrast::default();
        let groups = groups(&Selection::default());
        for cell in &groups[0] {
            let ended = match cell.variant.key {
                "e2e-cubic" => outcome(cell, Ok(0.3), None),
                _ => outcome(cell, Ok(9.0), Some(92.4)),
            };
            let shown = match ended.result.as_ref() {
                Ok(figures) if figures.host_paused_ms.is_some() => {
                    contrast.hear(&Event::Again(cell, "late", Some(figures)))
                }
                _ => contrast.hear(&Event::Ended(&ended)),
            };
            assert_eq!(shown, None);
        }
        let text = contrast.hear(&Event::Group).unwrap();
        let ours = text.lines().nth(2).unwrap();
        assert!(text.contains("0.30 Mb/s, 100 kB in 1.5 s\n"), "{text}");
        assert!(ours.contains("9.00 Mb/s (host paused 92 ms)"), "{text}");
        assert!(ours.ends_with("30 times as much"), "{text}");
        assert_eq!(contrast.hear(&Event::Group), None);
        assert_eq!(Contrast::default().hear(&Event::Group), None);
    }

    #[test]
    fn only_the_contrast_decides_and_a_marked_figure_is_one() {
        let judged = |spoil: fn(&Cell) -> Result<f64, &'static str>| {
            let selection = Selection::default();
            let cells = groups(&selection).concat();
            let outcomes: Vec<_> = cells
                .iter()
                .map(|cell| outcome(cell, spoil(cell), Some(92.0)))
                .collect();
            judge(&selection, &rows(&selection, &outcomes))
        };
        let goodput = |cell: &Cell| if cell.variant.ours() { 9.0 } else { 0.3 };
        let right = judged(|cell| Ok(if cell.variant.ours() { 9.0 } else { 0.3 }));
        assert_eq!(right, Ok(()));
        let elsewhere = judged(|cell| match (cell.loss, cell.variant.ours()) {
            (1, true) => Ok(9.0),
            (1, false) if cell.variant.key == "e2e-cubic" => Ok(0.3),
            _ => Err("failed"),
        });
        assert_eq!(elsewhere, Ok(()));
        assert!(judged(|_| Err("failed")).unwrap_err().contains("1% loss"));
        let turned = judged(|cell| Ok(if cell.variant.ours() { 0.2 } else { 0.3 }));
        assert!(turned.unwrap_err().contains("0.20 Mb/s"));
        let one = Selection {
            only: vec!["e2e-bbr".into()],
            quick: false,
        };
        let cells = groups(&one).concat();
        let outcomes: Vec<_> = cells
            .iter()
            .map(|cell| outcome(cell, Ok(goodput(cell)), None))
            .collect();
        assert_eq!(judge(&one, &rows(&one, &outcomes)), Ok(()));
        assert!(judge(&one, &rows(&one, &outcomes[1..2])).is_err());
    }
}
