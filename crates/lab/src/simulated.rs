//! Refuses scenarios that only the simulator can run. Links are the same in the lab, but the TCP is the kernel's, so a
//! scenario that asks for another TCP, or for a proxy that is not a real gateway, would not get what it says. `preset`
//! and `tcp` of hosts tune the simulator's TCP and mean nothing here.

use crate::LabError;
use bentpipe_scenario::{Amount, FlowKind, Scenario};

/// Refuses what the lab cannot do.
pub(crate) fn refuse(scenario: &Scenario) -> Result<(), LabError> {
    let mut peps = scenario
        .peps
        .iter()
        .filter(|(_, pep)| pep.enabled)
        .map(|(name, _)| format!("the PEP `{name}`"));
    let mut legs = scenario.gateways.iter().filter_map(|(name, gateway)| {
        let key = gateway.splits()?.config().simulated_key()?;
        Some(format!("`{key}` as it stands in [gateways.{name}.split]"))
    });
    let mut flows = scenario.flows.iter().filter_map(|flow| {
        let what = match (&flow.variant, flow.kind, flow.amount) {
            (Some(variant), _, _) => format!("the variant `{variant}`"),
            (None, kind @ FlowKind::OnOff { .. }, _) => format!("the kind `{}`", kind.name()),
            (None, _, Amount::Segments(_)) => "an amount in segments".to_owned(),
            (None, _, _) => return None,
        };
        Some(format!("{what} of flow `{}`", flow.name))
    });
    let mut traffic = scenario
        .traffic
        .iter()
        .filter_map(|traffic| traffic.variant.as_ref())
        .map(|variant| format!("the variant `{variant}` of the traffic"));
    match peps
        .next()
        .or_else(|| legs.next())
        .or_else(|| flows.next())
        .or_else(|| traffic.next())
    {
        Some(what) => Err(LabError::Simulated(what)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_the_simulator_has_is_refused_by_name() {
        let text = include_str!("../../../scenarios/geo.toml");
        let said = |right: &str, wrong: &str| {
            assert_eq!(text.matches(right).count(), 1, "{right:?} must occur once");
            let scenario = Scenario::parse("geo.toml", &text.replace(right, wrong)).unwrap();
            refuse(&scenario).map_err(|error| error.to_string())
        };
        assert!(said("[hosts.server]", "[hosts.server]\npreset = \"ns2\"").is_ok());
        for link in [
            "drops = [3]",
            "outage = [{ start = \"1s\", length = \"2s\" }]",
            "gilbert = { mean_burst = 5, error_rate = \"1%\" }",
        ] {
            assert!(said("packet_error_rate = \"1%\"", link).is_ok());
        }
        let cases = [
            (
                "congestion_control = \"cubic\"",
                "variant = \"tahoe\"",
                "the variant `tahoe` of flow `download`",
            ),
            (
                "duration = \"30s\"",
                "segments = 30",
                "an amount in segments of flow `download`",
            ),
            (
                "kind = \"bulk\"",
                "kind = \"on-off\"\non = \"1s\"\noff = \"1s\"",
                "the kind `on-off` of flow `download`",
            ),
            (
                "[[flows]]",
                "[peps.agent]\nkind = \"snoop\"\nnode = \"hub\"\nlink = \"space\"\n[[flows]]",
                "the PEP `agent`",
            ),
            (
                "[[flows]]",
                "[traffic]\nflows = 2\nbetween = [\"server\", \"terminal\"]\nvariant = \"sack\"\n[[flows]]",
                "the variant `sack` of the traffic",
            ),
        ];
        for (right, wrong, what) in cases {
            let error = said(right, wrong).unwrap_err();
            assert!(error.contains(what) && error.contains("sim run"), "{error}");
        }
    }
}
