//! A profile as a file: parameters of the model as comments in its head, then one row a flow.

use crate::{Kind, Model, ModelError};
use bentpipe_base::{Bytes, Stream};
use core::fmt;
use core::time::Duration;
use thiserror::Error;

/// The first transfers of a number of flows, and the model of those that follow.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// What sizes and pauses are drawn from.
    pub model: Model,
    /// The seed that the first transfers were drawn with; 0 where nothing says it.
    pub seed: u64,
    /// One a flow, in the order of their starts.
    pub transfers: Vec<Transfer>,
}

/// The first transfer of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Which of the two hosts sends; those that follow go the same way.
    pub direction: Direction,
    /// When it starts, from the start of the run.
    pub start: Duration,
    /// How much it sends. Nothing is a connection that is opened and closed; where connections are established from the
    /// start, it is over at once.
    pub bytes: Bytes,
}

/// Which way a flow goes between the two hosts of the cross traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the first host to the second.
    Forward,
    /// From the second host to the first.
    Reverse,
}

impl Direction {
    /// As profiles write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Reverse => "reverse",
        }
    }
}

/// Most flows of a profile.
const MOST_FLOWS: usize = 10_000;
/// No start is later: a slip of the unit.
const LONGEST: f64 = 86_400.0;
const HEADER: &str = "flow,direction,start,bytes";

/// What is wrong with a profile, and where.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{file}:{line}: {what}; {mend}")]
pub struct ProfileError {
    /// The name of the text.
    pub file: String,
    /// From 1.
    pub line: usize,
    /// What was found.
    pub what: String,
    /// What to write instead.
    pub mend: String,
}

impl Profile {
    /// Draws the first transfers of `flows` flows: Poisson starts, directions alternating.
    pub fn draw(model: Model, flows: usize, seed: u64) -> Self {
        let mut chance = Stream::new(seed, "traffic");
        let mut start = Duration::ZERO;
        let transfers = (0..flows.min(MOST_FLOWS)).map(|flow| {
            start += model.gap(&mut chance);
            Transfer {
                direction: [Direction::Forward, Direction::Reverse][flow % 2],
                // As a profile writes it, so that what is read back is the same.
                start: Duration::from_micros(start.as_micros() as u64),
                bytes: model.size(&mut chance),
            }
        });
        Self {
            transfers: transfers.collect(),
            model,
            seed,
        }
    }

