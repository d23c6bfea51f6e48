//! What is asked: a link, and what its users do.

use bentpipe_base::{Bytes, Probability, Rate};
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// How packets are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Losses {
    /// Each by itself.
    #[default]
    Random,
    /// [`Losses::BURST`] in a row, in the mean.
    Bursts,
    /// All of them while the link is down, every [`Losses::HANDOVER`].
    Handovers,
}

impl Losses {
    /// Packets that a burst of errors hits in the mean.
    pub const BURST: u32 = 8;
    /// From one handover to the next: what Starlink's terminals are known to keep.
    pub const HANDOVER: Duration = Duration::from_secs(15);
}

/// What the users do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Activity {
    /// They load pages of many small objects.
    #[default]
    Pages,
    /// They fetch files.
    Download,
    /// They send files.
    Upload,
    /// They make calls, while files are fetched.
    Calls,
}

/// A link and its users, as the sliders say it: each number with its unit in its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sliders {
    /// What the link carries towards the users, in Mbit/s, headers included.
    pub down_mbps: f64,
    /// What it carries from them.
    pub up_mbps: f64,
    /// Propagation over the satellite there and back, in milliseconds.
    pub round_trip_ms: f64,
    /// Packets that are lost in each direction, in percent; of handovers, the part of the time.
    pub loss_percent: f64,
    /// How they are lost.
    pub losses: Losses,
    /// Users that are busy at the same moment.
    pub users: f64,
    /// What they do.
    pub activity: Activity,
    /// Round trip between the satellite's ground station and the servers, in milliseconds.
    pub server_ms: f64,
}

/// What one slider may say.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Range {
    /// The slider's name, that of its field in [`Sliders`].
    pub name: &'static str,
    /// The least.
    pub least: f64,
    /// The most.
    pub most: f64,
    /// What it is rounded to.
    pub step: f64,
}

/// The ranges of all sliders. A thousand times more users or a line of 100 Gbit/s would be answered too, but not while
/// somebody waits.
pub const RANGES: [Range; 6] = [
    range("down_mbps", 0.128, 500.0, 0.001),
    range("up_mbps", 0.032, 500.0, 0.001),
    range("round_trip_ms", 4.0, 1500.0, 0.002),
    range("loss_percent", 0.0, 10.0, 0.0001),
    range("users", 1.0, 20.0, 1.0),
    range("server_ms", 0.0, 400.0, 0.002),
];

const fn range(name: &'static str, least: f64, most: f64, step: f64) -> Range {
    Range {
        name,
        least,
        most,
        step,
    }
}

/// A slider that says what it cannot.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} is {value}: expected a number from {least} to {most}")]
pub struct Refused {
    name: &'static str,
    value: f64,
    least: f64,
    most: f64,
}

/// A link and its users.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Sliders", into = "Sliders")]
pub struct Question {
    /// What the link carries towards the users, headers included.
    pub down: Rate,
    /// What it carries from them.
    pub up: Rate,
    /// Propagation over the satellite, there and back.
    pub round_trip: Duration,
    /// Packets that are lost in each direction.
    pub loss: Probability,
    /// How they are lost.
    pub losses: Losses,
    /// Users that are busy at the same moment.
    pub users: u32,
    /// What they do.
    pub activity: Activity,
    /// Propagation between the ground station and the servers, there and back.
    pub server: Duration,
}

impl Question {
    /// What the satellite link carries in the direction of the data.
    pub fn rate(&self) -> Rate {
        self.directions().0
    }

    /// Both directions of the satellite link: that of the data, then that of the acknowledgements.
    pub(crate) fn directions(&self) -> (Rate, Rate) {
        match self.activity {
            Activity::Upload => (self.up, self.down),
            _ => (self.down, self.up),
        }
    }

    /// From the users to the servers and back, without any queue.
    pub fn path(&self) -> Duration {
        self.round_trip + self.server
    }

    /// The queue in front of a direction of the satellite link: what it carries in a round trip, but at least some forty packets.
    pub(crate) fn queue(&self, rate: Rate) -> Bytes {
        rate.over(self.path()).max(Bytes(64_000))
    }

    /// Whether another seed gives another run.
    pub fn has_chance(&self) -> bool {
        self.loss.value() > 0.0 && self.losses != Losses::Handovers
    }
}

impl TryFrom<Sliders> for Question {
    type Error = Refused;

    fn try_from(sliders: Sliders) -> Result<Self, Refused> {
        let [down, up, round_trip, loss, users, server] = [
            sliders.down_mbps,
            sliders.up_mbps,
            sliders.round_trip_ms,
            sliders.loss_percent,
            sliders.users,
            sliders.server_ms,
        ];
        let checked = |at: usize, value: f64| {
            let Range {
                name,
                least,
                most,
                step,
            } = RANGES[at];
            // Not a number is in no range.
            if !(least..=most).contains(&value) {
                return Err(Refused {
                    name,
                    value,
                    least,
                    most,
                });
            }
            Ok((value / step).round())
        };
        let rate = |at, value| -> Result<Rate, Refused> {
            Ok(Rate::from_bits_per_sec(checked(at, value)? as u64 * 1_000))
        };
        // Half of a round trip is a whole number of microseconds.
        let time = |at, value| -> Result<Duration, Refused> {
            Ok(Duration::from_micros(checked(at, value)? as u64 * 2))
        };
        let loss = checked(3, loss)? / 1e6;
        Ok(Self {
            down: rate(0, down)?,
            up: rate(1, up)?,
            round_trip: time(2, round_trip)?,
            loss: Probability::new(loss).expect("at most a tenth"),
            losses: sliders.losses,
            users: checked(4, users)? as u32,
            activity: sliders.activity,
            server: time(5, server)?,
        })
    }
}

impl From<Question> for Sliders {
    fn from(question: Question) -> Self {
        let ms = |time: Duration| time.as_micros() as f64 / 1e3;
        Self {
            down_mbps: question.down.mbps(),
            up_mbps: question.up.mbps(),
            round_trip_ms: ms(question.round_trip),
            loss_percent: (question.loss.value() * 1e6).round() / 1e4,
            losses: question.losses,
            users: f64::from(question.users),
            activity: question.activity,
            server_ms: ms(question.server),
        }
    }
}
