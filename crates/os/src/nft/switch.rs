//! A switch in an [`super::OwnerTable`] that packets throw, and that falls back by itself.
//!
//! A change by nft takes another process and the kernel's transaction; either may hang. What has to
//! work when they do is decided by a set of the table instead: an element in it is a position of the
//! switch, rules of the same table look it up, and it lives for [`LIFE`]. Whoever holds the switch puts
//! it there by a datagram to itself, which a rule in the output hook takes (and drops: that is how we
//! know that the table is there). A holder that hangs, is stopped or frozen holds no longer: the switch
//! is a watchdog timer (a dead man's switch) that the kernel keeps.
//!
//! Tried with nft 1.0.6 on kernel 6.18: a datagram takes 4 µs.

use bentpipe_sockets::socket;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

/// How long a position lasts without being held again. It is less than the second after which TCP repeats a SYN (RFC
/// 6298, section 2), so that a connection that begins while the holder hangs is delayed by one repetition at most.
pub const LIFE: Duration = Duration::from_millis(800);

/// The priority, before all other chains, because one of them might drop the datagrams.
const PLACE: i32 = -1000;

/// The holder's side of the switch.
#[derive(Debug)]
pub struct Switch {
    hold: UdpSocket,
    leave: UdpSocket,
    /// The marks by which the table recognises our datagrams.
    marks: [u32; 2],
}

impl Switch {
    /// Makes a switch for the namespace of the calling thread, in no position. `marks` are for its
    /// datagrams: no other packet has them.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or without descriptors.
    pub fn new(marks: [u32; 2]) -> io::Result<Self> {
        let open = |mark| {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.set_nonblocking(true)?;
            socket::set_mark(&socket, mark)?;
            Ok::<_, io::Error>(socket)
        };
        Ok(Self {
            hold: open(marks[0])?,
            leave: open(marks[1])?,
            marks,
        })
    }

    /// What belongs into the body of the table.
    pub fn body(&self) -> String {
        let [hold, leave] = self.marks;
        format!(
            "\
set positions {{
  type inet_service; size 64; flags dynamic, timeout;
}}
chain switch {{
  type filter hook output priority {PLACE}; policy accept;
  meta mark {hold:#x} update @positions {{ udp dport timeout {}ms }} drop
  meta mark {leave:#x} delete @positions {{ udp dport }} drop
}}
",
            LIFE.as_millis()
        )
    }

    /// What a rule says that is for TCP and UDP packets while the switch is in `position`.
    pub fn matches(position: u16) -> String {
        // A set is looked up by what comes from the packet: all of it is masked away.
        format!("th dport & 0 ^ {position} @positions")
    }

    /// Holds `position`, not 0, for [`LIFE`] from now on. Says whether the table is there.
    pub fn hold(&self, position: u16) -> bool {
        Self::tell(&self.hold, position)
    }

    /// Takes the switch out of `position` at once. Says whether the table is there.
    pub fn leave(&self, position: u16) -> bool {
        Self::tell(&self.leave, position)
    }

    fn tell(socket: &UdpSocket, position: u16) -> bool {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, position));
        match socket.send_to(&[], to) {
            // Dropped in the output hook: the kernel says EPERM to the sender.
            Err(error) => error.kind() == io::ErrorKind::PermissionDenied,
            Ok(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;
    use crate::nft::{OwnerTable, TableFamily};
    use crate::{need, nft};
    use std::net::TcpStream;
    use std::time::Instant;

    const MARKS: [u32; 2] = [0x6211_0001, 0x6211_0002];

    /// What a SYN meets.
    fn met() -> String {
        let before = counts();
        // It is dropped, so nobody answers.
        let _ = TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], 99)), LIFE / 16);
        let after = counts();
        let moved = after.iter().zip(&before).find(|(a, b)| a.1 > b.1);
        moved.unwrap().0.0.clone()
    }

    fn counts() -> Vec<(String, u64)> {
        let tables = nft::list(&["tables"]).unwrap();
        let name = tables.split_whitespace().last().unwrap().to_owned();
        let counts = nft::Tally::open().unwrap().read(TableFamily::Inet, &name);
        let counts = counts.unwrap().into_iter();
        counts.map(|count| (count.name, count.packets)).collect()
    }

    #[test]
    fn a_switch_is_thrown_by_packets_and_falls_back_by_itself() {
        need!(Root, Nft);
        let netns = Netns::create("switch").unwrap();
        netns
            .run(|| {
                let switch = Switch::new(MARKS).unwrap();
                assert!(!switch.hold(1), "there is no table");
                let rule = |position| {
                    let which = Switch::matches(position);
                    format!("tcp flags syn {which} counter name at_{position} drop\n")
                };
                let body = format!(
                    "counter at_1 {{\n}}\ncounter at_2 {{\n}}\ncounter nowhere {{\n}}\n{}chain look {{\n type filter hook output priority 0;\n {}{} tcp flags syn counter name nowhere drop\n}}\n",
                    switch.body(),
                    rule(1),
                    rule(2)
                );
                let table = OwnerTable::load(TableFamily::Inet, "switch", &body).unwrap();
                assert_eq!(met(), "nowhere");
                assert!(switch.hold(1));
                assert_eq!(met(), "at_1");
                assert!(switch.leave(1) && switch.hold(2));
                assert_eq!(met(), "at_2");
                // Held again, it stays beyond its life.
                let until = Instant::now() + LIFE * 2;
                while Instant::now() < until {
                    assert!(switch.hold(2));
                    std::thread::sleep(LIFE / 8);
                }
                assert_eq!(met(), "at_2");
                std::thread::sleep(LIFE + LIFE / 8);
                assert_eq!(met(), "nowhere");
                // Everybody's rules are flushed, and ours stay.
                nft::apply("flush ruleset").unwrap();
                assert!(switch.hold(2));
                drop(table);
                assert!(!switch.hold(2), "the table is gone");
            })
            .unwrap();
    }
}
