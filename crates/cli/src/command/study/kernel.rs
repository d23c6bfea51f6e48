//! The points of a study on the kernel's TCP.

use crate::lateness::Lateness;
use bentpipe_lab::{Controls, LabError, Measured, RunOptions};
use bentpipe_outcome::{End, Run};
use bentpipe_scenario::Scenario;
use bentpipe_study::{Measures, measures};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How often a run in which an emulator fell behind is made before its point is given up.
const TRIES: u32 = 3;

/// What the runs of a study have in common.
pub(super) struct Kernel {
    controls: Controls,
    lateness: Lateness,
    cancel: Arc<AtomicBool>,
}

impl Kernel {
    /// Runs end early when `cancel` is raised.
    pub(super) fn new(lateness: Lateness, cancel: Arc<AtomicBool>) -> Self {
        Self {
            controls: Controls::default(),
            lateness,
            cancel,
        }
    }

    /// Runs `scenario` in the lab and takes those measures that can be seen there, of the whole run and of the `single`
    /// flows and links that are named. Captures go to `pcap`.
    pub(super) fn measure(
        &self,
        scenario: &Scenario,
        single: &[String],
        pcap: Option<PathBuf>,
    ) -> Result<Measures, String> {
        let mut late = String::new();
        for _ in 0..TRIES {
            let options = RunOptions {
                cancel: Arc::clone(&self.cancel),
                controls: self.controls.clone(),
                lateness_limit: self.lateness.limit,
                pcap: pcap.clone(),
                ..RunOptions::default()
            };
            let result = bentpipe_lab::run(scenario, &options)
                .map_err(|error: LabError| error.to_string())?;
            match result.measured() {
                Ok(measured) => return Ok(measures(&whole(measured, scenario)?, single)),
                Err(reasons) => late = reasons.join("; "),
            }
        }
        Err(format!("no result in {TRIES} runs: {late}"))
    }
}

/// What was measured, unless a flow broke.
fn whole(run: &Measured, scenario: &Scenario) -> Result<Run, String> {
    for flow in &run.flows {
        if let End::Failed(why) = &flow.end {
            return Err(format!("flow `{}` failed: {why}", flow.name));
        }
    }
    Ok(run.outcome(scenario))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_base::{Bytes, Rate};
    use bentpipe_outcome::Flow;
    use std::time::Duration;

    const TEXT: &str = "name = \"t\"\n[hosts.a]\n[hosts.b]\n[links.l]\nends = [\"a\", \"b\"]\n\
                        [[flows]]\nname = \"f\"\nfrom = \"a\"\nto = \"b\"\nbytes = \"1MB\"\n";

    fn flow(name: &str, completion: Option<Duration>) -> Flow {
        Flow {
            name: name.into(),
            size: Some(Bytes(1_000_000)),
            round_trip: Duration::from_millis(500),
            completion,
            acknowledged: Some(Duration::from_secs(2)),
            elapsed: Duration::from_secs(4),
            received: Bytes(1_000_000),
            limit: Some(Rate::from_bits_per_sec(4_000_000)),
            ..Flow::default()
        }
    }

    /// What the lab saw has the measures of the one table, of all flows and of single ones.
    #[test]
    fn what_the_lab_saw_is_measured_as_what_the_simulator_saw() {
        let scenario = Scenario::parse("t.toml", TEXT).unwrap();
        let single =
            ["goodput(f)", "completion(g)", "goodput(h)", "segments(f)"].map(str::to_owned);
        let measured = |completion| {
            let run = Measured {
                flows: vec![
                    flow("f", completion),
                    flow("g", Some(Duration::from_secs(3))),
                ],
                ..Measured::default()
            };
            measures(&whole(&run, &scenario).unwrap(), &single)
        };
        let all = measured(Some(Duration::from_secs(4)));
        let value = |name: &str| all[name].unwrap();
        assert_eq!(value("completion"), 4.0);
        assert_eq!(value("kbps_sender"), 8000.0);
        // Of the receiver's last acknowledgement the lab knows nothing.
        assert!(!all.contains_key("kbps_receiver"));
        assert_eq!(value("target"), 1.02 * 2.0 + 4.0 * 0.5);
        // A megabyte in 4 s and one in 3 s, each to whole bits a second.
        assert!((value("goodput") - 14.0 / 3.0).abs() < 2e-6);
        assert_eq!((value("goodput(f)"), value("completion(g)")), (2.0, 3.0));
        // Asked for, and not there: known to be so.
        assert_eq!((all["goodput(h)"], all["segments(f)"]), (None, None));
        let cut = measured(None);
        assert!(!cut.contains_key("completion"));
        assert_eq!(cut["goodput(f)"], Some(2.0));
    }

    #[test]
    fn a_broken_flow_is_no_result() {
        let scenario = Scenario::parse("t.toml", TEXT).unwrap();
        let mut run = Measured {
            flows: vec![flow("f", None)],
            ..Measured::default()
        };
        run.flows[0].end = End::Failed("reset".into());
        assert_eq!(
            whole(&run, &scenario).unwrap_err(),
            "flow `f` failed: reset"
        );
    }
}
