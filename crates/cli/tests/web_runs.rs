//! Runs that `bentpipe web` is asked for: as the command runs them, watched, stopped, too large, killed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "support/web.rs"]
mod server;

use bentpipe_os::owner::Owner;
use serde_json::{Value, json};
use server::{BENTPIPE, GEO, Web, endless};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// What the page runs is what the command runs.
#[test]
fn a_run_has_the_figures_of_the_command_and_is_told_while_it_goes_on() {
    let web = Web::start(&[]);
    let id = web.run(GEO, false);
    let said = web.get(&format!("/api/runs/{id}/events"));
    let run = web.until(&id, &["done", "failed"]);
    assert_eq!(run["state"], "done", "{run}");
    // It may be over before it is asked about.
    assert!(
        said.status == 204 || said.body.contains("event: end\ndata: done"),
        "{} {}",
        said.status,
        said.body
    );
    let own = web.results.path().join(&id);
    let by_hand = Command::new(BENTPIPE)
        .args(["sim", "run", "--json", "-"])
        .arg(own.join("asked.toml"))
        .output()
        .unwrap();
    let by_hand: Value = serde_json::from_slice(&by_hand.stdout).unwrap();
    assert_eq!(run["result"], by_hand);
    let looks = fs::read_to_string(own.join("live.jsonl")).unwrap();
    let looks: Vec<Value> = looks
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(looks[0]["flows"], json!(["download"]));
    assert!(
        looks.len() > 290 && looks[200]["flows"][0]["cwnd_segments"].as_f64().unwrap() > 1.0,
        "{}",
        looks.len()
    );
    assert!(
        run["command"]
            .as_str()
            .unwrap()
            .starts_with("bentpipe sim run"),
        "{run}"
    );
}

#[test]
fn a_scenario_without_end_is_watched_and_stopped() {
    let web = Web::start(&["--jobs", "1"]);
    let id = web.run(&endless(), false);
    web.until(&id, &["running"]);
    let next = web.run(GEO, false);
    let waits = web.run(GEO, false);
    let queue = web.get("/api/queue").json();
    assert_eq!(
        (
            queue["running"][0]["id"].as_str(),
            queue["waiting"][1]["id"].as_str()
        ),
        (Some(&*id), Some(&*waits)),
        "{queue}"
    );
    thread::scope(|scope| {
        let watchers: Vec<_> = (0..20)
            .map(|_| scope.spawn(|| web.get(&format!("/api/runs/{id}/events"))))
            .collect();
        thread::sleep(Duration::from_secs(1));
        assert_eq!(
            web.post(&format!("/api/runs/{waits}/stop"), &json!({}))
                .status,
            200
        );
        assert_eq!(
            web.post(&format!("/api/runs/{id}/stop"), &json!({})).status,
            200
        );
        for watcher in watchers {
            let said = watcher.join().unwrap();
            assert!(said.head.contains("text/event-stream"), "{}", said.head);
            assert!(
                said.body.contains("\"at_most_s\":86400.0")
                    && said.body.contains("event: end\ndata: stopped"),
                "{}",
                said.body.len()
            );
        }
    });
    assert_eq!(web.until(&id, &["stopped", "failed"])["state"], "stopped");
    assert_eq!(
        web.until(&waits, &["stopped", "failed"])["state"],
        "stopped"
    );
    web.until(&next, &["done"]);
}

#[test]
fn a_scenario_that_wants_all_memory_is_refused_it_and_the_server_goes_on() {
    let web = Web::start(&["--memory", "64"]);
    // Queues of gigabytes before a slow link.
    let greedy = GEO
        .replace("\"750kB\"", "\"900GB\"")
        .replace("rate = \"10Mbit/s\"", "rate = \"1Gbit/s\"")
        .replace("packet_error_rate = \"1%\"", "")
        .replace("[hosts.server]", "[hosts.server]\nsend_buffer = [\"4096B\", \"16777216B\", \"2000000000B\"]\n[hosts.server.tcp]\ninitial_window = 1000000")
        .replace("\"67108864B\"]", "\"2000000000B\"]");
    let id = web.run(&greedy, false);
    let run = web.until(&id, &["done", "failed"]);
    assert!(
        run["state"] == "failed" && run["why"].as_str().unwrap().contains("memory"),
        "{run}"
    );
    let next = web.run(GEO, false);
    web.until(&next, &["done", "failed"]);
}

#[test]
fn a_killed_server_loses_nothing_that_was_finished_or_waited() {
    let mut web = Web::start(&["--jobs", "1"]);
    let done = web.run(GEO, false);
    web.until(&done, &["done"]);
    let running = web.run(&endless(), false);
    web.until(&running, &["running"]);
    let waiting = web.run(GEO, false);
    web.child.kill().unwrap();
    web.child.wait().unwrap();
    let results = std::mem::replace(&mut web.results, tempfile::tempdir().unwrap());
    // The run that went on ends when it cannot tell any more how it stands.
    let written = results.path().join(&running).join("live.jsonl");
    let deadline = Instant::now() + Duration::from_secs(20);
    while is_open(&written) {
        assert!(Instant::now() < deadline, "the run goes on");
        thread::sleep(Duration::from_millis(50));
    }
    let web = Web::start_in(results, &["--jobs", "1"]);
    assert_eq!(
        web.until(&running, &["interrupted"])["state"],
        "interrupted"
    );
    assert_eq!(web.until(&waiting, &["done", "failed"])["state"], "done");
    assert!(web.until(&done, &["done"])["result"]["flows"].is_array());
    // What is stopped with the server in order is stopped, too.
    let again = web
        .post(&format!("/api/runs/{running}/again"), &json!({}))
        .json();
    let again = again[0]["id"].as_str().unwrap().to_owned();
    web.until(&again, &["running"]);
    let web = Web::start_in(web.end(), &[]);
    assert_eq!(web.until(&again, &["stopped"])["state"], "stopped");
}

