//! Shows that a process of ours lives, to processes in other pid namespaces that cannot see it.
//!
//! A container with the host's network sees none of the host's processes, and would take their rules and tables for
//! leftovers of dead ones. So a process that makes something in a network namespace holds a socket there as long as it
//! lives. The socket's name in the abstract namespace of unix(7), which belongs to the network namespace, carries the
//! process's [`Owner`]. The kernel lists these names, and closes the socket with the process. If somebody else takes
//! such a name, the worst result is that a leftover of ours is not removed.

use crate::owner::Owner;
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// As long as it is there, this process is known to live in the network namespace it was made in.
#[derive(Debug)]
pub(crate) struct Presence {
    _socket: UnixDatagram,
}

impl Presence {
    /// Shows this process in the calling thread's namespace. To be called before anything is made there
    /// that a sweep could take.
    pub(crate) fn show() -> io::Result<Self> {
        let owner = Owner::current().map_err(io::Error::other)?;
        let address = SocketAddr::from_abstract_name(owner.unique_name("lives"))?;
        let socket = UnixDatagram::bind_addr(&address)?;
        // Nobody is to send it anything.
        socket.shutdown(std::net::Shutdown::Read)?;
        Ok(Self { _socket: socket })
    }
}

/// The owners that show themselves in the calling thread's network namespace.
pub(crate) fn present() -> io::Result<HashSet<Owner>> {
    let listed = fs::read("/proc/thread-self/net/unix")?;
    Ok(read(&String::from_utf8_lossy(&listed)))
}

/// The names are the last column; those in the abstract namespace begin with `@`.
fn read(listed: &str) -> HashSet<Owner> {
    let names = listed.lines().filter_map(|line| line.rsplit_once(" @"));
    names
        .filter_map(|(_, name)| Some(Owner::parse(name)?.0))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;

    #[test]
    fn a_process_is_present_where_and_while_it_shows_itself() {
        crate::need!(Root);
        let me = Owner::current().unwrap();
        let unshared = std::thread::spawn(move || {
            // SAFETY: NEWNET unshares nothing that memory safety rests on.
            unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
                .unwrap();
            assert_eq!(present().unwrap(), HashSet::new());
            let [one, two] = [(); 2].map(|()| Presence::show().unwrap());
            assert_eq!(present().unwrap(), HashSet::from([me]));
            drop(one);
            assert_eq!(present().unwrap(), HashSet::from([me]));
            drop(two);
            assert_eq!(present().unwrap(), HashSet::new());
        });
        unshared.join().unwrap();
        let ours = Netns::create("present").unwrap();
        assert!(ours.run(present).unwrap().unwrap().contains(&me));
    }

    #[test]
    fn only_names_of_owners_are_read() {
        let listed = "Num       RefCount Protocol Flags    Type St Inode Path\n\
            ffff: 00000002 00000000 00000000 0002 01 123 @bentpipe_7_42_lives_0\n\
            ffff: 00000002 00000000 00000000 0002 01 124 @bentpipe_8_x\n\
            ffff: 00000002 00000000 00000000 0001 01 125 /run/bentpipe_9_42_lives_0\n\
            ffff: 00000002 00000000 00000000 0001 01 126\n";
        let living = read(listed);
        assert_eq!(living, HashSet::from([Owner { pid: 7, start: 42 }]));
    }
}
