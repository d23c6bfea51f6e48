//! A gateway in a process of its own, to be killed.
//!
//! The process is this test binary again, told by an environment variable to be a gateway: each
//! binary that uses it has the test [`crate::gateway_process`], which calls [`be_a_gateway`].

use super::Stage;
use bentpipe_gateway::protocol::{self, Request};
use bentpipe_gateway::{Config, ConfigSource, ControlSocket, Ending, Gateway, Manager, Shutdown};
use bentpipe_os::netns::Netns;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const CONFIG: &str = "BENTPIPE_TEST_GATEWAY_CONFIG";
/// Set for one that takes another's place.
const REPLACE: &str = "BENTPIPE_TEST_GATEWAY_REPLACE";

/// In the child, runs a gateway until a signal; otherwise does nothing.
pub fn be_a_gateway() {
    let Ok(text) = std::env::var(CONFIG) else {
        return;
    };
    let text = if text.contains("[sat]") {
        text
    } else {
        // A kernel's control, because loading the BPF ones takes a second or two.
        format!("{text}\n[sat]\ncongestion_control = \"cubic\"\n")
    };
    let mut config = Config::parse("child", &text).unwrap();
    if config.control == ControlSocket::Usual {
        config.control = ControlSocket::Off;
    }
    if config.lan_interfaces.is_empty() {
        config = config.between("lan0", "sat0");
    }
    let shutdown = Shutdown::on_signals().unwrap();
    let predecessor = config
        .control
        .path()
        .filter(|_| std::env::var_os(REPLACE).is_some());
    let started = match predecessor {
        None => Gateway::start(&config),
        Some(predecessor) => Gateway::succeed(&config, predecessor),
    };
    let gateway = match started {
        Ok(gateway) => gateway,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            std::process::exit(2);
        }
    };
    let source = ConfigSource::new(|| Err("none".to_owned()));
    let manager = Manager::start(&config, &gateway.handle(), &source, predecessor);
    if let Err(error) = &manager {
        let _ = writeln!(std::io::stderr(), "{error}");
        std::process::exit(2);
    }
    let _ = std::io::stdout().write_all(b"ready\n");
    let code = match gateway.run_until(&shutdown) {
        Ok(Ending::Drained) => 0,
        Ok(Ending::Cut(_)) => 7,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "{error}");
            1
        }
    };
    drop(manager);
    std::process::exit(code);
}

/// Makes `command`, the test binary or `setpriv`, one that starts a gateway process; `unprivileged`
/// by way of `setpriv`, without CAP_NET_ADMIN.
pub fn arrange<'c>(command: &'c mut Command, config: &str, unprivileged: bool) -> &'c mut Command {
    if unprivileged {
        command
            .args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"])
            .arg(std::env::current_exe().unwrap());
    }
    command
        .args(["gateway_process", "--exact", "--nocapture"])
        .env(CONFIG, config)
        .stdout(Stdio::piped())
}

/// Starts a gateway process on the stage and waits until it is ready.
pub fn start(stage: &Stage, config: &str) -> GatewayProcess {
    start_in(&stage.gateway, config)
}

/// Starts a gateway process in a namespace and waits until it is ready.
pub fn start_in(netns: &Netns, config: &str) -> GatewayProcess {
    spawn(netns.command(std::env::current_exe().unwrap()), config)
}

/// Like [`start`], with CAP_NET_ADMIN and no other capability, as in a container.
pub fn start_confined(stage: &Stage, config: &str) -> GatewayProcess {
    let mut command = stage.gateway.command("setpriv");
    let capabilities = "-all,+net_admin";
    command
        .args(["--bounding-set", capabilities, "--inh-caps", capabilities])
        .arg(std::env::current_exe().unwrap());
    spawn(command, config)
}

/// Like [`start_in`], by a shell that does `first` before it becomes the gateway.
pub fn start_after(netns: &Netns, first: &str, config: &str) -> GatewayProcess {
    let mut command = netns.command("sh");
    let program = std::env::current_exe().unwrap();
    command.args(["-c", &format!("{first} && exec \"$0\" \"$@\"")]);
    command.arg(program);
    spawn(command, config)
}

/// Like [`start`], in the place of the one that runs.
pub fn start_in_place(stage: &Stage, config: &str) -> GatewayProcess {
    succeed_in(&stage.gateway, config)
}

/// Like [`start_in`], in the place of the one that runs there.
pub fn succeed_in(netns: &Netns, config: &str) -> GatewayProcess {
    spawn(successor_in(netns), config)
}

/// Like [`start_in_place`], without waiting for it: it may find that another has that place.
pub fn attempt_in_place(stage: &Stage, config: &str) -> GatewayProcess {
    let mut command = successor_in(&stage.gateway);
    arrange(&mut command, config, false).stdout(Stdio::null());
    let child = command.spawn().unwrap();
    GatewayProcess { child }
}

fn successor_in(netns: &Netns) -> Command {
    let mut command = netns.command(std::env::current_exe().unwrap());
    command.env(REPLACE, "1");
    command
}

fn spawn(mut command: Command, config: &str) -> GatewayProcess {
    arrange(&mut command, config, false);
    let mut process = GatewayProcess {
        child: command.spawn().unwrap(),
    };
    let mut output = BufReader::new(process.child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.trim_end().ends_with("ready") {
        line.clear();
        let read = output.read_line(&mut line).unwrap();
        assert!(read > 0, "the gateway process ended before it was ready");
    }
    // After a minute the test program says that its test still runs; with nobody to hear it, it ends.
    std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    process
}

/// The process that answers at a control socket.
pub fn pid_at(path: &Path) -> Option<u64> {
    let answer = protocol::ask(path, &Request::Status).ok()?;
    answer["status"]["pid"].as_u64()
}

/// A gateway process; killed when dropped.
pub struct GatewayProcess {
    pub child: Child,
}

impl GatewayProcess {
    pub fn signal(&self, signal: &str) {
        let status = std::process::Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    /// SIGSTOP, which the threads of a process take note of one by one.
    pub fn stop(&self) {
        self.signal("-STOP");
        let tasks = format!("/proc/{}/task", self.child.id());
        super::eventually("a stop of all threads", || {
            let mut tasks = std::fs::read_dir(&tasks).unwrap().flatten();
            tasks.all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap();
                stat.rsplit_once(") ").unwrap().1.starts_with('T')
            })
        });
    }

    /// kill -9 to the nft process that holds the gateway's table.
    pub fn kill_its_nft(&self) {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let children = tasks.flat_map(|task| {
            let children = task.unwrap().path().join("children");
            let list = std::fs::read_to_string(children).unwrap_or_default();
            list.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
        let is_nft = |pid: &String| {
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == "nft\n")
        };
        let nft: Vec<String> = children.filter(is_nft).collect();
        assert_eq!(nft.len(), 1, "{nft:?}");
        let status = Command::new("kill").args(["-KILL", &nft[0]]).status();
        assert!(status.unwrap().success());
    }

    /// Lets it open no descriptor beyond `more` than it has.
    pub fn limit_descriptors(&self, more: usize) {
        let pid = self.child.id();
        let limit = format!("--nofile={0}:{0}", super::descriptors_of(pid) + more);
        let mut prlimit = Command::new("prlimit");
        let status = prlimit.args(["--pid", &pid.to_string(), &limit]).status();
        assert!(status.unwrap().success());
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