    /// Reads a profile; `file` is its name in messages. What the head leaves out is as in the model
    /// that it names, or as in `ftp`.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(file: &str, text: &str) -> Result<Self, ProfileError> {
        let mut profile = Self {
            model: Model::ftp(),
            seed: 0,
            transfers: Vec::new(),
        };
        let mut titled = false;
        let mut last = 0;
        for (index, line) in text.lines().enumerate() {
            last = index + 1;
            let at = |(what, mend): Fault| ProfileError {
                file: file.to_owned(),
                line: last,
                what,
                mend,
            };
            let line = line.trim();
            if let Some(comment) = line.strip_prefix('#') {
                profile.comment(comment).map_err(at)?;
            } else if !titled && !line.is_empty() {
                titled = line == HEADER;
                if !titled {
                    let what = format!("`{}` is no title of a profile", brief(line));
                    return Err(at((what, format!("write `{HEADER}`"))));
                }
            } else if !line.is_empty() {
                let transfer = row(line, profile.transfers.len()).map_err(at)?;
                profile.transfers.push(transfer);
            }
        }
        let whole = |(what, mend): Fault| ProfileError {
            file: file.to_owned(),
            line: last.max(1),
            what,
            mend,
        };
        if profile.transfers.is_empty() {
            let fault = fault(
                "no flows",
                "make one with `bentpipe traffic ftp --flows 50`",
            );
            return Err(whole(fault));
        }
        let check = profile.model.check();
        check.map_err(|ModelError { what, expected }| {
            whole(fault(what, &format!("give {expected}")))
        })?;
        Ok(profile)
    }

    /// Whether every flow starts before a run of `length` ends.
    ///
    /// # Errors
    /// The first flow that does not, as in the file called `file`.
    pub fn fits(&self, file: &str, length: Duration) -> Result<(), ProfileError> {
        let late = self.transfers.iter().position(|one| one.start >= length);
        late.map_or(Ok(()), |flow| {
            let start = self.transfers[flow].start.as_secs_f64();
            Err(ProfileError {
                file: file.to_owned(),
                line: self.head().lines().count() + 2 + flow,
                what: format!(
                    "flow {flow} starts at {start} s, after the run of {} s",
                    length.as_secs_f64()
                ),
                mend:
                    "raise the run's `time_limit`, or make a profile of fewer flows or a smaller \
                       `--start-gap`"
                        .to_owned(),
            })
        })
    }

    /// Reads `key = value`; other comments are just that.
    fn comment(&mut self, comment: &str) -> Result<(), Fault> {
        let Some((key, value)) = comment.split_once('=') else {
            return Ok(());
        };
        let (key, value) = (key.trim(), value.trim());
        let model = &mut self.model;
        match key {
            "model" => {
                let kind = Kind::find(value)
                    .ok_or_else(|| unreadable(key, value, "`ftp` or `reference`"))?;
                *model = Model::of(kind);
            }
            "seed" => self.seed = read(key, value)?,
            "log2-mean" => model.log2_mean = read(key, value)?,
            "log2-sd" => model.log2_sd = read(key, value)?,
            "tail-share" => model.tail_share = read(key, value)?,
            "tail-alpha" => model.tail_alpha = read(key, value)?,
            "largest" => model.largest = Bytes(read(key, value)?),
            "unit" => model.unit = Bytes(read(key, value)?),
            "start-gap" => model.start_gap = seconds(key, value)?,
            "idle" => model.idle = seconds(key, value)?,
            "settle" => model.settle = seconds(key, value)?,
            _ => {}
        }
        Ok(())
    }

    fn head(&self) -> String {
        let Model {
            kind,
            log2_mean,
            log2_sd,
            tail_share,
            tail_alpha,
            largest,
            unit,
            start_gap,
            idle,
            settle,
        } = self.model;
        format!(
            "# cross traffic: the first transfer of each flow; sizes in bytes, times in seconds\n\
             # model = {}\n# seed = {}\n# log2-mean = {log2_mean}\n# log2-sd = {log2_sd}\n\
             # tail-share = {tail_share}\n# tail-alpha = {tail_alpha}\n# largest = {}\n# unit = {}\n\
             # start-gap = {}\n# idle = {}\n# settle = {}\n",
            kind.name(),
            self.seed,
            largest.0,
            unit.0,
            start_gap.as_secs_f64(),
            idle.as_secs_f64(),
            settle.as_secs_f64(),
        )
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}{HEADER}", self.head())?;
        for (flow, one) in self.transfers.iter().enumerate() {
            let (direction, start) = (one.direction.name(), one.start.as_secs_f64());
            writeln!(f, "{flow},{direction},{start:.6},{}", one.bytes.0)?;
        }
        Ok(())
    }
}

/// What is wrong, and what to do.
type Fault = (String, String);

fn fault(what: &str, mend: &str) -> Fault {
    (what.to_owned(), mend.to_owned())
}

fn unreadable(key: &str, value: &str, expected: &str) -> Fault {
    let what = format!("`{key}` is `{}`", brief(value));
    (what, format!("give {expected}"))
}

fn read<T: core::str::FromStr>(key: &str, value: &str) -> Result<T, Fault> {
    let expected = "a number, not negative where it counts something";
    value.parse().map_err(|_| unreadable(key, value, expected))
}

fn seconds(key: &str, value: &str) -> Result<Duration, Fault> {
    let number: f64 = read(key, value)?;
    if (0.0..=LONGEST).contains(&number) {
        return Ok(Duration::from_secs_f64(number));
    }
    Err(unreadable(key, value, "seconds from 0 to 86400"))
}

