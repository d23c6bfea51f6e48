//! The memory that the cgroups of this process leave it (`memory.max` of cgroup v2, `memory.limit_in_bytes` of v1).

use crate::limits;
use bentpipe_base::Bytes;
use std::path::Path;

/// Where a hierarchy is mounted that has `controllers` in /proc/self/cgroup, and the file with a limit there.
struct Limit {
    controllers: &'static str,
    folder: &'static str,
    file: &'static str,
}

const fn limit(controllers: &'static str, folder: &'static str, file: &'static str) -> Limit {
    Limit {
        controllers,
        folder,
        file,
    }
}

const MEMORY: [Limit; 3] = [
    limit("", "", "memory.max"),
    limit("", "unified", "memory.max"),
    limit("memory", "memory", "memory.limit_in_bytes"),
];

/// With v2 the buffers of sockets count as memory.
const TCP_MEMORY: [Limit; 1] = [limit("memory", "memory", "memory.kmem.tcp.limit_in_bytes")];

/// The least limit on memory of the cgroups that this process is in; `None` where none has one, or that cannot be read.
pub fn memory_limit() -> Option<Bytes> {
    own(&MEMORY)
}

/// The least limit of its own that these cgroups have for the buffers of TCP (v1), likewise.
pub fn tcp_memory_limit() -> Option<Bytes> {
    own(&TCP_MEMORY)
}

fn own(limits: &[Limit]) -> Option<Bytes> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let least = least(&own, Path::new("/sys/fs/cgroup"), limits)?;
    // What v1 has where there is no limit is more than any machine.
    (least < limits::memory()).then_some(least)
}

/// As [`own`], with what /proc/self/cgroup says and where the hierarchies are.
fn least(own: &str, mounted: &Path, limits: &[Limit]) -> Option<Bytes> {
    let mut least = None;
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        for limit in limits {
            if !controllers.split(',').any(|one| one == limit.controllers) {
                continue;
            }
            let root = mounted.join(limit.folder);
            let own = root.join(path.trim_start_matches('/'));
            // Every cgroup above it counts too. In a container the path may be of another view than the mount, whose root
            // is the cgroup of the container then.
            for above in own.ancestors().take_while(|above| above.starts_with(&root)) {
                let text = std::fs::read_to_string(above.join(limit.file)).unwrap_or_default();
                if let Ok(limit) = text.trim().parse().map(Bytes) {
                    least = Some(least.map_or(limit, |least: Bytes| least.min(limit)));
                }
            }
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_least_limit_of_either_version_counts() {
        let mounted = tempfile::tempdir().unwrap();
        let set = |folder: &str, file: &str, text: &str| {
            let folder = mounted.path().join(folder);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), text).unwrap();
        };
        let of = |own: &str| least(own, mounted.path(), &MEMORY);
        set("a/b", "memory.max", "max\n");
        assert_eq!(of("0::/a/b\n"), None);
        set("a", "memory.max", "67108864\n");
        assert_eq!(of("0::/a/b\n"), Some(Bytes(64 << 20)));
        assert_eq!(of("0::/c\n"), None);
        set("memory/x", "memory.limit_in_bytes", "1048576\n");
        assert_eq!(of("7:cpu,memory:/x\n0::/a/b"), Some(Bytes(1 << 20)));
        let of_tcp = |own: &str| least(own, mounted.path(), &TCP_MEMORY);
        assert_eq!(of_tcp("7:cpu,memory:/x\n0::/a/b"), None);
        set("memory", "memory.kmem.tcp.limit_in_bytes", "8192\n");
        assert_eq!(of_tcp("7:cpu,memory:/x\n0::/a/b"), Some(Bytes(8192)));
        assert_eq!(of("nonsense\n1:\n"), None);
        // As in a container: only the root is there.
        set("", "memory.max", "4096");
        assert_eq!(of("0::/system.slice/d.service"), Some(Bytes(4096)));
    }
}
