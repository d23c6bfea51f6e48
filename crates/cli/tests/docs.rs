//! The docs name what the code has: a page for everything that scenarios may name, and no test that
//! does not exist.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use bentpipe_link::{channel, queue};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Headings of the pages in a folder of docs; a page of its own begins with `# name`, one of several
/// has `## name`.
fn headings(folder: &str) -> Vec<String> {
    let pages = fs::read_dir(root().join("docs").join(folder)).unwrap();
    let mut headings = Vec::new();
    for page in pages {
        let path = page.unwrap().path();
        let text = read(&path);
        let file = path.file_stem().unwrap().to_str().unwrap();
        let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
        headings.extend(title.filter(|title| *title == file).map(str::to_owned));
        let parts = text.lines().filter_map(|line| line.strip_prefix("## "));
        headings.extend(parts.map(str::to_owned));
    }
    headings
}

#[test]
fn everything_in_the_registries_has_a_page() {
    let queues = queue::registry::<()>();
    let recoveries = bentpipe_tcp::recovery::REGISTRY;
    let folders: [(&str, Vec<&str>); 5] = [
        (
            "cc",
            bentpipe_cc::REGISTRY.iter().map(|one| one.name).collect(),
        ),
        (
            "recoveries",
            recoveries.iter().map(|one| one.name).collect(),
        ),
        ("queues", queues.iter().map(|one| one.spec.name).collect()),
        (
            "channels",
            channel::REGISTRY.iter().map(|one| one.name).collect(),
        ),
        (
            "pep",
            bentpipe_pep::REGISTRY.iter().map(|one| one.name).collect(),
        ),
    ];
    for (folder, names) in folders {
        let headings = headings(folder);
        for name in names {
            assert!(
                headings.iter().any(|heading| heading == name),
                "docs/{folder} has neither a page `# {name}` nor a section `## {name}`"
            );
        }
    }
}

/// Name, unit, what else it may be of, and definition: as in the one table of the code.
#[test]
fn the_table_of_measures_is_that_of_the_code() {
    let text = read(&root().join("docs/studies.md"));
    let (_, table) = text.split_once("| measure | unit |").unwrap();
    let rows: Vec<&str> = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with("| "))
        .collect();
    let of = |one: &bentpipe_outcome::Measure| {
        let subject = one.subject().map_or("", bentpipe_outcome::Subject::name);
        format!(
            "| `{}` | {} | {subject} | {} |",
            one.name, one.unit, one.summary
        )
    };
    let wanted: Vec<String> = bentpipe_outcome::MEASURES.iter().map(of).collect();
    assert_eq!(rows, wanted);
}

#[test]
fn variants_and_presets_are_in_the_page_about_tcp() {
    let text = read(&root().join("docs/tcp.md"));
    let (presets, variants) = text.split_once("## Variants").unwrap();
    for preset in bentpipe_tcp::PRESETS {
        assert!(
            presets.contains(&format!("`{}`", preset.name)),
            "{}",
            preset.name
        );
    }
    // The first cells of the table's rows.
    let rows = variants.lines().filter_map(|line| line.strip_prefix("| "));
    let cells = rows.filter_map(|row| row.split(" |").next());
    let names: Vec<&str> = cells.flat_map(|cell| cell.split(", ")).collect();
    for variant in bentpipe_tcp::VARIANTS {
        assert!(names.contains(&variant.name), "{}: {names:?}", variant.name);
    }
}

/// The targets of the links of a page: `[text](target)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1);
    targets.filter_map(|rest| rest.split_once(')').map(|(target, _)| target))
}

