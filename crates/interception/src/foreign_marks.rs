//! How the operator's rules would take the marks of a gateway.
//!
//! A client's packet has no mark when it is forwarded. The packet that the gateway sends in its place has one, and rules
//! that compare a few bits of it (`meta mark & 0x4000 == 0x4000 masquerade`, `ip rule … fwmark 0x200/0x200`) may match
//! that by chance. [`Marks::new`] chooses marks that such rules take for no mark.

use crate::mark::Marks;
use bentpipe_os::netlink::{Mark, Netlink};
use bentpipe_os::nft;

/// Marks that kube-proxy masquerades and drops (`--iptables-masquerade-bit` is 14 by default). With the legacy iptables
/// nft does not show its rules.
const KUBE_PROXY: [Mark; 2] = [single(14), single(15)];

const fn single(bit: u32) -> Mark {
    Mark {
        value: 1 << bit,
        mask: 1 << bit,
    }
}

/// What the rules of others compare marks with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignMarks(Vec<Mark>);

impl Default for ForeignMarks {
    fn default() -> Self {
        Self(KUBE_PROXY.to_vec())
    }
}

impl ForeignMarks {
    /// Reads the rules of the calling thread's namespace: nft's, and those of routing.
    pub fn look() -> Self {
        let mut found = Self::default();
        match nft::list_rules() {
            Ok(rules) => found.read(&rules),
            Err(error) => tracing::warn!(%error, "cannot see which marks the rules compare"),
        }
        match Netlink::open().and_then(|netlink| netlink.rules_by_arrival()) {
            Ok(rules) => rules.iter().for_each(|rule| found.read(rule)),
            Err(error) => tracing::warn!(%error, "cannot see which marks routes depend on"),
        }
        found
    }

    /// Says which rules will take the gateway's packets for marked by somebody else, where no mark avoids that.
    pub fn warn(&self, marks: Marks) {
        for mark in self.misreading(&marks.of_sockets()) {
            tracing::warn!(
                "rules that compare marks with {mark} will match connections of the gateway, whose marks are {:#x} and those that follow; let them compare other bits",
                marks.intercepted()
            );
        }
    }

    /// Those comparisons that come out otherwise for one of `marks` than for a packet without mark.
    pub(crate) fn misreading(&self, marks: &[u32]) -> impl Iterator<Item = &Mark> {
        let differs = |mark: &Mark, of: &u32| (of & mark.mask == mark.value) != (mark.value == 0);
        self.0
            .iter()
            .filter(move |mark| marks.iter().any(|of| differs(mark, of)))
    }

    /// Reads comparisons as nft(8) shows them (`mark & 0xff == 0x1`, `mark and 0xff != { 0x1, 0x2 }`) and as ip-rule(8) does
    /// (`fwmark 0x1/0xff`).
    fn read(&mut self, rules: &str) {
        for rule in rules.lines() {
            // What is spoken of in quotes is text.
            let rule: String = rule.split('"').step_by(2).collect();
            let words: Vec<&str> = rule
                .split([' ', ',', '{', '}', '\t'])
                .filter(|word| !word.is_empty())
                .collect();
            for (at, word) in words.iter().enumerate() {
                // The mark of a connection is another one.
                let connection = at > 0 && words[at - 1] == "ct";
                let rest = &words[at + 1..];
                match (*word, rest) {
                    ("mark", ["&" | "and", mask, "==" | "!=", values @ ..]) if !connection => {
                        self.compare(number(mask), values);
                    }
                    ("mark", ["==" | "!=", values @ ..]) if !connection => {
                        self.compare(Some(u32::MAX), values);
                    }
                    ("mark", values) if !connection => self.compare(Some(u32::MAX), values),
                    ("fwmark", [value, ..]) => {
                        let (value, mask) = value.split_once('/').unwrap_or((value, "0xffffffff"));
                        self.compare(number(mask), &[value]);
                    }
                    _ => {}
                }
            }
        }
    }

    fn compare(&mut self, mask: Option<u32>, values: &[&str]) {
        let Some(mask) = mask else { return };
        let values = values.iter().map_while(|value| number(value));
        for value in values {
            let mark = Mark { value, mask };
            // By the upper eight bits an operator tells gateways from others, and by all of them what has any mark from
            // what has none: on purpose.
            let meant = mark == Mark::GATEWAYS || mark == Mark::exact(0);
            if !meant && !self.0.contains(&mark) {
                self.0.push(mark);
            }
        }
    }
}

fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_os::owner::Owner;

    fn foreign(rules: &str) -> ForeignMarks {
        let mut found = ForeignMarks(Vec::new());
        found.read(rules);
        found
    }

    #[test]
    fn comparisons_are_read_as_nft_and_ip_write_them() {
        let rules = "\
table ip kube {
    meta mark & 0x00004000 == 0x00004000 masquerade
    meta mark and 0x00000200 != 0x00000000 accept
    meta mark { 0x7, 9 } accept
    ct mark & 0x10 == 0x10 accept
    meta mark set meta mark & 0xffffbfff ct mark set mark
    meta mark & 0xff000000 == 0x62000000 accept comment \"mark & 0x1 == 0x1\"
}
pref 100 fwmark 0x200/0x300 lookup 77
pref 101 fwmark 0x5 lookup 78";
        let of = |value, mask| Mark { value, mask };
        let all = vec![
            of(0x4000, 0x4000),
            of(0, 0x200),
            of(7, u32::MAX),
            of(9, u32::MAX),
            of(0x200, 0x300),
            of(5, u32::MAX),
        ];
        assert_eq!(foreign(rules).0, all);
    }

    #[test]
    fn marks_read_as_none_where_rules_leave_any() {
        let rules = "mark & 0x3f00 == 0x100\nmark & 0x00800000 != 0\nmark & 0xc0000 == 0x40000";
        let mut found = ForeignMarks::default();
        found.read(rules);
        for start in 0..64 {
            let marks = Marks::new(Owner { pid: 7, start }, &found);
            assert_eq!(found.misreading(&marks.of_sockets()).count(), 0, "{start}");
            assert_eq!(marks.intercepted() & 0x0080_c000, 0);
        }
    }

    #[test]
    fn where_no_mark_is_left_the_fewest_rules_match() {
        // All marks of gateways have bit 30.
        let found = foreign("mark & 0x40000000 == 0x40000000\nmark & 0x100 == 0x100");
        let marks = Marks::new(Owner { pid: 7, start: 1 }, &found);
        let of = marks.of_sockets();
        let left: Vec<_> = found.misreading(&of).map(|mark| mark.value).collect();
        assert_eq!(left, [1 << 30]);
    }
}
