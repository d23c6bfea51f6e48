//! Whether the kernel encrypts what it sends (IPsec; linux/xfrm.h).

use bentpipe_sockets::netlink_message::{HEADER, attributes, header, message, open, u32_at};
use rustix::net::{RecvFlags, SendFlags, netlink, recv, send};
use std::io;

/// XFRM_MSG_NEWSPDINFO, XFRM_MSG_GETSPDINFO.
const TOLD: u16 = 0x24;
const ASK: u16 = 0x25;
/// XFRMA_SPD_INFO: six numbers, of which the second counts policies for what leaves.
const COUNTS: u16 = 1;

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
