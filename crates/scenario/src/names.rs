//! Names that stand in a scenario: of its parts, and of what other crates give a meaning.

use bentpipe_config::{Value, Wrong, brief, nearest};
use toml::de::DeValue;

/// The name of a node, a link or a flow: it also names interfaces, files and columns.
pub(crate) fn check_name(name: &str) -> Result<(), Wrong> {
    let right = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.len() <= 15
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.chars().all(right)
        && !["lo", "all", "default"].contains(&name)
    {
        return Ok(());
    }
    let expected = "1 to 15 letters, digits, `-` or `_`, beginning with a letter, \
                    and not `lo`, `all` or `default`";
    let what = format!("`{}` is not a name", brief(name));
    Err(Wrong::new(what, expected))
}

/// The name of a flow that says none: `flow1` is the first `[[flows]]` of the file.
pub fn unsaid_name(index: usize) -> String {
    format!("flow{}", index + 1)
}

/// A name checked by [`check_name`].
pub(crate) struct Name(pub(crate) String);

impl Value for Name {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let name = String::read(value, source)?;
        check_name(&name)?;
        Ok(Self(name))
    }
}

/// A word that another crate gives a meaning: a variant of TCP, a kind of proxy.
pub(crate) struct Word(pub(crate) String);

impl Value for Word {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let word = String::read(value, source)?;
        let right = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || c == '+';
        if (1..=40).contains(&word.len()) && word.chars().all(right) {
            return Ok(Self(word));
        }
        let what = format!("`{}` is not a name", brief(&word));
        Err(Wrong::new(what, "letters, digits, `-`, `_` or `+`"))
    }
}

/// A congestion control by its kernel name (`TCP_CA_NAME_MAX` is 16 with the closing zero). Which
/// names a kernel knows is found out where the kernel is; here only the form is checked.
pub(crate) struct Control(pub(crate) String);

impl Value for Control {
    fn read(value: &DeValue<'_>, source: &str) -> Result<Self, Wrong> {
        let name = String::read(value, source)?;
        let right = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if (1..=15).contains(&name.len()) && name.chars().all(right) {
            return Ok(Self(name));
        }
        let what = format!("`{}` cannot be a congestion control", brief(&name));
        let expected = "a name of the kernel's of at most 15 letters, such as `cubic`, `reno`, \
                        `bbr`, `bentpipe_hybla` or `bentpipe_rate`";
        let known = ["cubic", "reno", "bbr", "bentpipe_hybla", "bentpipe_rate"];
        Err(Wrong {
            suggestion: nearest(&name, known).map(str::to_owned),
            ..Wrong::new(what, expected)
        })
    }
}
