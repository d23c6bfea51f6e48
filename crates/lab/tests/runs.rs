//! Real runs: short ones, on real kernel TCP.

mod common;

use bentpipe_base::Bytes;
use bentpipe_lab::{LabError, Phase, Progress, RunOptions, run};
use bentpipe_os::need;
use bentpipe_outcome::End;
use bentpipe_outcome::Point;
use bentpipe_scenario::Scenario;
use common::{last_of, measure, patient, scenario, valid};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[test]
fn a_bulk_transfer_comes_near_the_limit_and_never_above() {
    need!(Root, Tun);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nopened_by = \"terminal\"\n\
                 duration = \"5s\"\n";
    let result = measure(&scenario("bulk", "", flows));
    let measured = valid(&result);
    let flow = &measured.flows[0];
    assert_eq!(flow.end, End::Finished);
    assert_eq!(flow.control, "cubic");
    assert!((flow.limit.unwrap().mbps() - 9.653).abs() < 0.001);
    let share = flow.share().unwrap();
    // Two round trips and the slow start cost about 0.4 of the 5 s.
    assert!((0.85..1.0).contains(&share), "share {share}");
    // The handshake crosses the link twice: 100 ms and the emulator's lateness, no less.
    let connect = flow.connect.unwrap();
    assert!(connect >= Duration::from_millis(100), "{connect:?}");
    assert!(connect < Duration::from_millis(200), "{connect:?}");
    assert_eq!(flow.elapsed, Duration::from_secs(5));
    assert_eq!(flow.completion, None);
    // Ten samples a second at both ends, and no byte received that was not sent.
    for point in [Point::Sender, Point::Receiver] {
        let samples = measured
            .samples
            .iter()
            .filter(|sample| sample.point == point);
        let samples: Vec<_> = samples.collect();
        assert!(
            (47..=52).contains(&samples.len()),
            "{point:?}: {}",
            samples.len()
        );
        assert!(
            samples
                .windows(2)
                .all(|pair| pair[0].bytes <= pair[1].bytes)
        );
    }
    assert!(flow.sent.unwrap() >= flow.received, "{flow:?}");
    let sender = last_of(measured);
    assert!(
        sender.min_rtt.unwrap() >= Duration::from_millis(100),
        "{sender:?}"
    );
    // The settings are the scenario's, not this machine's.
    let settings = &result.manifest.settings["terminal"];
    assert_eq!(settings["net.ipv4.tcp_rmem"], "4096 131072 6291456");
    // The default is cubic, or reno where the machine does not allow cubic to all its users.
    let default = settings["net.ipv4.tcp_congestion_control"].as_str();
    assert!(["cubic", "reno"].contains(&default), "{default}");
    assert_eq!(settings["net.ipv4.ip_forward"], "0");
    assert_eq!(result.manifest.settings["hub"]["net.ipv4.ip_forward"], "1");
}

/// NewReno repairs one of the losses of a window in a round trip, SACK all of them.
#[test]
fn sack_is_used_where_both_hosts_agree() {
    need!(Root, Tun);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nbytes = \"1MB\"\ncongestion_control = \"reno\"\n";
    let link = "drops = [60, 63, 66, 69, 72, 75]\n[links.space.reverse]\ndrops = []";
    let took = |terminal: bool| {
        let mut scenario = scenario("sack", link, flows);
        scenario.hosts.get_mut("terminal").unwrap().tcp.sack = terminal;
        let result = measure(&scenario);
        let settings = &result.manifest.settings;
        let set = if terminal { "1" } else { "0" };
        assert_eq!(settings["terminal"]["net.ipv4.tcp_sack"], set);
        assert_eq!(settings["server"]["net.ipv4.tcp_sack"], "1");
        valid(&result).flows[0].completion.unwrap()
    };
    let (with, without) = (took(true), took(false));
    // Six round trips of 100 ms in place of one; the first may take longer on a busy machine.
    assert!(
        without > with + Duration::from_millis(200),
        "{with:?}, {without:?}"
    );
}

