//! What no transport can exceed on a path.

use bentpipe_base::{Bytes, Rate};
use bentpipe_scenario::{Amount, Flow, Path, Scenario};

/// A full packet of a flow: what links carry of it, and the part that is no content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FullPacket {
    /// From IP's header to the last byte, without what links add.
    pub length: Bytes,
    /// The headers in it.
    pub headers: Bytes,
}

impl FullPacket {
    /// The full packet of `flow` on `path`: as long as the path's MTU, with the headers of Saratoga or of TCP with
    /// timestamps. In the simulator the keys of `tcp` may say other sizes.
    pub fn new(scenario: &Scenario, flow: &Flow, path: &Path<'_>) -> Self {
        Self {
            length: path.mtu(),
            headers: match (flow.is_saratoga(), flow.amount) {
                (true, Amount::Bytes(size)) => scenario.ip.saratoga_header(size),
                _ => scenario.ip.tcp_header(),
            },
        }
    }

    /// The goodput that cannot be exceeded by such packets on `path`; `None` where nothing limits the rate.
    pub fn goodput_limit(self, path: &Path<'_>) -> Option<Rate> {
        path.goodput_limit(self.length, self.headers)
    }
}
