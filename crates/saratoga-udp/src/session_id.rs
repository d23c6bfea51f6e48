//! The Ids of a client's sessions.
//!
//! Each time that a job is begun, the session has a new Id. With the same one, late frames of the session before would
//! count for this one: its "unknown session" would end it, and its "all arrived" make `give` delete a file that never
//! arrived. The first
//! half of a put's Id stays the same, by which a server recognises a client that begins again after a kill; but where
//! timestamps are not echoed the whole Id is new, because then the Id alone tells the two sessions apart. Nobody can
//! guess an Id without knowing the machine's own Id.

use crate::job::{Job, Target};
use sha2::{Digest, Sha256};
use std::net::SocketAddr;

/// The Id of the session of `job` at `server`. `fresh` was drawn at random for this client, which has begun the job `begun`
/// times before; `echoed` says that timestamps show to which session an answer belongs.
pub(crate) fn of(job: &Job, server: SocketAddr, fresh: u32, begun: u32, echoed: bool) -> u32 {
    on(&machine(), job, server, (fresh, begun), echoed)
}

/// That on the machine called so.
fn on(
    machine: &str,
    job: &Job,
    server: SocketAddr,
    (fresh, begun): (u32, u32),
    echoed: bool,
) -> u32 {
    let here = std::env::current_dir().unwrap_or_default();
    let what = match job {
        Job::Get {
            target: Target::File(_, path),
            ..
        } => format!("get {path}"),
        Job::Get { .. } => "get".to_owned(),
        Job::Put {
            local: Some(file), ..
        } => format!("put {}", file.path().display()),
        Job::Put { .. } => "put".to_owned(),
        Job::List { .. } => "list".to_owned(),
        Job::Delete { .. } => "delete".to_owned(),
    };
    let lasting = format!(
        "{}\n{}\n{what}\n{}\n{server}",
        machine.trim(),
        here.display(),
        job.remote(),
    );
    let own = half(&format!("{lasting}\n{fresh}\n{begun}"));
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

/// Identifies this machine, so that others behind the same NAT that run the same command get other Ids.
fn machine() -> String {
    let id = std::fs::read_to_string("/etc/machine-id");
    // Containers often have no machine Id, but different host names.
    id.ok()
        .filter(|id| !id.trim().is_empty())
        .unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_saratoga_files::LocalFile;

    #[test]
    fn no_session_has_the_id_of_the_time_before_and_a_put_is_known_again() {
        let server = "10.0.0.1:7542".parse().unwrap();
        let put = |path: &str| Job::Put {
            local: Some(LocalFile::named(path.into())),
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
            let ids = [1, 2].map(|fresh| of(&job, server, fresh, 0, echoed));
            assert_ne!(ids[0], ids[1]);
            let anew = of(&job, server, 1, 1, echoed);
            assert_ne!(ids[0], anew);
            assert!(may_be_anew(ids[0], anew), "within one client");
            assert_eq!(may_be_anew(ids[0], ids[1]), known, "{job:?}");
        }
        // Behind one NAT two machines that run the same command are not taken for one that begins anew.
        let [one, other] = ["one", "other"].map(|name| on(name, &put("a"), server, (1, 0), true));
        assert!(!may_be_anew(one, other) && one as u16 != other as u16);
        let [a, b] = ["a", "b"].map(|path| of(&put(path), server, 1, 0, true));
        assert!(!may_be_anew(a, b));
    }
}