#[test]
fn losses_are_retransmitted_and_cost_goodput() {
    need!(Root, Tun);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nduration = \"5s\"\n\
                 congestion_control = \"reno\"\n";
    // Losses on the way of the data only.
    let link = "packet_error_rate = \"2%\"\n[links.space.reverse]\npacket_error_rate = \"0\"";
    let result = measure(&scenario("loss", link, flows));
    let measured = valid(&result);
    let flow = &measured.flows[0];
    assert_eq!((&flow.end, flow.control.as_str()), (&End::Finished, "reno"));
    let share = flow.share().unwrap();
    // Mathis et al.: 1448 B × 8 / 100 ms × 1.22 / sqrt(0.02) is 1.0 Mb/s, of a limit of 9.46.
    assert!((0.03..0.4).contains(&share), "share {share}");
    let lost = &measured.links["space"].from_a;
    let segments = flow.segments_again.unwrap();
    assert!(
        segments > 0,
        "nothing retransmitted; the link says {lost:?}"
    );
    let (_, ratio) = flow.retransmitted().next().unwrap();
    assert!((0.002..0.08).contains(&ratio), "retransmitted {ratio}");
}

#[test]
fn bytes_arrive_whole_and_the_time_limit_cuts() {
    need!(Root, Tun);
    let flows = "[[flows]]\nname = \"small\"\nfrom = \"terminal\"\nto = \"server\"\n\
                 bytes = \"300kB\"\nstart = \"200ms\"\n\
                 [[flows]]\nname = \"large\"\nfrom = \"server\"\nto = \"terminal\"\n\
                 opened_by = \"terminal\"\nbytes = \"20MB\"\n";
    let mut scenario = scenario("bytes", "", flows);
    scenario.time_limit = Duration::from_secs(3);
    let result = measure(&scenario);
    let [small, large] = &valid(&result).flows[..] else {
        panic!("two flows")
    };
    assert_eq!(
        (&small.end, small.received),
        (&End::Finished, Bytes(300_000))
    );
    // At least two round trips and the serialisation; at most ten of slow start, each with the full
    // queue of the other direction in the way of the acknowledgements.
    let took = small.completion.unwrap();
    assert!(took > Duration::from_millis(100 + 50 + 240), "{took:?}");
    assert!(took < Duration::from_millis(2000), "{took:?}");
    assert_eq!(large.end, End::CutOff);
    assert_eq!(large.completion, None);
    assert!(
        large.received > Bytes(1_000_000) && large.received < Bytes(3_600_000),
        "{large:?}"
    );
    let cut = large.elapsed;
    assert!(
        (Duration::from_millis(2990)..=Duration::from_secs(3)).contains(&cut),
        "{cut:?}"
    );
}

/// The terminal asks for 100 kB in answers of 30 kB, and types for two seconds.
#[test]
fn requests_are_answered_and_each_answer_is_timed() {
    need!(Root, Tun);
    let flows = "[[flows]]\nname = \"web\"\nkind = \"request-response\"\nfrom = \"server\"\nto = \"terminal\"\n\
                 request = \"300B\"\nresponse = \"30kB\"\nthink = \"50ms\"\nopened_by = \"terminal\"\nbytes = \"100kB\"\n\
                 [[flows]]\nname = \"keys\"\nkind = \"request-response\"\nfrom = \"terminal\"\nto = \"server\"\n\
                 request = \"1B\"\nresponse = \"1B\"\nthink = \"20ms\"\nduration = \"2s\"\n";
    let result = measure(&scenario("requests", "", flows));
    let [web, keys] = &valid(&result).flows[..] else {
        panic!("two flows");
    };
    let round_trip = Duration::from_millis(100);
    assert_eq!(web.end, End::Finished);
    assert_eq!(web.received, Bytes(100_000));
    // Three answers, and the rest of the amount.
    assert_eq!(web.responses.len(), 4);
    let pauses = Duration::from_millis(150);
    let times: Duration = web.responses.iter().sum();
    assert!(
        web.completion.unwrap() >= round_trip + times + pauses,
        "{web:?}"
    );
    assert!(web.acknowledged >= web.completion, "{web:?}");
    assert_eq!(keys.end, End::Finished);
    assert_eq!(keys.elapsed, Duration::from_secs(2));
    let answers = keys.responses.len() as u64;
    // 120 ms each, on a host that is not late.
    assert!((5..=16).contains(&answers), "{answers}");
    assert_eq!(keys.received, Bytes(answers));
    for flow in [web, keys] {
        let least = flow.responses.iter().min().unwrap();
        assert!(*least >= round_trip, "{flow:?}");
    }
}

