//! The page is whole, closed to the network, and draws itself in a browser.
//!
//! The figures here are invented for the layout alone; nothing but these tests sees them.

use super::*;
use crate::plan::groups;
use crate::results::{Figures, not_run, rows};
use bentpipe_base::Stream;
use std::path::Path;
use std::process::Command;

/// Invented outcomes of the whole plan: rough shapes of the real ones.
fn invented(selection: &Selection) -> Vec<Outcome> {
    let outcome = |cell: Cell| {
        let mut chance = Stream::new(cell.seed, &cell.name());
        let goodput: f64 = match (cell.variant.cc, cell.loss) {
            ("reno" | "cubic", loss) => [8.9, 0.44, 0.1][loss],
            ("bbr", loss) => [8.25, 7.3, 6.0][loss],
            ("bentpipe_hybla", loss) => [9.05, 4.88, 1.26][loss],
            (_, loss) => [9.37, 9.19, 8.69][loss],
        };
        let seconds = match cell.measure {
            Measure::Small => 1.3 + 0.8 / goodput + 0.3 * chance.uniform(),
            _ => 1.4 + 16.0 / goodput + chance.uniform(),
        };
        let figures = Figures {
            goodput_mbps: goodput,
            completion_s: (seconds < 60.0).then_some(seconds),
            most_retransmitted: Some(0.002 + [0.0, 0.01, 0.05][cell.loss]),
            lateness_ms: Some(0.3 + 0.2 * chance.uniform()),
            // A host that paused in one cell.
            host_paused_ms: (cell.variant.key == "e2e-hybla" && cell.loss == 1).then_some(92.0),
            series: (0..30)
                .map(|i| {
                    (goodput * f64::from(i) / 3.0).min(goodput * (1.0 + 0.06 * chance.uniform()))
                })
                .collect(),
        };
        let failed =
            cell.variant.key == "e2e-bbr" && cell.loss == 2 && cell.measure == Measure::Bulk;
        let result = if failed {
            Err("</script> is only text".into())
        } else {
            Ok(figures)
        };
        // What there was no time for.
        if cell.variant.key == "split-rate-stock" && cell.loss == 2 && cell.seed == 1 {
            return not_run(&cell);
        }
        Outcome {
            cell,
            result,
            attempts: 1,
        }
    };
    groups(selection)
        .concat()
        .into_iter()
        .map(outcome)
        .collect()
}

fn page() -> String {
    let selection = Selection::default();
    let outcomes = invented(&selection);
    let rows = rows(&selection, &outcomes);
    let manifest = vec![("kernel".to_owned(), "6.1.0 <test>".to_owned())];
    let rerun = "Repeat one with bentpipe lab run.".to_owned();
    Report {
        selection: &selection,
        rows: &rows,
        outcomes: &outcomes,
        manifest,
        rerun,
    }
    .to_html()
    .unwrap()
}

#[test]
fn the_page_loads_nothing_from_anywhere() {
    let page = page();
    assert!(!page.contains("{{"), "a mark was left");
    assert!(
        page.contains("default-src 'none'"),
        "the page forbids requests"
    );
    for request in [
        "src=",
        "@import",
        "url(",
        "fetch(",
        "XMLHttpRequest",
        "import(",
        "sendBeacon",
        "WebSocket(",
        "EventSource(",
        "<iframe",
        "<object",
        "<embed",
        "<base",
        "srcset",
    ] {
        assert!(!page.contains(request), "{request} in the page");
    }
    let links: Vec<&str> = page
        .match_indices("href=")
        .map(|(at, _)| &page[at..at + 13])
        .collect();
    assert_eq!(
        links,
        ["href=\"data:,\""],
        "the empty icon is the only link"
    );
    assert!(
        page.contains("Permission is hereby granted"),
        "uPlot keeps its licence"
    );
    assert_eq!(
        page.matches("</script>").count(),
        4,
        "data cannot end its element"
    );
}

/// What headless Chromium makes of the page: its document, and its log.
fn chromium(page: &Path, profile: &Path) -> (String, String) {
    let output = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
        ])
        .args(["--enable-logging=stderr", "--window-size=1280,4200"])
        .args(["--virtual-time-budget=4000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (text(output.stdout), text(output.stderr))
}

#[test]
fn chromium_draws_the_page_without_a_word_on_the_console() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("index.html");
    std::fs::write(&file, page()).unwrap();
    let profile = folder.path().join("profile");
    bentpipe_os::need!(Program("chromium"));
    let (dom, log) = chromium(&file, &profile);
    let console: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect();
    assert!(console.is_empty(), "{console:#?}");
    assert!(
        dom.contains("data-ready=\"yes\""),
        "the script ran to its end\n{log}"
    );
    assert_eq!(dom.matches("<canvas").count(), 3, "a chart a loss rate");
    assert_eq!(
        dom.matches("scope=\"row\"><code").count(),
        groups(&Selection::default()).concat().len()
    );
    assert!(!dom.contains("[object "), "every element found its place");
    assert!(
        dom.contains("share best\" title=\"1.2% retransmitted\">9.19<small>96%"),
        "the table\n{dom}"
    );
    assert!(
        dom.contains("<td class=\"cut\">&gt; 60</td>"),
        "what was cut off is marked"
    );
    assert!(
        dom.contains("5% loss, bulk: &lt;/script&gt; is only text"),
        "a failure is shown"
    );

    let absent = |class, text| {
        dom.matches(&format!("<td class=\"{class}\">{text}</td>"))
            .count()
    };
    assert_eq!(absent("first cut", "not run"), 1);
    assert_eq!(absent("first bad", "failed"), 1);
    assert_eq!(
        dom.matches("<li>").count(),
        1,
        "what was not run did not fail"
    );

    // The same trap with a fault in it: otherwise a silent console would prove nothing.
    let broken = page().replace("theme(charts);\n", "theme(charts);\nnothing.here();\n");
    std::fs::write(&file, broken).unwrap();
    let (_, log) = chromium(&file, &profile);
    assert!(log.contains("CONSOLE"), "{log}");
}

/// For a look at the layout: leaves the page where `BENTPIPE_REPORT_SAMPLE` says.
#[test]
fn the_page_is_under_a_megabyte() {
    let page = page();
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    if let Some(path) = std::env::var_os("BENTPIPE_REPORT_SAMPLE") {
        std::fs::write(path, page).unwrap();
    }
}
