//! What a script's commands set of TCP before its first call: `sysctl -q net.ipv4.NAME=VALUE`, or `NAME=VALUE` with the path below
//! `/proc/sys`, as scripts for Linux have them. All else that commands do is not looked at.

use crate::script::{Action, Script};

/// One of them, such as `net.ipv4.tcp_ecn` and `1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// The settings of `script`, in its order.
pub(crate) fn of(script: &Script) -> Vec<Setting> {
    let before = script
        .events
        .iter()
        .take_while(|event| !matches!(event.action, Action::Call(_)));
    let commands = before.filter_map(|event| match &event.action {
        Action::Command(text) => Some(text.as_str()),
        _ => None,
    });
    commands.flat_map(read).collect()
}

/// The settings in the commands of `text`. A value in quotes or with what only a shell can work out is passed over.
fn read(text: &str) -> impl Iterator<Item = Setting> + '_ {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    lines.flat_map(str::split_whitespace).filter_map(|word| {
        let (path, value) = word.split_once('=')?;
        let name = path.strip_prefix("/proc/sys/").unwrap_or(path);
        let key = name.replace('/', ".");
        let plain = value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
        let ours = key.starts_with("net.ipv4.tcp_") && !value.is_empty() && plain;
        ours.then(|| Setting {
            key,
            value: value.to_owned(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_in_each_spelling() {
        let text = "../common/defaults.sh
            sysctl -q net.ipv4.tcp_ecn=1  # net.ipv4.tcp_sack=0
            sysctl -e -q net/ipv4/tcp_min_tso_segs=4
            ./set_sysctls.py /proc/sys/net/ipv4/tcp_early_retrans=0 \\
                /proc/sys/net/ipv4/tcp_timestamps=1
            sysctl -q net.ipv4.tcp_rmem=\"4096 131072 6291456\" net.core.somaxconn=9";
        let found: Vec<_> = read(text)
            .map(|setting| format!("{}={}", setting.key, setting.value))
            .collect();
        let wanted = [
            "net.ipv4.tcp_ecn=1",
            "net.ipv4.tcp_min_tso_segs=4",
            "net.ipv4.tcp_early_retrans=0",
            "net.ipv4.tcp_timestamps=1",
        ];
        assert_eq!(found, wanted);
    }
}