#[test]
fn plain_wires_carry_both_protocols() {
    need!(Root);
    for ip in [4, 6] {
        let text = format!(
            "name = \"wire\"\nip = {ip}\n[hosts.a]\n[hosts.b]\n[routers.r]\n[routers.s]\n\
             [links.x]\nends = [\"a\", \"r\"]\n[links.y]\nends = [\"r\", \"s\"]\n\
             [links.z]\nends = [\"b\", \"s\"]\n\
             [[flows]]\nfrom = \"a\"\nto = \"b\"\nbytes = \"50MB\"\n\
             [[flows]]\nfrom = \"a\"\nto = \"b\"\nopened_by = \"b\"\nduration = \"200ms\"\n"
        );
        let scenario = Scenario::parse("wire", &text).unwrap();
        let result = measure(&scenario);
        for flow in &valid(&result).flows {
            assert_eq!(flow.end, End::Finished, "IPv{ip} {}", flow.name);
            assert!(
                flow.goodput().mbps() > 100.0,
                "IPv{ip} {}: {}",
                flow.name,
                flow.goodput()
            );
            assert_eq!(flow.limit, None);
        }
        assert_eq!(
            result.measured_anyway().flows[0].received,
            Bytes(50_000_000)
        );
    }
}

#[test]
fn an_emulator_that_falls_behind_makes_the_run_no_result() {
    need!(Root, Tun);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nbytes = \"100kB\"\n";
    let folder = tempfile::tempdir().unwrap();
    let options = RunOptions {
        out: Some(folder.path().to_owned()),
        // No emulator is that punctual.
        lateness_limit: Some(Duration::from_nanos(1)),
        ..RunOptions::default()
    };
    let result = run(&scenario("late", "", flows), &options).unwrap();
    let reasons = result.measured().unwrap_err();
    assert!(
        reasons[0].contains("link `space`") && reasons[0].contains("later than"),
        "{reasons:?}"
    );
    let text = std::fs::read_to_string(folder.path().join("result.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&json["valid"], json.get("flows")), (&false.into(), None));
    assert!(folder.path().join("unfit-flows.csv").exists());
    assert!(!folder.path().join("flows.csv").exists());
}

#[test]
fn a_paced_sender_is_told_its_rate_and_ipv6_is_emulated_alike() {
    need!(Root, Tun, StructOps);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nopened_by = \"terminal\"\n\
                 duration = \"5s\"\ncongestion_control = \"bentpipe_rate\"\n";
    let mut scenario = scenario("paced", "packet_error_rate = \"1%\"", flows);
    scenario.ip = bentpipe_scenario::Ip::V6;
    let result = measure(&scenario);
    let measured = valid(&result);
    let flow = &measured.flows[0];
    assert_eq!(
        (&flow.end, flow.control.as_str()),
        (&End::Finished, "bentpipe_rate")
    );
    // IPv6 carries 1428 bytes in a packet.
    assert!((flow.limit.unwrap().mbps() - 10.0 * 0.952 * 0.99).abs() < 0.001);
    // Untold it would be Reno, which comes to 1.4 Mb/s at this loss.
    let share = flow.share().unwrap();
    assert!((0.8..1.0).contains(&share), "share {share}");
}

#[test]
fn runs_side_by_side_do_not_meet() {
    need!(Root, Tun);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nbytes = \"200kB\"\n";
    let results: Vec<_> = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| run(&scenario("twin", "", flows), &RunOptions::default())))
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for result in results {
        // Lateness may suffer from the company; the transfer must not.
        let result = result.unwrap();
        let flow = &result.measured_anyway().flows[0];
        assert_eq!((&flow.end, flow.received), (&End::Finished, Bytes(200_000)));
    }
}

