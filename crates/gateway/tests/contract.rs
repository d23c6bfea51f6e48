//! `docs/contract.md` names a test for every promise; here every name is looked up.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::Path;

/// The source file of `module::...`: a test file, or a module of this crate, of `relay`, of `interception` or of `gateway-config`, or a test file of
/// `pep` or of the program; of `crate/module::...`: that module, or that test file.
fn source(crate_root: &Path, test: &str) -> String {
    let (path, _) = test.rsplit_once("::").unwrap();
    let module = path.trim_end_matches("::tests").replace("::", "/");
    let candidates = [
        format!("tests/{module}.rs"),
        format!("src/{module}.rs"),
        format!("../cli/tests/{module}.rs"),
        format!("../relay/src/{module}.rs"),
        format!("../relay/tests/{module}.rs"),
        format!("../interception/src/{module}.rs"),
        format!("../pep/tests/{module}.rs"),
        format!("../gateway-config/src/{module}.rs"),
        format!("../gateway-config/src/{module}/tests.rs"),
        format!("../{}.rs", module.replacen('/', "/src/", 1)),
        format!("../{}.rs", module.replacen('/', "/tests/", 1)),
    ];
    candidates
        .iter()
        .filter_map(|file| std::fs::read_to_string(crate_root.join(file)).ok())
        .collect()
}

#[test]
fn every_promise_names_a_test() {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(crate_root.join("../../docs/contract.md")).unwrap();
    let (promises, classes) = text.split_once("## By class of attack").unwrap();
    // The names there are looked up with those of all pages (`cli/tests/docs.rs`).
    let classes = classes.lines().filter(|line| line.starts_with("| "));
    let classes = classes.filter(|line| !line.starts_with("| class |"));
    assert!(classes.clone().all(|row| row.contains("::")));
    for number in (1..=12).chain([23, 30]) {
        let row = format!("| {number}. ");
        assert!(classes.clone().any(|line| line.starts_with(&row)), "{row}");
    }
    let rows: Vec<&str> = promises
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| promise |"))
        .collect();
    assert!(rows.len() > 40, "only {} promises", rows.len());
    for row in rows {
        let cell = row.trim_end_matches('|').rsplit('|').next().unwrap();
        let name = cell.trim().trim_matches('`');
        let function = name.rsplit("::").next().unwrap();
        let test = format!("#[test]\nfn {function}(");
        let unindented: String = source(crate_root, name)
            .lines()
            .map(str::trim_start)
            .filter(|line| !line.starts_with("#[ignore"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert!(unindented.contains(&test), "no test for: {row}");
    }
}

/// Who asks for the time of day, which anybody may set back and forth, and what for. No deadline is among it.
const ASKERS: [(&str, &str); 9] = [
    (
        "quic/src/address_validation_tokens.rs",
        "compares when tokens were issued",
    ),
    (
        "quic/src/clock.rs",
        "has certificates, tickets and tokens hear what the driver tells",
    ),
    ("relay/src/flow_log.rs", "tells when a flow ended"),
    (
        "saratoga-files/src/leftovers.rs",
        "compares the dates of files, by days",
    ),
    (
        "saratoga-files/src/metadata.rs",
        "tells the date of a stream",
    ),
    (
        "saratoga-files/src/quick_check.rs",
        "knows whether a file may change again in the second of its date",
    ),
    (
        "saratoga-udp/src/authenticate.rs",
        "tells how old a REQUEST with a key is, to another machine",
    ),
    (
        "tunnel-sockets/src/driver.rs",
        "tells it to QUIC, for certificates, tickets and tokens",
    ),
    (
        "tunnel-sockets/src/link_settings.rs",
        "the same, at the start",
    ),
];

fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path
            .extension()
            .is_some_and(|end| ["rs", "c", "h"].iter().any(|it| end == *it))
        {
            found.push(path);
        }
    }
}

/// Crates of ours that these are built with, and these themselves, by what their `Cargo.toml` says.
fn built_with(crates: &Path, programs: &[&str]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    let mut open: Vec<String> = programs.iter().map(|&name| name.to_owned()).collect();
    while let Some(name) = open.pop() {
        if !all.insert(name.clone()) {
            continue;
        }
        let manifest = std::fs::read_to_string(crates.join(name).join("Cargo.toml")).unwrap();
        let lines = manifest
            .lines()
            .skip_while(|line| *line != "[dependencies]");
        let lines = lines.skip(1).take_while(|line| !line.starts_with('['));
        let ours = lines.filter_map(|line| line.strip_prefix("bentpipe-")?.split_once(' '));
        open.extend(ours.map(|(name, _)| name.to_owned()));
    }
    all
}

/// The clock of a machine cannot be set for one test alone. So: nothing in the gateway, the far end of its legs over QUIC, Saratoga,
/// and in what they stand on, asks for it but these.
#[test]
fn the_time_of_day_decides_nothing() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = Vec::new();
    let names = built_with(crates, &["gateway", "proxy", "saratoga-udp"]);
    assert!(names.contains("tunnel-sockets") && names.contains("base"));
    for name in names {
        sources(&crates.join(name).join("src"), &mut found);
    }
    assert!(found.len() > 100, "only {} sources", found.len());
    let asks = |path: &&std::path::PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        let words = [
            "SystemTime",
            "UNIX_EPOCH",
            "ClockId::Realtime",
            "REALTIME",
            "gettimeofday",
            "ktime_get_real",
            "ktime_get_tai",
            "libc::time(",
        ];
        words.iter().any(|word| text.contains(word))
    };
    let mut askers: Vec<_> = found
        .iter()
        .filter(asks)
        .map(|path| path.strip_prefix(crates).unwrap().to_str().unwrap())
        .collect();
    askers.sort_unstable();
    assert_eq!(askers, ASKERS.map(|(path, _)| path));
}
