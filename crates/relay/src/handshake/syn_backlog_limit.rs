//! The limit on unconfirmed SYNs at the gateway's listeners, up to which the kernel answers without SYN cookies.
//!
//! Beyond it the kernel answers with SYN cookies (tcp(7)) and keeps no state, so that the client's confirmation would
//! find no socket, by which alone our rules recognise it. So no more SYNs than this are let in.

use bentpipe_base::Instant;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Connections that may wait at a listener.
pub(crate) const LONGEST: u32 = 4096;
/// How often the setting `net.ipv4.tcp_syncookies` is read while SYNs are let in.
const OFTEN: Duration = Duration::from_millis(2);

/// How many SYNs the listeners of a worker take.
#[derive(Clone, Debug)]
pub struct SynBacklogLimit {
    /// The length of the listeners' queues, which `net.core.somaxconn` bounded when they began to listen.
    listening: usize,
    /// SYNs that may be unconfirmed at a time.
    pub(crate) capacity: usize,
    /// Each answer is a cookie (`net.ipv4.tcp_syncookies` is 2).
    pub(crate) cookies: bool,
    /// The setting `net.ipv4.tcp_syncookies`: to open it each time would take four system calls more.
    setting: Option<Arc<File>>,
    /// The settings are not read again before this time.
    next: Instant,
}

impl SynBacklogLimit {
    /// The limit of listeners that have just begun to listen in the calling thread's namespace.
    pub fn measure() -> Self {
        let most = read(Path::new("/proc/sys/net/core/somaxconn")).unwrap_or(LONGEST);
        let mut limit = Self {
            listening: most.min(LONGEST) as usize,
            capacity: 0,
            cookies: false,
            setting: File::open("/proc/sys/net/ipv4/tcp_syncookies")
                .ok()
                .map(Arc::new),
            next: Instant::ZERO,
        };
        limit.look();
        limit
    }

    /// Reads the settings before SYNs are let in, because a connection by a cookie would be reset.
    pub(crate) fn look_before(&mut self, now: Instant) {
        if now >= self.next {
            self.next = now + OFTEN;
            self.look();
        }
    }

    /// Reads the settings, which may have changed since the last time.
    pub(crate) fn look(&mut self) {
        let cookies = self.setting.as_deref().and_then(read_again).unwrap_or(1);
        let before = std::mem::replace(&mut self.cookies, cookies == 2);
        if self.cookies && !before {
            tracing::warn!(
                "every SYN would be answered by a cookie: new connections pass unsplit; set net.ipv4.tcp_syncookies to 1"
            );
        }
        // Without cookies the kernel reserves the last quarter of the backlog for hosts that it knows.
        let most =
            (cookies == 0).then(|| read(Path::new("/proc/sys/net/ipv4/tcp_max_syn_backlog")));
        self.capacity = capacity(self.listening, most.flatten());
    }
}

fn capacity(listening: usize, without_cookies: Option<u32>) -> usize {
    let most = without_cookies.map(|most| (most - most / 4).saturating_sub(1) as usize);
    most.map_or(listening, |most| most.min(listening))
}

fn read(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The number that a setting is now.
fn read_again(setting: &File) -> Option<u32> {
    let mut text = [0; 16];
    let length = setting.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(text.get(..length)?)
        .ok()?
        .trim()
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_cookies_a_quarter_is_left() {
        assert_eq!(capacity(4096, None), 4096);
        assert_eq!(capacity(4096, Some(128)), 95);
        assert_eq!(capacity(64, Some(128)), 64);
        assert_eq!(capacity(64, Some(0)), 0);
    }
}
