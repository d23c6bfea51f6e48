//! Which of the sender's own windows was full: slow start, avoidance or the send buffer.

use super::timeline::{Answer, Cause, Stretch, Stretches};
use super::{Limit, Period};

/// What is sent for what is acknowledged is averaged over so many segments: single acknowledgements let one segment go
/// or two.
const AVERAGED: u64 = 8;
/// How many answers away at most.
const FAR: usize = 64;
/// Slow start sends 2 bytes for each that is acknowledged, avoidance with a window of 2 segments 1.5, and CUBIC never more than
/// that.
const DOUBLING: f64 = 1.6;
/// A height that stands for so many round trips is no congestion window: avoidance grows in each.
const STANDING: u64 = 4;

pub(super) fn classified(stretches: Stretches) -> Vec<Period> {
    let Stretches { all, mss } = stretches;
    let answers: Vec<Answer> = all.iter().filter_map(answer).collect();
    let height = buffer(&answers, mss);
    let mut seen = 0;
    let periods = all.iter().map(|stretch| {
        let limit = match stretch.cause {
            Cause::Known(limit) => limit,
            Cause::Window(answer) => {
                seen += 1;
                let full = height.is_some_and(|height| answer.flight.saturating_add(mss) > height);
                match (full, is_doubling(&answers, seen - 1, mss)) {
                    (true, _) => Limit::SendBuffer,
                    _ if answer.emptied => Limit::Application,
                    (false, true) => Limit::SlowStart,
                    (false, false) => Limit::CongestionWindow,
                }
            }
        };
        Period {
            from: stretch.from,
            to: stretch.to,
            limit,
        }
    });
    periods.collect()
}

fn answer(stretch: &Stretch) -> Option<Answer> {
    match stretch.cause {
        Cause::Known(_) => None,
        Cause::Window(answer) => Some(answer),
    }
}

/// Whether the window doubled around answer number `index`: those before and behind it count until there are enough.
fn is_doubling(answers: &[Answer], index: usize, mss: u64) -> bool {
    let Some(own) = answers.get(index) else {
        return false;
    };
    let near = |at: usize| answers.get(at).filter(|it| it.epoch == own.epoch);
    let (mut acked, mut sent) = (own.acked, own.sent);
    for distance in 1..=FAR {
        if acked >= AVERAGED * mss {
            break;
        }
        let before = index.checked_sub(distance).and_then(near);
        let behind = near(index + distance);
        if before.is_none() && behind.is_none() {
            break;
        }
        for answer in [before, behind].into_iter().flatten() {
            acked += answer.acked;
            sent += answer.sent;
        }
    }
    acked > 0 && sent as f64 >= DOUBLING * acked as f64
}

/// The size of the send buffer, if the flight stood at its greatest height for some round trips.
fn buffer(answers: &[Answer], mss: u64) -> Option<u64> {
    let height = answers.iter().map(|answer| answer.flight).max()?;
    let mut standing = (0, 0);
    for answer in answers {
        let (epoch, acked) = standing;
        standing = match answer.flight.saturating_add(mss) > height {
            true if epoch == answer.epoch => (epoch, acked + answer.acked),
            true => (answer.epoch, answer.acked),
            false => (answer.epoch, 0),
        };
        if standing.1 >= height.saturating_mul(STANDING) {
            return Some(height);
        }
    }
    None
}
