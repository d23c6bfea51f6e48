//! The arrows between the crates go one way: what ARCHITECTURE.md draws is what Cargo.toml says.

use cargo_metadata::{DependencyKind, MetadataCommand};
use std::collections::BTreeSet;

/// Crate, then the crates of ours that it may depend on. Programs may depend on everything.
const ARROWS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("wire", &["base"]),
    ("cc", &["base"]),
    ("traffic", &["base"]),
    ("outcome", &["base"]),
    ("scenario", &["base", "traffic"]),
    ("link", &["base", "wire"]),
    ("plan", &["base", "link", "scenario"]),
    ("saratoga", &["base", "wire"]),
    ("tcp", &["base", "cc", "wire"]),
    ("pep", &["base", "cc", "tcp", "wire"]),
    ("policy", &["base", "wire", "pep", "scenario"]),
    (
        "sim",
        &[
            "base", "cc", "link", "outcome", "pep", "plan", "saratoga", "scenario", "tcp",
            "traffic", "wire",
        ],
    ),
    (
        "study",
        &[
            "base", "cc", "link", "outcome", "pep", "scenario", "sim", "tcp",
        ],
    ),
    ("os", &["base"]),
    ("bpf", &["base"]),
    ("transfer", &["base", "wire", "saratoga", "os"]),
    (
        "gateway",
        &["base", "wire", "pep", "policy", "scenario", "os", "bpf"],
    ),
    (
        "lab",
        &[
            "base", "link", "outcome", "plan", "traffic", "scenario", "os", "bpf",
        ],
    ),
    (
        "cli",
        &[
            "base", "wire", "cc", "link", "outcome", "tcp", "pep", "traffic", "scenario", "sim",
            "study", "os", "bpf", "gateway", "lab", "saratoga", "transfer",
        ],
    ),
];

/// What a crate's tests may use besides: the replay of the BPF controls against their Rust twins,
/// receivers that lie to these, the capability probes that let a test say SKIPPED, and a satellite link for Saratoga.
const TEST_ARROWS: &[(&str, &[&str])] = &[("bpf", &["cc", "os", "wire"]), ("saratoga", &["link"])];

fn ours(name: &str) -> Option<&str> {
    name.strip_prefix("bentpipe-")
}

#[test]
fn crates_depend_only_along_the_arrows() {
    let metadata = MetadataCommand::new()
        .no_deps()
        .exec()
        .expect("cargo metadata runs");
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for package in &metadata.packages {
        let Some(name) = ours(&package.name) else {
            wrong.push(format!("package {} is not named bentpipe-*", package.name));
            continue;
        };
        seen.insert(name.to_owned());
        let allowed = |table: &'static [(&'static str, &'static [&'static str])]| {
            table
                .iter()
                .find(|(from, _)| *from == name)
                .map_or(&[][..], |(_, to)| *to)
        };
        for dependency in &package.dependencies {
            let Some(target) = ours(&dependency.name) else {
                continue;
            };
            let in_tests = dependency.kind == DependencyKind::Development;
            let drawn = allowed(ARROWS).contains(&target)
                || in_tests && allowed(TEST_ARROWS).contains(&target);
            if !drawn {
                wrong.push(format!("{name} -> {target} ({:?})", dependency.kind));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "arrows that ARCHITECTURE.md does not draw: {wrong:#?}"
    );
    let drawn: BTreeSet<String> = ARROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(seen, drawn, "the table of arrows names every crate");
}

#[test]
fn architecture_names_every_crate() {
    let text = include_str!("../../../ARCHITECTURE.md");
    for (name, _) in ARROWS {
        assert!(
            text.contains(&format!("`{name}`")),
            "ARCHITECTURE.md does not name `{name}`"
        );
    }
}
