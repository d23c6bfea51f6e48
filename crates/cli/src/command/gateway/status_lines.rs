//! What the status for people has of parts that not every gateway has.

use serde_json::Value;

/// A line each for SCONE, the tunnels and the UDP in them, where the status has them, as the control socket gives it.
pub(super) fn optional_lines(status: &Value) -> String {
    let number = |path: &str| status.pointer(path).and_then(Value::as_u64).unwrap_or(0);
    let text = |path: &str| status.pointer(path).and_then(Value::as_str).unwrap_or("");
    let mut lines = String::new();
    if status["scone"].is_object() {
        let [seen, lowered] = ["/scone/seen", "/scone/lowered"].map(number);
        lines += &format!("scone    {lowered} of {seen} packets were told less\n");
    }
    let tunnels = &status["tunnels"];
    if !tunnels.is_object() {
        return lines;
    }
    let state = match (text("/tunnels/carrier"), text("/tunnels/last_loss")) {
        ("", "") => "the far end is not reached".to_owned(),
        ("", why) => format!("the far end is not reached: {why}"),
        (carrier, _) => format!("new ones by {carrier}"),
    };
    let told = |key: &str, words: &'static str| match tunnels[key] == true {
        true => words,
        false => "",
    };
    let blocked = told("udp_blocked", "; UDP is blocked");
    let policed = told("udp_policed", "; UDP is policed");
    let flows = number("/tunnels/flows");
    lines += &format!("tunnels  {flows}, {state}{blocked}{policed}\n");
    let udp = ["flows", "into", "out", "passed"].map(|key| number(&format!("/tunnels/udp/{key}")));
    if udp != [0; 4] {
        let [flows, into, out, passed] = udp;
        lines += &format!(
            "udp      {flows} flows; {into} datagrams to the far end, {out} from it, {passed} passed\n"
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_there_is_has_a_line() {
        assert_eq!(
            optional_lines(&json!({ "scone": null, "tunnels": null })),
            ""
        );
        let udp = json!({ "flows": 2, "into": 20, "out": 19, "passed": 1 });
        let status = json!({
            "scone": { "seen": 5, "lowered": 4 },
            "tunnels": { "flows": 3, "carrier": "http2", "udp_blocked": true, "udp_policed": false, "udp": udp },
        });
        let lines = "scone    4 of 5 packets were told less\n\
                     tunnels  3, new ones by http2; UDP is blocked\n\
                     udp      2 flows; 20 datagrams to the far end, 19 from it, 1 passed\n";
        assert_eq!(optional_lines(&status), lines);
        let status =
            json!({ "tunnels": { "flows": 0, "carrier": null, "last_loss": "no answer" } });
        let line = "tunnels  0, the far end is not reached: no answer\n";
        assert_eq!(optional_lines(&status), line);
    }
}
