//! Shards of a study that run apart, and their merge into the folder of a run of all points.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(
    clippy::print_stdout,
    reason = "a test that weighs says what it weighed"
)]

mod support;

use bentpipe_scenario::Scenario;
use bentpipe_study::{Options, Results, Row, Session, Shard, StudyError, merge, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use support::{TEXT, closed, study};

static GO_ON: AtomicBool = AtomicBool::new(false);

fn options(out: &Path, shard: Option<Shard>) -> Options<'_> {
    Options {
        out,
        shard,
        threads: 2,
        fresh: false,
        cancel: &GO_ON,
        progress: &|_| {},
    }
}

/// Runs shard `number` of `of` in a folder of its own below `folder`.
fn shard(folder: &Path, number: u64, of: u64) -> PathBuf {
    let shard: Shard = format!("{number}/{of}").parse().unwrap();
    let out = folder.join(shard.folder());
    let results = run(&study(TEXT), &options(&out, Some(shard)), &closed).unwrap();
    assert!(results.points.abs_diff(21 / of) <= 1, "{results:?}");
    out
}

/// A program that another test starts meanwhile holds the folder's lock, too, until it runs.
fn patient(out: &Path, shards: &[PathBuf]) -> Result<Results, StudyError> {
    loop {
        match merge(&study(TEXT), &options(out, None), shards) {
            Err(StudyError::Busy(_)) => std::thread::sleep(Duration::from_millis(10)),
            results => return results,
        }
    }
}

fn refused(out: &Path, shards: &[PathBuf]) -> String {
    patient(out, shards).unwrap_err().to_string()
}

/// What is in a results folder, by name.
fn content(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = { fs::read_dir(folder).unwrap() }
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.display().to_string(), path))
        .map(|(name, path)| (name.replace(&folder.display().to_string(), ""), path))
        .map(|(name, path)| (name, fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn merged_shards_are_the_folder_of_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, merged] = ["whole", "merged"].map(|name| folder.path().join(name));
    let once = run(&study(TEXT), &options(&whole, None), &closed).unwrap();
    // More shards than points, and shards of unequal length.
    for of in [1, 4, 30] {
        let below = folder.path().join(of.to_string());
        let mut shards: Vec<PathBuf> = (1..=of).map(|number| shard(&below, number, of)).collect();
        shards.reverse();
        let all = patient(&merged, &shards).unwrap();
        assert_eq!((&all.samples, all.points), (&once.samples, 21));
        assert_eq!(content(&merged), content(&whole), "{of} shards");
        // Merged once more, nothing is new; and a run of all points finds them all.
        patient(&merged, &shards[..1]).unwrap();
        let again = run(&study(TEXT), &options(&merged, None), &closed).unwrap();
        assert_eq!(again.resumed, 21);
        assert_eq!(content(&merged), content(&whole));
        fs::remove_dir_all(&merged).unwrap();
    }
}

#[test]
fn lost_shards_are_named_and_the_others_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("merged");
    let mut shards: Vec<PathBuf> = [1, 3, 4].map(|n| shard(folder.path(), n, 4)).into();
    // The third was killed in the middle of its last line.
    let killed = shards[1].join("points.jsonl");
    let torn = fs::read(&killed).unwrap();
    fs::write(&killed, &torn[..torn.len() - 9]).unwrap();
    let said = refused(&out, &shards);
    assert!(said.starts_with("6 of 21 points are missing"), "{said}");
    assert!(
        said.contains("shard 2/4 lacks 5, shard 3/4 lacks 1,"),
        "{said}"
    );
    let kept = fs::read_to_string(out.join("points.jsonl")).unwrap();
    assert_eq!(kept.lines().count(), 15);
    // They are run again; what was merged before need not be there any more.
    fs::remove_dir_all(&shards[0]).unwrap();
    shards[0] = shard(folder.path(), 2, 4);
    shards[1] = shard(folder.path(), 3, 4);
    let whole = folder.path().join("whole");
    run(&study(TEXT), &options(&whole, None), &closed).unwrap();
    patient(&out, &shards).unwrap();
    assert_eq!(content(&out), content(&whole));
}

#[test]
fn points_that_fail_in_a_shard_are_named_by_the_merge() {
    let folder = tempfile::tempdir().unwrap();
    let number: Shard = "1/1".parse().unwrap();
    let one = folder.path().join("one");
    let picky = |scenario: &Scenario| match scenario.seed {
        5 => Err("no such thing".to_owned()),
        _ => closed(scenario),
    };
    let error = run(&study(TEXT), &options(&one, Some(number)), &picky).unwrap_err();
    assert!(
        error.to_string().starts_with("3 of 21 points failed"),
        "{error}"
    );
    let said = refused(&folder.path().join("merged"), &[one]);
    assert!(said.contains("3 of 21 points are missing"), "{said}");
    assert!(
        said.contains("one/failed.jsonl says why some failed"),
        "{said}"
    );
}

