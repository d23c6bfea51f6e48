//! Puts the scenarios of the repository and of its papers into the binary.
#![allow(
    clippy::print_stdout,
    reason = "what is printed are instructions to cargo"
)]

use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = Vec::new();
    for folder in ["scenarios", "papers"] {
        tomls(&root.join(folder), &mut files);
    }
    files.sort();
    let root = root.canonicalize().expect("the workspace is there");
    let lines = files.iter().map(|file| {
        println!("cargo::rerun-if-changed={}", file.display());
        let file = file.canonicalize().expect("it was found");
        let name = file.strip_prefix(&root).expect("it is below the workspace");
        format!(
            "    ({:?}, include_str!({:?})),\n",
            name.display().to_string(),
            file
        )
    });
    let text = format!("&[\n{}]\n", lines.collect::<String>());
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("scenarios.rs"), text).expect("OUT_DIR can be written");
}

fn tomls(folder: &Path, found: &mut Vec<PathBuf>) {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder).expect("the folder is part of the source") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            tomls(&path, found);
        } else if path.extension().is_some_and(|end| end == "toml") {
            found.push(path);
        }
    }
}
