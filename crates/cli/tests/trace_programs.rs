//! `bentpipe trace` counts what tcptrace counts of real programs over a link that loses: eight of them, some sixty connections, captured at both ends.
#![allow(clippy::print_stdout, reason = "what was compared, for whoever looks")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;
mod tcptrace;

use bentpipe_base::{Bytes, Probability, Rate};
use bentpipe_lab::emulator::{Emulator, Frame, Spec, port_config};
use bentpipe_link::channel::PacketError;
use bentpipe_link::queue::DropTail;
use bentpipe_link::{Limit, Settings};
use bentpipe_os::netns::Netns;
use bentpipe_os::tun::Tun;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Two hosts, 10.0.0.1 and 10.0.0.2, and a link of 20 Mbit/s and 10 ms that loses 2% each way.
struct Hosts {
    server: Netns,
    client: Netns,
    _link: Emulator,
}

impl Hosts {
    fn new() -> Self {
        let [server, client] = ["server", "client"].map(|end| Netns::create(end).unwrap());
        let way = || -> Settings<Frame> {
            Settings {
                rate: Some(Rate::from_bits_per_sec(20_000_000)),
                delay: Duration::from_millis(10),
                queue: DropTail::new(Limit::Packets(30)).into(),
                channels: vec![Box::new(PacketError::new(Probability::new(0.02).unwrap()))],
                ..Settings::default()
            }
        };
        let spec = Spec {
            from_a: way(),
            from_b: way(),
            ..Spec::default()
        };
        let port = |netns: &Netns| {
            let open = || Tun::open("wire", port_config(Bytes(1500))).unwrap();
            netns.run(open).unwrap()
        };
        let link = Emulator::start(spec, port(&server), port(&client)).unwrap();
        for (netns, address) in [(&server, "10.0.0.1/24"), (&client, "10.0.0.2/24")] {
            let netlink = netns.netlink().unwrap();
            netlink
                .add_address("wire", address.parse().unwrap())
                .unwrap();
            netlink.set_up("wire").unwrap();
            netlink.set_up("lo").unwrap();
        }
        Self {
            server,
            client,
            _link: link,
        }
    }
}

/// A program in the background; killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn command(netns: &Netns, line: &str, folder: &Path) -> Command {
    let mut words = line.split(' ');
    let mut command = netns.command(words.next().unwrap());
    command
        .args(words)
        .current_dir(folder)
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// A capture of `wire` that has begun.
fn capture(netns: &Netns, folder: &Path, file: &str) -> Running {
    let mut command = command(
        netns,
        &format!("dumpcap -q -B 32 -i wire -s 100 -w {file}"),
        folder,
    );
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    assert!(said.lines().any(|line| line.unwrap().starts_with("File:")));
    Running(child)
}

/// Configurations of the servers, and what they serve.
fn prepare(folder: &Path) {
    fs::create_dir_all(folder.join("www")).unwrap();
    fs::write(folder.join("www/file"), vec![7; 300_000]).unwrap();
    fs::write(folder.join("www/small"), vec![7; 20_000]).unwrap();
    let at = folder.display();
    fs::write(
        folder.join("rsyncd.conf"),
        format!("use chroot = no\n[www]\npath = {at}/www\n"),
    )
    .unwrap();
    fs::write(
        folder.join("vsftpd.conf"),
        format!(
            "listen=YES\nlisten_port=2121\nbackground=NO\nanonymous_enable=YES\nno_anon_password=YES\n\
             anon_root={at}/www\nseccomp_sandbox=NO\nsecure_chroot_dir={at}/empty\n"
        ),
    )
    .unwrap();
    fs::create_dir_all(folder.join("empty")).unwrap();
    // vsftpd serves as another user.
    for path in ["", "www", "empty"] {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(folder.join(path), mode).unwrap();
    }
    for key in ["host", "user"] {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(folder.join(key))
            .status();
        assert!(made.unwrap().success());
    }
    fs::copy(folder.join("user.pub"), folder.join("authorized")).unwrap();
    fs::create_dir_all("/run/sshd").unwrap();
    fs::write(
        folder.join("sshd.conf"),
        format!(
            "Port 2222\nHostKey {at}/host\nAuthorizedKeysFile {at}/authorized\nStrictModes no\nUsePAM no\n\
             PidFile none\nPermitRootLogin yes\nSubsystem sftp internal-sftp\n"
        ),
    )
    .unwrap();
    fs::write(folder.join("batch"), "get www/file out\nbye\n").unwrap();
}