/// Ctrl-C reaches the programs of a run too, and may end its flows before it is seen.
#[test]
fn a_run_that_is_cancelled_at_its_end_is_cancelled_whatever_came_of_its_flows() {
    need!(Root, Tun);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nbytes = \"10kB\"\n";
    let cancel = Arc::new(AtomicBool::new(false));
    let options = RunOptions {
        cancel: Arc::clone(&cancel),
        progress: Some(Arc::new(move |progress: &Progress| {
            let over = progress.phase == Phase::Ending;
            cancel.fetch_or(over, Ordering::Relaxed);
        })),
        ..RunOptions::default()
    };
    let error = run(&scenario("late_cancel", "", flows), &options).unwrap_err();
    assert!(matches!(error, LabError::Cancelled), "{error}");
}

#[test]
fn a_run_can_be_cancelled_and_tells_how_far_it_is() {
    need!(Root, Tun);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nduration = \"9s\"\n";
    let cancel = Arc::new(AtomicBool::new(false));
    let told: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let options = RunOptions {
        cancel: Arc::clone(&cancel),
        progress: Some(Arc::new({
            let (cancel, told) = (Arc::clone(&cancel), Arc::clone(&told));
            move |progress: &Progress| {
                told.lock().unwrap().push(*progress);
                if progress.elapsed > Duration::from_secs(1) {
                    cancel.store(true, Ordering::Relaxed);
                }
            }
        })),
        ..RunOptions::default()
    };
    let began = Instant::now();
    let error = run(&scenario("cancelled", "", flows), &options).unwrap_err();
    assert!(matches!(error, LabError::Cancelled), "{error}");
    assert!(began.elapsed() < Duration::from_secs(4));
    let told = told.lock().unwrap();
    assert!(told.len() >= 8, "{told:?}");
    assert_eq!(told.last().unwrap().at_most, Duration::from_secs(9));
    assert!(told.last().unwrap().received > Bytes(100_000), "{told:?}");
    assert_eq!(
        namespaces_of(std::process::id(), "cancelled"),
        Vec::<String>::new()
    );
}

