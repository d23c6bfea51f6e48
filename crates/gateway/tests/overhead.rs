//! What being looked at costs the data plane: processor time of the gateway, everything on against
//! everything off, in pairs by turns.
//!
//! `cargo test --release -p bentpipe-gateway --test overhead -- --ignored --nocapture`

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(
    clippy::print_stdout,
    reason = "what was measured, for whoever asks for it"
)]

mod support;

use bentpipe_gateway::protocol::{self, Request};
use bentpipe_os::need;
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::{Ip, Stage, child, connect_in};

const PAIRS: usize = 15;
const TIME: Duration = Duration::from_secs(2);
/// The bound, and what chance may add to the median of so few pairs on a busy machine.
const BOUND: f64 = 1.02 + 0.05;

/// Processor time that a process's threads have had, in seconds.
fn processor_time(pid: u32) -> f64 {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let nanos = tasks.filter_map(|task| {
        let task = task.ok()?.path();
        let stat = std::fs::read_to_string(task.join("schedstat")).ok()?;
        stat.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

/// What a gateway costs: seconds of processor a GB of bulk, and a thousand short connections.
struct Cost {
    bulk: f64,
    short: f64,
}

fn measure(stage: &Stage, config: &str, watch: Option<&Path>) -> Cost {
    let gateway = child::start(stage, config);
    let pid = gateway.child.id();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if let Some(control) = watch {
            scope.spawn(|| look(stage, control, &stop));
        }
        let _stop = support::ends::SetAtEnd(&stop);
        let before = processor_time(pid);
        let bytes = bulk(stage);
        let between = processor_time(pid);
        let count = short(stage);
        let after = processor_time(pid);
        Cost {
            bulk: (between - before) / (bytes as f64 / 1e9),
            short: (after - between) / (count as f64 / 1e3),
        }
    })
}

/// An operator's `status --watch` and a scraper, each once a second.
fn look(stage: &Stage, control: &Path, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        protocol::ask(control, &Request::Status).unwrap();
        let metrics: SocketAddr = "127.0.0.1:9463".parse().unwrap();
        let mut scrape = connect_in(&stage.gateway, metrics).unwrap();
        scrape.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        scrape.read_to_end(&mut Vec::new()).unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Four flows at full speed, with fifty idle ones beside; the bytes they carried.
fn bulk(stage: &Stage) -> u64 {
    let carried = AtomicU64::new(0);
    let _idle: Vec<_> = (0..50).map(|_| stage.pair(Ip::V4)).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let (mut client, mut server) = stage.pair(Ip::V4);
            let until = Instant::now() + TIME;
            scope.spawn(move || {
                let block = vec![7; 256 * 1024];
                while Instant::now() < until {
                    client.write_all(&block).unwrap();
                }
            });
            let carried = &carried;
            scope.spawn(move || {
                let mut block = vec![0; 256 * 1024];
                while let Ok(count @ 1..) = server.read(&mut block) {
                    carried.fetch_add(count as u64, Ordering::Relaxed);
                }
            });
        }
    });
    carried.into_inner()
}

/// Connections one after the other, each with a few bytes there and back; how many.
fn short(stage: &Stage) -> u64 {
    let listener = stage.listen(Ip::V4);
    let address = listener.address();
    let until = Instant::now() + TIME;
    std::thread::scope(|scope| {
        let serve = scope.spawn(move || {
            let mut count = 0;
            while let Some(mut stream) = listener.accept_within(Duration::from_millis(500)) {
                let mut ask = [0; 4];
                if stream.read_exact(&mut ask).is_ok() {
                    stream.write_all(b"take").unwrap();
                    count += 1;
                }
            }
            count
        });
        let ask = || -> io::Result<()> {
            while Instant::now() < until {
                let mut stream = connect_in(&stage.client, address)?;
                stream.write_all(b"give")?;
                stream.read_exact(&mut [0; 4])?;
            }
            Ok(())
        };
        ask().unwrap();
        serve.join().unwrap()
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[test]
#[ignore = "measures for two minutes, and wants a quiet machine"]
fn looking_costs_next_to_nothing() {
    need!(Root, Tproxy);
    let stage = Stage::new();
    let folder = tempfile::tempdir().unwrap();
    let control = folder.path().join("gateway.sock");
    let watched = format!(
        "control = \"{}\"\nmetrics = \"127.0.0.1:9463\"\nflow_log = \"{}\"\n",
        control.display(),
        folder.path().join("flows.jsonl").display()
    );
    let (mut bulk, mut short) = (Vec::new(), Vec::new());
    for pair in 0..PAIRS {
        let off = || measure(&stage, "control = \"off\"\n", None);
        let on = || measure(&stage, &watched, Some(&control));
        // By turns, also within the pair.
        let (off, on) = match pair % 2 {
            0 => {
                let off = off();
                (off, on())
            }
            _ => {
                let on = on();
                (off(), on)
            }
        };
        bulk.push(on.bulk / off.bulk);
        short.push(on.short / off.short);
    }
    let (bulk, short) = (median(bulk), median(short));
    println!(
        "processor time, everything on against off, median of {PAIRS} pairs: {bulk:.3} a GB, {short:.3} a short connection"
    );
    assert!(bulk < BOUND, "{bulk}");
}

#[test]
fn gateway_process() {
    child::be_a_gateway();
}
