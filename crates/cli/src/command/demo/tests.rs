//! What the exit code of the demo says of made-up runs.

use super::*;
use bentpipe_demo::plan::Measure;
use bentpipe_demo::results::{Figures, not_run};

/// The rows of runs of which each ended as `end` says: with so many Mb/s, failed, or without time for it.
fn rows(selection: &Selection, end: impl Fn(&plan::Cell) -> Option<Result<f64, ()>>) -> Vec<Row> {
    let cells = plan::groups(selection).concat();
    let outcomes: Vec<Outcome> = cells
        .iter()
        .map(|cell| match end(cell) {
            None => not_run(cell),
            Some(result) => Outcome {
                cell: cell.clone(),
                result: result
                    .map_err(|()| "the gateway ended".to_owned())
                    .map(|mbps| Figures {
                        goodput_mbps: mbps,
                        completion_s: Some(1.5),
                        ..Figures::default()
                    }),
                attempts: 1,
            },
        })
        .collect();
    results::rows(selection, &outcomes)
}

fn goodput(cell: &plan::Cell) -> f64 {
    if cell.variant.ours() { 9.0 } else { 0.3 }
}

/// Its exit code, and what it says.
fn judged(strict: bool, selection: &Selection, rows: &[Row]) -> (String, String) {
    match verdict(strict, selection, rows) {
        Ok(warnings) => (
            format!("{:?}", std::process::ExitCode::SUCCESS),
            warnings.join("; "),
        ),
        Err(failure) => (format!("{:?}", failure.code()), failure.words()),
    }
}

#[test]
fn the_exit_code_is_that_of_the_main_contrast_and_strictly_that_of_every_run() {
    let code = |code: u8| format!("{:?}", std::process::ExitCode::from(code));
    let all = Selection::default();
    let whole = rows(&all, |cell| Some(Ok(goodput(cell))));
    for strict in [false, true] {
        assert_eq!(judged(strict, &all, &whole), (code(0), String::new()));
    }
    // One that decides nothing fails, or has no time.
    for (end, words) in [(Some(Err(())), "the gateway ended"), (None, "not run")] {
        let spoilt = rows(&all, |cell| {
            let other = cell.loss == 2 && cell.variant.key == "e2e-bbr";
            if other && cell.measure == Measure::Bulk {
                end
            } else {
                Some(Ok(goodput(cell)))
            }
        });
        let (exit, said) = judged(false, &all, &spoilt);
        assert_eq!(exit, code(0));
        // What was not run is said beside the table.
        let failed = format!("a run failed: end to end, bbr, 5% loss, bulk: {words}");
        let expected = format!("{failed}; the main contrast stands");
        assert_eq!(
            said,
            if end.is_some() {
                expected
            } else {
                String::new()
            }
        );
        let (exit, said) = judged(true, &all, &spoilt);
        assert_eq!(exit, code(1));
        assert!(said.contains(words), "{said}");
    }
    let headless = rows(&all, |cell| {
        Some(if plan::decides(&all, cell) {
            Err(())
        } else {
            Ok(goodput(cell))
        })
    });
    for strict in [false, true] {
        let (exit, said) = judged(strict, &all, &headless);
        assert_eq!(exit, code(1));
        assert!(said.contains("the gateway ended"), "{said}");
    }
    let mut paused = whole;
    paused[0].host_paused_ms = Some(92.0);
    let (exit, said) = judged(false, &all, &paused);
    assert_eq!(exit, code(0));
    assert!(said.contains("paused for up to 92 ms; 1 figures"), "{said}");
}