#[test]
fn a_gateway_that_does_not_start_is_quoted() {
    need!(Root);
    let text = "name = \"dead\"\n[hosts.a]\n[hosts.b]\n[gateways.g]\nsat = \"x\"\nlan = \"y\"\n\
                [gateways.g.split]\n[links.x]\nends = [\"a\", \"g\"]\n[links.y]\nends = [\"b\", \"g\"]\n";
    let scenario = Scenario::parse("dead", text).unwrap();
    let options = |program: &str| RunOptions {
        program: Some(program.into()),
        ..RunOptions::default()
    };
    let error = run(&scenario, &options("/no/such/program"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`g` cannot be started as /no/such/program"),
        "{error}"
    );
    // cat does not know the options, and says so.
    let error = run(&scenario, &options("/bin/cat"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("gateway `g` ended by itself"), "{error}");
    assert!(error.contains("--config"), "{error}");
}

#[test]
fn a_congestion_control_that_is_not_there_is_refused_before_anything_is_made() {
    need!(Root);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nbytes = \"1B\"\n\
                 congestion_control = \"qubic\"\n";
    let error = run(&scenario("qubic", "", flows), &RunOptions::default()).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("flow `flow1`") && said.contains("did you mean `cubic`?"),
        "{said}"
    );
}

#[test]
fn results_are_written_with_units() {
    need!(Root, Tun);
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nbytes = \"100kB\"\n";
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("a/b");
    let options = RunOptions {
        out: Some(out.clone()),
        ..patient()
    };
    let result = run(&scenario("written", "", flows), &options).unwrap();
    valid(&result);
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let again = Scenario::parse("scenario.toml", &read("scenario.toml")).unwrap();
    assert_eq!(again, scenario("written", "", flows));
    let json: serde_json::Value = serde_json::from_str(&read("result.json")).unwrap();
    assert_eq!(json["valid"], true);
    assert_eq!(json["flows"][0]["received_bytes"], 100_000);
    assert_eq!(json["flows"][0]["outcome"], "finished");
    assert_eq!(
        (&json["schema"], &json["engine"]),
        (&3.into(), &"kernel".into())
    );
    assert_eq!(json["links"][0]["link"], "space");
    assert!(json["measures"]["goodput"]["value"].is_number(), "{json}");
    let manifest: serde_json::Value = serde_json::from_str(&read("manifest.json")).unwrap();
    assert_eq!(manifest["seed"], 3);
    let lateness = &manifest["emulators"]["space"]["lateness"];
    assert!(lateness["p99_ms"].is_number(), "{manifest}");
    assert_eq!(
        manifest["settings"]["server"]["net.ipv4.tcp_no_metrics_save"],
        "1"
    );
    let mut flows = csv::Reader::from_path(out.join("flows.csv")).unwrap();
    assert!(
        flows
            .headers()
            .unwrap()
            .iter()
            .any(|column| column == "goodput_mbps")
    );
    assert_eq!(flows.records().count(), 1);
    let mut samples = csv::Reader::from_path(out.join("samples.csv")).unwrap();
    assert!(samples.records().count() >= 4);

    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let options = RunOptions {
        out: Some(file),
        ..RunOptions::default()
    };
    let error = run(&again, &options).unwrap_err();
    assert!(matches!(error, LabError::Output { .. }), "{error}");
}

/// What an hour has found is not lost for want of room: whoever asked has it.
#[test]
fn what_cannot_be_written_is_not_lost() {
    need!(Root, Tun);
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let gone = out.clone();
    let options = RunOptions {
        out: Some(out),
        progress: Some(Arc::new(move |progress: &Progress| {
            if progress.phase == Phase::Ending {
                let _ = std::fs::remove_dir_all(&gone);
            }
        })),
        ..RunOptions::default()
    };
    let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nbytes = \"100kB\"\n";
    let error = run(&scenario("unwritten", "", flows), &options).unwrap_err();
    let LabError::Unwritten { result, source } = error else {
        panic!("{error}");
    };
    assert!(matches!(*source, LabError::Output { .. }), "{source}");
    assert_eq!(result.measured_anyway().flows.len(), 1);
}

/// Run by the test below in a process of its own; on its own it does nothing.
#[test]
fn in_a_process_of_its_own() {
    if std::env::var_os("BENTPIPE_TEST_LAB_CHILD").is_some() {
        let flows = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nduration = \"9s\"\n";
        run(&scenario("killed", "", flows), &RunOptions::default()).unwrap();
    }
}

#[test]
fn what_a_killed_run_leaves_is_swept() {
    need!(Root, Tun);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "in_a_process_of_its_own"])
        .env("BENTPIPE_TEST_LAB_CHILD", "1")
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(8);
    while namespaces_of(child.id(), "").len() < 3 {
        assert!(Instant::now() < deadline, "the run has made no namespaces");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(
        namespaces_of(child.id(), "").len(),
        3,
        "they outlive the killed run"
    );
    bentpipe_os::sweep::sweep();
    assert_eq!(namespaces_of(child.id(), ""), Vec::<String>::new());
}

