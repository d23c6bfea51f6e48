//! Every figure of `bentpipe trace --long` beside tcptrace's.

use crate::support::PROGRAM;
use bentpipe_trace::{Dissected, Flags, Segment, read};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::Command;

/// What tcptrace gets wrong, or has no figure for (docs/trace.md), by the beginning of its labels.
const NOT_COMPARED: [&str; 3] = ["RTT full_sz", "sacks sent", "avg segm size"];

/// The figures of each connection in the layout of `tcptrace -l`: by label and direction.
fn figures(text: &str) -> Vec<BTreeMap<(String, usize), String>> {
    let mut connections = Vec::new();
    for line in text.lines() {
        if line.starts_with("TCP connection ") && line.ends_with(':') && !line.contains("info") {
            connections.push(BTreeMap::new());
        }
        let (Some(cells), Some(last)) = (line.strip_prefix("     "), connections.last_mut()) else {
            continue;
        };
        // Two labels of 18 columns, each with a figure and perhaps a unit; `initial window` is there twice.
        for (side, cell) in [cells.get(..38), cells.get(38..)]
            .into_iter()
            .flatten()
            .enumerate()
        {
            let Some((label, value)) = cell.trim().split_once(':') else {
                continue;
            };
            let mut words = value.split_whitespace();
            let value = words.next().unwrap_or("").to_owned();
            let label = match label {
                "initial window" => format!("{label} {}", words.next().unwrap_or("")),
                label => label.to_owned(),
            };
            last.insert((label, side), value);
        }
    }
    connections
}

/// Whether two figures are one: counts exactly, times by the last decimal that is printed, and a throughput as far as it
/// follows from a time in microseconds.
fn equal(label: &str, a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        _ if a == b => true,
        // Its minimum knows no round trip of no time.
        (Ok(own), Ok(_)) if label == "RTT min" && own == 0.0 => true,
        (Ok(own), Ok(other)) if label == "throughput" => (own - other).abs() <= 1.0 + other / 1e3,
        // Its mean of one sample may be a tenth below that sample.
        (Ok(own), Ok(other)) if label == "avg retr time" => (own - other).abs() <= 0.21,
        (Ok(own), Ok(other)) if a.contains('.') => (own - other).abs() <= 0.11,
        _ => false,
    }
}

/// What the test counts of one direction itself: acknowledgements that repeat the number and the window of the segment before them
/// and bear no data, and whether there is a window.
#[derive(Default)]
struct Counted {
    /// What tcptrace counts: all of them but SYNs.
    all: Runs,
    /// What RFC 5681 calls duplicates: those without FIN or RST, while the other side has sent more than they acknowledge.
    duplicates: Runs,
    /// SYNs sent again with their acknowledgement, of which tcptrace counts some.
    syns: u64,
    /// The SYN of the other side was sent again: tcptrace may have one less then.
    syn_again: bool,
    /// A window was advertised after the SYN.
    window: bool,
}

/// How many there were, and how many were the third in a row.
#[derive(Default)]
struct Runs {
    count: u64,
    thirds: u64,
    run: u64,
}

impl Runs {
    fn take(&mut self, is_one: bool) {
        self.run = if is_one { self.run + 1 } else { 0 };
        self.count += u64::from(is_one);
        self.thirds += u64::from(self.run == 3);
    }
}

/// One end of a connection, as its segments are read.
#[derive(Default)]
struct End {
    last: Option<(u32, u16)>,
    sent_up_to: Option<u32>,
    syns: u32,
    counted: Counted,
}

/// What is counted from the segments of each connection: of the end that spoke first, and of the other.
fn count(capture: &Path) -> Vec<[Counted; 2]> {
    let mut ends = BTreeMap::new();
    let mut connections: Vec<[End; 2]> = Vec::new();
    read(BufReader::new(File::open(capture).unwrap()), |frame| {
        let Dissected::Segment(segment) = Segment::dissect(&frame) else {
            return;
        };
        let (from, to) = (segment.source, segment.destination);
        let (index, side) = *ends.entry((from, to)).or_insert_with(|| {
            connections.push(<[End; 2]>::default());
            (connections.len() - 1, 0)
        });
        ends.entry((to, from)).or_insert((index, 1));
        take(&mut connections[index], side, &segment);
    })
    .unwrap();
    connections
        .into_iter()
        .map(|ends| ends.map(|end| end.counted))
        .collect()
}

