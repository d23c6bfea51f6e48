//! Many clients with an address each, and processes that hold more connections of theirs than one has descriptors for.
//!
//! Such a process is the test binary again, told by an environment variable what to be: each binary that uses it has the test
//! [`crate::crowd_process`], which calls [`be_an_end`].

use super::{Ip, PATIENCE, Stage, tcp_socket};
use bentpipe_os::netlink::{Prefix, Route};
use bentpipe_os::netns::Netns;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

const END: &str = "BENTPIPE_TEST_CROWD";
/// A few clients would not have so many flows: nearly all of the limit goes to clients that have fewer than eight.
const CLIENTS: usize = 1_250;
/// The longest that all connections of a process may take.
const ALL: Duration = Duration::from_secs(300);

fn client(number: usize) -> SocketAddr {
    let number = number % CLIENTS;
    SocketAddr::from(([10, 78, (number % 250) as u8, 1 + (number / 250) as u8], 0))
}

/// The addresses of the clients, which their namespace has from now on.
pub fn arrive(stage: &Stage) -> Vec<SocketAddr> {
    let clients: Vec<_> = (0..CLIENTS).map(client).collect();
    let netlink = stage.client.netlink().unwrap();
    for client in &clients {
        let prefix = Prefix::new(client.ip(), 32).unwrap();
        netlink.add_address("eth0", prefix).unwrap();
    }
    let behind = Prefix::new("10.78.0.0".parse().unwrap(), 16).unwrap();
    let route = Route::via(behind, Ip::V4.client());
    let netlink = stage.gateway.netlink().unwrap();
    netlink.add_route(&route).unwrap();
    clients
}

/// A process that has one end of many connections; it ends with the value.
pub struct End {
    child: Child,
    output: BufReader<ChildStdout>,
    _input: ChildStdin,
}

impl End {
    /// Waits until it has used all its connections, which it keeps.
    pub fn wait(&mut self) {
        let mut line = String::new();
        while !line.trim_end().ends_with("used") {
            line.clear();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(read > 0, "it has ended before");
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts the process with the clients of `count` connections to `server`, or with the server.
pub fn start(netns: &Netns, role: &str, server: SocketAddr, count: usize) -> End {
    let mut child = netns
        .command(std::env::current_exe().unwrap())
        .args(["crowd_process", "--exact", "--nocapture"])
        .env(END, format!("{role} {server} {count}"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    End {
        output: BufReader::new(child.stdout.take().unwrap()),
        _input: child.stdin.take().unwrap(),
        child,
    }
}

/// In such a process, is that end until its parent is gone; otherwise does nothing.
pub fn be_an_end() {
    let Ok(text) = std::env::var(END) else {
        return;
    };
    bentpipe_process::limits::raise_descriptors().unwrap();
    let words: Vec<&str> = text.split(' ').collect();
    let (server, count) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let _streams = if words[0] == "server" {
        serve(&TcpListener::bind(server).unwrap(), count)
    } else {
        let mut streams: Vec<_> = (0..count).map(|number| dial(number, server)).collect();
        for stream in &mut streams {
            stream.write_all(b"still").unwrap();
        }
        for stream in &mut streams {
            stream.set_read_timeout(Some(ALL)).unwrap();
            stream.read_exact(&mut [0; 4]).unwrap();
        }
        streams
    };
    std::io::stdout().write_all(b"used\n").unwrap();
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}

/// Accepts and answers until so many have asked, in whatever order, and whatever else comes.
fn serve(listener: &TcpListener, count: usize) -> Vec<TcpStream> {
    let (mut waiting, mut answered) = (Vec::<TcpStream>::new(), Vec::new());
    listener.set_nonblocking(true).unwrap();
    let mut turn = 0u32;
    while answered.len() < count {
        turn += 1;
        std::thread::sleep(Duration::from_millis(2));
        while let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true).unwrap();
            waiting.push(stream);
        }
        if !turn.is_multiple_of(100) {
            continue;
        }
        let asked = |mut stream: &TcpStream| matches!(stream.read(&mut [0; 5]), Ok(5));
        let (mut asking, silent) = waiting
            .into_iter()
            .partition::<Vec<_>, _>(|stream| asked(stream));
        asking
            .iter_mut()
            .for_each(|stream| stream.write_all(b"here").unwrap());
        answered.append(&mut asking);
        waiting = silent;
    }
    answered
}

fn dial(number: usize, server: SocketAddr) -> TcpStream {
    let until = Instant::now() + PATIENCE;
    loop {
        let socket = tcp_socket(server);
        socket.bind(&client(number).into()).unwrap();
        match socket.connect_timeout(&server.into(), PATIENCE) {
            Ok(()) => return socket.into(),
            // The server has yet to begin.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && number == 0 => {
                assert!(Instant::now() < until, "{error}");
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(error) => panic!("number {number}: {error}"),
        }
    }
}
