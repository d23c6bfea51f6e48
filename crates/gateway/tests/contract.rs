//! `docs/contract.md` names a test for every promise; here every name is looked up.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

/// The source file of `module::...`: a test file, or a module of this crate or of `policy`, or a test file of the
/// program.
fn source(crate_root: &Path, test: &str) -> String {
    let (path, _) = test.rsplit_once("::").unwrap();
    let module = path.trim_end_matches("::tests").replace("::", "/");
    let candidates = [
        format!("tests/{module}.rs"),
        format!("src/{module}.rs"),
        format!("../cli/tests/{module}.rs"),
        format!("../policy/src/{module}.rs"),
        format!("../policy/src/{module}/tests.rs"),
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
    let rows: Vec<&str> = text
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
