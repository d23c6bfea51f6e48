//! Paths in a served directory, as both sides write them.

use crate::Error;
use bentpipe_wire::saratoga::MAX_PATH;

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
        assert!(normal(&"a".repeat(1023)).is_ok());
        assert!(normal(&format!("./{}", "a".repeat(1023))).is_ok());
        let long = normal(&"a".repeat(1024)).expect_err("no frame carries it");
        assert!(long.to_string().contains("1024 octets"), "{long}");
        assert_eq!(
            (joined("", "a"), joined("a", "b")),
            ("a".to_owned(), "a/b".to_owned())
        );
    }
}
