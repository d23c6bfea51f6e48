//! Surveys the operator's rules for those that would treat packets that a gateway sends for a client unlike packets
//! that it forwards.

mod local;

use super::{NftError, command, nat};
use crate::owner::Owner;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::mem;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long nft may take to list the rules.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was found in the calling thread's namespace; each thing as nft shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Rules that translate source addresses for a mark or the interface of arrival, which what this machine itself
    /// sends has not.
    pub translating: Vec<String>,
    /// Input or output chains that drop by default, and have no rule that accepts marks of gateways.
    pub closing: Vec<String>,
    /// Rules in input or output chains that may drop or refuse packets of TCP, with no rule before them that accepts
    /// marks of gateways. Of the legacy iptables it is only known whether there may be such rules.
    pub refusing: Vec<String>,
    /// Rules in prerouting chains that let packets by because conntrack knows their connection, where others may be dropped.
    pub tracking: Vec<String>,
    /// Rules in output chains that give packets a zone of conntrack's, which has it track what another rule has exempted.
    pub zoning: Vec<String>,
}

impl Survey {
    /// Whether some packets of TCP may not reach this machine, or not leave it.
    pub fn shuts_local(&self) -> bool {
        !self.closing.is_empty() || !self.refusing.is_empty()
    }
}

/// Looks at all rules but those of this program. Rules of the older iptables are not shown by nft.
///
/// # Errors
/// Without nft, or the right to list (CAP_NET_ADMIN), and when nft takes 10 s.
pub fn survey() -> Result<Survey, NftError> {
    let mut survey = read(&listing()?);
    let older =
        older_filters().map(|table| format!("the older iptables' table {table} (not read)"));
    survey.refusing.extend(older);
    Ok(survey)
}

/// Whether the older iptables has rules in the calling thread's namespace that may drop packets. They move no
/// [`super::Generation`].
pub fn iptables_may_filter() -> bool {
    older_filters().next().is_some()
}

fn older_filters() -> impl Iterator<Item = &'static str> {
    let tables = ["filter", "mangle", "security"].into_iter();
    tables.filter(|table| nat::iptables_has(table))
}

/// What nft says of all rules: without the elements of sets, of which an operator may have so many that nft takes minutes
/// for them, but with those of maps that lead to verdicts.
fn listing() -> Result<String, NftError> {
    let end = Instant::now() + PATIENCE;
    let terse = ask(&super::RULES, end)?;
    let mut listing = String::new();
    let (mut table, mut map) = ("", None);
    for line in terse.lines() {
        if let Some(head) = line.strip_prefix("table ") {
            table = head.split(" {").next().unwrap_or_default();
        } else if let Some(head) = line.strip_prefix("\tmap ") {
            map = head.strip_suffix(" {");
        } else if line == "\t}"
            && let Some(map) = map.take()
        {
            let mut arguments = vec!["list", "map"];
            arguments.extend(table.split(' '));
            arguments.push(map);
            // They are the last of a map, which is all of this table that is listed.
            let whole = ask(&arguments, end)?;
            let elements = whole.find("\t\telements = ").map(|at| &whole[at..]);
            listing.push_str(elements.map_or("", |rest| rest.trim_end_matches("\t}\n}\n")));
        } else if line.starts_with("\t\ttype") && !line.ends_with(" : verdict") {
            map = None;
        }
        listing.push_str(line);
        listing.push('\n');
    }
    Ok(listing)
}

/// What nft says to `arguments`, if it does before `end`.
fn ask(arguments: &[&str], end: Instant) -> Result<String, NftError> {
    let doing = || "list the rules".to_owned();
    let io = |source: io::Error| NftError::Io {
        doing: doing(),
        source,
    };
    let text = rustix::fs::memfd_create("bentpipe-rules", MemfdFlags::CLOEXEC);
    let mut text = File::from(text.map_err(|errno| io(errno.into()))?);
    let mut child = command()
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(text.try_clone().map_err(io)?)
        .stderr(Stdio::null())
        .spawn()
        .map_err(NftError::Start)?;
    // The pid is nft's own as long as nobody has waited for it.
    let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).and_then(|pidfd| {
        let patience = end.saturating_duration_since(Instant::now());
        let patience = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: patience.subsec_nanos().into(),
        };
        poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&patience))
    });
    if !matches!(ended, Ok(1..)) {
        // nft may have ended at this moment.
        let _ = child.kill();
        let _ = child.wait();
        return Err(NftError::Silent {
            doing: doing(),
            seconds: PATIENCE.as_secs(),
        });
    }
    let status = child.wait().map_err(io)?;
    if !status.success() {
        return Err(NftError::Refused {
            doing: doing(),
            message: format!("{status}: see `nft list ruleset`"),
        });
    }
    let mut bytes = Vec::new();
    text.rewind().map_err(io)?;
    text.read_to_end(&mut bytes).map_err(io)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A chain that is being read.
