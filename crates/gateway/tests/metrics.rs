//! What Prometheus reads, the health check, and the flow log.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use bentpipe_gateway::{Config, ConfigSource, Gateway, Handle, Manager, Shutdown};
use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use serde_json::Value;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::{Ip, PATIENCE, Stage, abort, eventually, exchange};

const METRICS: &str = "127.0.0.1:9463";

/// A gateway in this process that offers metrics in its namespace.
struct Watched {
    handle: Handle,
    shutdown: Arc<Shutdown>,
    thread: Option<JoinHandle<()>>,
}

fn watched(stage: &Stage, more: &str) -> Watched {
    let text = format!(
        "control = \"off\"\nmetrics = \"{METRICS}\"\n{more}\n[sat]\ncongestion_control = \"cubic\"\n"
    );
    let config = Config::parse("gateway.toml", &text).unwrap();
    let config = config.between("lan0", "sat0");
    let shutdown = Arc::new(Shutdown::new().unwrap());
    let (ready, readied) = mpsc::channel();
    let work = {
        let shutdown = Arc::clone(&shutdown);
        move || {
            let gateway = Gateway::start(&config).unwrap();
            let source = ConfigSource::new(|| Err("none".to_owned()));
            let _manager = Manager::start(&config, &gateway.handle(), &source, None).unwrap();
            ready.send(gateway.handle()).unwrap();
            gateway.run_until(&shutdown).unwrap();
        }
    };
    let thread = stage.gateway.run(|| std::thread::spawn(work)).unwrap();
    Watched {
        handle: readied.recv_timeout(PATIENCE).unwrap(),
        shutdown,
        thread: Some(thread),
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.shutdown.request();
        self.shutdown.request();
        let result = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            result.unwrap();
        }
    }
}

fn dial(netns: &Netns) -> TcpStream {
    let address: SocketAddr = METRICS.parse().unwrap();
    support::connect_in(netns, address).unwrap()
}

/// The status line and the body.
fn get(netns: &Netns, path: &str) -> (String, String) {
    let mut found = None;
    // On a busy machine the seats of those before may be taken still.
    eventually("an answer", || {
        let mut stream = dial(netns);
        let mut answer = String::new();
        let asked = write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
        if asked.is_err() || stream.read_to_string(&mut answer).is_err() {
            return false;
        }
        found = answer
            .split_once("\r\n\r\n")
            .map(|(head, body)| (head.to_owned(), body.to_owned()));
        found.as_ref().is_some_and(|(_, body)| !body.is_empty())
    });
    let (head, body) = found.unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    assert_eq!(length, Some(body.len().to_string().as_str()));
    (head.lines().next().unwrap().to_owned(), body)
}

/// The value of one series, written as Prometheus shows it.
fn value(page: &str, series: &str) -> Option<f64> {
    page.lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn the_metrics_tell_flows_bytes_and_times() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = watched(&stage, "");
    let mut standing: Vec<_> = (0..3).map(|i| stage.pair(Ip::BOTH[i % 2])).collect();
    let mut ended = stage.pair(Ip::V4);
    ended.0.write_all(&[7; 50_000]).unwrap();
    ended.1.read_exact(&mut [0; 50_000]).unwrap();
    exchange(&mut ended);
    drop(ended);
    abort(stage.pair(Ip::V6).0);
    eventually("the ends", || gateway.handle.counters().open == 3);

    let (status, page) = get(&stage.gateway, "/metrics");
    assert_eq!(status, "HTTP/1.1 200 OK");
    for (series, expected) in [
        ("bentpipe_accepted_total", 5.0),
        ("bentpipe_finished_total", 1.0),
        ("bentpipe_reset_total", 1.0),
        ("bentpipe_flows{state=\"established\"}", 3.0),
        ("bentpipe_open", 3.0),
        ("bentpipe_splits", 1.0),
        ("bentpipe_connections{leg=\"sat\"}", 3.0),
        ("bentpipe_carried_bytes_total{leg=\"lan\"}", 50_005.0),
        ("bentpipe_carried_bytes_total{leg=\"sat\"}", 4.0),
        ("bentpipe_connect_seconds_count", 5.0),
        ("bentpipe_connect_seconds_bucket{le=\"10.0\"}", 5.0),
        ("bentpipe_rtt_seconds_count{leg=\"lan\"}", 2.0),
        ("bentpipe_retransmitted_segments_total{leg=\"sat\"}", 0.0),
    ] {
        assert_eq!(value(&page, series), Some(expected), "{series} in {page}");
    }
    let rtt = value(&page, "bentpipe_rtt_seconds_sum{leg=\"sat\"}").unwrap();
    assert!(rtt > 0.0 && rtt < 1.0, "{rtt}");
    assert!(page.ends_with("# EOF\n"));
    standing.iter_mut().for_each(exchange);

    assert_eq!(
        get(&stage.gateway, "/healthz"),
        ("HTTP/1.1 200 OK".into(), "serving\n".into())
    );
    gateway.handle.bypass(true).unwrap();
    assert_eq!(get(&stage.gateway, "/healthz").1, "bypassed\n");
    gateway.handle.retire().unwrap();
    eventually("that it drains", || {
        get(&stage.gateway, "/healthz").0.contains("503")
    });
    assert!(get(&stage.gateway, "/").0.contains("404"));
}

