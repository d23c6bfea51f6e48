//! Puts uPlot, fetched by npm, where the report can include it, and the pages' shared modules as plain scripts.
#![allow(
    clippy::print_stdout,
    reason = "what is printed are instructions to cargo"
)]

use std::path::Path;
use std::{env, fs, process};

/// Files of the package, and what they are called in `OUT_DIR`.
const FILES: [(&str, &str); 2] = [
    ("dist/uPlot.iife.min.js", "uPlot.iife.min.js"),
    ("dist/uPlot.min.css", "uPlot.min.css"),
];

fn main() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/node_modules/uplot");
    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let out = Path::new(&out);
    let read = |name: &str| {
        let path = package.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        fs::read_to_string(&path).unwrap_or_else(|error| {
            println!(
                "cargo::error=web/node_modules/uplot/{name}: {error}; \
                 run `make setup`, or `npm ci --ignore-scripts` in web/"
            );
            process::exit(1)
        })
    };
    let write = |name: &str, text: String| {
        fs::write(out.join(name), text).expect("OUT_DIR can be written");
    };
    for (from, to) in FILES {
        write(to, read(from));
    }
    // A report is one file, whose scripts are not modules and cannot import one.
    for name in ["page.js", "sheet.js"] {
        let module = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../web")
            .join(name);
        println!("cargo::rerun-if-changed={}", module.display());
        let module = fs::read_to_string(module).expect("the modules are part of the source");
        let lines = { module.lines() }.filter(|line| !line.starts_with("import "));
        let plain = lines.map(|line| line.strip_prefix("export ").unwrap_or(line));
        write(name, plain.collect::<Vec<_>>().join("\n") + "\n");
    }
    // The MIT licence travels with every copy, and a report is a copy.
    write(
        "uPlot.licence.js",
        format!("/*! uPlot\n{}*/", read("LICENSE")),
    );
}
