//! docs/extending.md, followed to the letter: what it shows is put into a copy of the sources, and a scenario that uses
//! it runs.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The test in the copy.
const EXTENDED: &str = r#"
use bentpipe_outcome::{Run, find};
use bentpipe_scenario::Scenario;
use bentpipe_sim::{Options, run};

const TEXT: &str = "name = \"extended\"\ntime_limit = \"20s\"\n[hosts.a]\n[hosts.b]\n[links.l]\nends = [\"a\", \"b\"]\n\
    rate = \"10Mbit/s\"\ndelay = \"50ms\"\nqueue = { kind = \"early-random-drop\", packets = 50, threshold = 9 }\n\
    [[flows]]\nname = \"f\"\ncount = 2\nfrom = \"a\"\nto = \"b\"\nduration = \"10s\"\ncongestion_control = \"fixed-window\"\n";

fn outcome(text: &str) -> Run {
    let scenario = Scenario::parse("extended.toml", text).unwrap_or_else(|all| panic!("{all}"));
    assert_eq!(Scenario::parse("again.toml", &scenario.to_toml()).as_ref(), Ok(&scenario));
    run(&scenario, &Options::default()).unwrap()
}

#[test]
fn the_new_queue_channel_control_and_measure_work_together() {
    let free = outcome(TEXT);
    // Four segments of 1448 bytes a round trip of 100 ms and a little.
    let slowest = find("slowest").unwrap().of(&free).unwrap();
    assert!((0.40..0.464).contains(&slowest), "{slowest}");
    assert_eq!(free.links[0].refused, 0);
    let strict = outcome(&TEXT.replace("threshold = 9", "threshold = 0, chance = \"10%\""));
    let refused = strict.links[0].refused as f64 / strict.links[0].packets as f64;
    assert!((0.05..0.2).contains(&refused), "{refused}");
    let lossy = outcome(&TEXT.replace("delay =", "periodic_error_rate = \"2%\"\ndelay ="));
    for link in &lossy.links {
        assert_eq!(link.lost, link.packets / 50, "{link:?}");
        assert!(link.lost > 3, "{link:?}");
    }
    let wrong = TEXT.replace("delay =", "periodic_eror_rate = \"2%\"\ndelay =");
    let wrong = Scenario::parse("wrong.toml", &wrong).unwrap_err();
    assert!(wrong.to_string().contains("did you mean `periodic_error_rate`?"), "{wrong}");
    let wrong = Scenario::parse("wrong.toml", &TEXT.replace("threshold = 9", "treshold = 9")).unwrap_err();
    assert!(wrong.to_string().contains("lacks `threshold`: expected `threshold = 5`"), "{wrong}");
}
"#;

/// One block of code of the page.
enum Block<'t> {
    New {
        path: &'t str,
        code: String,
    },
    Above {
        path: &'t str,
        anchor: &'t str,
        code: String,
    },
}

fn blocks(page: &str) -> Vec<Block<'_>> {
    let fenced = page.split("```rust\n").skip(1);
    fenced
        .map(|rest| {
            let code = rest.split("\n```\n").next().unwrap();
            let (head, code) = code.split_once('\n').unwrap();
            let code = format!("{code}\n");
            if let Some(path) = head.strip_prefix("// new: ") {
                return Block::New { path, code };
            }
            let place = head.strip_prefix("// in ").unwrap();
            let (path, anchor) = place.split_once(", above: ").unwrap();
            Block::Above { path, anchor, code }
        })
        .collect()
}

/// Where the text has `anchor`, whatever white space stands between its words.
fn find(text: &str, anchor: &str) -> Option<usize> {
    let words: Vec<&str> = anchor.split_whitespace().collect();
    let starts = |at: usize| {
        let mut rest = &text[at..];
        words.iter().all(|word| {
            let found = rest.trim_start().strip_prefix(word);
            rest = found.unwrap_or_default();
            found.is_some()
        })
    };
    let lines = text.match_indices('\n').map(|(at, _)| at + 1);
    lines.into_iter().find(|at| starts(*at))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target)
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// A copy of the sources, which goes with it.
struct Copy(PathBuf);

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_the_page_shows_is_all_there_is_to_do() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let own = Copy(target.join(format!("extending-{}", std::process::id())));
    let here = &own.0;
    copy(&root.join("crates"), &here.join("crates"));
    fs::copy(root.join("Cargo.lock"), here.join("Cargo.lock")).unwrap();
    let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
    let manifest = manifest.replace("members = [\"crates/*\"]", "members = [\"crates/sim\"]");
    fs::write(here.join("Cargo.toml"), manifest).unwrap();
    let page = fs::read_to_string(root.join("docs/extending.md")).unwrap();
    let (mut files, mut lines) = (0, 0);
    for block in blocks(&page) {
        match block {
            Block::New { path, code } => {
                assert!(!here.join(path).exists(), "{path} is there already");
                fs::write(here.join(path), code).unwrap();
                files += 1;
            }
            Block::Above { path, anchor, code } => {
                let mut text = fs::read_to_string(here.join(path)).unwrap();
                let at =
                    find(&text, anchor).unwrap_or_else(|| panic!("{anchor:?} is not in {path}"));
                text.insert_str(at, &code);
                fs::write(here.join(path), text).unwrap();
                lines += 1;
            }
        }
    }
    // A file, its `mod` and its entry, four times.
    assert_eq!((files, lines), (4, 8));
    fs::write(here.join("crates/sim/tests/extended.rs"), EXTENDED).unwrap();
    // What is not the workspace's own is there from this very build.
    let cargo = Command::new(env!("CARGO"))
        .args([
            "test",
            "--offline",
            "-p",
            "bentpipe-sim",
            "--test",
            "extended",
        ])
        .current_dir(here)
        .env("CARGO_TARGET_DIR", target.parent().unwrap())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&cargo.stdout).into_owned()
        + &String::from_utf8_lossy(&cargo.stderr);
    assert!(
        cargo.status.success() && said.contains("1 passed"),
        "{said}"
    );
}