/// Scrapers that hang, never read, send nonsense or come in numbers.
#[test]
fn dead_scrapers_disturb_nobody() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let gateway = watched(&stage, "");
    let mut pair = stage.pair(Ip::V4);
    let mut never_reads = dial(&stage.gateway);
    never_reads
        .write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        .unwrap();
    let _hangs = dial(&stage.gateway);
    let _crowd: Vec<_> = (0..30).map(|_| dial(&stage.gateway)).collect();
    let mut nonsense = dial(&stage.gateway);
    let _ = nonsense.write_all(&[b'x'; 50_000]);
    for _ in 0..20 {
        exchange(&mut pair);
        exchange(&mut stage.pair(Ip::V6));
    }
    drop((never_reads, nonsense, _hangs, _crowd));
    // The seats of those that hung are free again in the end.
    eventually("an answer", || {
        let mut stream = dial(&stage.gateway);
        let _ = stream.write_all(b"GET /healthz HTTP/1.1\r\n\r\n");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).is_ok() && answer.contains("200 OK")
    });
    assert_eq!(gateway.handle.counters().reset, 0);
}

/// Clients that trickle their requests, octet by octet, keep no health check waiting; and they have no
/// more time than those that hang.
#[test]
fn who_trickles_keeps_no_health_check_out() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let _gateway = watched(&stage, "");
    let begun = Instant::now();
    let ends: Vec<_> = (0..12)
        .map(|_| {
            let mut stream = dial(&stage.gateway);
            std::thread::spawn(move || {
                stream.set_nonblocking(true).unwrap();
                let mut answer = Vec::new();
                while stream.write_all(b"G").is_ok() {
                    std::thread::sleep(Duration::from_millis(100));
                    match stream.read(&mut [0; 512]) {
                        Ok(0) => break,
                        Ok(read) => answer.push(read),
                        Err(_) => {}
                    }
                }
                begun.elapsed()
            })
        })
        .collect();
    let ask = |path: &str| {
        let begun = Instant::now();
        let mut stream = dial(&stage.gateway);
        // In one piece.
        let request = format!("GET {path} HTTP/1.1\r\n\r\n");
        let _ = stream.write_all(request.as_bytes());
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        assert!(begun.elapsed() < Duration::from_secs(2), "{path}");
        answer
    };
    while !ends.iter().all(|end| end.is_finished()) {
        let answer = ask("/healthz");
        assert!(
            answer.contains("200 OK") && answer.ends_with("serving\n"),
            "{answer}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    for end in ends {
        let lasted = end.join().unwrap();
        assert!(lasted < Duration::from_secs(10), "{lasted:?}");
    }
    assert!(ask("/metrics").contains("bentpipe_flows"));
}

#[test]
fn each_flow_that_ends_is_a_line_in_the_flow_log() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.jsonl");
    let _gateway = watched(&stage, &format!("flow_log = \"{}\"", path.display()));
    let mut pair = stage.pair(Ip::V4);
    let (client, server) = (pair.0.local_addr().unwrap(), pair.0.peer_addr().unwrap());
    pair.0.write_all(&[7; 50_000]).unwrap();
    pair.1.read_exact(&mut [0; 50_000]).unwrap();
    exchange(&mut pair);
    drop(pair);
    let lines = || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<Value>>()
    };
    eventually("the first line", || lines().len() == 1);
    let reset = stage.pair(Ip::V6);
    let other = reset.0.local_addr().unwrap();
    abort(reset.0);
    eventually("the second line", || lines().len() == 2);
    let lines = lines();
    assert_eq!(lines[0]["client"], client.to_string());
    assert_eq!(lines[0]["server"], server.to_string());
    assert_eq!(
        (&lines[0]["from"], &lines[0]["end"]),
        (&"sat".into(), &"finished".into())
    );
    assert_eq!(lines[0]["to_lan"], 50_005);
    assert_eq!(lines[0]["to_sat"], 4);
    assert!(lines[0]["sat"]["rtt"].as_f64().unwrap() > 0.0);
    assert_eq!(
        (&lines[1]["client"], &lines[1]["end"]),
        (&other.to_string().into(), &"reset".into())
    );

    // Moved away, as those who rotate logs do, it is begun anew.
    let moved = folder.path().join("flows.jsonl.1");
    std::fs::rename(&path, &moved).unwrap();
    eventually("a new file", || {
        drop(stage.pair(Ip::V4));
        std::fs::metadata(&path).is_ok_and(|about| about.len() > 0)
    });
}

