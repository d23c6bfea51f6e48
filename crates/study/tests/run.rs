//! Running a study: every point once, on any number of threads, through interruption and damage.
//! The measure is a closed form, so that nothing here depends on the simulator.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(
    clippy::print_stdout,
    reason = "a test that weighs says what it weighed"
)]

mod support;

use bentpipe_scenario::{Scenario, Study};
use bentpipe_study::{
    Measures, Options, Progress, ReferenceValues, Results, Row, StudyError, cells, gaps, run,
};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{TEXT, closed, study};

fn options<'a>(out: &'a Path, cancel: &'a AtomicBool, threads: usize) -> Options<'a> {
    Options {
        out,
        shard: None,
        threads,
        fresh: false,
        cancel,
        progress: &|_| {},
    }
}

fn whole(out: &Path, threads: usize) -> Results {
    let cancel = AtomicBool::new(false);
    patient(&study(TEXT), &options(out, &cancel, threads), &closed)
}

/// A run in a folder that a run before has just left: a program that another test starts meanwhile holds the folder's
/// lock, too, until it runs.
fn patient(
    study: &Study,
    options: &Options<'_>,
    measure: &(dyn Fn(&Scenario) -> Result<Measures, String> + Sync),
) -> Results {
    loop {
        match run(study, options, measure) {
            Err(StudyError::Busy(_)) => std::thread::sleep(Duration::from_millis(10)),
            results => return results.unwrap(),
        }
    }
}

fn points(out: &Path) -> Vec<u8> {
    fs::read(out.join("points.jsonl")).unwrap()
}

fn rows(out: &Path) -> Vec<Row> {
    let row = |line: &[u8]| serde_json::from_slice(line).unwrap();
    points(out)
        .trim_ascii_end()
        .split(|byte| *byte == b'\n')
        .map(row)
        .collect()
}

fn lines(points: &[u8]) -> u64 {
    points.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[test]
fn every_point_is_measured_in_order_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let (one, four) = (folder.path().join("one"), folder.path().join("four"));
    let results = whole(&one, 1);
    assert_eq!(results.points, 21);
    let rows = rows(&one);
    assert_eq!(
        (rows.len(), &rows[20].labels[..]),
        (21, &["4ms".to_owned(), "7".to_owned()][..])
    );
    assert_eq!(rows[20].measures["sum"], Some(4.0 / 3.0 + 7.0));
    let cells = cells(&study(TEXT), &results.samples, &ReferenceValues::default());
    assert_eq!((cells.len(), cells[20].mean), (21, Some(4.0 / 3.0 + 7.0)));
    assert_eq!(whole(&four, 4), results);
    assert_eq!(points(&one), points(&four));
    assert_eq!(
        fs::read_dir(&one).unwrap().count(),
        2,
        "manifest and points"
    );
}

#[test]
fn an_interrupted_study_goes_on_and_ends_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (broken, unbroken) = (folder.path().join("broken"), folder.path().join("unbroken"));
    whole(&unbroken, 2);
    let cancel = AtomicBool::new(false);
    let progress = |progress: Progress| cancel.store(progress.done >= 5, Ordering::Relaxed);
    let interrupted = Options {
        progress: &progress,
        ..options(&broken, &cancel, 2)
    };
    let error = run(&study(TEXT), &interrupted, &closed).unwrap_err();
    let StudyError::Interrupted { done, total: 21 } = error else {
        panic!("{error}")
    };
    assert!((5..=7).contains(&done), "{done}");
    // Killed in the middle of a line, as well.
    let mut torn = points(&broken);
    assert_eq!(lines(&torn), done);
    torn.truncate(torn.len() - 9);
    fs::write(broken.join("points.jsonl"), torn).unwrap();
    let measured = AtomicU64::new(0);
    let count = |scenario: &Scenario| {
        measured.fetch_add(1, Ordering::Relaxed);
        closed(scenario)
    };
    cancel.store(false, Ordering::Relaxed);
    let results = run(&study(TEXT), &options(&broken, &cancel, 2), &count).unwrap();
    assert_eq!(results.resumed, done - 1);
    assert_eq!(measured.into_inner(), 21 - (done - 1));
    assert_eq!(points(&broken), points(&unbroken));
}

/// Three hundred points of a millisecond.
fn long() -> Study {
    let mut long = study(TEXT);
    assert!(long.set_seeds(100));
    long
}

fn slow(scenario: &Scenario) -> Result<Measures, String> {
    std::thread::sleep(Duration::from_millis(1));
    closed(scenario)
}

