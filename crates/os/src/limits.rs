//! How many descriptors this process may have, and has; and the memory that there is.

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

/// The memory of this machine.
pub fn memory() -> Bytes {
    let about = rustix::system::sysinfo();
    Bytes((about.totalram as u64).saturating_mul(about.mem_unit.into()))
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
    fn the_memory_is_that_of_proc() {
        let text = std::fs::read_to_string("/proc/meminfo").unwrap();
        let kibibytes: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert_eq!(memory(), Bytes(kibibytes << 10));
    }
}
