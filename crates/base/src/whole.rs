//! Reads files that are kept whole in memory, such as configurations, up to a limit that no such file exceeds.

use std::io::{self, Read};

/// The most octets that are read. The longest scenario of ours has some 20 kB; the limit stops at devices and pipes
/// without an end.
pub const MOST_WHOLE: u64 = 16 << 20;

/// All that `source` has.
///
/// # Errors
/// An error of `source`, or more than [`MOST_WHOLE`] octets.
pub fn read_whole(source: impl Read) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    source.take(MOST_WHOLE + 1).read_to_end(&mut octets)?;
    if octets.len() as u64 > MOST_WHOLE {
        Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it has more than {} MiB", MOST_WHOLE >> 20),
        ))
    } else {
        Ok(octets)
    }
}

/// All that `source` has, which is text.
///
/// # Errors
/// As [`read_whole`], and what is not UTF-8.
pub fn read_text(source: impl Read) -> io::Result<String> {
    String::from_utf8(read_whole(source)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_end_is_refused() {
        let error = read_whole(io::repeat(0)).unwrap_err();
        assert_eq!(error.to_string(), "it has more than 16 MiB");
        let most = io::repeat(b'a').take(MOST_WHOLE);
        assert_eq!(read_text(most).unwrap().len() as u64, MOST_WHOLE);
        assert_eq!(
            read_text(&b"\xff"[..]).unwrap_err().kind(),
            io::ErrorKind::InvalidData
        );
    }
}