/// A point that was finished before a table named a flow is run again; one that has been asked for it is not, though it
/// has no value there.
#[test]
fn a_measure_of_one_flow_is_asked_for_once() {
    let folder = tempfile::tempdir().unwrap();
    let cancel = AtomicBool::new(false);
    let once = |text: &str, names: &[&str]| {
        let measure = |scenario: &Scenario| {
            let mut all = closed(scenario)?;
            let none = names.iter().map(|name| ((*name).to_owned(), None));
            all.extend(none);
            Ok(all)
        };
        patient(&study(text), &options(folder.path(), &cancel, 2), &measure)
    };
    let named = TEXT.replace("measure = \"sum\"", "measure = \"sum(flow1)\"");
    let again = |results: Results| results.resumed;
    assert_eq!(again(once(TEXT, &[])), 0);
    assert_eq!(
        again(once(&named, &["sum(flow1)"])),
        0,
        "it was not asked for"
    );
    assert_eq!(
        again(once(&named, &["sum(flow1)"])),
        21,
        "it has no value, and is known to have none"
    );
    assert_eq!(again(once(TEXT, &[])), 21);
    assert_eq!(rows(folder.path()).len(), 21, "one row a point");
}

#[test]
#[ignore = "the process that the next test kills"]
fn a_study_to_be_killed() {
    let Some(out) = std::env::var_os("KILLED_STUDY") else {
        return;
    };
    let cancel = AtomicBool::new(false);
    run(&long(), &options(Path::new(&out), &cancel, 2), &slow).unwrap();
}

/// `kill -9` at several moments: no line is torn but the last, and the end is that of an unbroken run.
#[test]
fn a_killed_study_goes_on_and_ends_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (killed, unbroken) = (folder.path().join("killed"), folder.path().join("unbroken"));
    let cancel = AtomicBool::new(false);
    run(&long(), &options(&unbroken, &cancel, 2), &closed).unwrap();
    let file = killed.join("points.jsonl");
    let read = || fs::read(&file).unwrap_or_default();
    let (mut least, mut caught) = (0, 0);
    for moment in [1, 30, 77, 140] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "a_study_to_be_killed"])
            .env("KILLED_STUDY", &killed)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while lines(&read()) < moment && began.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_micros(300));
        }
        // SIGKILL.
        child.kill().unwrap();
        child.wait().unwrap();
        let text = String::from_utf8(read()).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            serde_json::from_str::<Row>(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        let found = lines(text.as_bytes());
        assert!(found >= moment.max(least), "{found} at {moment}");
        caught += u64::from(found < 300);
        least = found;
    }
    assert!(caught > 0, "every run was over before it was killed");
    let results = run(&long(), &options(&killed, &cancel, 2), &closed).unwrap();
    assert_eq!(results.resumed, least);
    assert_eq!(points(&killed), points(&unbroken));
}

#[test]
fn more_seeds_run_only_what_is_new_and_fewer_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    whole(out, 2);
    let cancel = AtomicBool::new(false);
    let mut more = study(TEXT);
    assert!(more.set_seeds(10));
    let results = run(&more, &options(out, &cancel, 2), &closed).unwrap();
    assert_eq!((results.points, results.resumed), (30, 21));
    let mut fewer = study(TEXT);
    assert!(fewer.set_seeds(2));
    let results = run(&fewer, &options(out, &cancel, 2), &closed).unwrap();
    assert_eq!((results.points, results.resumed), (6, 6));
    assert_eq!(lines(&points(out)), 30);
}

#[test]
fn results_of_another_scenario_or_version_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    whole(out, 2);
    let before = points(out);
    let cancel = AtomicBool::new(false);
    let other = study(&TEXT.replace("1Mbit/s", "2Mbit/s"));
    let said = |study: &Study| {
        run(study, &options(out, &cancel, 2), &closed)
            .unwrap_err()
            .to_string()
    };
    let error = said(&other);
    assert!(
        error.contains("holds 21 points of another scenario"),
        "{error}"
    );
    assert!(
        error.contains("--out") && error.contains("--fresh"),
        "{error}"
    );
    let manifest = fs::read_to_string(out.join("manifest.json")).unwrap();
    let version = concat!("\"bentpipe\": \"", env!("CARGO_PKG_VERSION"), "\"");
    assert!(manifest.contains(version), "{manifest}");
    let old = manifest.replace(version, "\"bentpipe\": \"0.0.1\"");
    fs::write(out.join("manifest.json"), old).unwrap();
    let error = said(&study(TEXT));
    assert!(error.contains("21 points of bentpipe 0.0.1"), "{error}");
    assert_eq!(points(out), before);
    // Where nothing is finished there is nothing to keep.
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    fs::copy(out.join("manifest.json"), empty.join("manifest.json")).unwrap();
    assert_eq!(
        run(&other, &options(&empty, &cancel, 2), &closed)
            .unwrap()
            .points,
        21
    );
    let fresh = Options {
        fresh: true,
        ..options(out, &cancel, 2)
    };
    let results = run(&other, &fresh, &closed).unwrap();
    assert_eq!((results.points, results.resumed), (21, 0));
}

