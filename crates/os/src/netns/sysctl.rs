//! Kernel settings of the calling thread's namespace.
//!
//! `/proc/sys/net` shows each thread the settings of the namespace it is in at the moment it opens
//! the file, so reading and writing from a thread inside is enough.

use super::NetnsError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// A kernel setting could not be read or written.
#[derive(Debug, Error)]
pub enum SysctlError {
    /// No sysctl has such a name.
    #[error("`{0}` is not a sysctl's name: write it as net.ipv4.tcp_rmem")]
    Name(String),
    /// It could not be read.
    #[error("cannot read sysctl {key} ({source}): does this kernel have it?")]
    Read {
        /// The setting.
        key: String,
        /// Why.
        source: io::Error,
    },
    /// It could not be written.
    #[error(
        "cannot set sysctl {key} to `{value}` ({source}): does this kernel have it, is the value allowed, are you root?"
    )]
    Write {
        /// The setting.
        key: String,
        /// What it should have been.
        value: String,
        /// Why.
        source: io::Error,
    },
    /// The namespace could not be entered.
    #[error(transparent)]
    Netns(#[from] NetnsError),
}

/// The value of a sysctl in the calling thread's namespace, without the newline; several numbers
/// are parted by one space (`"4096 131072 6291456"`).
///
/// `key` is written with dots, as sysctl(8) does, or with slashes, so that an interface name may
/// hold a dot: `net/ipv4/conf/eth0.1/rp_filter`.
///
/// # Errors
/// Fails when the kernel has no such setting.
pub fn read_sysctl(key: &str) -> Result<String, SysctlError> {
    let text = std::fs::read_to_string(path(key)?).map_err(|source| SysctlError::Read {
        key: key.to_owned(),
        source,
    })?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Sets a sysctl in the calling thread's namespace; `key` as for [`read_sysctl`].
///
/// # Errors
/// Fails when the kernel has no such setting or refuses the value.
pub fn write_sysctl(key: &str, value: &str) -> Result<(), SysctlError> {
    std::fs::write(path(key)?, value).map_err(|source| SysctlError::Write {
        key: key.to_owned(),
        value: value.to_owned(),
        source,
    })
}

fn path(key: &str) -> Result<PathBuf, SysctlError> {
    let path = match key.find(['.', '/']) {
        Some(first) if key[first..].starts_with('.') => key.replace('.', "/"),
        _ => key.to_owned(),
    };
    let proper = path.contains('/') && path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !proper {
        return Err(SysctlError::Name(key.to_owned()));
    }
    Ok(PathBuf::from("/proc/sys").join(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_files_under_proc_sys_only() {
        let file = |key| path(key).ok().map(|p| p.display().to_string());
        assert_eq!(
            file("net.ipv4.tcp_rmem").as_deref(),
            Some("/proc/sys/net/ipv4/tcp_rmem")
        );
        assert_eq!(
            file("net/ipv4/conf/eth0.1/rp_filter").as_deref(),
            Some("/proc/sys/net/ipv4/conf/eth0.1/rp_filter")
        );
        for key in [
            "",
            "net",
            "/etc/passwd",
            "net/../../../etc/passwd",
            "net..ipv4",
            "net.",
        ] {
            assert_eq!(file(key), None, "{key}");
        }
    }

    #[test]
    fn values_come_trimmed_and_single_spaced() {
        let value = read_sysctl("net.ipv4.tcp_rmem").unwrap();
        assert_eq!(value.split(' ').count(), 3, "{value:?}");
        let error = read_sysctl("net.ipv4.no_such_thing")
            .unwrap_err()
            .to_string();
        assert!(error.contains("net.ipv4.no_such_thing"), "{error}");
    }
}
