//! The kernel's names of the controls. A name is registered once in a kernel, for all namespaces; each
//! process has its own, so that none depends on the programs, the maps or the life of another.

use crate::{HYBLA, RATE};
use std::os::unix::fs::MetadataExt;
use std::sync::LazyLock;

/// The kernel takes names of 15 bytes.
const PREFIX: &str = "bentpipe_";
/// Mainline Linux has BBR's version 1, which the simulator calls by its number, under the plain name.
const BBR1: (&str, &str) = ("bbr1", "bbr");
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Users' name, kernel's name.
static NAMES: LazyLock<[(&str, String); 2]> = LazyLock::new(|| {
    // The pid namespace is part of the name, because processes of different containers may have the same number.
    let namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.ino());
    let digits = digits(std::process::id(), namespace);
    [HYBLA, RATE].map(|name| (name, format!("{}{digits}", stem(name))))
});

/// The name for `setsockopt(TCP_CONGESTION)`: of [`HYBLA`] and [`RATE`] this process's, such as
/// `bentpipe_r1x9ce`; of the simulator's `bbr1` mainline Linux' `bbr`; of others their own.
pub fn kernel_name(name: &str) -> &str {
    if name == BBR1.0 {
        return BBR1.1;
    }
    let ours = NAMES.iter().find(|(users, _)| *users == name);
    ours.map_or(name, |(_, kernels)| kernels)
}

/// The name that users write, of one that the kernel shows, whichever process registered it.
pub fn user_name(name: &str) -> &str {
    let ours = [HYBLA, RATE].into_iter().find(|users| {
        let digits = name.strip_prefix(stem(users));
        digits.is_some_and(|digits| {
            digits.len() == 5 && digits.bytes().all(|digit| DIGITS.contains(&digit))
        })
    });
    ours.unwrap_or(name)
}

/// What the kernel's names of a control begin with: the prefix and one letter.
fn stem(name: &str) -> &str {
    &name[..=PREFIX.len()]
}

/// Five digits of FNV-1a.
fn digits(pid: u32, namespace: u64) -> String {
    let mut hash = [u64::from(pid), namespace]
        .iter()
        .flat_map(|part| part.to_le_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let mut digits = String::new();
    for _ in 0..5 {
        digits.push(char::from(DIGITS[(hash % 36) as usize]));
        hash /= 36;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_the_kernel_and_come_back() {
        for name in [HYBLA, RATE] {
            let kernels = kernel_name(name);
            assert!(
                kernels.len() == 15 && kernels.starts_with(PREFIX),
                "{kernels}"
            );
            assert_eq!(user_name(kernels), name);
        }
        assert_ne!(kernel_name(HYBLA), kernel_name(RATE));
        assert_eq!((kernel_name("bbr1"), user_name("bbr")), ("bbr", "bbr"));
        for name in [
            "cubic",
            "bentpipe_rate",
            "bentpipe_r1x9c",
            "bentpipe_x1x9ce",
        ] {
            assert_eq!(user_name(name), name);
        }
    }

    #[test]
    fn each_process_has_its_own() {
        assert_ne!(digits(1, 7), digits(2, 7));
        assert_ne!(digits(1, 7), digits(1, 8));
    }
}