/// The row of flow number `flow`.
fn row(line: &str, flow: usize) -> Result<Transfer, Fault> {
    let cells: Vec<&str> = line.split(',').map(str::trim).collect();
    let &[number, direction, start, bytes] = cells.as_slice() else {
        let what = format!("{} columns in place of 4", cells.len());
        return Err((what, format!("write `{HEADER}`")));
    };
    if flow >= MOST_FLOWS {
        let what = format!("more than {MOST_FLOWS} flows");
        return Err((what, "make a profile of fewer".to_owned()));
    }
    if number.parse() != Ok(flow) {
        let expected = format!("{flow}: flows are numbered from 0 in the order of the file");
        return Err(unreadable("flow", number, &expected));
    }
    let direction = [Direction::Forward, Direction::Reverse]
        .into_iter()
        .find(|known| known.name() == direction)
        .ok_or_else(|| {
            let expected =
                "`forward` or `reverse`: a flow goes between the two hosts of the traffic";
            unreadable("direction", direction, expected)
        })?;
    let start = seconds("start", start)?;
    let size = bytes.parse().map_err(|_| {
        let expected = "a whole number of bytes, 0 or more";
        unreadable("bytes", bytes, expected)
    })?;
    Ok(Transfer {
        direction,
        start,
        bytes: Bytes(size),
    })
}

/// `text` on one line of at most 40 characters.
fn brief(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(40).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for model in [Model::ftp(), Model::reference()] {
            let drawn = Profile::draw(model, 50, 3);
            assert_eq!(drawn.transfers.len(), 50);
            assert_eq!(Profile::parse("p.csv", &drawn.to_string()), Ok(drawn));
        }
    }

    #[test]
    fn directions_alternate_and_starts_are_poisson() {
        let drawn = Profile::draw(Model::reference(), 2_000, 1);
        let forward = |one: &Transfer| one.direction == Direction::Forward;
        assert!(drawn.transfers.iter().step_by(2).all(forward));
        assert!(!drawn.transfers.iter().skip(1).step_by(2).any(forward));
        // 2000 gaps of 25 ms: 50 s, standard deviation 1.1 s.
        let last = drawn.transfers[1_999].start.as_secs_f64();
        assert!((last - 50.0).abs() < 4.0, "{last}");
    }

    #[test]
    fn mistakes_name_file_line_and_mend() {
        let cases = [
            (
                "0,forward,0.1,-5",
                "p.csv:2: `bytes` is `-5`; give a whole number of bytes, 0 or more",
            ),
            (
                "0,forward,0.1",
                "p.csv:2: 3 columns in place of 4; write `flow,direction,start,bytes`",
            ),
            (
                "0,forward,-1,5",
                "p.csv:2: `start` is `-1`; give seconds from 0 to 86400",
            ),
            (
                "0,forward,NaN,5",
                "p.csv:2: `start` is `NaN`; give seconds from 0 to 86400",
            ),
            ("1,forward,1,5", "p.csv:2: `flow` is `1`; give 0: flows are"),
            (
                "0,mars,1,5",
                "p.csv:2: `direction` is `mars`; give `forward` or `reverse`",
            ),
            (
                "# largest = -3",
                "p.csv:2: `largest` is `-3`; give a number",
            ),
            (
                "# model = tcplib",
                "p.csv:2: `model` is `tcplib`; give `ftp` or `reference`",
            ),
            ("", "p.csv:1: no flows; make one"),
        ];
        for (row, message) in cases {
            let text = format!("{HEADER}\n{row}");
            let error = Profile::parse("p.csv", &text).unwrap_err().to_string();
            assert!(error.starts_with(message), "{row}: {error}");
        }
        let error = Profile::parse("p.csv", "a,b\n0,forward,1,2").unwrap_err();
        assert_eq!(error.line, 1);
    }

    #[test]
    fn nothing_may_be_sent() {
        let text = format!("{HEADER}\n0,reverse,0.5,0\n");
        let profile = Profile::parse("p.csv", &text).unwrap();
        assert_eq!(profile.transfers[0].bytes, Bytes(0));
    }

    #[test]
    fn a_start_after_the_end_is_found_on_its_line() {
        let drawn = Profile::draw(Model::reference(), 50, 1);
        assert_eq!(drawn.fits("p.csv", Duration::from_secs(60)), Ok(()));
        let length = drawn.transfers[20].start;
        let error = drawn.fits("p.csv", length).unwrap_err();
        let line = drawn
            .to_string()
            .lines()
            .nth(error.line - 1)
            .map(str::to_owned);
        assert!(line.unwrap().starts_with("20,"), "{error}");
    }
}
