//! The arrows between the crates go one way: what ARCHITECTURE.md draws is what Cargo.toml says.

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand};
use std::collections::{BTreeMap, BTreeSet};

const ARCHITECTURE: &str = include_str!("../../../ARCHITECTURE.md");

/// Pure crates that are not built for wasm32: ring, which seals QUIC's packets, would want a C compiler for it.
const NOT_FOR_WASM: &[&str] = &["quic", "tunnel"];

/// The crates that each crate depends on, and those that only its tests need besides.
type Arrows = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>;

fn metadata() -> Metadata {
    MetadataCommand::new()
        .no_deps()
        .exec()
        .expect("cargo metadata runs")
}

fn list(names: &str) -> BTreeSet<String> {
    let names = names.split(',').map(|name| name.trim().to_owned());
    names.filter(|name| !name.is_empty()).collect()
}

/// Reads lines such as `base, wire <- link, pep   (tests also: cc)`: each crate on the right depends on
/// exactly the crates on the left.
fn drawn(picture: &str) -> Arrows {
    let mut arrows = Arrows::new();
    for (to, from) in picture.lines().filter_map(|line| line.split_once("<-")) {
        let (from, tests) = from.split_once("(tests also:").unwrap_or((from, ")"));
        let tests = list(tests.trim().trim_end_matches(')'));
        for from in list(from) {
            let twice = arrows.insert(from.clone(), (list(to), tests.clone()));
            assert!(twice.is_none(), "ARCHITECTURE.md draws {from} twice");
        }
    }
    arrows
}

/// What Cargo.toml says of our crates. A program depends on `everything`, whichever crates it names.
fn built(metadata: &Metadata, programs: &[&str]) -> Arrows {
    let ours = |name: &str| {
        let name = name.strip_prefix("bentpipe-");
        name.expect("our crates are named bentpipe-*").to_owned()
    };
    let depends = |package: &cargo_metadata::Package, tests: bool| -> BTreeSet<String> {
        let ours_too = package.dependencies.iter().filter(|dependency| {
            dependency.path.is_some() && tests == (dependency.kind == DependencyKind::Development)
        });
        ours_too.map(|dependency| ours(&dependency.name)).collect()
    };
    let arrows = metadata.packages.iter().map(|package| {
        let name = ours(&package.name);
        let mut to = depends(package, false);
        let tests = &depends(package, true) - &to;
        if programs.contains(&name.as_str()) {
            to = list("everything");
        }
        (name, (to, tests))
    });
    // What stands below all others has no arrow to be drawn.
    arrows
        .filter(|(_, (to, tests))| !to.is_empty() || !tests.is_empty())
        .collect()
}

#[test]
fn the_picture_of_the_crates_is_what_cargo_builds() {
    let picture = ARCHITECTURE
        .split("## Crates and arrows")
        .nth(1)
        .and_then(|section| section.split("```").nth(1))
        .expect("ARCHITECTURE.md has the picture");
    assert_eq!(drawn(picture), built(&metadata(), &["cli"]));
}

#[test]
fn an_arrow_drawn_and_not_built_is_seen() {
    let metadata = metadata();
    let real = built(&metadata, &["cli"]);
    let (to, _) = &real["wire"];
    assert_eq!(*to, list("base"));
    assert_eq!(drawn("  base <- wire")["wire"], real["wire"]);
    assert_ne!(drawn("  base, cc <- wire")["wire"], real["wire"]);
    assert_ne!(
        drawn("  base <- wire (tests also: cc)")["wire"],
        real["wire"]
    );
}

#[test]
fn architecture_names_every_crate() {
    for package in &metadata().packages {
        let name = package.name.trim_start_matches("bentpipe-");
        assert!(
            ARCHITECTURE.contains(&format!("| `{name}` |")),
            "the table of crates in ARCHITECTURE.md lacks `{name}`"
        );
    }
}

#[test]
fn pure_crates_are_linted_and_built_as_such() {
    let lint = include_str!("../../../scripts/lint");
    let crates = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    for package in &metadata().packages {
        let name = package.name.trim_start_matches("bentpipe-");
        let pure = std::fs::exists(format!("{crates}/{name}/clippy.toml")).unwrap();
        assert_eq!(
            lint.contains(&format!("-p {} ", package.name))
                || lint.contains(&format!("-p {}'", package.name)),
            pure && !NOT_FOR_WASM.contains(&name),
            "a pure crate is in PURE of scripts/lint and its clippy.toml links to lints/pure.toml: `{name}`"
        );
    }
}
