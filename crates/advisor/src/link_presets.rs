//! Links as they are found, to begin with.

use crate::question::{Activity, Losses, Sliders};
use serde::Serialize;

/// A link by name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Preset {
    /// What the page's button says.
    pub name: &'static str,
    /// What kind of link it is, in a line.
    pub about: &'static str,
    /// Where it puts the sliders.
    pub sliders: Sliders,
}

/// The links to begin with, the first being that of the page when it opens. Rates and losses are round numbers of the
/// middle of what is sold and published; whoever has measured their link moves the sliders.
pub const PRESETS: [Preset; 6] = [
    Preset {
        name: "GEO",
        about: "geostationary broadband: 20/3 Mbit/s, 560 ms, a loss in a thousand",
        sliders: sliders(
            [20.0, 3.0, 560.0, 0.1, 1.0, 30.0],
            Losses::Random,
            Activity::Pages,
        ),
    },
    Preset {
        name: "MEO",
        about: "a medium orbit as O3b's: 100/20 Mbit/s, 130 ms, handovers of 15 ms",
        sliders: sliders(
            [100.0, 20.0, 130.0, 0.1, 1.0, 30.0],
            Losses::Handovers,
            Activity::Download,
        ),
    },
    Preset {
        name: "LEO",
        about: "a low orbit: 100/15 Mbit/s, 40 ms, losses in bursts",
        sliders: sliders(
            [100.0, 15.0, 40.0, 0.5, 1.0, 20.0],
            Losses::Bursts,
            Activity::Pages,
        ),
    },
    Preset {
        name: "Maritime",
        about: "a ship's VSAT for its crew: 8/2 Mbit/s, 600 ms, losses in bursts",
        sliders: sliders(
            [8.0, 2.0, 600.0, 0.5, 5.0, 40.0],
            Losses::Bursts,
            Activity::Pages,
        ),
    },
    Preset {
        name: "Aero",
        about: "a cabin in the air: 30/2 Mbit/s, 600 ms, bursts, many passengers",
        sliders: sliders(
            [30.0, 2.0, 600.0, 1.0, 10.0, 40.0],
            Losses::Bursts,
            Activity::Pages,
        ),
    },
    Preset {
        name: "Backhaul",
        about: "a cell's backhaul over a geostationary satellite: 50/10 Mbit/s, 540 ms, clean",
        sliders: sliders(
            [50.0, 10.0, 540.0, 0.01, 10.0, 20.0],
            Losses::Random,
            Activity::Download,
        ),
    },
];

/// Rates down and up, round trip, loss, users and distance of the servers, as in [`Sliders`].
const fn sliders(numbers: [f64; 6], losses: Losses, activity: Activity) -> Sliders {
    let [
        down_mbps,
        up_mbps,
        round_trip_ms,
        loss_percent,
        users,
        server_ms,
    ] = numbers;
    Sliders {
        down_mbps,
        up_mbps,
        round_trip_ms,
        loss_percent,
        losses,
        users,
        activity,
        server_ms,
    }
}