const SERVERS: [&str; 6] = [
    "python3 -m http.server 8000 --bind 10.0.0.1 --directory www",
    "/usr/sbin/sshd -D -f FOLDER/sshd.conf",
    "rsync --daemon --no-detach --port=8730 --config=rsyncd.conf",
    "vsftpd FOLDER/vsftpd.conf",
    "iperf3 -s",
    "nuttcp -S --nofork",
];

/// What each client does, and how often. Each gets through in spite of the losses, or fails.
const CLIENTS: [(&str, usize); 9] = [
    (
        "curl -sf --retry 30 --retry-connrefused --max-time 60 -o out http://10.0.0.1:8000/file",
        8,
    ),
    (
        "curl -sf --max-time 60 -o out http://10.0.0.1:8000/small",
        4,
    ),
    (
        "wget -q -T 60 -t 30 --retry-connrefused -O out http://10.0.0.1:8000/file",
        8,
    ),
    (
        "scp -q -F none -P 2222 -i user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null root@10.0.0.1:FOLDER/www/file out",
        4,
    ),
    (
        "sftp -q -F none -P 2222 -i user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -b batch root@10.0.0.1:FOLDER",
        4,
    ),
    (
        "rsync -q --port=8730 --ignore-times 10.0.0.1::www/file out",
        5,
    ),
    (
        "lftp -c open -p 2121 10.0.0.1; get file -o out2; get small -o out3",
        4,
    ),
    ("iperf3 -c 10.0.0.1 -n 400K -P 3", 2),
    ("nuttcp -n200K 10.0.0.1", 4),
];

#[test]
#[ignore = "takes a minute and needs programs of `scripts/setup programs`: --run-ignored all, or -- --ignored"]
fn counts_are_those_of_tcptrace_on_programs_over_a_lossy_link() {
    bentpipe_os::need!(
        Root,
        Tun,
        Program("tcptrace"),
        Program("dumpcap"),
        Program("curl"),
        Program("wget"),
        Program("scp"),
        Program("sftp"),
        Program("rsync"),
        Program("vsftpd"),
        Program("lftp"),
        Program("iperf3"),
        Program("nuttcp"),
        Program("python3")
    );
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    prepare(folder);
    let hosts = Hosts::new();
    let line = |line: &str| line.replace("FOLDER", &folder.display().to_string());
    let near = capture(&hosts.server, folder, "server.pcapng");
    let far = capture(&hosts.client, folder, "client.pcapng");
    let mut servers = Vec::new();
    for server in SERVERS {
        servers.push(Running(
            command(&hosts.server, &line(server), folder)
                .spawn()
                .unwrap(),
        ));
    }
    for (client, times) in CLIENTS {
        for _ in 0..times {
            let began = Instant::now();
            // A server may not listen yet.
            while !run(&hosts.client, &line(client), folder) {
                assert!(began.elapsed() < Duration::from_secs(120), "{client} fails");
                std::thread::sleep(Duration::from_millis(200));
            }
        }
    }
    drop(servers);
    let mut sizes = (0, 1);
    while sizes.0 != sizes.1 {
        std::thread::sleep(Duration::from_millis(700));
        sizes = (
            sizes.1,
            fs::metadata(folder.join("client.pcapng")).unwrap().len(),
        );
    }
    for mut running in [near, far] {
        support::send_signal(running.0.id(), "INT");
        running.0.wait().unwrap();
    }
    for file in ["server.pcapng", "client.pcapng"] {
        if let Ok(kept) = std::env::var("KEEP_CAPTURES") {
            fs::copy(folder.join(file), Path::new(&kept).join(file)).unwrap();
        }
        let connections = tcptrace::compare(&folder.join(file));
        println!("{file}: {connections} connections");
        assert!(connections >= 50, "{file}: {connections} connections");
    }
}

/// lftp's commands are one argument.
fn run(netns: &Netns, line: &str, folder: &Path) -> bool {
    let mut command = match line.strip_prefix("lftp -c ") {
        None => command(netns, line, folder),
        Some(commands) => {
            let mut command = command(netns, "lftp -c", folder);
            command.arg(commands);
            command
        }
    };
    for file in ["out", "out2", "out3"] {
        let _ = fs::remove_file(folder.join(file));
    }
    command.status().unwrap().success()
}
