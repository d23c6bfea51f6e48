//! The commands at work: exit code 0, what they print, and what the lab relies on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_os::netlink::{Veth, VethEnd};
use bentpipe_os::netns::Netns;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{PROGRAM, WIRE, send_signal};

#[test]
fn lab_run_prints_and_writes_its_flows() {
    bentpipe_os::need!(Root);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("wire.toml"), WIRE).unwrap();
    let output = Command::new(PROGRAM)
        .args(["lab", "run"])
        .args(support::PATIENT)
        .arg(path("wire.toml"))
        .arg("--out")
        .arg(path("out"))
        .arg("--json")
        .arg(path("flows.json"))
        .output()
        .unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        output.status.code(),
        Some(0),
        "{:?}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        table.contains("flow1") && table.contains("0.100 MB"),
        "{table}"
    );
    let figures = std::fs::read_to_string(path("flows.json")).unwrap();
    let figures: Value = serde_json::from_str(&figures).unwrap();
    assert_eq!(
        (&figures["schema"], &figures["engine"]),
        (&3.into(), &"kernel".into())
    );
    let flow = &figures["flows"][0];
    assert_eq!(flow["outcome"], "finished");
    assert_eq!(flow["received_bytes"], 100_000);
    assert_eq!(flow["congestion_control"], "cubic");
    // The simulator tells it by the same keys.
    let simulated = Command::new(PROGRAM)
        .args(["sim", "run", "--json", "-"])
        .arg(path("out/scenario.toml"))
        .output()
        .unwrap();
    let simulated: Value = serde_json::from_slice(&simulated.stdout).unwrap();
    let keys = |run: &Value, of: &str| -> Vec<String> {
        let one = run.pointer(of).and_then(Value::as_object).unwrap();
        one.keys().cloned().collect()
    };
    for of in ["", "/flows/0"] {
        assert_eq!(keys(&figures, of), keys(&simulated, of), "{of}");
    }
    // Runs again from its own folder.
    let again = Command::new(PROGRAM)
        .args(["lab", "run"])
        .args(support::PATIENT)
        .arg(path("out/scenario.toml"))
        .output()
        .unwrap();
    assert_eq!(again.status.code(), Some(0), "{again:?}");
}

#[test]
fn a_run_that_cannot_be_written_is_the_callers_mistake() {
    bentpipe_os::need!(Root);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("wire.toml");
    std::fs::write(&file, WIRE).unwrap();
    let output = Command::new(PROGRAM)
        .args(["lab", "run"])
        .arg(&file)
        .arg("--out")
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with("error: cannot write ") && said.lines().count() == 1,
        "{said}"
    );
}

