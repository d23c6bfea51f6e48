//! The probes: each tells, when it fails, what it found.

use crate::netlink::{Family, Mark, Netlink};
use crate::netns::Netns;
use crate::nft::{HoldTable, Holding, Hook, OwnerTable, TableFamily};
use bentpipe_sockets::socket::{set_transparent, stream};
use std::error::Error;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

type Found = Result<(), String>;

/// Linux capabilities by their bit (linux/capability.h).
#[derive(Clone, Copy, Debug)]
pub(super) enum Capability {
    NetAdmin = 12,
    NetRaw = 13,
    SysAdmin = 21,
}

pub(super) fn capability(wanted: Capability) -> Found {
    let name = match wanted {
        Capability::NetAdmin => "CAP_NET_ADMIN",
        Capability::NetRaw => "CAP_NET_RAW",
        Capability::SysAdmin => "CAP_SYS_ADMIN",
    };
    let status = fs::read_to_string("/proc/thread-self/status")
        .map_err(|e| format!("/proc cannot be read ({e})"))?;
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or(0);
    if effective >> (wanted as u32) & 1 == 1 {
        return Ok(());
    }
    Err(format!("not permitted ({name} is missing)"))
}

pub(super) fn vlan() -> Result<(), String> {
    if Path::new("/proc/net/vlan/config").exists() {
        Ok(())
    } else {
        Err("this kernel has no VLAN interfaces".to_owned())
    }
}

pub(super) fn tun() -> Found {
    let device = "/dev/net/tun";
    fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(device)
        .map(drop)
        .map_err(|e| format!("{device} cannot be opened ({e})"))
}

pub(super) fn program(name: &str) -> Found {
    find_program(name)
        .map(drop)
        .ok_or_else(|| format!("program `{name}` is not installed"))
}

/// Where a program is: on the path, or in the directories for administration, which a user's path
/// often lacks.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Debian's package of a program, where it has another name.
pub(super) fn package(program: &str) -> &str {
    match program {
        "nft" => "nftables",
        "ip" | "ss" | "tc" => "iproute2",
        "ssh" | "scp" | "ssh-keygen" => "openssh-client",
        "sshd" => "openssh-server",
        "ping" => "iputils-ping",
        "dumpcap" => "tshark",
        other => other,
    }
}

pub(super) fn nft() -> Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    program("nft")?;
    capability(Capability::SysAdmin)?;
    FOUND
        .get_or_init(|| {
            tried("an nft owner table cannot be made", || {
                let probe = || OwnerTable::load(TableFamily::Inet, "probe", "chain empty {}");
                Ok(Netns::create("probe")?.run(probe)?.map(drop)?)
            })
        })
        .clone()
}

pub(super) fn tproxy() -> Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    nft()?;
    FOUND
        .get_or_init(|| {
            tried("the kernel has no transparent proxying", || {
                Netns::create("probe")?.run(|| intercept().map_err(|e| e.to_string()))??;
                Ok(())
            })
        })
        .clone()
}

fn tried(what: &str, attempt: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Found {
    // One line: nft's words have several.
    attempt().map_err(|e| {
        let words = e.to_string();
        format!(
            "{what} ({})",
            words.split_whitespace().collect::<Vec<_>>().join(" ")
        )
    })
}

/// Everything the gateway's interception rests on, in the calling thread's namespace.
fn intercept() -> Result<(), Box<dyn Error>> {
    let v6 = Path::new("/proc/thread-self/net/if_inet6").exists();
    let families = if v6 { &Family::ALL[..] } else { &[Family::V4] };
    let netlink = Netlink::open()?;
    let _diversion = netlink.divert(families, Mark::exact(1), 100, 0)?;
    for family in families {
        let (table, to, foreign): (_, _, SocketAddr) = match family {
            Family::V4 => (
                TableFamily::Ip,
                "127.0.0.1",
                (Ipv4Addr::new(192, 0, 2, 1), 0).into(),
            ),
            Family::V6 => (
                TableFamily::Ip6,
                "[::1]",
                (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 0).into(),
            ),
        };
        let body = format!(
            "chain probe {{
               type filter hook prerouting priority mangle; policy accept;
               meta l4proto tcp tcp flags & (syn|ack) != syn socket transparent 1 meta mark set 1 accept
               meta l4proto tcp tproxy to {to}:9 meta mark set 1 accept
             }}
             chain forward {{
               type filter hook forward priority filter; policy accept;
               fib saddr oifname != \"lo\" accept
             }}"
        );
        let _table = OwnerTable::load(table, "probe", &body)?;
        let holding = Holding {
            hook: Hook::Forward,
            place: 0,
            queues: &[],
            marked: None,
            looped: Some(Mark::exact(1)),
        };
        let _looped = HoldTable::load(&[table], &holding)?;
        bind_foreign(foreign)?;
    }
    Ok(())
}

