//! The Ids of a client's sessions.
//!
//! Each time that a machine begins a job its session has another Id: what is still on its way of the time before would
//! count for this one, and a word that all is there have a file deleted that never arrived. Of a put the first
//! half of the Id stays the same, by which a server knows who begins anew after a kill; but not where the Id alone
//! tells this time from the one before, for want of timestamps that are echoed. Who does not know the machine's own Id
//! cannot guess any.

use crate::job::{Job, Target};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;

/// That of `job` at `server`, where `fresh` was drawn at random for this client; `echoed` when timestamps show what an answer is
/// an answer to.
pub(crate) fn of(job: &Job, server: SocketAddr, fresh: u32, echoed: bool) -> u32 {
    let here = std::env::current_dir().unwrap_or_default();
    let what = match job {
        Job::Get {
            target: Target::File(_, path),
            ..
        } => format!("get {path}"),
        Job::Get { .. } => "get".to_owned(),
        Job::Put {
            local: Some(path), ..
        } => format!("put {}", path.display()),
        Job::Put { .. } => "put".to_owned(),
        Job::List { .. } => "list".to_owned(),
        Job::Delete { .. } => "delete".to_owned(),
    };
    let lasting = format!(
        "{}\n{}\n{what}\n{}\n{server}",
        machine().trim(),
        here.display(),
        job.remote(),
    );
    let own = half(&format!("{lasting}\n{fresh}"));
    let first = match job {
        Job::Put { local: Some(_), .. } if echoed => half(&lasting),
        _ => half(&format!("{fresh}\n{lasting}")),
    };
    u32::from(first) << 16 | u32::from(own)
}

/// Whether the put of Id `one` may be that of Id `other`, begun anew.
pub(crate) const fn may_be_anew(one: u32, other: u32) -> bool {
    one >> 16 == other >> 16
}

/// Half an Id made of `text`.
fn half(text: &str) -> u16 {
    let digest = Sha256::digest(text);
    u16::from_be_bytes([digest[0], digest[1]])
}

/// What tells this machine from others with the same command, such as those behind one NAT.
fn machine() -> String {
    let id = std::fs::read_to_string("/etc/machine-id");
    // Containers often have none; their names differ.
    id.ok()
        .filter(|id| !id.trim().is_empty())
        .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_session_has_the_id_of_the_time_before_and_a_put_is_known_again() {
        let server = "10.0.0.1:7542".parse().unwrap();
        let put = |path: &str| Job::Put {
            local: Some(path.into()),
            remote: path.to_owned(),
            give: true,
            size: None,
        };
        let list = Job::List {
            remote: "a".to_owned(),
        };
        for (job, echoed, known) in [
            (put("a"), true, true),
            (put("a"), false, false),
            (list, true, false),
        ] {
            let ids = [1, 2].map(|fresh| of(&job, server, fresh, echoed));
            assert_eq!(ids[0], of(&job, server, 1, echoed), "within one client");
            assert_ne!(ids[0], ids[1]);
            assert_eq!(may_be_anew(ids[0], ids[1]), known, "{job:?}");
        }
        let [a, b] = ["a", "b"].map(|path| of(&put(path), server, 1, true));
        assert!(!may_be_anew(a, b));
    }
}
