//! Tests that need what the machine has not say so and pass.

use super::Missing;
use std::fs::OpenOptions;
use std::io::Write;

/// Where to note skipped tests, for whoever sums them up.
const LOG: &str = "BENTPIPE_SKIP_LOG";

/// Returns from a test when the machine lacks what the test needs, after saying so.
///
/// Takes variants of [`Need`](crate::need::Need): `need!(Root, Program("curl"))`. Writes
/// `SKIPPED <test>: <why>` to standard error past the test harness's capture, and appends it to the
/// file that `BENTPIPE_SKIP_LOG` names, if it is set.
#[macro_export]
macro_rules! need {
    ($($need:ident $(($argument:expr))?),+ $(,)?) => {
        if let Err(missing) = $crate::need::Need::check_all(&[
            $($crate::need::Need::$need $(($argument))?),+
        ]) {
            fn here() {}
            $crate::need::skip(::core::any::type_name_of_val(&here), &missing);
            return;
        }
    };
}

/// Notes that a test is skipped; `here` is the path of an item inside it. For [`crate::need!`].
#[doc(hidden)]
pub fn skip(here: &str, missing: &Missing) {
    let line = line(here, missing);
    // Directly: what goes through `eprintln!` is shown for failed tests only.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(log) = std::env::var_os(LOG) {
        // One write to a file opened for appending: lines of parallel tests do not mix.
        let _ = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .and_then(|mut file| file.write_all(line.as_bytes()));
    }
}

fn line(here: &str, missing: &Missing) -> String {
    let path = here
        .trim_end_matches("::here")
        .trim_end_matches("::{{closure}}");
    // The crate's name adds nothing to the test's.
    let test = path.split_once("::").map_or(path, |(_, test)| test);
    format!("SKIPPED {test}: {missing}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::need::Need;

    #[test]
    fn the_line_names_the_test_and_the_reason() {
        let missing = Need::Program("no-such-program").check().unwrap_err();
        let line = line("binary::tests::name::here", &missing);
        assert!(
            line.starts_with("SKIPPED tests::name: program `no-such-program` "),
            "{line}"
        );
        assert!(line.ends_with('\n'));
    }

    #[test]
    fn a_met_need_lets_the_test_go_on() {
        let reached = std::cell::Cell::new(false);
        let test = || {
            need!(Program("sh"));
            reached.set(true);
        };
        test();
        assert!(reached.get());
    }
}