fn take(ends: &mut [End; 2], side: usize, segment: &Segment) {
    let has = |flag| segment.flags.has(flag);
    let (other_sent, other_syns) = (ends[1 - side].sent_up_to, ends[1 - side].syns);
    let end = &mut ends[side];
    if has(Flags::ACK) {
        let now = (segment.acknowledgement, segment.window);
        let repeats = end.last == Some(now) && segment.length == 0;
        end.counted.syns += u64::from(repeats && has(Flags::SYN));
        let repeats = repeats && !has(Flags::SYN);
        let outstanding = other_sent.is_some_and(|sent| sent != segment.acknowledgement);
        let ends = has(Flags::FIN) || has(Flags::RST);
        end.counted.all.take(repeats);
        end.counted.duplicates.take(repeats && outstanding && !ends);
        end.counted.syn_again = other_syns > 1;
        end.counted.window |= segment.window > 0 && !has(Flags::SYN);
        end.last = Some(now);
    }
    end.syns += u32::from(has(Flags::SYN));
    let flags = u32::from(has(Flags::SYN)) + u32::from(has(Flags::FIN));
    let up_to = segment.sequence.wrapping_add(segment.length + flags);
    // A reset that answers a segment bears no number of the stream.
    if !has(Flags::RST)
        && end
            .sent_up_to
            .is_none_or(|sent| (up_to.wrapping_sub(sent) as i32) > 0)
    {
        end.sent_up_to = Some(up_to);
    }
}

/// Compares all figures that tcptrace has of `capture`; returns how many connections it has.
pub(crate) fn compare(capture: &Path) -> usize {
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program)
            .args(arguments)
            .arg(capture)
            .output()
            .unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let theirs = figures(&run("tcptrace", &["-n", "-l", "-r"]));
    let ours = figures(&run(PROGRAM, &["trace", "-l"]));
    assert_eq!(ours.len(), theirs.len(), "{}", capture.display());
    let counted = count(capture);
    assert_eq!(ours.len(), counted.len(), "{}", capture.display());
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert!(theirs.len() > 80, "tcptrace prints {theirs:?}");
        for (key, expected) in theirs {
            if NOT_COMPARED.iter().any(|label| key.0.starts_with(label)) {
                continue;
            }
            let own = ours
                .get(key)
                .unwrap_or_else(|| panic!("{key:?} is not printed"));
            let place = format!(
                "{} of connection {}: {key:?}",
                capture.display(),
                number + 1
            );
            let [one, other] = &counted[number];
            // tcptrace divides by the packets of a direction unless both have advertised a window that is scaled.
            if key.0 == "avg win adv" && !(one.window && other.window) {
                continue;
            }
            let repeats = [other, one][key.1];
            let runs: Option<fn(&Runs) -> u64> = match key.0.as_str() {
                "duplicate acks" => Some(|runs: &Runs| runs.count),
                "triple dupacks" => Some(|runs: &Runs| runs.thirds),
                _ => None,
            };
            if let Some(of) = runs {
                assert_eq!(*own, of(&repeats.duplicates).to_string(), "{place}");
                let expected: u64 = expected.parse().unwrap();
                let all = of(&repeats.all);
                let least = all.saturating_sub(u64::from(repeats.syn_again));
                let most = all + repeats.syns;
                assert!(
                    (least..=most).contains(&expected),
                    "{place}: tcptrace has {expected}, {least} to {most} repeat"
                );
                continue;
            }
            assert!(
                equal(&key.0, own, expected),
                "{place}: {own}, tcptrace has {expected}"
            );
        }
    }
    theirs.len()
}