/// A listener on an address that is not ours.
fn bind_foreign(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let socket = stream(address)?;
    set_transparent(&socket, address)?;
    rustix::net::bind(&socket, &address)?;
    Ok(())
}

const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

pub(super) fn btf() -> Found {
    fs::File::open(VMLINUX)
        .map(drop)
        .map_err(|e| format!("{VMLINUX} cannot be read ({e})"))
}

pub(super) fn struct_ops() -> Found {
    static FOUND: OnceLock<Found> = OnceLock::new();
    btf()?;
    FOUND
        .get_or_init(|| {
            let types = fs::read(VMLINUX).map_err(|e| format!("{VMLINUX} cannot be read ({e})"))?;
            // The type that the kernel wraps each kind of struct_ops in.
            let wanted = b"\0bpf_struct_ops_tcp_congestion_ops\0";
            if types.windows(wanted.len()).any(|window| window == wanted) {
                return Ok(());
            }
            Err("the kernel has no BPF struct_ops for TCP".to_owned())
        })
        .clone()
}

#[cfg(test)]
mod tests {
    use super::super::Need;
    use super::*;

    #[test]
    fn programs_are_found_or_named_with_their_package() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-such-program"), None);
        assert_eq!(find_program("."), None, "a directory is no program");
        let line = Need::Program("no-such-program")
            .check()
            .unwrap_err()
            .to_string();
        assert_eq!(
            line,
            "program `no-such-program` is not installed: it is needed here; `apt-get install no-such-program`"
        );
        assert_eq!(package("nft"), "nftables");
    }

    #[test]
    fn without_capabilities_the_reason_is_told() {
        crate::need!(Root, Nft);
        // Capabilities belong to the thread: nobody else loses them.
        let told = std::thread::spawn(|| {
            let empty = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets {
                effective: empty,
                permitted: empty,
                inheritable: empty,
            };
            rustix::thread::set_capabilities(None, sets).unwrap();
            let told = |need: Need| need.check().unwrap_err().to_string();
            let tried = [
                Netns::create("x").unwrap_err().to_string(),
                Netlink::open()
                    .unwrap()
                    .set_down("lo")
                    .unwrap_err()
                    .to_string(),
            ];
            (
                told(Need::Root),
                told(Need::NetAdmin),
                told(Need::Tproxy),
                tried,
            )
        });
        let (root, admin, tproxy, tried) = told.join().unwrap();
        assert!(
            root.contains("CAP_SYS_ADMIN is missing") && root.contains("run as root"),
            "{root}"
        );
        assert!(admin.contains("CAP_NET_ADMIN is missing"), "{admin}");
        assert!(
            tproxy.contains("not permitted") && tproxy.contains("intercepted"),
            "{tproxy}"
        );
        for words in tried {
            assert!(words.contains("run as root"), "{words}");
        }
    }

    #[test]
    fn a_failed_trial_is_told_in_one_line() {
        let found = tried("it failed", || Err("first\n   second".into()));
        assert_eq!(found, Err("it failed (first second)".to_owned()));
    }
}
