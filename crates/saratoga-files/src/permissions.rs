//! What new files of a directory may be to others: its default ACL says so, or where it has none, this process's umask. And what
//! the directories leave of a file's mode in which it lies.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

/// The extended attribute, and the version of what is in it (`linux/posix_acl_xattr.h`): little endian, the version in 32
/// bits, then for each entry tag and permissions in 16 bits each and whose they are in 32.
const DEFAULT_ACL: &str = "system.posix_acl_default";
const VERSION: u32 = 2;
/// The tags of the entries that bound what the three parts of a mode give.
const USER_OBJ: u16 = 0x01;
const GROUP_OBJ: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// No attribute is longer.
const LONGEST: usize = 1 << 16;

/// What is left of the mode of a file that is made in `folder`.
pub(crate) fn permitted(folder: impl AsFd) -> u32 {
    use rustix::io::Errno;
    let mut octets = vec![0; LONGEST];
    match rustix::fs::fgetxattr(folder, DEFAULT_ACL, &mut octets) {
        // What nobody here can read makes files that are their owner's alone.
        Ok(len) => of_acl(&octets[..len]).unwrap_or(0o700),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => !umask() & 0o777,
        Err(_) => 0o700,
    }
}

/// What the default ACL in `octets` leaves of a mode (acl(5), "object creation and default ACLs"): the umask has no part in
/// it, and the group's bits are the mask's where there is one.
fn of_acl(octets: &[u8]) -> Option<u32> {
    let (version, entries) = octets.split_first_chunk()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
        return None;
    }
    let of = |tag: u16| {
        let [low, high] = tag.to_le_bytes();
        let entry = (entries.iter()).find(|entry| entry[..2] == [low, high])?;
        Some(u32::from(entry[2] & 0o7))
    };
    let group = of(MASK).or_else(|| of(GROUP_OBJ))?;
    Some(of(USER_OBJ)? << 6 | group << 3 | of(OTHER)?)
}

/// What this process takes from the mode of files that it makes; umask(2) tells it only where it is changed. Where nothing
/// tells it (no /proc), files are their owner's alone.
fn umask() -> u32 {
    static KNOWN: OnceLock<u32> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        let mask = line.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok());
        mask.unwrap_or(0o077)
    })
}

/// What of its mode the directories leave to the file at `path` that are on the way to it, which `open` opens.
pub(crate) fn reach(path: &Path, open: impl Fn(&Path) -> io::Result<OwnedFd>) -> u16 {
    let on_the_way = path.ancestors().skip(1);
    let folders = on_the_way.filter(|folder| !folder.as_os_str().is_empty());
    folders.fold(0o777, |all, folder| all & let_in(open(folder)))
}

/// What `folder` leaves of the modes of files: whoever may not enter it may not read what is in it.
pub(crate) fn let_in(folder: io::Result<OwnedFd>) -> u16 {
    let stat = folder.and_then(|folder| Ok(rustix::fs::fstat(folder)?));
    // One that has just gone lets nobody in.
    let mode = stat.map_or(0, |stat| stat.st_mode);
    let of = |bit: u32, part: u16| if mode & bit == 0 { 0 } else { part };
    0o700 | of(0o010, 0o070) | of(0o001, 0o007)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File, OpenOptions};
    use std::io::Write;
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

    /// A default ACL of entries of tag, permissions and whose.
    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut octets = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            octets.extend(tag.to_le_bytes());
            octets.extend(permissions.to_le_bytes());
            octets.extend(id.to_le_bytes());
        }
        octets
    }

    #[test]
    fn a_mode_is_what_the_kernel_makes_of_it_in_that_directory() {
        const USER: u16 = 0x02;
        let nobodys = u32::MAX;
        let place = tempfile::tempdir().unwrap();
        let named = vec![
            (USER_OBJ, 7, nobodys),
            (USER, 5, 65_534),
            (GROUP_OBJ, 0, nobodys),
            (MASK, 5, nobodys),
            (OTHER, 0, nobodys),
        ];
        let plain = vec![
            (USER_OBJ, 6, nobodys),
            (GROUP_OBJ, 6, nobodys),
            (OTHER, 4, nobodys),
        ];
        for (number, entries) in [vec![], named, plain].iter().enumerate() {
            let folder = place.path().join(number.to_string());
            fs::create_dir(&folder).unwrap();
            let opened = File::open(&folder).unwrap();
            if !entries.is_empty() {
                let flags = rustix::fs::XattrFlags::empty();
                let set = rustix::fs::fsetxattr(&opened, DEFAULT_ACL, &acl(entries), flags);
                if set == Err(rustix::io::Errno::OPNOTSUPP) {
                    let _ = std::io::stderr().write_all(b"SKIPPED: no ACLs here\n");
                    return;
                }
                set.unwrap();
            }
            let made = (OpenOptions::new().write(true).create_new(true).mode(0o777))
                .open(folder.join("file"))
                .unwrap();
            let mode = made.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(permitted(&opened), mode, "{entries:?}");
        }
        assert_eq!(of_acl(b"\x02\0\0\0\x01\0\x06\0"), None);
    }

    #[test]
    fn who_may_not_enter_a_directory_may_not_read_what_was_in_it() {
        let place = tempfile::tempdir().unwrap();
        let open = |path: &Path| Ok(File::open(place.path().join(path))?.into());
        for (modes, left) in [
            ([0o755, 0o755], 0o777),
            ([0o755, 0o700], 0o700),
            ([0o700, 0o755], 0o700),
            ([0o755, 0o750], 0o770),
            ([0o705, 0o751], 0o707),
        ] {
            fs::create_dir_all(place.path().join("a/b")).unwrap();
            for (path, mode) in ["a", "a/b"].into_iter().zip(modes) {
                let mode = fs::Permissions::from_mode(mode);
                fs::set_permissions(place.path().join(path), mode).unwrap();
            }
            assert_eq!(reach(Path::new("a/b/file"), open), left, "{modes:?}");
        }
        assert_eq!(reach(Path::new("file"), open), 0o777);
        assert_eq!(reach(Path::new("gone/file"), open), 0o700);
    }
}
