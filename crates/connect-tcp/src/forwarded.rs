//! For whom a client asks: the field `Forwarded` (RFC 7239), of which the address and port of `for` are read and written.

use std::net::SocketAddr;

/// The name of the field.
pub(crate) const NAME: &str = "forwarded";

/// The field's value for somebody at `client`.
pub(crate) fn write(client: SocketAddr) -> String {
    // An address with a port is no token (section 4).
    format!("for=\"{client}\"")
}

/// Where the first of a field's elements says that the request comes from; `None` where it says no address, or none with a port.
pub(crate) fn read(value: &[u8]) -> Option<SocketAddr> {
    let value = core::str::from_utf8(value).ok()?;
    let first = split(value, ',').next()?;
    let pairs = split(first, ';').filter_map(|pair| pair.split_once('='));
    let (_, node) = { pairs }
        .map(|(name, node)| (name.trim(), node.trim()))
        .find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    let node = node.strip_prefix('"')?.strip_suffix('"')?;
    let address: SocketAddr = node.parse().ok()?;
    Some(address).filter(|address| address.port() > 0)
}

/// The parts of `text` between those of `separator` that are in no quoted string.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |next| {
        match next {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        next == separator && !quoted
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for text in ["192.0.2.43:47011", "[2001:db8::17]:4711"] {
            let client: SocketAddr = text.parse().unwrap();
            assert_eq!(write(client), format!("for=\"{text}\""));
            assert_eq!(read(write(client).as_bytes()), Some(client));
        }
    }

    #[test]
    fn only_an_address_with_a_port_is_one() {
        let client = "192.0.2.43:47011".parse().ok();
        for (value, found) in [
            ("For=\"192.0.2.43:47011\"", client),
            (
                "by=\"a;for=b,c\\\"\" ; for=\"192.0.2.43:47011\", for=\"10.0.0.1:1\"",
                client,
            ),
            (
                "proto=http;for=\"192.0.2.43:47011\";by=203.0.113.43",
                client,
            ),
            ("for=192.0.2.43", None),
            ("for=\"192.0.2.43\"", None),
            ("for=\"192.0.2.43:0\"", None),
            ("for=\"192.0.2.43:65536\"", None),
            ("for=\"[2001:db8::17]\"", None),
            ("for=\"_hidden:1\"", None),
            ("for=unknown", None),
            ("by=1, for=\"192.0.2.43:47011\"", None),
            ("for=\"", None),
            ("for", None),
            ("", None),
            ("\u{e9}=\"", None),
        ] {
            assert_eq!(read(value.as_bytes()), found, "{value}");
        }
        assert_eq!(read(b"for=\"\xff\""), None);
    }
}