/// The named namespaces that process `pid` made for a node whose name begins with `label`.
fn namespaces_of(pid: u32, label: &str) -> Vec<String> {
    let Ok(listed) = std::fs::read_dir("/run/netns") else {
        return Vec::new();
    };
    let names = listed.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names
        .filter(|name| {
            let owned = bentpipe_os::owner::Owner::parse(name);
            owned.is_some_and(|(owner, node)| owner.pid == pid && node.starts_with(label))
        })
        .collect()
}

/// Five flows each way between hosts beside the flow of interest; `settings` is what `[traffic]` has.
fn with_traffic(name: &str, settings: &str) -> Scenario {
    let flows = format!(
        "[hosts.third]\n[links.third]\nends = [\"third\", \"hub\"]\n\
         [traffic]\nbetween = [\"third\", \"terminal\"]\n{settings}\n\
         [[flows]]\nfrom = \"server\"\nto = \"terminal\"\nstart = \"100ms\"\nduration = \"3s\"\n"
    );
    scenario(name, "", &flows)
}

#[test]
fn traffic_replaces_its_transfers_and_takes_its_share() {
    need!(Root, Tun);
    // 30 kB on average, without a pause: each flow comes to many transfers in 3 s.
    let head = "# log2-mean = 14\n# log2-sd = 1\n# tail-share = 0\n# idle = 0\n\
                flow,direction,start,bytes\n";
    let rows = (0..10).map(|flow| {
        let direction = ["forward", "reverse"][flow % 2];
        // One of nothing, which is a connection and no more.
        let bytes = 10_000 * (flow % 4);
        format!("{flow},{direction},0.0{flow},{bytes}\n")
    });
    let profile = head.to_owned() + &rows.collect::<String>();
    let mut scenario = with_traffic("traffic", "profile = \"beside.csv\"");
    let unread = run(&scenario, &RunOptions::default())
        .unwrap_err()
        .to_string();
    assert!(unread.contains("`beside.csv`"), "{unread}");
    let traffic = scenario.traffic.as_mut().unwrap();
    traffic.load(&profile, Duration::from_secs(10)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let options = RunOptions {
        out: Some(folder.path().to_owned()),
        ..patient()
    };
    let result = run(&scenario, &options).unwrap();
    let measured = valid(&result);
    let flow = &measured.flows[0];
    assert_eq!(flow.end, End::Finished);
    // Alone it has 0.85 and more of the link.
    let share = flow.share().unwrap();
    assert!((0.02..0.8).contains(&share), "share {share}");
    let traffic = measured.traffic.unwrap();
    assert!(traffic.finished > 30, "{traffic:?}");
    assert_eq!(traffic.broken, 0, "{traffic:?}");
    assert!(traffic.received > Bytes(300_000), "{traffic:?}");
    // All of it went over the link, both ways.
    let links = &measured.links["space"];
    let carried = links.from_a.bytes_out + links.from_b.bytes_out;
    assert!(carried > traffic.received + flow.received, "{carried}");
    // What the folder holds runs again.
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    let mut again = Scenario::parse("scenario.toml", &read("scenario.toml")).unwrap();
    let traffic = again.traffic.as_mut().unwrap();
    let file = traffic.file().unwrap().to_owned();
    traffic.load(&read(&file), again.time_limit).unwrap();
    let (again, own) = (again.traffic.unwrap(), scenario.traffic.unwrap());
    assert_eq!(again.profile(1), own.profile(1));
    assert!(read("result.json").contains("\"finished\""));
}

#[test]
fn traffic_that_the_lab_cannot_carry_is_refused() {
    let refused = |settings: &str| {
        let scenario = with_traffic("refused", settings);
        run(&scenario, &RunOptions::default())
            .unwrap_err()
            .to_string()
    };
    let many = refused("flows = 3000");
    assert!(
        many.contains("3000 flows") && many.contains("2000"),
        "{many}"
    );
    let variant = refused("flows = 2\nvariant = \"sack\"");
    assert!(
        variant.contains("variant `sack` of the traffic"),
        "{variant}"
    );
}