/// Nothing that a killed lab run made in the kernel outlives the next start of the server.
#[test]
fn what_a_killed_lab_run_left_is_swept_at_the_next_start() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let mut web = Web::start(&[]);
    let id = web.run(GEO, true);
    let looks = web.results.path().join(&id).join("live.jsonl");
    let deadline = Instant::now() + Duration::from_secs(60);
    while fs::read_to_string(&looks).map_or(0, |text| text.lines().count()) < 3 {
        assert!(Instant::now() < deadline, "the run does not begin");
        thread::sleep(Duration::from_millis(50));
    }
    let pid = running_in(looks.parent().unwrap()).unwrap();
    web.child.kill().unwrap();
    web.child.wait().unwrap();
    let run = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(run, rustix::process::Signal::KILL).unwrap();
    // By its namespaces.
    let left = || -> Vec<Owner> {
        let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        let owners = names.filter_map(|name| Some(Owner::parse(&name)?.0));
        owners.filter(|owner| owner.pid == pid).collect()
    };
    assert!(!left().is_empty(), "it had namespaces");
    // Its threads take a while to end.
    while left().iter().any(Owner::is_alive) {
        thread::sleep(Duration::from_millis(20));
    }
    let results = std::mem::replace(&mut web.results, tempfile::tempdir().unwrap());
    let web = Web::start_in(results, &[]);
    assert!(left().is_empty());
    assert_eq!(web.until(&id, &["interrupted"])["state"], "interrupted");
}

/// Whether any process of this binary has its folder where `file` is.
fn is_open(file: &Path) -> bool {
    running_in(file.parent().unwrap()).is_some()
}

/// A process whose folder this is.
fn running_in(folder: &Path) -> Option<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let mut own =
        all.filter(|entry| fs::read_link(entry.path().join("cwd")).is_ok_and(|cwd| cwd == folder));
    own.find_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The advisor's page is served where it lies beside the program, as packages have it, or where it is named.
#[test]
fn the_advisor_is_found_beside_the_program() {
    let prefix = tempfile::tempdir().unwrap();
    let at = |name: &str| prefix.path().join(name);
    fs::create_dir_all(at("bin")).unwrap();
    fs::create_dir_all(at("share/bentpipe/advisor")).unwrap();
    fs::hard_link(BENTPIPE, at("bin/bentpipe"))
        .or_else(|_| fs::copy(BENTPIPE, at("bin/bentpipe")).map(|_| ()))
        .unwrap();
    let advisor = |web: &Web| web.get("/api/about").json()["advisor"] == json!(true);
    let program = at("bin/bentpipe");
    assert!(!advisor(&Web::start_program(&program, &[])));
    fs::write(at("share/bentpipe/advisor/index.html"), "<p>advisor").unwrap();
    let web = Web::start_program(&program, &[]);
    assert!(advisor(&web));
    assert!(web.get("/advisor/").body.contains("<p>advisor"));
    assert_eq!(web.get("/advisor").status, 303);
}

#[test]
fn a_capture_is_traced_on_a_page_that_may_ask_nobody() {
    let web = Web::start(&[]);
    let small = GEO.replace("duration = \"30s\"", "bytes = \"200kB\"");
    let said = web.post(
        "/api/runs",
        &json!({ "lab": false, "capture": true, "variants": [{ "label": "test", "text": small }] }),
    );
    let id = said.json()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(web.until(&id, &["done", "failed"])["state"], "done");
    let capture = web.get(&format!("/api/runs/{id}/captures/space-hub.pcapng"));
    assert!(
        capture.status == 200 && capture.head.contains("attachment"),
        "{}",
        capture.head
    );
    let page = web.get(&format!("/api/runs/{id}/trace/space-hub.pcapng"));
    assert!(
        page.status == 200 && page.body.contains("bentpipe trace"),
        "{}",
        page.status
    );
    assert!(
        page.head.contains("sandbox allow-scripts") && page.head.contains("default-src 'none'"),
        "{}",
        page.head
    );
    assert_eq!(
        web.get(&format!("/api/runs/{id}/trace/none.pcapng")).status,
        404
    );
}

/// The lab, where this runs as root; a killed server's lab run takes itself down.
#[test]
fn a_lab_run_is_watched_and_its_figures_are_those_of_the_folder() {
    let web = Web::start(&[]);
    let short = GEO.replace("duration = \"30s\"", "duration = \"4s\"");
    if !rustix::process::geteuid().is_root() {
        let said = web.post(
            "/api/runs",
            &json!({ "lab": true, "variants": [{ "label": "test", "text": short }] }),
        );
        assert!(
            said.status == 409 && said.body.contains("sudo"),
            "{}",
            said.body
        );
        return;
    }
    let id = web.run(&short, true);
    web.until(&id, &["running", "failed"]);
    let events = web.get(&format!("/api/runs/{id}/events"));
    let run = web.until(&id, &["done", "failed"]);
    // A busy machine may be too late for a result; the looks are there all the same.
    let late = run["why"]
        .as_str()
        .is_some_and(|why| why.contains("no result"));
    assert!(run["state"] == "done" || late, "{run}");
    let looks = events.body.matches("\"at_s\":").count();
    assert!((10..=80).contains(&looks), "{looks} looks");
    assert!(
        events.body.contains("\"engine\":\"kernel\"") && events.body.contains("\"cwnd_segments\":"),
        "{}",
        events.body
    );
    let own = web.results.path().join(&id);
    assert!(own.join("manifest.json").is_file() && own.join("scenario.toml").is_file());
}
