//! The kernel's names of the controls. A name is registered once in a kernel, for all namespaces; each
//! build's has a digest of its programs, so that a new version beside an old one runs its own.

use crate::object;
use crate::{HYBLA, RATE};
use std::sync::LazyLock;

/// The kernel takes names of 15 bytes.
const PREFIX: &str = "bentpipe_";
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// Users' name, kernel's name.
static NAMES: LazyLock<[(&str, String); 2]> = LazyLock::new(|| {
    [HYBLA, RATE].map(|name| {
        let kind = &name[PREFIX.len()..=PREFIX.len()];
        (
            name,
            format!("{PREFIX}{kind}{}", digest(object::code(name))),
        )
    })
});

/// The name for `setsockopt(TCP_CONGESTION)`: of [`HYBLA`] and [`RATE`] this build's, such as
/// `bentpipe_r1x9ce`; of others their own.
pub fn kernel_name(name: &str) -> &str {
    let ours = NAMES.iter().find(|(users, _)| *users == name);
    ours.map_or(name, |(_, kernels)| kernels)
}

/// The name that users write, of one that the kernel shows.
pub fn user_name(name: &str) -> &str {
    let ours = NAMES.iter().find(|(_, kernels)| kernels == name);
    ours.map_or(name, |(users, _)| users)
}

/// Five digits of `code`: FNV-1a.
fn digest(code: &[u8]) -> String {
    let mut hash = code.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
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
        assert_eq!(
            (kernel_name("cubic"), user_name("cubic")),
            ("cubic", "cubic")
        );
    }

    #[test]
    fn other_programs_have_another_name() {
        assert_ne!(digest(b"one"), digest(b"two"));
    }
}
