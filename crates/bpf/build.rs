//! Compiles the BPF programs with clang.
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "what is printed is for cargo, and for whoever runs it"
)]

use libbpf_cargo::SkeletonBuilder;
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    println!("cargo:rerun-if-changed=src/bpf");
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        eprintln!("OUT_DIR is not set: build with cargo");
        return ExitCode::FAILURE;
    };
    for name in ["hybla", "rate", "replay", "scone"] {
        let built = SkeletonBuilder::new()
            .source(Path::new("src/bpf").join(format!("{name}.bpf.c")))
            .obj(out.join(format!("{name}.bpf.o")))
            .clang_args(["-mcpu=v3", "-Wall", "-Wextra", "-Wno-unused-parameter"])
            .build();
        if let Err(error) = built {
            eprintln!("compiling {name}.bpf.c failed: {error:#}");
            eprintln!("the BPF programs need clang 12 or later: apt-get install clang");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
