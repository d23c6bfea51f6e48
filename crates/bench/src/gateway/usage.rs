//! Reads what the machine and one process have used (proc(5)).

use std::fs;
use std::io;
use std::num::NonZero;
use std::thread;
use std::time::{Duration, Instant};

/// A reading of the whole machine's processors.
#[derive(Clone, Copy, Debug)]
pub(super) struct MachineCpu {
    at: Instant,
    online: usize,
    /// Time in which a processor had nothing to do, or was taken by the hypervisor; all together.
    unused: Duration,
}

impl MachineCpu {
    /// Reads the clock of idleness in /proc/stat.
    pub(super) fn now() -> io::Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        let unused = unused(&text).ok_or_else(|| unreadable("/proc/stat"))?;
        Ok(Self {
            at: Instant::now(),
            online: online(&text),
            unused,
        })
    }

    /// Processor seconds used since `earlier`, by everything: all time less idle, iowait and
    /// steal. Counted from idleness, which the kernel keeps to the nanosecond, not from the
    /// sampled user and system columns.
    pub(super) fn since(&self, earlier: &Self) -> f64 {
        let capacity = (self.at - earlier.at).as_secs_f64() * self.online as f64;
        let unused = self.unused.saturating_sub(earlier.unused).as_secs_f64();
        (capacity - unused).max(0.0)
    }

    /// Time since `earlier`.
    pub(super) fn elapsed(&self, earlier: &Self) -> Duration {
        self.at - earlier.at
    }
}

/// Processors that this process, and so a proxy it starts, may use.
pub(crate) fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// The machine's processors: /proc/stat has a line for each.
fn online(stat: &str) -> usize {
    stat.lines()
        .filter_map(|line| line.strip_prefix("cpu"))
        .filter(|rest| rest.starts_with(|digit: char| digit.is_ascii_digit()))
        .count()
}

/// idle + iowait + steal of the first line of /proc/stat, in USER_HZ, which is 100 on every Linux
/// port that Rust has.
fn unused(stat: &str) -> Option<Duration> {
    let columns: Vec<u64> = stat
        .lines()
        .next()?
        .strip_prefix("cpu ")?
        .split_whitespace()
        .map_while(|column| column.parse().ok())
        .collect();
    let steal = columns.get(7).copied().unwrap_or(0);
    Some(Duration::from_millis(
        (columns.get(3)? + columns.get(4)? + steal) * 10,
    ))
}

/// Processor time of all threads of `pid`, from their schedstat, to the nanosecond; of one that ends meanwhile, nothing.
pub(super) fn process_cpu(pid: u32) -> io::Result<Duration> {
    let mut total = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = task?.path().join("schedstat");
        let text = match fs::read_to_string(&path) {
            Err(error) if has_ended(&error) => continue,
            text => text?,
        };
        let ran = text.split_whitespace().next().and_then(|n| n.parse().ok());
        total += Duration::from_nanos(ran.ok_or_else(|| unreadable(&path.to_string_lossy()))?);
    }
    Ok(total)
}

/// Whether a file in /proc could not be opened, or be read, because its thread is gone.
fn has_ended(error: &io::Error) -> bool {
    const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH)
}

/// Memory of `pid` in bytes: private pages, and its share of shared ones (PSS).
pub(crate) fn process_memory(pid: u32) -> io::Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = fs::read_to_string(&path)?;
    field_kib(&text, "Pss:").ok_or_else(|| unreadable(&path))
}

/// Packets that the queues of the network namespace of `pid` have held (NFQUEUE): the last number that each gave.
pub(super) fn queued(pid: u32) -> io::Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/net/netfilter/nfnetlink_queue"))?;
    let numbers = text.lines().filter_map(|line| {
        let mut columns = line.split_whitespace();
        columns.nth(7)?.parse::<u64>().ok()
    });
    Ok(numbers.sum())
}

/// Descriptors that `pid` holds.
pub(super) fn process_descriptors(pid: u32) -> io::Result<u64> {
    Ok(fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64)
}

