//! HAProxy at its best: how it is configured and how traffic reaches it.
//!
//! The settings are the fastest of those tried in this very comparison (docs/bench-gateway.md): tcp
//! mode, splicing asked for outright in both directions, pipes of 1 MiB (the most that
//! fs.pipe-max-size allows by default), buffers of 64 KiB, a thread a processor as ours.

use std::fmt::Write as _;

/// Where HAProxy listens in the gateway's namespace.
pub(super) const PORT: u16 = 7000;

/// Splicing in both directions whenever there is something to splice.
pub(super) const SPLICE: &[&str] = &["splice-request", "splice-response"];

/// Splicing when HAProxy finds that it would pay.
pub(super) const SPLICE_AUTO: &[&str] = &["splice-auto"];

/// The configuration file.
pub(super) fn configuration(
    threads: usize,
    splice: &[&str],
    most_flows: usize,
    most_pipes: usize,
) -> String {
    let mut text = format!(
        "global\n\
         \x20   nbthread {threads}\n\
         \x20   maxconn {most_flows}\n\
         \x20   maxpipes {most_pipes}\n\
         \x20   tune.bufsize 65536\n\
         \x20   tune.pipesize 1048576\n\
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
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    #[test]
    fn haproxy_takes_the_configuration_without_a_warning() {
        bentpipe_os::need!(Program("haproxy"));
        for splice in [SPLICE, SPLICE_AUTO] {
            let mut child = Command::new("haproxy")
                .args(["-c", "-f", "/dev/stdin"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let text = configuration(2, splice, 4500, 700);
            let mut stdin = child.stdin.take().unwrap();
            stdin.write_all(text.as_bytes()).unwrap();
            drop(stdin);
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
            assert!(!said.contains("WARNING"), "{said}");
        }
    }
}
