//! Parts that others take away, lock and name; records over power cuts.

use super::*;
use crate::tree::Tree;
use bentpipe_wire::saratoga::{Code, Entry, Kind, Time};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

#[test]
fn a_part_that_was_put_under_its_name_meanwhile_is_not_written() {
    let root = tempfile::tempdir().unwrap();
    let (folder, _) = Tree::open(root.path()).unwrap().place("a", false).unwrap();
    let part = format!(".a{PART}");
    let first = locked(&folder, &part).unwrap();
    // Another session has opened it too, and comes to lock it when the first is done.
    let second = folder.create(&part).unwrap();
    assert!(lock(&folder, &second, &part).is_err());
    folder.rename(&part, "a").unwrap();
    drop(first);
    assert!(!lock(&folder, &second, &part).unwrap());
    // What was thrown away is none, either.
    let third = folder.create(&part).unwrap();
    folder.remove(&part);
    assert!(!lock(&folder, &third, &part).unwrap());
    assert!(locked(&folder, &part).is_ok());
}

fn metadata() -> Metadata {
    let entry = Entry {
        modified: Time(800_000_000),
        created: Time(800_000_000),
        ..Entry::file("a", 3_000_000)
    };
    Metadata::new(7, Kind::File, entry)
}

/// Has `have` recorded and put on the disk.
fn keep(part: &mut Part, have: &Ranges) {
    let until = Instant::now() + Duration::from_secs(20);
    while part.on_disk != *have || part.syncing.is_some() || part.noting.is_some() {
        part.save(&metadata(), have).unwrap();
        assert!(Instant::now() < until, "it is never on the disk");
    }
}

/// Its writer would take for its own what comes of another session.
#[test]
fn a_part_that_was_taken_away_gets_no_name() {
    let root = tempfile::tempdir().unwrap();
    let tree = Tree::open(root.path()).unwrap();
    let open = || {
        let (folder, name) = tree.place("a", false).unwrap();
        Part::open(folder, name, "a", false)
    };
    let (mut first, _) = open().unwrap();
    first.write(0, &[1; 1000]).unwrap();
    std::fs::remove_file(root.path().join(format!(".a{PART}"))).unwrap();
    let (mut second, _) = open().unwrap();
    second.write(0, &[2; 500]).unwrap();
    keep(&mut second, &ranges(0, 500));
    assert!(first.save(&metadata(), &ranges(0, 1000)).is_err());
    let gone = first.finish(1000, &metadata(), None).unwrap_err();
    assert!(gone.to_string().contains("try again"), "{gone}");
    assert!(!root.path().join("a").exists());
    // Nor is anything of the other thrown away with it.
    drop(second);
    let (second, kept) = open().unwrap();
    assert_eq!(kept.unwrap().have, ranges(0, 500));
    // Nor does what a kill in the middle of a record leaves stay.
    let fresh = format!(".a{RECORD}{NEW}{RECORD}");
    std::fs::write(root.path().join(fresh), "half").unwrap();
    second.finish(500, &metadata(), None).unwrap();
    assert_eq!(std::fs::read(root.path().join("a")).unwrap(), [2; 500]);
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
}

/// As by a backup of hard links: the session that writes it goes on.
#[test]
fn a_part_with_two_names_is_not_taken_from_who_writes_it() {
    let root = tempfile::tempdir().unwrap();
    let tree = Tree::open(root.path()).unwrap();
    let open = || {
        let (folder, name) = tree.place("a", false).unwrap();
        Part::open(folder, name, "a", false).map(|(part, _)| part)
    };
    let first = open().unwrap();
    let backup = root.path().join("backup");
    std::fs::hard_link(root.path().join(format!(".a{PART}")), &backup).unwrap();
    assert_eq!(open().unwrap_err().code(), Code::IN_USE);
    first.write(0, &[1; 1000]).unwrap();
    first.finish(1000, &metadata(), None).unwrap();
    assert_eq!(std::fs::read(root.path().join("a")).unwrap(), [1; 1000]);
}

fn ranges(from: u64, to: u64) -> Ranges {
    let mut ranges = Ranges::default();
    ranges.insert(from, to);
    ranges
}