#[derive(Debug, Default)]
struct Chain<'a> {
    name: &'a str,
    /// Where it is hooked in; `None` for one that others jump to.
    hook: Option<&'a str>,
    rules: Vec<&'a str>,
}

impl Chain<'_> {
    /// Whether it is hooked in at `hook` of nft's names.
    fn is_at(&self, hook: &str) -> bool {
        let mut words = self.hook.unwrap_or_default().split_whitespace();
        words.any(|word| word == "hook") && words.next() == Some(hook)
    }
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
            // A map may lead to chains, as a chain does.
            (1, Some(head)) => {
                let named = |kind| head.strip_prefix(kind);
                chain.name = named("chain ").or(named("map ")).unwrap_or_default();
            }
            (1, None) if line == "}" => chains.push(mem::take(&mut chain)),
            (2, None) if line.starts_with("type ") && line.contains(" hook ") => {
                chain.hook = Some(line);
            }
            (2.., _) => chain.rules.push(line),
            _ => {}
        }
    }
    survey
}

impl Survey {
    /// Adds what one table has of such rules.
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
        let known = local::Chains::new(chains);
        let named = local::refusing(&known).into_iter();
        let named = named.map(|(chain, rule)| format!("{table} {chain}: {rule}"));
        self.refusing.extend(named);
        let named = local::asking_for_tracking(&known).into_iter();
        self.tracking
            .extend(named.map(|(chain, rule)| format!("{table} {chain}: {rule}")));
        let named = local::giving_zones(&known).into_iter();
        self.zoning
            .extend(named.map(|(chain, rule)| format!("{table} {chain}: {rule}")));
        for (place, chain) in chains.iter().enumerate() {
            let hook = chain.hook.unwrap_or_default();
            let own = chain.is_at("output") || chain.is_at("input");
            let last = chain.rules.last().is_some_and(|rule| refuses(rule));
            if own && !known.lets_by(place) && (hook.contains("policy drop") || last) {
                self.closing.push(format!("{table} {}", chain.name));
            }
            // It is not examined from where a chain without a hook is reached.
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

/// Whether a rule has no condition and accepts nothing.
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
  map ports {
    type inet_service : verdict
    elements = { 8 : drop, 9 : goto later }
  }
  chain open {
    type filter hook input priority filter; policy accept;
    ct state invalid drop
    tcp dport 7 drop
    tcp dport vmap @ports
  }
  chain later {
    ip saddr 10.0.0.1 reject
  }
  chain elsewhere {
    ip saddr 10.0.0.2 drop
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
    jump elsewhere
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
        let refusing: Vec<_> = found
            .refusing
            .iter()
            .map(|rule| rule.split(" with ").next().unwrap())
            .collect();
        let expected = [
            "ip shut ports: elements = { 8 : drop, 9 : goto later }",
            "ip shut in: counter packets 0 bytes 0 reject",
            "ip shut open: tcp dport 7 drop",
            "ip shut later: ip saddr 10.0.0.1 reject",
        ];
        assert_eq!(refusing, expected);
        let expected = [
            "inet bad post: iifname \"sat0\" jump more",
            "inet bad post: meta mark 0x00000007 masquerade",
            "inet bad more: ct mark 0x00000009 masquerade",
        ];
        assert_eq!(found.translating, expected);
    }

    #[test]
    fn a_large_set_costs_no_time() {
        need!(Root, Nft);
        let netns = Netns::create("survey-set").unwrap();
        let elements = |one: fn(u32) -> String| (0..20_000).map(one).collect::<Vec<_>>().join(",");
        let addresses = elements(|n| format!("10.{}.{}.{}", n >> 15, n >> 7 & 255, n & 127));
        let rules = format!(
            "table inet blocked {{
  set bad {{ type ipv4_addr; flags interval; elements = {{ {addresses} }}; }}
  map names {{ type ipv4_addr : mark; elements = {{ 10.0.0.1 : 7 }}; }}
  map none {{ type inet_service : verdict; }}
  map ports {{ type inet_service : verdict; elements = {{ 8 : drop }}; }}
  chain forward {{ type filter hook forward priority 0; ip saddr @bad drop; }}
  chain in {{ type filter hook input priority 0; tcp dport vmap @ports; }}
}}"
        );
        let (found, times) = netns
            .run(|| {
                nft::apply(&rules).unwrap();
                let begun = Instant::now();
                let found = survey().unwrap();
                let surveyed = begun.elapsed();
                let rules = nft::list_rules().unwrap();
                let listed = begun.elapsed() - surveyed;
                assert!(rules.contains("ip saddr @bad drop") && !rules.contains("10.0.1.1"));
                assert!(nft::list(&["ruleset"]).unwrap().contains("10.0.1.1"));
                let whole = begun.elapsed() - surveyed - listed;
                (found, (surveyed, listed, whole))
            })
            .unwrap();
        assert_eq!(
            found.refusing,
            ["inet blocked ports: elements = { 8 : drop }"]
        );
        assert!(times.0 < times.2 && times.1 < times.2, "{times:?}");
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
