use crate::{HYBLA, LoadError, RATE, is_ours, kernel, kernel_name, user_name};
use thiserror::Error;

/// The kernel's own controls that replace one that is missing, best first.
pub const FALLBACKS: [&str; 3] = ["hybla", "bbr", "cubic"];

/// A congestion control for a leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its name, as users write it.
    pub name: String,
    /// Why it is not the one that was wanted, in one line.
    pub note: Option<String>,
}

/// No congestion control could be chosen.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ChooseError {
    /// The wanted one is missing, and the configuration insists on it.
    #[error("congestion control `{want}` is not available: {why}")]
    Insisted {
        /// What was wanted.
        want: String,
        /// Why it is missing, and what to do.
        why: String,
    },
    /// The wanted one is missing, and so is every substitute.
    #[error(
        "congestion control `{want}` is not available ({why}), nor is any of {}: load one, such as by `modprobe tcp_bbr`",
        FALLBACKS.join(", ")
    )]
    NoneLeft {
        /// What was wanted.
        want: String,
        /// Why it is missing.
        why: String,
    },
}

/// The congestion controls that the kernel offers this process now, as users write their names: ours
/// where this process has registered them.
pub fn available() -> Vec<String> {
    let mut offered = kernel::offered();
    for name in &mut offered {
        if let Some(ours) = [HYBLA, RATE]
            .into_iter()
            .find(|ours| kernel_name(ours) == name)
        {
            ours.clone_into(name);
        }
    }
    offered.retain(|name| is_ours(name) || user_name(name) == name);
    offered
}

/// The control `want`, or where it is missing the first of [`FALLBACKS`] that is there, unless `insist`. `failed`: why our own controls could not be loaded, if they could not.
///
/// # Errors
/// Fails when `want` is missing and `insist` is set, or when every substitute is missing too.
pub fn choose(want: &str, insist: bool, failed: Option<&LoadError>) -> Result<Choice, ChooseError> {
    pick(want, insist, failed.map(ToString::to_string), &available())
}

fn pick(
    want: &str,
    insist: bool,
    failed: Option<String>,
    offered: &[String],
) -> Result<Choice, ChooseError> {
    let has = |name: &str| offered.iter().any(|offer| offer == name);
    if has(want) {
        return Ok(Choice {
            name: want.to_owned(),
            note: None,
        });
    }
    let want = want.to_owned();
    let why = failed
        .filter(|_| is_ours(&want))
        .unwrap_or_else(|| format!("this kernel offers {}", offered.join(", ")));
    if insist {
        return Err(ChooseError::Insisted { want, why });
    }
    match FALLBACKS.into_iter().find(|name| has(name)) {
        Some(name) => Ok(Choice {
            name: name.to_owned(),
            note: Some(format!("using {name} instead of {want}: {why}")),
        }),
        None => Err(ChooseError::NoneLeft { want, why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offers(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn the_wanted_control_needs_no_note() {
        let choice = pick(RATE, true, None, &offers(&["reno", "cubic", RATE])).unwrap();
        assert_eq!((choice.name.as_str(), choice.note), (RATE, None));
    }

    #[test]
    fn substitutes_come_in_order_and_say_why() {
        for (offered, expected) in [
            (&["cubic", "bbr", "hybla"][..], "hybla"),
            (&["cubic", "bbr", "reno"], "bbr"),
            (&["reno", "cubic"], "cubic"),
        ] {
            let why = LoadError::NoBtf.to_string();
            let choice = pick(RATE, false, Some(why.clone()), &offers(offered)).unwrap();
            assert_eq!(choice.name, expected);
            let note = choice.note.unwrap();
            assert!(
                note.contains(&why) && note.contains(RATE) && !note.contains('\n'),
                "{note}"
            );
        }
    }

    #[test]
    fn insisting_fails_with_the_reason() {
        let why = LoadError::NotPermitted.to_string();
        let error = pick(HYBLA, true, Some(why.clone()), &offers(&["cubic"])).unwrap_err();
        assert!(error.to_string().contains(&why), "{error}");
        let error = pick("westwood", true, Some(why.clone()), &offers(&["cubic"])).unwrap_err();
        assert!(
            !error.to_string().contains(&why),
            "not the kernel's fault: {error}"
        );
    }

    #[test]
    fn with_nothing_left_it_says_so() {
        let error = pick(RATE, false, None, &offers(&["reno"])).unwrap_err();
        assert!(matches!(error, ChooseError::NoneLeft { .. }));
    }
}