#[test]
fn results_that_are_read_stay_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    let never = AtomicBool::new(false);
    let read = |study: &Study| bentpipe_study::read(study, &options(&out, &never, 2));
    let said = read(&study(TEXT)).unwrap_err().to_string();
    assert!(
        said.contains("there are no results") && !out.exists(),
        "{said}"
    );
    let ran = whole(&out, 2);
    let content = || [points(&out), fs::read(out.join("manifest.json")).unwrap()];
    let before = content();
    let found = read(&study(TEXT)).unwrap();
    assert_eq!((found.samples, found.points), (ran.samples, ran.points));
    assert_eq!(found.resumed, ran.points);
    // More seeds than were run.
    let mut more = study(TEXT);
    assert!(more.set_seeds(1000));
    let said = read(&more).unwrap_err().to_string();
    let counts = format!("has {} of {} points: run", ran.points, more.len());
    assert!(said.contains(&counts), "{said}");
    assert_eq!(content(), before);
}

/// Whoever follows a study reads the points that are there while it goes on, and disturbs nothing.
#[test]
fn a_study_that_runs_is_read_as_far_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (out, alone) = (dir.path().join("out"), dir.path().join("alone"));
    let ran = whole(&alone, 2);
    let never = AtomicBool::new(false);
    let study = study(TEXT);
    let so_far = || bentpipe_study::read_so_far(&study, &options(&out, &never, 1));
    assert!(so_far().is_err(), "there is none yet");
    let progress = |progress: Progress| {
        let found = so_far().unwrap();
        assert_eq!(found.points, progress.done);
        assert_eq!(found.samples == ran.samples, found.points == ran.points);
    };
    let followed = Options {
        progress: &progress,
        ..options(&out, &never, 1)
    };
    run(&study, &followed, &closed).unwrap();
    assert_eq!(points(&out), points(&alone));
    // A line that is being written does not count.
    let mut torn = points(&out);
    torn.truncate(torn.len() - 9);
    fs::write(out.join("points.jsonl"), torn).unwrap();
    assert_eq!(so_far().unwrap().points, ran.points - 1);
}

#[test]
fn what_is_not_of_a_study_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let cancel = AtomicBool::new(false);
    for (name, fresh) in [
        ("manifest.json", false),
        ("manifest.json", true),
        ("points.jsonl", false),
    ] {
        let out = folder.path().join(format!("{name} {fresh}"));
        fs::create_dir(&out).unwrap();
        fs::write(out.join(name), "{ \"name\": \"a web page\" }").unwrap();
        let options = Options {
            fresh,
            ..options(&out, &cancel, 2)
        };
        let refused = run(&study(TEXT), &options, &closed)
            .unwrap_err()
            .to_string();
        assert!(refused.contains(name), "{refused}");
        let kept = fs::read_to_string(out.join(name)).unwrap();
        assert!(kept.contains("a web page"));
        assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    }
}

#[test]
fn two_studies_do_not_write_to_one_folder() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path();
    let cancel = AtomicBool::new(false);
    let meanwhile = |scenario: &Scenario| {
        let fresh = Options {
            fresh: true,
            ..options(out, &cancel, 1)
        };
        let second = run(&study(TEXT), &fresh, &closed).unwrap_err().to_string();
        assert!(
            second.contains("another `study run` is writing"),
            "{second}"
        );
        closed(scenario)
    };
    run(&study(TEXT), &options(out, &cancel, 2), &meanwhile).unwrap();
    assert_eq!(rows(out).len(), 21);
}

#[test]
fn what_cannot_be_written_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let cancel = AtomicBool::new(false);
    let below = file.join("below");
    let error = run(&study(TEXT), &options(&below, &cancel, 2), &closed);
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("cannot write") && error.contains("--out"),
        "{error}"
    );
    // A disk on which there is no room for what is made, with the points of an earlier run.
    let out = folder.path().join("full");
    whole(&out, 1);
    fs::create_dir(out.join("manifest.new")).unwrap();
    let error = run(&study(TEXT), &options(&out, &cancel, 2), &closed)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("cannot write") && error.contains("run again"),
        "{error}"
    );
    assert_eq!(lines(&points(&out)), 21);
}