/// After a power cut the machine has another start, and what was not on the disk is gone or zero.
#[test]
fn what_a_power_cut_may_have_cost_is_not_kept() {
    let root = tempfile::tempdir().unwrap();
    let tree = Tree::open(root.path()).unwrap();
    let open = || {
        let (folder, name) = tree.place("a", false).unwrap();
        Part::open(folder, name, "a", false).unwrap()
    };
    let (mut part, kept) = open();
    assert_eq!(kept, None);
    part.write(0, &[1; 1_000_000]).unwrap();
    let first = ranges(0, 1_000_000);
    keep(&mut part, &first);
    part.write(1_000_000, &[2; 1_000_000]).unwrap();
    part.save_last(&metadata(), &ranges(0, 2_000_000)).unwrap();
    drop(part);
    // The end of a session costs nothing.
    let (part, kept) = open();
    assert_eq!(kept.unwrap().have, ranges(0, 2_000_000));
    drop(part);
    let record = root.path().join(".a.saratoga-record");
    let text = std::fs::read_to_string(&record).unwrap();
    let cut = text.replace(&record::boot(), "another");
    assert_ne!(cut, text);
    std::fs::write(&record, cut).unwrap();
    let (part, kept) = open();
    assert_eq!(kept.unwrap().have, first);
    // Nor is it, where it came to the size of the file.
    part.file.set_len(1_000_000).unwrap();
    drop(part);
    assert_eq!(open().1.unwrap().have, first);
}

/// A thread may not have come to write the record when the session ends.
#[test]
fn what_is_recorded_last_is_there() {
    let root = tempfile::tempdir().unwrap();
    let tree = Tree::open(root.path()).unwrap();
    for times in 1..=100 {
        let name = times.to_string();
        let open = || {
            let (folder, name) = tree.place(&name, false).unwrap();
            Part::open(folder, name, "a", false).unwrap()
        };
        let (mut part, _) = open();
        part.write(0, &[1; 100]).unwrap();
        part.save(&metadata(), &ranges(0, 100)).unwrap();
        part.save_last(&metadata(), &ranges(0, 100)).unwrap();
        drop(part);
        let kept = open()
            .1
            .unwrap_or_else(|| panic!("the record {times} is lost"));
        assert_eq!(kept.have, ranges(0, 100));
    }
}

#[test]
fn a_record_is_written_when_there_is_something_new() {
    let root = tempfile::tempdir().unwrap();
    let tree = Tree::open(root.path()).unwrap();
    let (folder, name) = tree.place("a", false).unwrap();
    let (mut part, _) = Part::open(folder, name, "a", false).unwrap();
    part.write(0, &[1; 200]).unwrap();
    let first = ranges(0, 100);
    keep(&mut part, &first);
    let record = root.path().join(".a.saratoga-record");
    let inode = || std::fs::metadata(&record).unwrap().ino();
    part.save(&metadata(), &first).unwrap();
    // Each that is written is another file, while this one is open.
    let (_open, before) = (File::open(&record).unwrap(), inode());
    part.save(&metadata(), &first).unwrap();
    assert_eq!(inode(), before);
    keep(&mut part, &ranges(0, 200));
    assert_ne!(inode(), before);
}

#[test]
fn what_cannot_be_put_under_its_name_stays_private() {
    let root = tempfile::tempdir().unwrap();
    let tree = Tree::open(root.path()).unwrap();
    let (folder, name) = tree.place("a", false).unwrap();
    let (part, _) = Part::open(folder, name, "a", false).unwrap();
    std::fs::create_dir(root.path().join("a")).unwrap();
    let file = part.file.try_clone().unwrap();
    part.finish(0, &metadata(), None).unwrap_err();
    let mode = file.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_was_kept_of_another_content_is_not_on_the_disk() {
    let root = tempfile::tempdir().unwrap();
    let tree = Tree::open(root.path()).unwrap();
    let (folder, name) = tree.place("a", false).unwrap();
    let (mut part, _) = Part::open(folder, name, "a", false).unwrap();
    part.write(0, &[1; 100]).unwrap();
    part.on_disk = ranges(0, 100);
    part.begin_anew(&ranges(0, 60));
    assert_eq!(part.file.metadata().unwrap().len(), 60);
    part.save_last(&metadata(), &ranges(0, 60)).unwrap();
    assert_eq!(part.load().unwrap().on_disk, Ranges::default());
}
