//! Files moved by programs in the lab: ours and its rivals, both ways.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use bentpipe_lab::{APPS, LabError, RunOptions, RunResult, Ways, run};
use bentpipe_os::need;
use bentpipe_outcome::End;
use bentpipe_scenario::Scenario;
use std::path::PathBuf;
use std::time::Duration;
use support::PROGRAM;

/// server - hub - terminal: 8 Mbit/s and 40 ms there and back.
fn scenario(name: &str, more: &str, flows: &str) -> Scenario {
    let text = format!(
        r#"
name = "{name}"
time_limit = "60s"
{more}
[hosts.server]
[hosts.terminal]
[routers.hub]
[links.ground]
ends = ["server", "hub"]
[links.space]
ends = ["hub", "terminal"]
rate = "8Mbit/s"
delay = "20ms"
queue = {{ bytes = "40kB" }}
{flows}
"#
    );
    Scenario::parse(name, &text).unwrap_or_else(|problems| panic!("{problems}"))
}

/// 1 MB by each of `apps`, one after the other, first fetched, then sent, where it can be.
fn flows(apps: &[&str]) -> String {
    let apps = APPS.iter().filter(|app| apps.contains(&app.name));
    let all = apps.flat_map(|app| {
        let (get, put) = (("get", "terminal"), ("put", "server"));
        let ways = match app.ways {
            Ways::Both => vec![get, put],
            Ways::ToClient => vec![get],
            Ways::ToServer => vec![put],
        };
        ways.into_iter().map(|way| (app.name, way))
    });
    all.map(|(app, (way, opener))| {
        format!(
            "[[flows]]\nname = \"{app}-{way}\"\nfrom = \"server\"\nto = \"terminal\"\nopened_by = \"{opener}\"\n\
             bytes = \"1MB\"\napp = \"{app}\"\n"
        )
    })
    .collect()
}

fn options() -> RunOptions {
    RunOptions {
        program: Some(PathBuf::from(PROGRAM)),
        ..RunOptions::default()
    }
}

/// Not whether the emulator kept its time: these are no figures.
fn all_arrive(result: &RunResult, control: impl Fn(&str) -> &'static str) {
    for flow in &result.measured_anyway().flows {
        assert_eq!(flow.end, End::Finished, "{}", flow.name);
        assert_eq!(flow.received.0, 1_000_000, "{}", flow.name);
        assert_eq!(flow.control, control(&flow.name), "{}", flow.name);
        // A megabyte takes a second at least, however many share the line.
        assert!(
            flow.completion.unwrap() > Duration::from_secs(1),
            "{}",
            flow.name
        );
    }
}

#[test]
fn saratoga_and_its_rivals_move_a_file_both_ways() {
    need!(
        Root,
        Tun,
        Nft,
        Program("ssh"),
        Program("sshd"),
        Program("ssh-keygen"),
        Program("scp"),
        Program("sftp"),
        Program("rsync"),
        Program("nginx"),
        Program("curl"),
        Program("wget"),
        Program("vsftpd"),
        Program("lftp"),
        Program("nuttcp")
    );
    // What sends nothing again arrives on a line of its own alone: see below.
    let mut names = bentpipe_lab::app_names();
    names.retain(|name| *name != "nuttcp-udp");
    let flows = flows(&names);
    let result = run(&scenario("files", "", &flows), &options()).unwrap();
    let control = |name: &str| {
        if name.starts_with("saratoga") {
            "none"
        } else if name.starts_with("scps") {
            "rate"
        } else {
            "cubic"
        }
    };
    all_arrive(&result, control);
    // Nothing of the run is left: no folder, no process of an sshd.
    let own = bentpipe_os::owner::Owner::current().unwrap().to_string();
    let left = std::fs::read_dir(std::env::temp_dir()).unwrap();
    let left = left.filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        name.to_string_lossy().starts_with(&own)
    });
    assert_eq!(left.count(), 0);
}