#[test]
fn links_of_the_docs_lead_somewhere() {
    let pages = [
        "",
        "docs",
        "docs/cc",
        "docs/channels",
        "docs/pep",
        "docs/queues",
    ];
    let mut broken = Vec::new();
    for folder in pages.into_iter().chain(["docs/recoveries"]) {
        for page in fs::read_dir(root().join(folder)).unwrap() {
            let path = page.unwrap().path();
            if path.extension().is_none_or(|ending| ending != "md") {
                continue;
            }
            let text = read(&path);
            let here =
                links(&text).filter(|target| !target.contains("://") && !target.starts_with('#'));
            for target in here {
                let file = target.split('#').next().unwrap_or(target);
                if !path.parent().unwrap().join(file).exists() {
                    broken.push(format!("{}: {target}", path.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_overview_leads_to_every_page() {
    let docs = root().join("docs");
    let text = read(&docs.join("README.md"));
    let led: Vec<&str> = links(&text).collect();
    for page in fs::read_dir(docs).unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        let itself = name == "README.md";
        assert!(
            itself || led.contains(&name.as_str()),
            "docs/README.md does not lead to {name}"
        );
    }
}

/// What stands between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_name(text: &str) -> bool {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !text.is_empty() && text.chars().all(letters)
}

/// `docs/validation.md` names tests as `FILE::TEST` of `crates/tcp/tests`, and as `MODULE::tests::TEST`
/// or `CRATE/FILE::TEST` elsewhere. (The gateway's contract is checked by the gateway's own tests.)
#[test]
fn the_tests_that_the_validation_names_exist() {
    let text = read(&root().join("docs/validation.md"));
    let mut count = 0;
    for name in quoted(&text).filter(|name| name.contains("::")) {
        let (krate, rest) = name.split_once('/').unwrap_or(("tcp", name));
        let parts: Vec<&str> = rest.split("::").collect();
        let (file, test) = match parts[..] {
            [file, test] => (format!("tests/{file}.rs"), test),
            [module, "tests", test] => (format!("src/{module}.rs"), test),
            _ => continue,
        };
        if !is_name(krate) || !parts.iter().all(|part| is_name(part)) {
            continue;
        }
        count += 1;
        let lines = read(&root().join("crates").join(krate).join(file));
        let lines = lines.lines().map(str::trim_start);
        let mut after = lines.skip_while(|line| !line.starts_with(&format!("fn {test}(")));
        assert!(after.next().is_some(), "`{name}` does not exist");
    }
    assert!(count > 50, "only {count} tests are named");
}

/// The crates whose tests `docs/contract.md` and `docs/security.md` name without the crate, in the order in which they
/// are looked for.
const GATEWAY: [&str; 8] = [
    "gateway",
    "pep",
    "relay",
    "interception",
    "gateway-config",
    "cli",
    "saratoga-udp",
    "saratoga-files",
];

/// The source of the tests called `path`, as the docs write it: `FILE` of a crate's `tests`, or `MODULE::tests` of its
/// `src`, which may be a file of their own.
fn source_of(krate: &str, path: &str) -> Option<String> {
    let root = root().join("crates").join(krate);
    let files = match path.strip_suffix("::tests") {
        Some(module) => {
            let module = module.replace("::", "/");
            vec![format!("src/{module}.rs"), format!("src/{module}/tests.rs")]
        }
        None => vec![format!("tests/{}.rs", path.replace("::", "/"))],
    };
    let texts = files
        .iter()
        .filter_map(|file| fs::read_to_string(root.join(file)).ok());
    let text: String = texts.collect();
    (text.contains("#[test]") || text.contains("mod tests")).then_some(text)
}

/// What is wrong with `name`, if it is one of a test: `CRATE/FILE::TEST`, `CRATE/MODULE::tests::TEST`, each also without the
/// crate, with `{TEST, TEST}` or `*` for several tests, or with none for all of a module.
fn is_missing(name: &str) -> Option<String> {
    let (krate, rest) = match name.split_once('/') {
        Some((krate, rest)) if !krate.contains(':') => (Some(krate), rest),
        _ => (None, name),
    };
    let (path, tests) = match rest.split_once("::{") {
        Some((path, all)) => (path, all.trim_end_matches('}').split(", ").collect()),
        None if rest.ends_with("::tests") => (rest, Vec::new()),
        None => match rest.rsplit_once("::")? {
            (path, "*") => (path, Vec::new()),
            (path, test) => (path, vec![test]),
        },
    };
    let words = path.split("::").flat_map(|part| part.split('/'));
    if !words.chain(tests.iter().copied()).all(is_name) {
        // A name of the code, or of something else.
        return None;
    }
    let crates = krate.map_or(GATEWAY.to_vec(), |krate| vec![krate]);
    let path = path.replace('/', "::");
    let texts: Vec<String> = { crates.iter() }
        .filter_map(|krate| source_of(krate, &path))
        .collect();
    if texts.is_empty() {
        return Some(format!("`{name}`: there is no such file with tests"));
    }
    let is_there = |test: &&str| {
        texts
            .iter()
            .any(|text| text.contains(&format!("fn {test}(")))
    };
    let missing = tests.into_iter().find(|test| !is_there(test))?;
    Some(format!("`{name}`: there is no test `{missing}`"))
}

/// All that pages of promises name as a test is one.
#[test]
fn the_tests_that_promises_name_exist() {
    let mut named = 0;
    let mut missing = Vec::new();
    for page in ["contract.md", "saratoga.md", "security.md"] {
        let text = read(&root().join("docs").join(page));
        for name in quoted(&text).filter(|name| name.contains("::")) {
            named += 1;
            missing.extend(is_missing(name).map(|what| format!("docs/{page}: {what}")));
        }
    }
    assert!(named > 300, "only {named} names");
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn a_test_that_is_not_there_is_noticed() {
    let own = "cli/docs::a_test_that_is_not_there_is_noticed";
    assert_eq!(is_missing(own), None);
    assert_eq!(is_missing("docs::{links_of_the_docs_lead_somewhere}"), None);
    for none in [
        "cli/docs::no_such_test",
        "cli/no_such_file::tests",
        "cli/docs::{links_of_the_docs_lead_somewhere, no_such_test}",
        "no_such_file::no_such_test",
    ] {
        assert!(is_missing(none).is_some(), "{none}");
    }
}
