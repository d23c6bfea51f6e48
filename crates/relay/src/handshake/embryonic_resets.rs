//! How many SYNs the kernel has dropped that its listeners had answered, because their clients reset that.
//!
//! Somebody who forges a client's address has its host reset our answers. Such a SYN comes into the queue again when it is repeated, as
//! one does that has reached no listener.

use std::fs;

/// The count of the calling thread's namespace; 0 where it cannot be had.
pub(crate) fn embryonic_resets() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/net/netstat").unwrap_or_default();
    count(&text).unwrap_or(0)
}

/// That of a file like that one: a line of names, and below it one of numbers.
fn count(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with("TcpExt: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let place = names.split(' ').position(|name| name == "EmbryonicRsts")?;
    numbers.split(' ').nth(place)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_by_its_name() {
        let text = "TcpExt: SyncookiesSent EmbryonicRsts TW\nTcpExt: 1 22 3\nIpExt: InNoRoutes\nIpExt: 7\n";
        assert_eq!(count(text), Some(22));
        assert_eq!(count("TcpExt: EmbryonicRsts\n"), None);
    }
}
