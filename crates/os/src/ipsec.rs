//! What policies of IPsec the kernel has (linux/xfrm.h): whether it encrypts what it sends, and whether it judges what is
//! for this machine as what it forwards.

use bentpipe_sockets::netlink_message::{
    HEADER, attributes, dump, header, message, open, u16_at, u32_at,
};
use rustix::net::{RecvFlags, SendFlags, netlink, recv, send};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// XFRM_MSG_NEWSPDINFO, XFRM_MSG_GETSPDINFO.
const TOLD: u16 = 0x24;
const ASK: u16 = 0x25;
/// XFRMA_SPD_INFO: six numbers, of which the second counts policies for what leaves.
const COUNTS: u16 = 1;

/// XFRM_MSG_NEWPOLICY, XFRM_MSG_GETPOLICY, and NLM_F_REQUEST | NLM_F_DUMP.
const POLICY: u16 = 0x13;
const LIST: u16 = 0x15;
const REQUEST_DUMP: u16 = 0x301;
/// `struct xfrm_userpolicy_info`: its selector, of addresses, ports and the rest, its priority, direction and action, and
/// its length.
const SELECTOR: usize = 56;
const PRIORITY: usize = 152;
const DIRECTION: usize = 160;
const ACTION: usize = 161;
const INFO: usize = 168;
/// XFRM_POLICY_IN, XFRM_POLICY_FWD.
const IN: u8 = 0;
const FWD: u8 = 2;

/// An address and the length of the prefix that counts.
pub type Prefix = (IpAddr, u8);

/// The sources and destinations of policies by which what is for this machine is judged otherwise than what is forwarded:
/// those of direction `in` without an equal of direction `fwd`, and the other way about. In the calling thread's namespace.
///
/// # Errors
/// As [`policies_out`].
pub fn judged_apart() -> io::Result<BTreeSet<(Prefix, Prefix)>> {
    let socket = match open(Some(netlink::XFRM), 0) {
        Ok(socket) => socket,
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => {
            return Ok(BTreeSet::new());
        }
        Err(error) => return Err(error),
    };
    let request = header(HEADER, LIST, REQUEST_DUMP);
    let mut policies = [BTreeSet::new(), BTreeSet::new()];
    dump(&socket, &request, &mut vec![0; 64 * 1024], |kind, body| {
        if kind == POLICY {
            match body.get(DIRECTION) {
                Some(&IN) => policies[0].extend(policy(body)),
                Some(&FWD) => policies[1].extend(policy(body)),
                // What leaves, and single sockets.
                _ => {}
            }
        }
    })?;
    Ok(apart(&policies))
}

/// What of a policy has to be equal: its selector, its priority and action, and its attributes, templates among them.
fn policy(body: &[u8]) -> Option<Vec<u8>> {
    let parts = [
        body.get(..SELECTOR)?,
        body.get(PRIORITY..PRIORITY + 4)?,
        body.get(ACTION..ACTION + 1)?,
        body.get(INFO..)?,
    ];
    Some(parts.concat())
}

/// The sources and destinations of what only one of both has.
fn apart([one, other]: &[BTreeSet<Vec<u8>>; 2]) -> BTreeSet<(Prefix, Prefix)> {
    one.symmetric_difference(other)
        .filter_map(|policy| ends(policy))
        .collect()
}

/// Source and destination of a selector.
fn ends(selector: &[u8]) -> Option<(Prefix, Prefix)> {
    let family = i32::from(u16_at(selector, 40)?);
    let address = |at: usize| -> Option<IpAddr> {
        let octets: [u8; 16] = selector.get(at..at + 16)?.try_into().ok()?;
        let [a, b, c, d, ..] = octets;
        Some(match family {
            libc::AF_INET => Ipv4Addr::new(a, b, c, d).into(),
            _ => Ipv6Addr::from(octets).into(),
        })
    };
    Some((
        (address(16)?, *selector.get(43)?),
        (address(0)?, *selector.get(42)?),
    ))
}

/// How many policies there are, in the calling thread's namespace, that may have what leaves encrypted (CAP_NET_ADMIN).
///
/// # Errors
/// Without descriptors or the right to ask. A kernel without IPsec has no policies.
pub fn policies_out() -> io::Result<u32> {
    let socket = match open(Some(netlink::XFRM), 0) {
        Ok(socket) => socket,
        Err(error) if error.raw_os_error() == Some(libc::EPROTONOSUPPORT) => return Ok(0),
        Err(error) => return Err(error),
    };
    // Four bytes of flags, of which there are none.
    let mut request = header(HEADER + 4, ASK, 1).to_vec();
    request.extend([0; 4]);
    send(&socket, &request, SendFlags::empty())?;
    let mut buffer = [0; 4096];
    let (length, _) = recv(&socket, &mut buffer[..], RecvFlags::empty())?;
    match message(&buffer[..length]) {
        Some((TOLD, body, _)) => {
            let mut told = attributes(body.get(4..).unwrap_or_default());
            let counts = told.find(|(kind, _)| *kind == COUNTS);
            let out = counts.and_then(|(_, value)| u32_at(value, 4));
            out.ok_or_else(|| io::ErrorKind::InvalidData.into())
        }
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::need;
    use crate::netns::Netns;

    #[test]
    fn policies_are_counted() {
        need!(Root);
        let netns = Netns::create("ipsec").unwrap();
        assert_eq!(netns.run(|| policies_out().unwrap()).unwrap(), 0);
        let add =
            "xfrm policy add dir out src 10.0.0.0/8 dst 10.1.0.0/16 tmpl proto esp mode tunnel";
        let made = netns.command("ip").args(add.split(' ')).output().unwrap();
        // A kernel without IPsec refuses it, and has none.
        let expected = u32::from(made.status.success());
        assert_eq!(netns.run(|| policies_out().unwrap()).unwrap(), expected);
    }
}
