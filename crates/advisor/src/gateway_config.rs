//! The gateway's configuration for the link.

use crate::alternative::Alternative;
use crate::question::{Activity, Question};
use crate::scenario_text::satellite_leg;
use bentpipe_base::Rate;

/// Beyond it a receive buffer wants to know what the link carries towards the gateway (docs/gateway.md).
const FAST: Rate = Rate::from_bits_per_sec(80_000_000);

/// `gateway.toml` for `alternative` on this link; its first line says on which machine it belongs. `None` where there is no
/// gateway.
pub fn gateway_config(question: &Question, alternative: Alternative) -> Option<String> {
    if !alternative.is_pep() {
        return None;
    }
    let uploads = question.activity == Activity::Upload;
    let (rate, back) = question.directions();
    let place = match (alternative, uploads) {
        (Alternative::Scps, _) => {
            let (here, there, other) = if uploads {
                ("the users' side", "the ground station", question.down)
            } else {
                ("the ground station", "the users' side", question.up)
            };
            format!("at {here}; that at {there} has `rate = \"{other}\"`")
        }
        (_, true) => {
            "on the users' side of the satellite link, where what they send comes to it".to_owned()
        }
        (_, false) => {
            "at the ground station, where what the users fetch comes to the link".to_owned()
        }
    };
    let leg = satellite_leg(alternative, rate, "");
    // What follows the leg's keys belongs to other tables.
    let (sat, rest) = leg.split_once("\n\n").unwrap_or((&leg, ""));
    let (head, keys) = sat.split_once('\n').unwrap_or((sat, ""));
    let receives = if back > FAST {
        format!("receive_rate = \"{back}\"\n")
    } else {
        String::new()
    };
    let rest = if rest.is_empty() {
        String::new()
    } else {
        format!("\n{rest}\n")
    };
    Some(format!(
        "# /etc/bentpipe/gateway.toml, {place}.\n\
         # `bentpipe gateway check FILE` reads it and changes nothing.\n\
         [lan]\ninterface = \"eth0\"            # towards the ground: put yours here\n\n\
         {head}\ninterface = \"eth1\"            # towards the satellite: and yours here\n\
         {keys}\n{receives}{rest}"
    ))
}
