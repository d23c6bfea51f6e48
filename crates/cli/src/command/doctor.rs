//! `bentpipe doctor`: what this machine offers the gateway, and what each lack costs.

use crate::failure::{Blame, Failure};
use crate::terminal;
use anyhow::anyhow;
use bentpipe_doctor::{Finding, Verdict, look};

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  sudo bentpipe doctor
  sudo bentpipe doctor --json

Ends with 1 when the gateway could not start here.")]
pub(crate) struct Args {
    /// The findings as JSON, one object in an array each
    #[arg(long)]
    json: bool,
}

/// Looks at everything and shows it.
pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let findings = look();
    let text = if args.json {
        serde_json::to_string_pretty(&findings).or_run()?
    } else {
        page(&findings)
    };
    terminal::print(&text).or_run()?;
    if findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Bad)
    {
        Err(Failure::Run(anyhow!(
            "the gateway cannot start here: see `bad` above"
        )))
    } else {
        Ok(())
    }
}

fn page(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|finding| {
        let verdict = match finding.verdict {
            Verdict::Good => "good",
            Verdict::Less => "less",
            Verdict::Bad => "bad ",
        };
        let cost = match finding.cost.as_str() {
            "" => String::new(),
            cost => format!("\n        {cost}"),
        };
        format!("{verdict}  {}: {}{cost}", finding.what, finding.found)
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_has_its_cost_below_it() {
        let finding = |verdict, cost: &str| Finding {
            what: "descriptors",
            verdict,
            found: "100".to_owned(),
            cost: cost.to_owned(),
        };
        let all = [
            finding(Verdict::Good, ""),
            finding(Verdict::Bad, "raise it"),
        ];
        let text = "good  descriptors: 100\nbad   descriptors: 100\n        raise it";
        assert_eq!(page(&all), text);
    }
}
