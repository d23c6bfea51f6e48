//! The memory that the cgroups of this process leave it (`memory.max` of cgroup v2, `memory.limit_in_bytes` of v1).

use bentpipe_base::Bytes;
use bentpipe_process::limits;
use std::path::Path;

/// Where the hierarchies are mounted, by the controllers of /proc/self/cgroup, and the file that has the limit.
const HIERARCHIES: [(&str, &str, &str); 3] = [
    ("", "", "memory.max"),
    ("", "unified", "memory.max"),
    ("memory", "memory", "memory.limit_in_bytes"),
];

/// The least limit on memory of the cgroups that this process is in; `None` where none has one, or that cannot be read.
pub(crate) fn memory_limit() -> Option<Bytes> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let least = least(&own, Path::new("/sys/fs/cgroup"))?;
    // What v1 has where there is no limit is more than any machine.
    (least < limits::memory()).then_some(least)
}

/// As [`memory_limit`], with what /proc/self/cgroup says and where the hierarchies are.
fn least(own: &str, mounted: &Path) -> Option<Bytes> {
    let mut least = None;
    for line in own.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        for (controller, folder, file) in HIERARCHIES {
            if !controllers.split(',').any(|one| one == controller) {
                continue;
            }
            let root = mounted.join(folder);
            let own = root.join(path.trim_start_matches('/'));
            // Every cgroup above it counts too. In a container the path may be of another view than the mount, whose root
            // is the cgroup of the container then.
            for above in own.ancestors().take_while(|above| above.starts_with(&root)) {
                let text = std::fs::read_to_string(above.join(file)).unwrap_or_default();
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
        let of = |own: &str| least(own, mounted.path());
        set("a/b", "memory.max", "max\n");
        assert_eq!(of("0::/a/b\n"), None);
        set("a", "memory.max", "67108864\n");
        assert_eq!(of("0::/a/b\n"), Some(Bytes(64 << 20)));
        assert_eq!(of("0::/c\n"), None);
        set("memory/x", "memory.limit_in_bytes", "1048576\n");
        assert_eq!(of("7:cpu,memory:/x\n0::/a/b"), Some(Bytes(1 << 20)));
        assert_eq!(of("nonsense\n1:\n"), None);
        // As in a container: only the root is there.
        set("", "memory.max", "4096");
        assert_eq!(of("0::/system.slice/d.service"), Some(Bytes(4096)));
    }
}
