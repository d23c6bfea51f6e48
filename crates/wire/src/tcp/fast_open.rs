//! The option of TCP Fast Open (RFC 7413, section 4.1.1): a cookie, or the request for one. It stands among the options
//! that are not typed, for few SYNs have it.

use super::RawOptions;
use core::fmt;

/// A Fast Open cookie as a server made it: 4 to 16 bytes, an even number of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FastOpenCookie {
    len: u8,
    bytes: [u8; FastOpenCookie::MOST],
}

/// The Fast Open option of a SYN or its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastOpenOption {
    /// Asks the server for a cookie.
    Request,
    /// The cookie that the server gives, or that the client brings back.
    Cookie(FastOpenCookie),
}

const KIND: u8 = 34;

impl FastOpenCookie {
    const LEAST: usize = 4;
    const MOST: usize = 16;

    /// `bytes` as a cookie, if they are as many as one has.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let fits = bytes.len() >= Self::LEAST && bytes.len().is_multiple_of(2);
        let mut copy = [0; Self::MOST];
        copy.get_mut(..bytes.len())
            .filter(|_| fits)?
            .copy_from_slice(bytes);
        Some(Self {
            len: bytes.len() as u8,
            bytes: copy,
        })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Debug for FastOpenCookie {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_slice().fmt(f)
    }
}

impl FastOpenOption {
    /// The first such option in `options`; one of a length that it cannot have is ignored.
    pub fn parse(options: &RawOptions) -> Option<Self> {
        let option = options.iter().find(|option| option[0] == KIND)?;
        match &option[2..] {
            [] => Some(Self::Request),
            bytes => FastOpenCookie::new(bytes).map(Self::Cookie),
        }
    }

    /// The option as it is on the wire.
    pub fn to_raw(self) -> Option<Box<RawOptions>> {
        let cookie = match &self {
            Self::Request => &[],
            Self::Cookie(cookie) => cookie.as_slice(),
        };
        let mut bytes = [0; 2 + FastOpenCookie::MOST];
        let len = 2 + cookie.len();
        bytes[0] = KIND;
        bytes[1] = len as u8;
        bytes[2..len].copy_from_slice(cookie);
        RawOptions::new(&bytes[..len]).map(Box::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Option<FastOpenOption> {
        FastOpenOption::parse(&RawOptions::new(bytes)?)
    }

    #[test]
    fn a_request_and_cookies_are_what_they_were() {
        for len in [0usize, 4, 6, 8, 16] {
            let bytes: Vec<u8> = (1..=len as u8).collect();
            let option = match FastOpenCookie::new(&bytes) {
                None => FastOpenOption::Request,
                Some(cookie) => FastOpenOption::Cookie(cookie),
            };
            let raw = option.to_raw().expect("it fits");
            assert_eq!(raw.as_slice(), [&[34, 2 + len as u8], &bytes[..]].concat());
            assert_eq!(FastOpenOption::parse(&raw), Some(option));
        }
    }

    #[test]
    fn lengths_that_no_cookie_has_are_ignored() {
        for len in [1usize, 2, 3, 5, 7, 17, 18] {
            let mut bytes = vec![34, 2 + len as u8];
            bytes.resize(2 + len, 7);
            assert_eq!(parse(&bytes), None, "{len}");
        }
        // Another option before it changes nothing.
        assert_eq!(parse(&[30, 4, 0, 0, 34, 2]), Some(FastOpenOption::Request));
        assert_eq!(parse(&[30, 4, 0, 0]), None);
    }
}
