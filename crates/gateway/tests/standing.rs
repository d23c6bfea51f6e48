//! Connections that stand and are not split: what is forged in their names does them no more harm than without a gateway.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_base::Seq;
use bentpipe_gateway::Handshake;
use bentpipe_os::need;
use std::time::Duration;
use support::{Ip, Stage, converse, eventually, flood};

/// An end that has the connection answers a SYN by a challenge ACK (RFC 5961), and goes on.
#[test]
fn one_forged_syn_ends_no_connection_that_passes_unsplit() {
    need!(Root, Tproxy);
    for by_the_server in [true, false] {
        let stage = Stage::new();
        let (mut client, mut server) = stage.pair(Ip::V4);
        let gateway = stage.split_after(Handshake::EndToEnd);
        let ends = (client.local_addr().unwrap(), server.local_addr().unwrap());
        let (netns, (from, to)) = if by_the_server {
            (&stage.server, (ends.1, ends.0))
        } else {
            (&stage.client, ends)
        };
        for number in 1..=3 {
            flood::forge(netns, from, to, Seq(4711 * number));
            std::thread::sleep(Duration::from_millis(100));
            converse(&mut client, &mut server);
        }
        eventually("the SYN passes", || gateway.meter.read().unanswered > 0);
        converse(&mut client, &mut server);
        assert_eq!(gateway.meter.read().connected, 0);
    }
}
