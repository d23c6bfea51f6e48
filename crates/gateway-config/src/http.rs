//! What a scraper or a health check asks: the head of an HTTP/1.1 request, of which only the first line
//! says anything here.

use thiserror::Error;

/// The longest head, in bytes.
pub const LONGEST: usize = 8192;

/// The documents that can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// `GET /metrics`
    Metrics,
    /// `GET /healthz`
    Health,
}

/// Why a request cannot be served.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Refusal {
    /// The head cannot be parsed.
    #[error("only GET")]
    Method,
    /// It asks for a document that does not exist, or by another method.
    #[error("try /metrics or /healthz")]
    Path,
}

/// Whether `head` has come to its end, an empty line.
pub fn is_whole(head: &[u8]) -> bool {
    head.windows(4).any(|end| end == b"\r\n\r\n")
}

/// What the head of a request asks for, whatever its query and its fields say.
///
/// # Errors
/// See [`Refusal`].
pub fn parse(head: &[u8]) -> Result<Document, Refusal> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target) = (words.next(), words.next().unwrap_or_default());
    if method != Some(b"GET") {
        return Err(Refusal::Method);
    }
    match target.split(|byte| *byte == b'?').next() {
        Some(b"/metrics") => Ok(Document::Metrics),
        Some(b"/healthz") => Ok(Document::Health),
        _ => Err(Refusal::Path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_line_says_what_is_asked() {
        for (head, asked) in [
            ("GET /metrics HTTP/1.1\r\n\r\n", Ok(Document::Metrics)),
            ("GET /metrics?name[]=a HTTP/1.1\r\n", Ok(Document::Metrics)),
            ("GET /healthz", Ok(Document::Health)),
            ("GET /healthz/ HTTP/1.1\r\n", Err(Refusal::Path)),
            ("GET\r\n/metrics\r\n", Err(Refusal::Path)),
            ("GET  /metrics HTTP/1.1\r\n", Err(Refusal::Path)),
            ("HEAD /metrics HTTP/1.1\r\n", Err(Refusal::Method)),
            ("get /metrics HTTP/1.1\r\n", Err(Refusal::Method)),
            ("", Err(Refusal::Method)),
        ] {
            assert_eq!(parse(head.as_bytes()), asked, "{head}");
        }
        assert!(is_whole(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nmore"));
        assert!(!is_whole(b"GET / HTTP/1.1\r\n\r"));
    }

    proptest! {
        #[test]
        fn any_head_is_read_or_refused(head in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (parse(&head), is_whole(&head));
        }
    }
}
