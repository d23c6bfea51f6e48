//! Policies of IPsec that judge what is for this machine otherwise than what it forwards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bentpipe_os::ipsec::judged_apart;
use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use std::net::IpAddr;

#[test]
fn what_only_one_direction_has_is_told_with_its_ends() {
    need!(Root);
    let netns = Netns::create("apart").unwrap();
    let change = |words: String| {
        let mut ip = netns.command("ip");
        ip.args(["xfrm", "policy"]).args(words.split_whitespace());
        ip.status().unwrap().success()
    };
    let of_one = |what: &str, direction: &str, rest: &str| {
        change(format!(
            "{what} dir {direction} src 10.0.0.0/8 dst 10.1.0.0/16 {rest}"
        ))
    };
    let apart = || {
        let apart = netns.run(|| judged_apart().unwrap()).unwrap();
        apart.into_iter().collect::<Vec<_>>()
    };
    let prefix = |address: &str, length: u8| (address.parse::<IpAddr>().unwrap(), length);
    assert_eq!(apart(), []);
    let template = "tmpl proto esp mode tunnel";
    if !of_one("add", "in", template) {
        // A kernel without IPsec.
        return;
    }
    let ends = (prefix("10.0.0.0", 8), prefix("10.1.0.0", 16));
    assert_eq!(apart(), [ends]);
    assert!(of_one("add", "fwd", "action block"));
    assert_eq!(apart(), [ends]);
    assert!(of_one("delete", "fwd", "") && of_one("add", "fwd", template));
    assert_eq!(apart(), []);
    assert!(of_one("add", "out", "action block"));
    assert_eq!(apart(), []);
    assert!(change(
        "add dir fwd src fd00::/8 dst ::/0 action block".to_owned()
    ));
    assert_eq!(apart(), [(prefix("fd00::", 8), prefix("::", 0))]);
}
