//! Rules of an operator that treat what this machine sends for somebody else unlike what it forwards.

use super::{NftError, list};
use crate::netlink::Mark;
use crate::owner::Owner;
use std::mem;

/// What was found in the calling thread's namespace; each thing as nft shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Rules that translate source addresses for a mark or the interface of arrival, which what this machine itself
    /// sends has not.
    pub translating: Vec<String>,
    /// Chains that let nothing into this machine, or nothing of its own out, unless a rule says so, in tables without a
    /// rule for marks of gateways.
    pub closing: Vec<String>,
}

/// Looks at all rules but those of this program. Rules of the older iptables are not shown by nft.
///
/// # Errors
/// Without nft, or the right to list (CAP_NET_ADMIN).
pub fn survey() -> Result<Survey, NftError> {
    Ok(read(&list(&["ruleset"])?))
}

/// A chain that is being read.
#[derive(Debug, Default)]
struct Chain<'a> {
    name: &'a str,
    /// Where it is hooked in; `None` for one that others jump to.
    hook: Option<&'a str>,
    rules: Vec<&'a str>,
}

/// Reads what `nft list ruleset` shows.
fn read(listing: &str) -> Survey {
    let mut survey = Survey::default();
    let (mut table, mut chains, mut chain) = ("", Vec::new(), Chain::default());
    for line in listing.lines() {
        let indented = line.len() - line.trim_start_matches('\t').len();
        // A comment on the program that made a table may follow.
        let line = line.split_once(" # ").map_or(line, |(rule, _)| rule).trim();
        match (indented, line.strip_suffix('{').map(str::trim)) {
            (0, Some(head)) => table = head.strip_prefix("table ").unwrap_or(head),
            (0, None) if line == "}" => survey.take(table, &mem::take(&mut chains)),
            (1, Some(head)) => chain.name = head.strip_prefix("chain ").unwrap_or_default(),
            (1, None) if line == "}" => chains.push(mem::take(&mut chain)),
            (2, None) if line.starts_with("type ") && line.contains(" hook ") => {
                chain.hook = Some(line);
            }
            (2, None) => chain.rules.push(line),
            _ => {}
        }
    }
    survey
}

impl Survey {
    /// What there is of it in one table.
    fn take(&mut self, table: &str, chains: &[Chain<'_>]) {
        let name = table.split_whitespace().nth(1).unwrap_or_default();
        if Owner::parse(name).is_some() {
            return;
        }
        let translates = |chain: &&Chain<'_>| {
            let hook = chain.hook.unwrap_or_default();
            hook.starts_with("type nat ") && hook.contains(" hook postrouting ")
        };
        let any = chains.iter().any(|chain| translates(&chain));
        let gateways = format!("{:#x}", Mark::GATEWAYS.value);
        let mut rules = chains.iter().flat_map(|chain| &chain.rules);
        let admits = rules.any(|rule| rule.contains(&gateways));
        for chain in chains {
            let hook = chain.hook.unwrap_or_default();
            let own = hook.contains(" hook output ") || hook.contains(" hook input ");
            let last = chain.rules.last().is_some_and(|rule| refuses(rule));
            if own && !admits && (hook.contains("policy drop") || last) {
                self.closing.push(format!("{table} {}", chain.name));
            }
            // Where a chain without a hook is jumped from is not looked into.
            let (jumps, here) = (translates(&chain), any && chain.hook.is_none());
            let asks = |rule: &&&str| {
                is_translation(rule, jumps) && (jumps || here) && asks_for_what_a_dial_lacks(rule)
            };
            let rules = chain.rules.iter().filter(asks);
            let named = rules.map(|rule| format!("{table} {}: {rule}", chain.name));
            self.translating.extend(named);
        }
    }
}

/// Whether a rule asks for nothing and lets nothing by.
fn refuses(rule: &str) -> bool {
    let mut words = rule.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "drop" | "reject" => return true,
            // `counter packets 1 bytes 2`.
            "counter" => {
                words.nth(3);
            }
            _ => return false,
        }
    }
    false
}

fn is_translation(rule: &str, jumps: bool) -> bool {
    let mut words = rule.split_whitespace();
    words.any(|word| {
        matches!(word, "masquerade" | "snat") || jumps && matches!(word, "jump" | "goto")
    })
}

fn asks_for_what_a_dial_lacks(rule: &str) -> bool {
    let mut words = rule.split_whitespace();
    words.any(|word| matches!(word, "iif" | "iifname" | "iifgroup" | "mark"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Netns;
    use crate::{need, nft};

    #[test]
    fn rules_that_ask_for_what_a_dial_lacks_are_named() {
        need!(Root, Nft);
        let netns = Netns::create("survey").unwrap();
        let rules = "\
table inet good {
  chain post {
    type nat hook postrouting priority srcnat; policy accept;
    oifname wan masquerade
    ip saddr 10.0.0.0/8 oifname wan snat ip to 192.0.2.1
  }
  chain pre {
    type nat hook prerouting priority dstnat; policy accept;
    iifname wan jump there
  }
  chain there {
    tcp dport 80 dnat ip to 10.0.0.1
  }
}
table inet bad {
  chain post {
    type nat hook postrouting priority srcnat; policy accept;
    iifname sat0 jump more
    meta mark 7 masquerade
    jump more
  }
  chain more {
    ct mark 9 masquerade
    oifname wan masquerade
  }
}
table ip shut {
  chain out {
    type filter hook output priority filter; policy drop;
    ct state established accept
  }
  chain in {
    type filter hook input priority filter; policy accept;
    iif lo accept
    counter reject with icmp type admin-prohibited
  }
  chain open {
    type filter hook input priority filter; policy accept;
    tcp dport 7 drop
  }
}
table ip6 knows {
  chain in {
    type filter hook input priority filter; policy drop;
    jump more
  }
  chain more {
    meta mark and 0xff000000 == 0x62000000 accept
  }
}
";
        let found = netns.run(|| {
            assert_eq!(survey().unwrap(), Survey::default());
            nft::apply(rules).unwrap();
            let body = "chain o {\ntype filter hook output priority 0; policy drop;\n}";
            let own = nft::OwnerTable::load(nft::TableFamily::Inet, "own", body);
            (survey().unwrap(), own.map(drop))
        });
        let (found, _) = found.unwrap();
        assert_eq!(found.closing, ["ip shut out", "ip shut in"]);
        let expected = [
            "inet bad post: iifname \"sat0\" jump more",
            "inet bad post: meta mark 0x00000007 masquerade",
            "inet bad more: ct mark 0x00000009 masquerade",
        ];
        assert_eq!(found.translating, expected);
    }

    #[test]
    fn anything_is_read() {
        for text in [
            "",
            "}",
            "\t}",
            "{",
            "table {\n\tchain {\n\t\ttype  hook \n\t}\n}\n}",
            "table x",
        ] {
            assert_eq!(read(text), Survey::default());
        }
    }
}
