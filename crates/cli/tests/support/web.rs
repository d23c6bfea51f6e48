//! `bentpipe web` in a test: the real program on a port of its own, asked over HTTP.

#![allow(dead_code, reason = "not every test binary needs all of it")]

use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const BENTPIPE: &str = env!("CARGO_BIN_EXE_bentpipe");
pub(crate) const GEO: &str = include_str!("../../../../scenarios/geo.toml");

/// A server, and where its results are.
pub(crate) struct Web {
    pub(crate) child: Child,
    pub(crate) at: SocketAddr,
    pub(crate) token: String,
    pub(crate) results: tempfile::TempDir,
}

/// An answer: status, head, body.
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Said {
    /// What the line of the head says that is called `name`.
    pub(crate) fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut told = lines.filter(|(key, _)| *key == name);
        told.next().expect("that header").1
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Web {
    pub(crate) fn start(options: &[&str]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), options)
    }

    pub(crate) fn start_in(results: tempfile::TempDir, options: &[&str]) -> Self {
        Self::serve(Path::new(BENTPIPE), results, options)
    }

    /// As [`start`](Self::start), of this program.
    pub(crate) fn start_program(program: &Path, options: &[&str]) -> Self {
        Self::serve(program, tempfile::tempdir().unwrap(), options)
    }

    fn serve(program: &Path, results: tempfile::TempDir, options: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(["web", "--listen", "127.0.0.1:0", "--results"])
            .arg(results.path())
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let rest = line.trim().strip_prefix("http://").unwrap();
        let (at, token) = rest.split_once("/?token=").unwrap();
        Self {
            child,
            at: at.parse().unwrap(),
            token: token.to_owned(),
            results,
        }
    }

    /// Sends `head` lines behind the request's first, and `body`.
    pub(crate) fn raw(&self, first: &str, head: &str, body: &[u8]) -> Said {
        let mut stream = TcpStream::connect(self.at).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        let length = body.len();
        let text = format!(
            "{first} HTTP/1.1\r\n{head}Content-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(text.as_bytes()).unwrap();
        // Who refuses a body may have closed before it was all sent.
        let _ = stream.write_all(body);
        let mut octets = Vec::new();
        let _ = stream.read_to_end(&mut octets);
        let text = String::from_utf8_lossy(&octets).into_owned();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        Said {
            status: head
                .split(' ')
                .nth(1)
                .and_then(|it| it.parse().ok())
                .unwrap_or(0),
            head: head.to_lowercase(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn host(&self) -> String {
        format!("Host: {}\r\n", self.at)
    }

    pub(crate) fn bearer(&self) -> String {
        format!("{}Authorization: Bearer {}\r\n", self.host(), self.token)
    }

    pub(crate) fn get(&self, path: &str) -> Said {
        self.raw(&format!("GET {path}"), &self.bearer(), b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Said {
        self.raw(
            &format!("POST {path}"),
            &self.bearer(),
            body.to_string().as_bytes(),
        )
    }

    /// Asks for a run of `text` in the simulator; its name.
    pub(crate) fn run(&self, text: &str, lab: bool) -> String {
        let said = self.post(
            "/api/runs",
            &json!({ "lab": lab, "variants": [{ "label": "test", "text": text }] }),
        );
        assert_eq!(said.status, 200, "{}", said.body);
        said.json()[0]["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a run is in one of these states.
    pub(crate) fn until(&self, id: &str, states: &[&str]) -> Value {
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            let run = self.get(&format!("/api/runs/{id}")).json();
            if states.contains(&run["state"].as_str().unwrap()) {
                return run;
            }
            assert!(Instant::now() < deadline, "{run}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Ends it as Ctrl-C does, and gives the folder back.
    pub(crate) fn end(mut self) -> tempfile::TempDir {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        std::mem::replace(&mut self.results, tempfile::tempdir().unwrap())
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A run of hours, which takes little memory.
pub(crate) fn endless() -> String {
    GEO.replace("time_limit = \"60s\"", "time_limit = \"86400s\"")
        .replace("duration = \"30s\"", "duration = \"86000s\"")
        .replace("10Mbit/s", "1Gbit/s")
        .replace("packet_error_rate = \"1%\"", "")
}