/// Bytes in the live kernel objects that connections are made of, on the whole machine.
///
/// Counted by object, not by page: a page that still holds one live object of an earlier step
/// would count whole. Left out is what the rest of the machine moves more than any flow here does
/// (file-system caches, packets, kmalloc), and TIME_WAIT, which is no idle flow.
pub(super) fn kernel_memory() -> io::Result<u64> {
    kernel_objects(&fs::read_to_string("/proc/slabinfo")?)
        .ok_or_else(|| unreadable("/proc/slabinfo"))
}

/// Beginnings of the names of those objects: sockets, their files, epoll items, port bindings,
/// tracked connections. (Pipes are kmalloc; one held by an idle flow shows in its descriptors.)
const OF_FLOWS: &[&str] = &[
    "TCP",
    "request_sock_TCP",
    "sock_inode_cache",
    "filp",
    "lsm_file_cache",
    "eventpoll_",
    "ep_head",
    "tcp_bind",
    "nf_conntrack",
];

fn kernel_objects(slabinfo: &str) -> Option<u64> {
    let mut caches = 0;
    let mut bytes = 0;
    for line in slabinfo.lines() {
        let mut columns = line.split_whitespace();
        let (Some(name), Some(active), _, Some(size)) = (
            columns.next(),
            columns.next().and_then(|n| n.parse::<u64>().ok()),
            columns.next(),
            columns.next().and_then(|n| n.parse::<u64>().ok()),
        ) else {
            continue;
        };
        caches += 1;
        if OF_FLOWS.iter().any(|prefix| name.starts_with(prefix)) {
            bytes += active * size;
        }
    }
    (caches > 0).then_some(bytes)
}

/// The value of `Name:  123 kB`, in bytes.
fn field_kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

fn unreadable(path: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("{path} has no such field"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn idleness_is_idle_iowait_and_steal() {
        let stat = "cpu  100 1 200 5000 30 0 7 20 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(unused(stat), Some(Duration::from_millis(50_500)));
        assert_eq!(online(stat), 1);
        assert_eq!(unused("intr 1 2 3"), None);
    }

    #[test]
    fn a_busy_process_shows_in_both_readings() {
        // Another process: the threads of this one come and go with the other tests.
        let mut busy = Command::new("sh")
            .args(["-c", "while :; do :; done"])
            .spawn()
            .unwrap();
        let machine = MachineCpu::now().unwrap();
        let process = process_cpu(busy.id()).unwrap();
        thread::sleep(Duration::from_millis(300));
        let used = process_cpu(busy.id()).unwrap() - process;
        let later = MachineCpu::now().unwrap();
        busy.kill().unwrap();
        busy.wait().unwrap();
        // Others may want the processor, too.
        assert!(used > Duration::from_millis(30), "{used:?}");
        let all = later.since(&machine);
        // Idleness is read in steps of 10 ms.
        assert!(all + 0.02 > used.as_secs_f64(), "{all} of which {used:?}");
        let capacity = later.elapsed(&machine).as_secs_f64() * processors() as f64;
        assert!(all <= capacity, "{all} of {capacity}");
    }

    #[test]
    fn objects_of_connections_are_counted_and_no_others() {
        let text = "slabinfo - version: 2.1\n\
            # name <active_objs> <num_objs> <objsize>\n\
            TCP 10 26 2432 13 8 : tunables 0 0 0 : slabdata 2 2 0\n\
            tw_sock_TCP 500 500 256 1 1 : tunables 0 0 0 : slabdata 1 1 0\n\
            ext4_inode_cache 1000 1000 1176 1 1 : tunables 0 0 0 : slabdata 1 1 0\n\
            filp 3 21 192 21 1 : tunables 0 0 0 : slabdata 1 1 0\n";
        assert_eq!(kernel_objects(text), Some(24_320 + 576));
        assert_eq!(kernel_objects(""), None);
    }

    #[test]
    fn a_process_has_memory_and_descriptors() {
        let pid = std::process::id();
        assert!(process_memory(pid).unwrap() > 100_000);
        let before = process_descriptors(pid).unwrap();
        let held: Vec<_> = (0..64)
            .map(|_| fs::File::open("/proc/self/stat").unwrap())
            .collect();
        assert!(process_descriptors(pid).unwrap() >= before + 32);
        drop(held);
    }
}