#[test]
fn a_point_that_cannot_be_run_is_named_and_does_not_stop_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let cancel = AtomicBool::new(false);
    let picky = |scenario: &Scenario| match scenario.seed {
        5 => Err("no such thing".to_owned()),
        _ => closed(scenario),
    };
    let error = run(&study(TEXT), &options(folder.path(), &cancel, 2), &picky).unwrap_err();
    let said = error.to_string();
    assert!(said.starts_with("3 of 21 points failed"), "{said}");
    assert!(said.contains("s, 5: no such thing"), "{said}");
    assert_eq!(lines(&points(folder.path())), 18);
    let failed = fs::read_to_string(folder.path().join("failed.jsonl")).unwrap();
    for delay in ["1ms", "2ms", "4ms"] {
        let line = format!("{{\"labels\":[\"{delay}\",\"5\"],\"why\":\"no such thing\"}}\n");
        assert!(failed.contains(&line), "{failed}");
    }
    // Once they succeed, nothing tells of it.
    let again = patient(&study(TEXT), &options(folder.path(), &cancel, 2), &closed);
    assert_eq!((again.points, again.resumed), (21, 18));
    let whole_folder = folder.path().join("whole");
    whole(&whole_folder, 1);
    assert_eq!(points(folder.path()), points(&whole_folder));
    assert!(!folder.path().join("failed.jsonl").exists());
}

/// Measures as many as the simulator's, of which the study names one; of numbers that are not exact.
fn many(scenario: &Scenario) -> Result<Measures, String> {
    let value = |at: i32| (scenario.seed as f64 / 7.0).sqrt() * 1.1f64.powi(at);
    let names = (1..20).map(|at| (format!("measure_{at}"), Some(value(at))));
    Ok(names.chain([("sum".to_owned(), Some(value(0)))]).collect())
}

#[test]
fn a_resumed_study_has_the_same_figures_bit_for_bit() {
    let folder = tempfile::tempdir().unwrap();
    let cancel = AtomicBool::new(false);
    let once = || patient(&long(), &options(folder.path(), &cancel, 2), &many);
    let (first, again) = (once(), once());
    assert_eq!((first.resumed, again.resumed), (0, 300));
    assert_eq!(first.samples, again.samples);
}

#[test]
#[ignore = "the process that the next test weighs"]
fn a_study_to_be_weighed() {
    let (Some(out), Ok(seeds)) = (
        std::env::var_os("WEIGHED_STUDY"),
        std::env::var("WEIGHED_SEEDS"),
    ) else {
        return;
    };
    let mut study = study(TEXT);
    assert!(study.set_seeds(seeds.parse().unwrap()));
    let cancel = AtomicBool::new(false);
    let results = run(&study, &options(Path::new(&out), &cancel, 2), &many).unwrap();
    assert!(gaps(&study, &results.samples).is_empty());
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find(|line| line.starts_with("VmHWM:"));
    println!("{}", peak.unwrap());
}

/// Most memory of a process that finishes, or only reads again, the points of `seeds` seeds; in bytes.
fn peak(out: &Path, seeds: u32) -> f64 {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("a_study_to_be_weighed")
        .env("WEIGHED_STUDY", out)
        .env("WEIGHED_SEEDS", seeds.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let words = said.split_once("VmHWM:").map_or("", |(_, words)| words);
    let kib = words
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse::<f64>().ok());
    1024.0 * kib.unwrap_or_else(|| panic!("no peak in {said}"))
}

/// A row of these points is of 600 bytes and more; what is kept of one is a value and two numbers.
#[test]
fn memory_hardly_grows_with_the_points() {
    let folder = tempfile::tempdir().unwrap();
    let [few, many] = ["few", "many"].map(|name| folder.path().join(name));
    let each = || (peak(&many, 5000) - peak(&few, 500)) / (3.0 * 4500.0);
    let (run, read) = (each(), each());
    println!("{run:.0} bytes a point that is run, {read:.0} that is read again");
    assert!(run < 250.0 && read < 250.0, "{run} and {read} bytes");
}

/// What a study adds to a point: less than a millisecond, the point's own run aside.
#[test]
fn the_overhead_of_a_point_is_below_a_millisecond() {
    let folder = tempfile::tempdir().unwrap();
    let cancel = AtomicBool::new(false);
    let mut many = study(TEXT);
    assert!(many.set_seeds(1000));
    let began = Instant::now();
    run(&many, &options(folder.path(), &cancel, 1), &closed).unwrap();
    let each = began.elapsed() / 3000;
    assert!(each < Duration::from_millis(1), "{each:?}");
}