#[test]
fn what_is_sent_once_arrives_in_part_and_nuttcp_says_how_much() {
    need!(Root, Tun, Program("nuttcp"));
    let flow = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nopened_by = \"server\"\nbytes = \"1MB\"\n\
                app = \"nuttcp-udp\"\n";
    let clean = scenario("once", "", flow);
    all_arrive(&run(&clean, &options()).unwrap(), |_| "none");
    // Over two links a full packet in nine is lost.
    let errors = "bit_error_rate = \"5e-6\"";
    let text = clean.to_toml();
    let text = text.replace("bit_error_rate = \"0\"", errors);
    assert!(text.contains(errors), "{text}");
    let lossy = Scenario::parse("part.toml", &text).unwrap_or_else(|problems| panic!("{problems}"));
    let result = run(&lossy, &options()).unwrap();
    let flow = &result.measured_anyway().flows[0];
    assert_eq!((&flow.end, flow.completion), (&End::CutOff, None));
    let came = flow.received.0;
    assert!((700_000..1_000_000).contains(&came), "{came}");
    assert!(flow.goodput().mbps() > 4.0, "{}", flow.goodput());
}

#[test]
fn programs_move_files_over_ipv6_and_take_the_control_of_their_host() {
    need!(Root, Tun, Program("nginx"), Program("curl"));
    let hosts = "ip = 6\n[hosts.server.tcp]\ncongestion_control = \"reno\"\n";
    let text = scenario("files6", "ip = 6", &flows(&["saratoga", "http"])).to_toml();
    let text = text.replace("\"cubic\"", "\"reno\"");
    assert!(text.contains("reno"), "{hosts}");
    let reno = Scenario::parse("files6.toml", &text).unwrap();
    let control = |name: &str| {
        if name.starts_with("saratoga") {
            "none"
        } else {
            "reno"
        }
    };
    all_arrive(&run(&reno, &options()).unwrap(), control);
}

#[test]
fn a_file_that_takes_too_long_is_cut_off_with_what_has_come() {
    need!(Root, Tun, Program("nginx"), Program("curl"));
    let slow = "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nopened_by = \"terminal\"\n\
                bytes = \"50MB\"\napp = \"http\"\n";
    let text = scenario("slow", "", slow)
        .to_toml()
        .replace("\"60s\"", "\"3s\"");
    let result = run(&Scenario::parse("slow.toml", &text).unwrap(), &options()).unwrap();
    let flow = &result.measured_anyway().flows[0];
    assert_eq!(flow.end, End::CutOff);
    assert!(flow.completion.is_none());
    let received = flow.received.0;
    assert!((500_000..3_000_000).contains(&received), "{received}");
}

#[test]
fn what_a_program_cannot_do_is_said_before_it_runs() {
    need!(Root, Tun, Program("nuttcp"));
    let unrated =
        "[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nbytes = \"1MB\"\napp = \"saratoga\"\n";
    let text = scenario("unrated", "", unrated).to_toml();
    let text = text.replace(
        "rate = \"8Mbit/s\"\nqueue = { kind = \"drop-tail\", bytes = \"40kB\" }",
        "rate = \"unlimited\"",
    );
    let error = run(&Scenario::parse("a.toml", &text).unwrap(), &options()).unwrap_err();
    assert!(error.to_string().contains("say `path_rate`"), "{error}");
    let sent = flows(&["nuttcp"]).replace("opened_by = \"server\"", "opened_by = \"terminal\"");
    let error = run(&scenario("sent", "", &sent), &options()).unwrap_err();
    let error = error.to_string();
    assert!(
        error.contains("`nuttcp` only sends: say opened_by = \"server\""),
        "{error}"
    );
    let mixed = format!(
        "{}[[flows]]\nfrom = \"server\"\nto = \"terminal\"\nbytes = \"1MB\"\ncongestion_control = \"reno\"\n",
        flows(&["http"])
    );
    let error = run(&scenario("mixed", "", &mixed), &options()).unwrap_err();
    assert!(matches!(error, LabError::TwoControls { .. }), "{error}");
}
