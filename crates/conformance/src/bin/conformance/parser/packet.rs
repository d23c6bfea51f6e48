//! Packets: `S. 0:0(0) ack 1 win 65535 <mss 1460,nop,wscale 8>`.

use super::Parsed;
use super::cursor::Cursor;
use crate::script::{Cookie, ECN_NAMES, Flags, Packet, Tcp, TcpOption};

/// Codes of "destination unreachable" (RFC 792), by the names that scripts use.
const UNREACHABLE: [(&str, u8); 6] = [
    ("net_unreachable", 0),
    ("host_unreachable", 1),
    ("protocol_unreachable", 2),
    ("port_unreachable", 3),
    ("frag_needed", 4),
    ("admin_prohibited", 13),
];

pub(super) fn packet(cursor: &mut Cursor<'_>) -> Parsed<Packet> {
    cursor.skip_space();
    if cursor.take_word("icmp") {
        return icmp(cursor);
    }
    let ecn = ecn(cursor)?;
    cursor.skip_space();
    let mut flags = Flags::default();
    let letters = cursor.token();
    for letter in letters.chars() {
        match Flags::of_letter(letter) {
            Some(flag) => flags = flags.with(flag),
            None if letters == "-" => {}
            None => {
                return Err(cursor.error(&format!(
                    "`{letters}` is no set of flags: they are `S`, `F`, `R`, `P`, `U`, `E`, `W`, `A`, `.` and alone `-`"
                )));
            }
        }
    }
    let (seq, length) = numbers(cursor)?;
    let mut tcp = Tcp {
        ecn,
        flags,
        seq,
        length,
        options: Some(Vec::new()),
        ..Tcp::default()
    };
    if cursor.take_word("ack") {
        tcp.ack = Some(cursor.number("an acknowledgement number")?);
    }
    if cursor.take_word("win") {
        tcp.window = Some(cursor.number("a window of at most 65535")?);
    }
    if cursor.take_word("urg") {
        tcp.urgent = Some(cursor.number("an urgent pointer of at most 65535")?);
    }
    cursor.skip_space();
    if cursor.take("<") {
        tcp.options = options(cursor)?;
    }
    Ok(Packet::Tcp(tcp))
}

/// `[ect0]` and its like.
fn ecn(cursor: &mut Cursor<'_>) -> Parsed<Option<u8>> {
    if !cursor.take("[") {
        return Ok(None);
    }
    let name = cursor.until(']').unwrap_or_default();
    let found = ECN_NAMES.iter().find(|(known, _)| *known == name.trim());
    match found {
        Some((_, bits)) => Ok(Some(*bits)),
        None => {
            Err(cursor.error("in brackets before flags stands `noecn`, `ect0`, `ect1` or `ce`"))
        }
    }
}

/// `1:1001(1000)`: the first number, and the length.
fn numbers(cursor: &mut Cursor<'_>) -> Parsed<(u32, u32)> {
    let first: u32 = cursor.number("a sequence number")?;
    let last = if cursor.take(":") {
        Some(cursor.number::<u32>("the number after the last")?)
    } else {
        None
    };
    cursor.expect("(")?;
    let length: u32 = cursor.number("a length")?;
    cursor.expect(")")?;
    if last.is_some_and(|last| last.wrapping_sub(first) != length) {
        return Err(cursor.error(&format!("the numbers do not span {length} bytes")));
    }
    Ok((first, length))
}

fn options(cursor: &mut Cursor<'_>) -> Parsed<Option<Vec<TcpOption>>> {
    cursor.skip_space();
    if cursor.take("...") {
        cursor.expect(">")?;
        return Ok(None);
    }
    let mut list = Vec::new();
    loop {
        cursor.skip_space();
        list.push(tcp_option(cursor)?);
        cursor.skip_space();
        if cursor.take(">") {
            return Ok(Some(list));
        }
        cursor.expect(",")?;
    }
}

fn tcp_option(cursor: &mut Cursor<'_>) -> Parsed<TcpOption> {
    Ok(match cursor.identifier() {
        "eol" => TcpOption::Eol,
        "nop" => TcpOption::Nop,
        "mss" => TcpOption::Mss(cursor.number("a segment size")?),
        "wscale" => TcpOption::WindowScale(cursor.number("a shift")?),
        "sackOK" => TcpOption::SackPermitted,
        "sack" => {
            let mut blocks = Vec::new();
            loop {
                cursor.skip_space();
                if !cursor.peek().is_some_and(|c| c.is_ascii_digit()) {
                    break;
                }
                let left = cursor.number("the left edge of a block")?;
                cursor.expect(":")?;
                blocks.push((left, cursor.number("the right edge of a block")?));
            }
            TcpOption::Sack(blocks)
        }
        "TS" => {
            cursor.skip_space();
            if !cursor.take_word("val") {
                return Err(cursor.error("timestamps are written `TS val 100 ecr 200`"));
            }
            let value = cursor.number("a timestamp")?;
            if !cursor.take_word("ecr") {
                return Err(cursor.error("timestamps are written `TS val 100 ecr 200`"));
            }
            let echo = cursor.number("a timestamp")?;
            TcpOption::Timestamps { value, echo }
        }
        "FO" => TcpOption::FastOpen(cookie(cursor)?),
        other => {
            return Err(cursor.error(&format!("`{other}` is no TCP option that is known here")));
        }
    })
}

/// `TFO_COOKIE`, octets in hexadecimal digits, or nothing.
fn cookie(cursor: &mut Cursor<'_>) -> Parsed<Cookie> {
    cursor.skip_space();
    let digits = cursor.identifier();
    if digits == "TFO_COOKIE" {
        return Ok(Cookie::OfStack);
    }
    if digits.is_empty() {
        return Ok(Cookie::Request);
    }
    let pairs = (0..digits.len()).step_by(2);
    let octets = pairs.map(|at| {
        let pair = digits.get(at..at + 2)?;
        u8::from_str_radix(pair, 16).ok()
    });
    match octets.collect::<Option<Vec<u8>>>() {
        Some(octets) if octets.len() <= 16 => Ok(Cookie::Octets(octets)),
        _ => Err(cursor.error(&format!(
            "`{digits}` is no cookie: it is `TFO_COOKIE`, or at most 32 hexadecimal digits, two an octet"
        ))),
    }
}

/// `icmp unreachable frag_needed mtu 1200 [1:1461(1460)]`.
fn icmp(cursor: &mut Cursor<'_>) -> Parsed<Packet> {
    if !cursor.take_word("unreachable") {
        return Err(cursor.error("of ICMP only `unreachable` is known here"));
    }
    cursor.skip_space();
    let name = cursor.identifier();
    let found = UNREACHABLE.iter().find(|(known, _)| *known == name);
    let Some(&(_, code)) = found else {
        return Err(cursor.error("the code of an unreachable destination is expected"));
    };
    let mtu = if cursor.take_word("mtu") {
        cursor.number("an MTU")?
    } else {
        0
    };
    cursor.expect("[")?;
    let (seq, length) = numbers(cursor)?;
    cursor.expect("]")?;
    Ok(Packet::Icmp {
        kind: 3,
        code,
        mtu,
        seq,
        length,
    })
}