#[test]
fn what_is_no_shard_of_the_study_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("merged");
    let own = shard(folder.path(), 1, 2);
    let missing = refused(&out, &[folder.path().join("none")]);
    assert!(
        missing.contains("none holds no results of a study"),
        "{missing}"
    );
    let foreign = folder.path().join("foreign");
    let other = study(&TEXT.replace("1Mbit/s", "2Mbit/s"));
    run(&other, &options(&foreign, "2/2".parse().ok()), &closed).unwrap();
    let said = refused(&out, &[own.clone(), foreign.clone()]);
    assert!(
        said.contains("foreign holds points of another scenario"),
        "{said}"
    );
    let manifest = fs::read_to_string(own.join("manifest.json")).unwrap();
    let old = manifest.replace(env!("CARGO_PKG_VERSION"), "0.0.1");
    fs::write(own.join("manifest.json"), old).unwrap();
    let said = refused(&out, std::slice::from_ref(&own));
    let versions = format!(
        "points of bentpipe 0.0.1, this is {}",
        env!("CARGO_PKG_VERSION")
    );
    assert!(said.contains(&versions), "{said}");
    // A shard that is still being written.
    fs::write(own.join("manifest.json"), manifest).unwrap();
    let meanwhile = |scenario: &Scenario| {
        let error = merge(
            &study(TEXT),
            &options(&out, None),
            std::slice::from_ref(&own),
        );
        assert!(matches!(error, Err(StudyError::Busy(_))), "{error:?}");
        closed(scenario)
    };
    let fresh = Options {
        threads: 1,
        fresh: true,
        ..options(&own, "1/2".parse().ok())
    };
    run(&study(TEXT), &fresh, &meanwhile).unwrap();
}

#[test]
fn captures_of_shards_come_with_their_points() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("merged");
    let shards = [1, 2].map(|number| shard(folder.path(), number, 2));
    for (number, one) in shards.iter().enumerate() {
        let captures = one.join("captures").join(format!("{number:016x}"));
        fs::create_dir_all(&captures).unwrap();
        fs::write(captures.join("l-a.pcapng"), number.to_string()).unwrap();
    }
    patient(&out, &shards).unwrap();
    let read = |key: &str| fs::read_to_string(out.join("captures").join(key).join("l-a.pcapng"));
    assert_eq!(read("0000000000000000").unwrap(), "0");
    assert_eq!(read("0000000000000001").unwrap(), "1");
    assert_eq!(fs::read_dir(out.join("captures")).unwrap().count(), 2);
}

#[test]
#[ignore = "the process that the next test weighs"]
fn shards_to_be_merged_and_weighed() {
    let (Some(folder), Ok(seeds)) = (
        std::env::var_os("WEIGHED_MERGE"),
        std::env::var("WEIGHED_SEEDS"),
    ) else {
        return;
    };
    let mut study = study(TEXT);
    assert!(study.set_seeds(seeds.parse().unwrap()));
    let folder = Path::new(&folder);
    let shards = ["1/2", "2/2"].map(|shard| {
        let out = folder.join(shard.replace('/', "-of-"));
        run(&study, &options(&out, shard.parse().ok()), &closed).unwrap();
        out
    });
    merge(&study, &options(&folder.join("merged"), None), &shards).unwrap();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:"));
    println!("{}", peak.unwrap());
}

/// Most memory of a process that runs two shards of three points a seed and merges them, in bytes.
fn peak(folder: &Path, seeds: u32) -> f64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("shards_to_be_merged_and_weighed")
        .env("WEIGHED_MERGE", folder)
        .env("WEIGHED_SEEDS", seeds.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let words = said.split_once("VmHWM:").map_or("", |(_, words)| words);
    let kib = words.split_whitespace().next();
    let kib = kib.and_then(|kib| kib.parse::<f64>().ok());
    1024.0 * kib.unwrap_or_else(|| panic!("no peak in {said}"))
}

/// A million points are run and merged in less than 500 MB.
#[test]
fn memory_of_a_merge_hardly_grows_with_the_points() {
    let folder = tempfile::tempdir().unwrap();
    let [few, many] = ["few", "many"].map(|name| folder.path().join(name));
    let each = (peak(&many, 3000) - peak(&few, 300)) / (3.0 * 2700.0);
    println!("{each:.0} bytes a point");
    assert!(each < 400.0, "{each} bytes");
}

/// Points measured elsewhere come in any order, some of them twice by an earlier session.
#[test]
fn points_that_others_measure_make_the_folder_of_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let [whole, out] = ["whole", "out"].map(|name| folder.path().join(name));
    let once = run(&study(TEXT), &options(&whole, None), &closed).unwrap();
    let study = study(TEXT);
    let open = || loop {
        match Session::open(&study, &options(&out, None)) {
            Err(StudyError::Busy(_)) => std::thread::sleep(Duration::from_millis(10)),
            session => return session.unwrap(),
        }
    };
    let row = |index: u64| {
        let point = study.expander().point(index).unwrap();
        let measures = closed(&point.scenario).unwrap();
        // As it comes from another process.
        serde_json::from_slice(&serde_json::to_vec(&Row::of(point, measures)).unwrap()).unwrap()
    };
    let mut session = open();
    let rest: Vec<u64> = session.unfinished()[3..].into();
    for index in rest {
        session.add(index, &row(index)).unwrap();
    }
    let first = session.unfinished()[0];
    let labels = study.expander().point(first).unwrap().labels;
    session.fail(&labels, "no such thing").unwrap();
    let error = session.finish().unwrap_err();
    assert!(
        matches!(
            error,
            StudyError::Interrupted {
                done: 18,
                total: 21
            }
        ),
        "{error}"
    );
    let mut session = open();
    assert_eq!(
        (session.unfinished().len(), session.progress().resumed),
        (3, 18)
    );
    let mut strange: Row = row(first);
    strange.point = "something else".to_owned();
    let error = session.add(first, &strange).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`something else` is not the key"),
        "{error}"
    );
    for index in session.unfinished().to_vec() {
        session.add(index, &row(index)).unwrap();
    }
    let results = session.finish().unwrap();
    assert_eq!((&results.samples, results.resumed), (&once.samples, 18));
    assert_eq!(content(&out), content(&whole));
}
