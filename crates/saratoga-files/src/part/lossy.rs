//! Parts on a disk that takes more than it can keep, as thin volumes and quotas over a network do: it says so when what was
//! written is put on it, and once.

use super::*;
use crate::tree::Tree;
use bentpipe_wire::saratoga::{Entry, Kind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MEGABYTE: usize = 1 << 20;
/// What is announced: more than the disk can keep.
const SIZE: usize = 8 * MEGABYTE;

/// Unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(arguments: &[&str], at: PathBuf) -> Self {
        std::fs::create_dir(&at).unwrap();
        let mounted = Command::new("mount").args(arguments).arg(&at).status();
        assert!(mounted.unwrap().success(), "{arguments:?}");
        Self(at)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// 64 MiB in a file, on a disk that has room for 6.
struct Thin {
    disk: Mounted,
    _below: Mounted,
}

impl Thin {
    fn new(root: &Path) -> Self {
        let below = ["-t", "tmpfs", "-o", "size=6m", "none"];
        let below = Mounted::new(&below, root.join("below"));
        let image = below.0.join("image");
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let image = image.to_str().unwrap();
        let made = Command::new("mkfs.ext4")
            .args(["-q", "-F", "-O", "^has_journal", "-m", "0", image])
            .status();
        assert!(made.unwrap().success());
        let disk = Mounted::new(&["-o", "loop", image], root.join("disk"));
        Self {
            disk,
            _below: below,
        }
    }

    fn open(&self) -> (Part, Option<Kept>) {
        let tree = Tree::open(&self.disk.0).unwrap();
        let (folder, name) = tree.place("a", false).unwrap();
        Part::open(folder, name, "a", false).unwrap()
    }
}

fn metadata() -> Metadata {
    Metadata::new(7, Kind::File, Entry::file("a", SIZE as u64))
}

fn up_to(end: usize) -> Ranges {
    let mut ranges = Ranges::default();
    ranges.insert(0, end as u64);
    ranges
}

/// The beginning of a part that is on the disk.
fn begun(part: &mut Part) {
    part.write(0, &[1; MEGABYTE]).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while part.on_disk != up_to(MEGABYTE) {
        part.save(&metadata(), &up_to(MEGABYTE)).unwrap();
        assert!(Instant::now() < until, "it is never on the disk");
    }
}

/// Without a checksum zeros would get its name.
#[test]
fn what_was_lost_when_all_had_come_is_not_gone_on_with() {
    bentpipe_os::need!(Root, Program("mkfs.ext4"), Program("losetup"));
    let root = tempfile::tempdir().unwrap();
    let thin = Thin::new(root.path());
    let (mut part, _) = thin.open();
    begun(&mut part);
    for at in (MEGABYTE..SIZE).step_by(MEGABYTE) {
        part.write(at as u64, &[1; MEGABYTE]).unwrap();
    }
    part.save(&metadata(), &up_to(SIZE)).unwrap();
    let lost = part.finish(SIZE as u64, &metadata(), None).unwrap_err();
    assert!(lost.to_string().contains("put under its name"), "{lost}");
    let (part, kept) = thin.open();
    // Not even what was on the disk before: where in it the file is may be lost too.
    assert!(kept.is_none());
    assert_eq!(part.file.metadata().unwrap().len(), 0);
}

/// Nothing is sent in vain until then.
#[test]
fn what_was_lost_on_the_way_ends_the_session_and_is_not_gone_on_with() {
    bentpipe_os::need!(Root, Program("mkfs.ext4"), Program("losetup"));
    let root = tempfile::tempdir().unwrap();
    let thin = Thin::new(root.path());
    let (mut part, _) = thin.open();
    begun(&mut part);
    let mut have = MEGABYTE;
    let lost = loop {
        if have < SIZE {
            part.write(have as u64, &[1; MEGABYTE]).unwrap();
            have += MEGABYTE;
        }
        if let Err(lost) = part.save(&metadata(), &up_to(have)) {
            break lost;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(part.is_lost(), "{lost}");
    drop(part);
    let (part, kept) = thin.open();
    assert!(kept.is_none());
    // What is written again is not lost of this session.
    assert!(!part.is_lost());
}