/// A full disk: lines are lost and counted, flows are not.
#[test]
fn a_full_log_disk_disturbs_nobody() {
    need!(Root, Tproxy, Program("mount"));
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(program);
        assert!(command.args(arguments).status().unwrap().success());
    };
    let disk = folder.path().to_str().unwrap();
    run("mount", &["-t", "tmpfs", "-o", "size=64k", "tmpfs", disk]);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let log = folder.path().join("flows.jsonl");
        let gateway = watched(&stage, &format!("flow_log = \"{}\"", log.display()));
        // All of the disk.
        let full = std::fs::write(folder.path().join("ballast"), vec![0; 1 << 20]);
        assert!(full.is_err());
        let mut standing = stage.pair(Ip::V4);
        for i in 0..40 {
            exchange(&mut stage.pair(Ip::BOTH[i % 2]));
            exchange(&mut standing);
        }
        eventually("lost lines", || gateway.handle.counters().log_lost > 0);
        assert_eq!(gateway.handle.counters().connected, 41);
        // Room again: lines again.
        std::fs::remove_file(folder.path().join("ballast")).unwrap();
        eventually("a line", || {
            drop(stage.pair(Ip::V4));
            std::fs::metadata(&log).is_ok_and(|about| about.len() > 0)
        });
    }));
    run("umount", &[disk]);
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

/// The names of metrics in a text.
fn names(text: &str) -> HashSet<String> {
    let letter = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut names = HashSet::new();
    for part in text.split("bentpipe_").skip(1) {
        let name: String = part.chars().take_while(|c| letter(*c)).collect();
        names.insert(format!("bentpipe_{name}"));
    }
    names
}

#[test]
fn the_dashboard_names_only_metrics_that_there_are() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let _gateway = watched(&stage, "");
    drop(stage.pair(Ip::V4));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/grafana-dashboard.json");
    let text = std::fs::read_to_string(path).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let (_, page) = get(&stage.gateway, "/metrics");
    let there = names(&page);
    let mut asked = 0;
    for target in panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
    {
        for name in names(target["expr"].as_str().unwrap()) {
            asked += 1;
            assert!(there.contains(&name), "no metric {name}: {there:?}");
        }
    }
    assert!(asked > 10, "only {asked} metrics");
}

/// A real Prometheus takes the metrics, and answers each question of the dashboard.
#[test]
fn a_real_prometheus_answers_the_dashboards_questions() {
    need!(Root, Tproxy, Program("prometheus"), Program("curl"));
    let stage = Stage::new();
    let _gateway = watched(&stage, "");
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("prometheus.yml");
    let text = format!(
        "global: {{ scrape_interval: 1s }}\nscrape_configs:\n- job_name: bentpipe\n  static_configs: [{{ targets: [\"{METRICS}\"] }}]\n"
    );
    std::fs::write(&config, text).unwrap();
    let mut command = stage.gateway.command("prometheus");
    let mut prometheus = command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            folder.path().join("data").display()
        ))
        .args(["--web.listen-address=127.0.0.1:9090", "--log.level=error"])
        .spawn()
        .unwrap();
    let ask = |question: &str| -> Option<Value> {
        let mut curl = stage.gateway.command("curl");
        curl.args([
            "-sG",
            "http://127.0.0.1:9090/api/v1/query",
            "--data-urlencode",
        ]);
        let output = curl.arg(format!("query={question}")).output().unwrap();
        serde_json::from_slice(&output.stdout).ok()
    };
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let until = Instant::now() + Duration::from_secs(30);
        // Two scrapes, for rates.
        while ask("count_over_time(bentpipe_open[1m]) > 2").is_none_or(|answer| {
            answer["data"]["result"]
                .as_array()
                .is_none_or(Vec::is_empty)
        }) {
            assert!(Instant::now() < until, "no scrape succeeds");
            exchange(&mut stage.pair(Ip::V4));
            std::thread::sleep(Duration::from_millis(200));
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = path.join("../../packaging/grafana-dashboard.json");
        let text = std::fs::read_to_string(path).unwrap();
        let dashboard: Value = serde_json::from_str(&text).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let mut told = String::new();
        for target in panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().unwrap())
        {
            let expression = target["expr"].as_str().unwrap();
            let question = expression.replace("$__rate_interval", "1m");
            let answer = ask(&question).unwrap();
            let results = answer["data"]["result"].as_array().map_or(0, Vec::len);
            if answer["status"] != "success" || results == 0 {
                let _ = writeln!(told, "{question}: {answer}");
            }
        }
        assert_eq!(told, "");
    }));
    prometheus.kill().unwrap();
    prometheus.wait().unwrap();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}
