//! The exchange over the control socket: sends requests, reads and writes answers. The requests' language is
//! [`bentpipe_gateway_config::request`].

pub use bentpipe_gateway_config::request::{LONGEST, ParseError, Request, parse};

use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use thiserror::Error;

/// The longest answer, in bytes.
const LONGEST_ANSWER: u64 = 1 << 20;
/// The longest error in an answer, in bytes; even with each of them escaped in JSON it fits.
const LONGEST_ERROR: usize = 1 << 17;
/// How long a program may take to answer: a gateway's reload may load BPF programs.
const PATIENCE: Duration = Duration::from_secs(40);
/// The answer to clients beyond the bound.
pub(crate) const BUSY: &[u8] =
    b"{\"ok\":false,\"error\":\"too many clients at the control socket: try again\"}\n";
/// How long a client that is turned away tries again, and how often: on a busy host it may have to wait for those that have
/// their answers to be seen to go.
const TURNED_AWAY: Duration = Duration::from_secs(3);
const RETRY: Duration = Duration::from_millis(100);

/// An answer to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer(Value);

impl Answer {
    /// What was asked is done.
    pub fn done() -> Self {
        Self(json!({ "ok": true }))
    }

    /// The program's status.
    pub fn status(status: &impl Serialize) -> Self {
        Self(json!({ "ok": true, "status": status }))
    }

    /// It is not done, and why.
    pub fn error(error: impl fmt::Display) -> Self {
        let mut error = error.to_string();
        if error.len() > LONGEST_ERROR {
            let whole = (0..=LONGEST_ERROR)
                .rev()
                .find(|at| error.is_char_boundary(*at));
            error.truncate(whole.unwrap_or(0));
            error.push_str("... (there is more)");
        }
        Self(json!({ "ok": false, "error": error }))
    }

    pub(crate) fn to_line(&self) -> Vec<u8> {
        format!("{}\n", self.0).into_bytes()
    }
}

/// A program did not answer, or answered no.
#[derive(Debug, Error)]
pub enum AskError {
    /// Nobody is there.
    #[error("no {who} answers at {} ({source}): is one running, with this `control`, and may you talk to it?", .path.display())]
    Absent {
        /// What was looked for: a gateway, or a proxy.
        who: &'static str,
        /// The control socket.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It does not answer, or not sensibly.
    #[error("the {who} at {} does not answer ({what})", .path.display())]
    NoReply {
        /// What was looked for: a gateway, or a proxy.
        who: &'static str,
        /// The control socket.
        path: PathBuf,
        /// What came instead.
        what: String,
    },
    /// It says no.
    #[error("{0}")]
    Refused(String),
}

/// Asks the program at `path`, a `who`; gives its whole answer.
///
/// # Errors
/// See [`AskError`].
pub fn ask(who: &'static str, path: &Path, request: &Request) -> Result<Value, AskError> {
    let silent = |what: String| AskError::NoReply {
        who,
        path: path.to_owned(),
        what,
    };
    let until = Instant::now() + TURNED_AWAY;
    let line = loop {
        let stream = UnixStream::connect(path).map_err(|source| AskError::Absent {
            who,
            path: path.to_owned(),
            source,
        })?;
        let line = talk(&stream, request).map_err(|error| silent(words(&error)))?;
        if line != BUSY || Instant::now() >= until {
            break line;
        }
        std::thread::sleep(RETRY);
    };
    let answer: Value = serde_json::from_slice(&line).map_err(|error| silent(error.to_string()))?;
    match answer.get("error").and_then(Value::as_str) {
        Some(error) => Err(AskError::Refused(error.to_owned())),
        None => Ok(answer),
    }
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            let seconds = PATIENCE.as_secs();
            format!("nothing came for {seconds} s: it hangs, or is stopped")
        }
        _ => error.to_string(),
    }
}

fn talk(stream: &UnixStream, request: &Request) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    let mut writer = stream;
    let sent = writer.write_all(&line);
    let mut answer = Vec::new();
    // Who is turned away is told so before anything is read, and cannot write.
    BufReader::new(stream.take(LONGEST_ANSWER)).read_until(b'\n', &mut answer)?;
    match answer.is_empty() {
        true => sent.map(|()| answer),
        false => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_any_length_is_an_answer() {
        for (error, cut) in [
            ("é\u{1}".repeat(1 << 20), true),
            ("short".to_owned(), false),
        ] {
            let line = Answer::error(&error).to_line();
            assert!((line.len() as u64) < LONGEST_ANSWER);
            let answer: Value = serde_json::from_slice(&line).unwrap();
            let said = answer["error"].as_str().unwrap();
            assert_eq!(said.ends_with("(there is more)"), cut);
            assert!(error.starts_with(said.trim_end_matches("... (there is more)")));
        }
    }

    #[test]
    fn silence_is_told_from_other_errors() {
        let silence = io::Error::from(io::ErrorKind::WouldBlock);
        assert!(words(&silence).contains("for 40 s"));
        assert_eq!(words(&io::Error::other("x")), "x");
    }
}