#[test]
fn gateway_run_says_ready_once_and_ends_with_0_on_sigterm() {
    bentpipe_os::need!(Root, Nft, Tproxy);
    let (netns, _veth) = gateway_stage();
    let tables = || {
        let listed = netns
            .command("nft")
            .args(["list", "tables"])
            .output()
            .unwrap();
        String::from_utf8(listed.stdout).unwrap()
    };
    let mut gateway = netns
        .command(PROGRAM)
        .args(RUN)
        .args(["--rate", "10Mbit/s"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    assert!(tables().contains("bentpipe"), "ready means intercepting");
    send_signal(gateway.id(), "TERM");
    assert_eq!(gateway.wait().unwrap().code(), Some(0));
    assert!(lines.next().is_none(), "one line on stdout, and no more");
    assert_eq!(tables(), "");
}

/// A namespace with two interfaces for a gateway.
fn gateway_stage() -> (Netns, Veth) {
    let netns = Netns::create("gateway").unwrap();
    let [near, far] = ["lan0", "sat0"].map(|name| VethEnd {
        netns: &netns,
        name,
    });
    let veth = Veth::create(near, far).unwrap();
    veth.set_up().unwrap();
    netns.netlink().unwrap().set_up("lo").unwrap();
    (netns, veth)
}

const RUN: [&str; 6] = ["gateway", "run", "--lan", "lan0", "--sat", "sat0"];

/// Waits for `ready`, then ends it by SIGTERM.
fn runs_and_ends(mut gateway: std::process::Child) {
    let mut output = BufReader::new(gateway.stdout.take().unwrap());
    let (said, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let _ = output.read_line(&mut line);
        let _ = said.send(line);
    });
    let line = heard.recv_timeout(Duration::from_secs(30));
    if line.is_err() {
        gateway.kill().unwrap();
    }
    assert_eq!(line.as_deref(), Ok("ready\n"));
    send_signal(gateway.id(), "TERM");
    assert_eq!(gateway.wait().unwrap().code(), Some(0));
}

/// Whoever starts a gateway may ignore the end of children, or block signals, for itself: a process inherits both.
#[test]
fn what_was_set_for_another_program_neither_blinds_nor_deafens_a_gateway() {
    bentpipe_os::need!(Root, Nft, Tproxy);
    let (netns, _veth) = gateway_stage();
    let log = tempfile::tempfile().unwrap();
    let mut gateway = netns
        .command("env")
        .args(["--ignore-signal=CHLD", "--block-signal=TERM", PROGRAM])
        .args(RUN)
        .stdout(Stdio::piped())
        .stderr(log.try_clone().unwrap())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    send_signal(gateway.id(), "TERM");
    let asked = Instant::now();
    let ended = loop {
        match gateway.try_wait().unwrap() {
            Some(status) => break status.code(),
            None if asked.elapsed() > Duration::from_secs(30) => {
                gateway.kill().unwrap();
                break gateway.wait().unwrap().code();
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    let mut said = String::new();
    (&log).seek(SeekFrom::Start(0)).unwrap();
    (&log).read_to_string(&mut said).unwrap();
    assert!(!said.contains("No child processes"), "{said}");
    assert_eq!(ended, Some(0), "it hears that it is to end");
}

/// A reload that is asked for during the start is made after it.
#[test]
fn a_reload_during_the_start_ends_nobody() {
    bentpipe_os::need!(Root, Nft, Tproxy);
    let (netns, _veth) = gateway_stage();
    let mut command = netns.command(PROGRAM);
    let gateway = command.args(RUN).stdout(Stdio::piped()).spawn().unwrap();
    // As soon as it catches the first signal of all, long before it is ready.
    let caught = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("SigCgt:"));
        let mask = line.unwrap().split_whitespace().nth(1).unwrap();
        u64::from_str_radix(mask, 16).unwrap()
    };
    const TERM: u64 = 1 << 14;
    while caught() & TERM == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..3 {
        send_signal(gateway.id(), "HUP");
    }
    runs_and_ends(gateway);
}

/// What systemd would hear at its notify socket, and do.
#[test]
fn a_service_manager_is_told_of_start_reload_and_successor() {
    bentpipe_os::need!(Root, Nft, Tproxy);
    let (netns, _veth) = gateway_stage();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let manager = UnixDatagram::bind(path("notify")).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    // The next state that is not the watchdog's.
    let hear = || loop {
        let mut state = [0; 128];
        let length = manager.recv(&mut state).unwrap();
        let state = String::from_utf8(state[..length].to_vec()).unwrap();
        if state != "WATCHDOG=1" {
            break state;
        }
    };
    let config = format!(
        "control = \"{}\"\n[lan]\ninterface = \"lan0\"\n[sat]\ninterface = \"sat0\"\n",
        path("gateway.sock").display()
    );
    std::fs::write(path("gateway.toml"), &config).unwrap();
    let mut first = netns
        .command(PROGRAM)
        .args(["gateway", "run", "--config"])
        .arg(path("gateway.toml"))
        .env("NOTIFY_SOCKET", path("notify"))
        .env("WATCHDOG_USEC", "3000000")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = |pid: u32| format!("MAINPID={pid}\nREADY=1");
    assert_eq!(hear(), begun(first.id()));
    let mut state = [0; 128];
    let length = manager.recv(&mut state).unwrap();
    assert_eq!(&state[..length], b"WATCHDOG=1");

    send_signal(first.id(), "HUP");
    assert_eq!([hear(), hear()], ["RELOADING=1", "READY=1"]);
    // A bad file is refused, and the service goes on.
    std::fs::write(path("gateway.toml"), "[sat]\nrate = \"fast\"\n").unwrap();
    send_signal(first.id(), "HUP");
    assert_eq!([hear(), hear()], ["RELOADING=1", "READY=1"]);

    // Its successor may have another control socket.
    let config = config.replace("gateway.sock", "other.sock");
    std::fs::write(path("gateway.toml"), &config).unwrap();
    send_signal(first.id(), "USR2");
    let state = hear();
    let second = state
        .strip_prefix("MAINPID=")
        .and_then(|rest| rest.strip_suffix("\nREADY=1"))
        .unwrap_or_else(|| panic!("{state}"));
    let second: u32 = second.parse().unwrap();
    let end = EndOfProcess(second);
    // systemd waits at a stop for its own children only, and kills a main process that is none.
    let stat = std::fs::read_to_string(format!("/proc/{second}/stat")).unwrap();
    let parent = stat.split_whitespace().nth(3).unwrap();
    assert_ne!(second, first.id());
    assert_ne!(parent, first.id().to_string());
    // It had no flows, so it ends.
    assert_eq!(first.wait().unwrap().code(), Some(0));
    let status = netns
        .command(PROGRAM)
        .args(["gateway", "status", "--json", "--control"])
        .arg(path("other.sock"))
        .output()
        .unwrap();
    assert!(status.status.success(), "{status:?}");
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["pid"], second);
    // Nobody is there any more.
    let alone = netns
        .command(PROGRAM)
        .args(RUN)
        .arg(format!("--replace={}", path("gateway.sock").display()))
        .output()
        .unwrap();
    let said = String::from_utf8(alone.stderr).unwrap();
    assert_eq!(alone.status.code(), Some(2), "{said}");
    assert!(said.contains("no gateway answers at"), "{said}");
    drop(end);
}

/// Whoever looks all the while ends when nobody reads it any more (`status --watch | head -1`).
#[test]
fn a_status_that_nobody_reads_any_more_ends() {
    bentpipe_os::need!(Root, Nft, Tproxy);
    let (netns, _veth) = gateway_stage();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let config = format!("control = \"{}\"\n", path("gateway.sock").display());
    std::fs::write(path("gateway.toml"), config).unwrap();
    let mut gateway = netns
        .command(PROGRAM)
        .args(RUN)
        .arg("--config")
        .arg(path("gateway.toml"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    for more in [&["--json"][..], &[]] {
        let mut status = Command::new(PROGRAM)
            .args(["gateway", "status", "--watch", "--control"])
            .arg(path("gateway.sock"))
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut read = BufReader::new(status.stdout.take().unwrap());
        read.read_line(&mut String::new()).unwrap();
        drop(read);
        let ended = (0..100).find_map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            status.try_wait().unwrap()
        });
        let _ = status.kill();
        assert_eq!(ended.expect("it goes on for ever").code(), Some(0));
    }
    send_signal(gateway.id(), "TERM");
    assert_eq!(gateway.wait().unwrap().code(), Some(0));
}

/// A service manager whose queue is full is told of the start when it reads again.
#[test]
fn a_service_manager_that_reads_late_hears_of_the_start() {
    bentpipe_os::need!(Root, Nft, Tproxy);
    let (netns, _veth) = gateway_stage();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    let filler = UnixDatagram::unbound().unwrap();
    filler.set_nonblocking(true).unwrap();
    while filler.send_to(b"full", &path).is_ok() {}
    let mut gateway = netns
        .command(PROGRAM)
        .args(RUN)
        .env("NOTIFY_SOCKET", &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(gateway.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    std::thread::sleep(Duration::from_millis(200));
    manager
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let mut state = [0; 128];
    let told = std::iter::repeat_with(|| {
        let length = manager.recv(&mut state).unwrap();
        String::from_utf8(state[..length].to_vec()).unwrap()
    })
    .find(|state| state != "full");
    let expected = format!("MAINPID={}\nREADY=1", gateway.id());
    assert_eq!(told, Some(expected));
    send_signal(gateway.id(), "TERM");
    assert_eq!(gateway.wait().unwrap().code(), Some(0));
}

/// Ends a process that is no child of ours, by SIGTERM, and waits until it is gone.
struct EndOfProcess(u32);

impl Drop for EndOfProcess {
    fn drop(&mut self) {
        let stat = format!("/proc/{}/stat", self.0);
        // A zombie whose parent went is somebody else's to bury.
        let runs = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        for signal in ["TERM", "KILL"] {
            let _ = Command::new("kill")
                .args([&format!("-{signal}"), &self.0.to_string()])
                .status();
            for _ in 0..100 {
                if !runs() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }
}

/// Stderr is a pipe that is full and never read.
#[test]
fn a_log_that_nobody_reads_holds_no_gateway_up() {
    bentpipe_os::need!(Root, Tproxy);
    let (netns, _veth) = gateway_stage();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    // All that it takes, to the last byte.
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    for size in [4096, 1] {
        while writer.write(&[b'x'; 4096][..size]).is_ok() {}
    }
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let mut command = netns.command(PROGRAM);
    let gateway = command
        .arg("-vvv")
        .args(RUN)
        .stdout(Stdio::piped())
        .stderr(writer)
        .spawn()
        .unwrap();
    runs_and_ends(gateway);
}

/// Stderr is a file that has met a bound on its size (`ulimit -f`, LimitFSIZE=).
#[test]
fn a_log_that_may_not_grow_ends_no_gateway() {
    bentpipe_os::need!(Root, Tproxy, Program("prlimit"));
    let (netns, _veth) = gateway_stage();
    let mut log = tempfile::tempfile().unwrap();
    log.write_all(&vec![b'x'; 1 << 20]).unwrap();
    let mut command = netns.command("prlimit");
    let gateway = command
        .args(["--fsize=1048576", PROGRAM, "-vvv"])
        .args(RUN)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    runs_and_ends(gateway);
}

/// Where one thread may be started and no more, that is enough; where none may, a line says so.
#[test]
fn a_bound_on_threads_is_told_without_a_panic() {
    bentpipe_os::need!(Root, Program("setpriv"), Program("prlimit"));
    // Root has no such bound, and nobody else can read the build's folder.
    let folder = tempfile::tempdir().unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), everybody).unwrap();
    let program = folder.path().join("bentpipe");
    std::fs::copy(PROGRAM, &program).unwrap();
    for processes in [1, 2, 2, 2, 2, 2] {
        let output = Command::new("setpriv")
            .args(["--reuid", "65431", "--clear-groups", "prlimit"])
            .arg(format!("--nproc={processes}"))
            .arg(&program)
            .args(["saratoga", "ls", "127.0.0.1:1", "--silence", "1s"])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let expected = if processes == 1 { 2 } else { 1 };
        assert_eq!(output.status.code(), Some(expected), "{said}");
        assert_eq!(said.contains("LimitNPROC"), processes == 1, "{said}");
    }
}

/// As in a container: the doctor tells what BPF lacks, and the gateway runs.
#[test]
fn net_admin_alone_is_told_and_suffices() {
    bentpipe_os::need!(Root, Tproxy, Program("setpriv"));
    let (netns, _veth) = gateway_stage();
    let confined = || {
        let mut command = netns.command("setpriv");
        let capabilities = "-all,+net_admin";
        command.args([
            "--bounding-set",
            capabilities,
            "--inh-caps",
            capabilities,
            PROGRAM,
        ]);
        command
    };
    let output = confined().arg("doctor").output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{told}");
    for words in [
        "good  capability: there",
        "less  right to load BPF: CAP_BPF or CAP_PERFMON is missing",
        "not tried out: that takes a namespace",
    ] {
        assert!(told.contains(words), "no `{words}` in {told}");
    }
    let gateway = confined().args(RUN).stdout(Stdio::piped()).spawn().unwrap();
    runs_and_ends(gateway);
}

/// Rules of firewall and routing that do not know what the gateway dials are named.
#[test]
fn the_doctor_names_rules_that_do_not_know_a_dial() {
    bentpipe_os::need!(Root, Tproxy, Program("ip"));
    let (netns, _veth) = gateway_stage();
    let told = || {
        let output = netns.command(PROGRAM).arg("doctor").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let before = told();
    for words in [
        "good  translation of addresses: nothing is translated",
        "good  firewall of input and output: no rule may drop packets of split connections",
        "good  policy routing: ",
        "good  SYNs over lo: one arrives",
    ] {
        assert!(before.contains(words), "no `{words}` in {before}");
    }
    let rules = "table inet nat {\n chain post {\n type nat hook postrouting priority srcnat;\n \
                 iifname sat0 masquerade\n }\n chain out {\n type filter hook output priority 0; policy drop;\n }\n \
                 chain in {\n type filter hook input priority 0; policy drop;\n iif lo accept\n }\n}";
    netns
        .run(|| bentpipe_os::nft::apply(rules).unwrap())
        .unwrap();
    let mut rule = netns.command("ip");
    let rule = rule.args(["rule", "add", "iif", "sat0", "lookup", "100", "pref", "200"]);
    assert!(rule.status().unwrap().success());
    let after = told();
    for words in [
        "less  translation of addresses: inet nat post: iifname \"sat0\" masquerade\n",
        "less  firewall of input and output: inet nat out; inet nat in\n        packets of split connections go past these by a queue, ",
        "less  policy routing: pref 200 iif sat0 lookup 100\n",
        "less  SYNs over lo: not known: ",
    ] {
        assert!(after.contains(words), "no `{words}` in {after}");
    }
}

/// Nothing else would tell: split connections pass all the same.
#[test]
fn a_kernel_that_forwards_nothing_is_told() {
    bentpipe_os::need!(Root, Tproxy);
    let (netns, _veth) = gateway_stage();
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = netns.command(PROGRAM);
    let command = command.args(RUN).stdout(Stdio::piped());
    let log_file = std::fs::File::create(&log).unwrap();
    runs_and_ends(command.stderr(log_file).spawn().unwrap());
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.contains("IPv4 is not forwarded by lan0, sat0"), "{log}");
    assert!(!log.contains("IPv6"), "no global address of it: {log}");
}
