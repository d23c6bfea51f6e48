//! The file descriptors that this process may have and has, and the memory of the machine.

use bentpipe_base::Bytes;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Raises the soft limit on descriptors to the hard one and returns it; `usize::MAX` when there is
/// none. A process may always do that.
pub fn raise_descriptors() -> io::Result<usize> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        let raised = Rlimit {
            current: maximum,
            maximum,
        };
        setrlimit(Resource::Nofile, raised)?;
    }
    Ok(maximum.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    }))
}

/// How many descriptors this process may have now; `usize::MAX` when there is no limit.
pub fn descriptors() -> usize {
    let current = getrlimit(Resource::Nofile).current;
    current.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    })
}

/// The memory of this machine.
pub fn memory() -> Bytes {
    let about = rustix::system::sysinfo();
    Bytes((about.totalram as u64).saturating_mul(about.mem_unit.into()))
}

/// What a processor may have given to sockets before it is in the kernel's books (`net.core.mem_pcpu_rsv`, by
/// default).
const UNBOOKED: u64 = 1 << 20;

/// The most that the buffers of TCP hold at present, those of all programs and namespaces together: what the
/// kernel has in its books (/proc/net/sockstat), and what may not be there yet. It costs as little whatever
/// connections there are.
///
/// # Errors
/// Where /proc does not tell.
pub fn tcp_memory() -> io::Result<Bytes> {
    let text = std::fs::read_to_string("/proc/net/sockstat")?;
    let pages = tcp_pages(&text).ok_or(io::ErrorKind::InvalidData)?;
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u64;
    let booked = pages.saturating_mul(rustix::param::page_size() as u64);
    Ok(Bytes(booked.saturating_add(processors * UNBOOKED)))
}

/// The pages of `TCP: inuse 1 orphan 0 tw 0 alloc 148 mem 267`.
fn tcp_pages(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = line.split_whitespace();
    words.find(|word| *word == "mem")?;
    words.next()?.parse().ok()
}

/// The descriptors that this process has open.
pub fn open_descriptors() -> io::Result<usize> {
    // One of them is the listing's own.
    Ok(std::fs::read_dir("/proc/self/fd")?
        .count()
        .saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_counted() {
        assert!(raise_descriptors().unwrap() >= 64);
        let files: Vec<_> = (0..10)
            .map(|_| std::fs::File::open("/dev/null").unwrap())
            .collect();
        // Other tests open and close descriptors meanwhile, but not these ten.
        assert!(open_descriptors().unwrap() >= 10);
        drop(files);
    }

    #[test]
    fn the_memory_of_tcp_is_at_least_what_its_buffers_hold() {
        let text =
            "sockets: used 34\nTCP: inuse 1 orphan 0 tw 0 alloc 148 mem 267\nUDP: inuse 0 mem 5\n";
        assert_eq!(tcp_pages(text), Some(267));
        assert_eq!(tcp_pages("TCP: inuse 1 mem\nUDP: inuse 0 mem 5\n"), None);
        assert_eq!(tcp_pages(""), None);

        use std::io::Write as _;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_far, _) = listener.accept().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut written = 0;
        while let Ok(count) = near.write(&[7; 65_536]) {
            written += count as u64;
        }
        let all = tcp_memory().unwrap();
        assert!(written > 0 && all >= Bytes(written), "{all:?} of {written}");
    }

    #[test]
    fn the_memory_is_that_of_proc() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let kibibytes: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(memory(), Bytes(kibibytes << 10));
    }
}
