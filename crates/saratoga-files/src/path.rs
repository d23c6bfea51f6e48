//! Paths in a served directory, as both sides write them.

use crate::Error;
use bentpipe_wire::saratoga::MAX_PATH;
use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

/// Directories in which a new file may lie, one in another.
pub const MAX_DIRECTORIES: usize = 64;

/// `path` as it is asked for: relative, without empty names and `.`, so that `./a//b/` is `a/b`. Empty is the
/// served directory itself, as are `.` and `./`.
///
/// # Errors
/// A path that leaves the directory, or that no frame can carry.
pub fn normal(path: &str) -> Result<String, Error> {
    let refused = |why| {
        let path = path.to_owned();
        Err(Error::Path { path, why })
    };
    if path.starts_with('/') {
        return refused("is absolute");
    }
    if path.contains('\0') {
        return refused("has a NUL in it");
    }
    let names: Vec<&str> = path
        .split('/')
        .filter(|name| !matches!(*name, "" | "."))
        .collect();
    if names.contains(&"..") {
        return refused("leaves the directory");
    }
    let path = names.join("/");
    match path.len() {
        0..=MAX_PATH => Ok(path),
        len => Err(Error::LongPath { path, len }),
    }
}

/// The path of `name` in `folder`, both normal; an empty one is the served directory.
pub fn joined(folder: &str, name: &str) -> String {
    match (folder, name) {
        ("", name) => name.to_owned(),
        (folder, "") => folder.to_owned(),
        (folder, name) => format!("{folder}/{name}"),
    }
}

/// The directory that `path`, which is normal, lies in; none for the served directory.
pub fn above(path: &str) -> Option<&str> {
    let folder = || path.rsplit_once('/').map_or("", |(folder, _)| folder);
    (!path.is_empty()).then(folder)
}

/// Checks that no two of `places`, each with its name, lie in each other, because a source that is deleted after its
/// transfer must go to one place only.
///
/// # Errors
/// Two that do.
pub fn once(places: Vec<(String, PathBuf)>) -> Result<(), Error> {
    let mut names: HashMap<&Path, Vec<&str>> = HashMap::with_capacity(places.len());
    for (name, place) in &places {
        let known = names.entry(place).or_default();
        if known.len() < 2 && !known.contains(&name.as_str()) {
            known.push(name);
        }
    }
    for (inner, place) in &places {
        let mut around = { place.ancestors() }.filter_map(|place| names.get(place));
        let outer = around.find_map(|names| names.iter().find(|outer| *outer != inner));
        if let Some(outer) = outer {
            let (inner, outer) = (inner.clone(), if outer.is_empty() { "." } else { outer });
            return Err(Error::Nested {
                inner,
                outer: outer.to_owned(),
            });
        }
    }
    Ok(())
}

/// Where `file` is, by whatever way it is named.
///
/// # Errors
/// What the kernel says.
pub fn real(file: &Path) -> io::Result<PathBuf> {
    match (file.is_dir(), file.parent(), file.file_name()) {
        // A symbolic link is taken itself, not its target.
        (false, Some(folder), Some(name)) => {
            Ok(Path::new(".").join(folder).canonicalize()?.join(name))
        }
        _ => file.canonicalize(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_is_left_out_and_names_are_kept() {
        for (path, as_asked) in [
            ("", ""),
            (".", ""),
            ("./", ""),
            ("images/", "images"),
            ("./images", "images"),
            ("a//b/./c", "a/b/c"),
            (".conf", ".conf"),
            ("./.git/config", ".git/config"),
            ("..a/b..", "..a/b.."),
        ] {
            let normal = normal(path).expect("it is inside");
            assert_eq!(normal, as_asked, "{path:?}");
        }
        for path in ["/a", "..", "a/../b", "a/..", "a\0b"] {
            assert!(normal(path).is_err(), "{path:?}");
        }
        for (path, folder) in [("a/b/c", Some("a/b")), ("a", Some("")), ("", None)] {
            assert_eq!(above(path), folder, "{path:?}");
        }
        assert!(normal(&"a".repeat(1023)).is_ok());
        assert!(normal(&format!("./{}", "a".repeat(1023))).is_ok());
        let long = normal(&"a".repeat(1024)).expect_err("no frame carries it");
        assert!(long.to_string().contains("1024 octets"), "{long}");
        assert_eq!(
            (joined("", "a"), joined("a", "b")),
            ("a".to_owned(), "a/b".to_owned())
        );
    }

    #[test]
    fn what_is_in_another_is_no_second_place() {
        let places = |paths: &[&str]| {
            let named = paths.iter().map(|path| (path.to_string(), path.into()));
            once(named.collect()).map_err(|error| error.to_string())
        };
        assert_eq!(places(&["a", "b/a", "ab", "a"]), Ok(()));
        assert!(
            places(&["x", "a/b", "a"])
                .unwrap_err()
                .contains("`a/b` is in `a`")
        );
        assert!(places(&["a", ""]).unwrap_err().contains("`a` is in `.`"));
    }

    /// By comparing each with each other this would take an hour.
    #[test]
    fn a_shell_may_name_as_many_files_as_it_can() {
        let named = (0..100_000).map(|file| (format!("f{file}"), format!("f{file}").into()));
        once(named.collect()).unwrap();
    }
}
