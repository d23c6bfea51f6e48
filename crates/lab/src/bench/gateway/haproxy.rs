//! HAProxy at its best: how it is configured and how traffic reaches it.
//!
//! The settings are the fastest of those tried in this very comparison (docs/bench-gateway.md has
//! the list): tcp mode, splicing asked for outright in both directions, pipes of 256 KiB, buffers
//! of 64 KiB, one thread a processor as ours.

use std::fmt::Write as _;

/// Where HAProxy listens in the gateway's namespace.
pub(super) const PORT: u16 = 7000;

/// Splicing in both directions whenever there is something to splice.
pub(super) const SPLICE: &[&str] = &["splice-request", "splice-response"];

/// Splicing when HAProxy finds that it would pay.
pub(super) const SPLICE_AUTO: &[&str] = &["splice-auto"];

/// The configuration file.
pub(super) fn configuration(threads: usize, splice: &[&str], most_flows: usize) -> String {
    let mut text = format!(
        "global\n\
         \x20   nbthread {threads}\n\
         \x20   maxconn {most_flows}\n\
         \x20   tune.bufsize 65536\n\
         \x20   tune.pipesize 262144\n\
         defaults\n\
         \x20   mode tcp\n\
         \x20   timeout connect 10s\n\
         \x20   timeout client 10m\n\
         \x20   timeout server 10m\n"
    );
    for option in splice {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "    option {option}");
    }
    let _ = write!(
        text,
        "listen bench\n\
         \x20   bind 127.0.0.1:{PORT} transparent\n\
         \x20   source 0.0.0.0 usesrc client\n\
         \x20   server origin *:0\n"
    );
    text
}

/// The nft rules that lead every intercepted connection to HAProxy, the same two that lead ours.
pub(super) fn interception(lan: &str, sat: &str, mark: u32) -> String {
    format!(
        "table ip haproxy {{\n\
         chain divert {{\n\
         type filter hook prerouting priority mangle; policy accept;\n\
         tcp flags & (syn | ack) != syn socket transparent 1 meta mark set {mark} accept\n\
         iifname {{ \"{lan}\", \"{sat}\" }} meta l4proto tcp \
         tproxy to 127.0.0.1:{PORT} meta mark set {mark} accept\n\
         }}\n\
         }}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// HAProxy itself must take every line of it.
    #[test]
    fn haproxy_takes_the_configuration() {
        if Command::new("haproxy").arg("-v").output().is_err() {
            return;
        }
        for splice in [SPLICE, SPLICE_AUTO] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("haproxy.cfg");
            std::fs::write(&file, configuration(2, splice, 4500)).unwrap();
            let output = Command::new("haproxy")
                .args(["-c", "-f"])
                .arg(&file)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            assert!(!said.contains("WARNING"), "{said}");
        }
    }
}
