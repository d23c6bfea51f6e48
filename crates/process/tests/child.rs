//! What a child has used, and how it ended.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bentpipe_process::child::{Usage, wait};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

fn shell(script: &str) -> (ExitStatus, Usage) {
    wait(Command::new("sh").args(["-c", script]).spawn().unwrap()).unwrap()
}

#[test]
fn memory_and_time_are_those_of_the_child() {
    let (_, little) = shell("true");
    // A string of 64 MiB in the shell itself, doubled up from one byte.
    let (status, much) = shell("x=a; i=0; while [ $i -lt 26 ]; do x=$x$x; i=$((i+1)); done");
    assert!(status.success());
    assert!(
        much.peak_memory > little.peak_memory + (64 << 20),
        "{much:?}"
    );
    assert!(much.cpu > little.cpu, "{much:?}");
}

#[test]
fn the_way_it_ended_is_told() {
    assert_eq!(shell("exit 3").0.code(), Some(3));
    assert_eq!(shell("kill -9 $$").0.signal(), Some(9));
}
