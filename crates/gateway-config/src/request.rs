//! The language of the control socket: a line of JSON asks, a line of JSON answers.
//!
//! ```text
//! {"do":"status"}              {"ok":true,"status":{...}}
//! {"do":"bypass","on":true}    {"ok":true}
//! {"do":"link","leg":"sat","up":false}   {"ok":true}
//! {"do":"reload"}              {"ok":false,"error":"gateway.toml:3:8: ..."}
//! {"do":"retire"}              {"ok":true}
//! ```

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest request, with its newline, in bytes.
pub const LONGEST: usize = 4096;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// The status of the gateway.
    Status,
    /// Whether new flows are to pass end to end.
    Bypass {
        /// They are.
        on: bool,
    },
    /// Whether the link of a leg with `carrier = "scps"` is up, says who knows: a modem.
    Link {
        /// The leg: `sat`, or the name of a `[leg.NAME]`.
        leg: String,
        /// It is.
        up: bool,
    },
    /// Read the configuration again.
    Reload,
    /// No more new flows; end with the last one.
    Retire,
}

impl Request {
    /// Says whether the link of `leg` is up.
    pub fn link(leg: &str, up: bool) -> Self {
        let leg = leg.to_owned();
        Self::Link { leg, up }
    }
}

/// Why a line is no request.
#[derive(Debug, Error)]
pub enum ParseError {
    /// It is too long.
    #[error("a request is one line of at most {LONGEST} bytes")]
    Long,
    /// It ended before its newline: perhaps not all of it came.
    #[error("the request has no newline at its end")]
    Unended,
    /// It is something else.
    #[error("no request ({0}): try {{\"do\":\"status\"}}")]
    Unknown(#[from] serde_json::Error),
}

/// Reads a request, newline included.
///
/// # Errors
/// See [`ParseError`].
pub fn parse(line: &[u8]) -> Result<Request, ParseError> {
    match line.last() {
        Some(b'\n') if line.len() <= LONGEST => Ok(serde_json::from_slice(line)?),
        _ if line.len() >= LONGEST => Err(ParseError::Long),
        _ => Err(ParseError::Unended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn requests_are_read_as_they_are_written() {
        for (request, line) in [
            (Request::Status, "{\"do\":\"status\"}\n"),
            (
                Request::Bypass { on: true },
                "{\"do\":\"bypass\",\"on\":true}\n",
            ),
            (
                Request::Link {
                    leg: "sat".to_owned(),
                    up: false,
                },
                "{\"do\":\"link\",\"leg\":\"sat\",\"up\":false}\n",
            ),
            (Request::Reload, "{\"do\":\"reload\"}\n"),
            (Request::Retire, "{\"do\":\"retire\"}\n"),
        ] {
            assert_eq!(parse(line.as_bytes()).unwrap(), request);
            assert_eq!(serde_json::to_string(&request).unwrap() + "\n", line);
        }
        for line in [
            "{\"do\":\"status\"}",
            "{\"do\":\"stop\"}\n",
            "{\"do\":\"bypass\"}\n",
            "{\"do\":\"bypass\",\"on\":true,\"of\":1}\n",
            "\n",
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line}");
        }
        let long = format!("{{\"do\":\"status\"{}}}\n", " ".repeat(LONGEST));
        assert!(matches!(parse(long.as_bytes()), Err(ParseError::Long)));
        // What the gateway has of a line without end.
        let long = &long.as_bytes()[..LONGEST];
        assert!(matches!(parse(long), Err(ParseError::Long)));
        let cut = parse(b"{\"do\":\"status\"}");
        assert!(matches!(cut, Err(ParseError::Unended)));
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_refused(line in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line);
        }
    }
}
