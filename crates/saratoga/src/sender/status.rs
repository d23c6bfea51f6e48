//! Processes a STATUS at the sender: the peer is alive, has everything, or lacks some octets.

use super::{Event, Failure, Sender, State};
use crate::reach::Heard;
use crate::repair::Horizon;
use crate::report::echo;
use crate::stamp;
use crate::stretches::Stretches;
use crate::suspects::Said;
use crate::tfrc::Feedback;
use bentpipe_base::{Bytes, Instant};
use bentpipe_wire::saratoga::{Code, Frame, Kind, Status, Timestamp};
use core::time::Duration;

/// METADATA is sent this often at most for peers that say they cannot do without.
const MOST_METADATA: u32 = 1000;
/// A round trip of which nothing is known takes at most so long, about.
const UNKNOWN: Duration = Duration::from_secs(1);

impl Sender {
    /// A STATUS arrives.
    pub(super) fn status(&mut self, status: &Status, now: Instant) {
        let echo = status.timestamp.and_then(|stamp| self.echo(stamp));
        // Another bentpipe echoes a timestamp in every report, so that a report without one is forged.
        if self.echoes && self.acknowledges && echo.is_none() && status.code == Code::OK {
            return;
        }
        // A report that anybody could have sent must not keep the session alive either.
        if !self.echoes || echo.is_some() {
            self.timing.hear(now);
        }
        // "METADATA required" ends a session by the letter, but its mend is at hand. One revision of
        // the draft writes 10 for 0x10.
        let strict = [Code::METADATA_REQUIRED, Code::BAD_FRAME].contains(&status.code);
        // METADATA alone begins a session that was not asked for, and DATA may overtake it.
        let strict = strict || self.config.blind && status.code == Code::UNKNOWN_ID;
        if strict && self.state == State::Sending && self.metadata_sent < MOST_METADATA {
            return self.want_metadata(now);
        }
        if status.code != Code::OK {
            return self.end(Event::Failed(Failure::Peer(status.code)));
        }
        if self.state == State::Asking {
            self.state = State::Sending;
            (self.ask_at, self.answered_at) = (now, now);
        }
        // A timestamp that is not ours is the question of a peer which was asked, whether we hear it.
        if self.config.request.is_some() && echo.is_none() {
            self.echo_due = status.timestamp;
            self.is_ours |= status.timestamp.is_some() && status.metadata_missing;
        }
        if status.metadata_missing {
            self.want_metadata(now);
        }
        // A peer that lacks nothing has everything, even if an older list of holes arrives later.
        let completes = self.completes(status, echo);
        if !completes {
            self.confirms_from = None;
        }
        if completes && !self.is_of_now(echo) {
            // The report may be of an earlier session with the same Id and ports; the answer to the next question will
            // tell.
            self.claimed_at.get_or_insert(now);
        } else if completes && self.knows_the_end(echo, now) && self.is_confirmed(echo, now) {
            self.progress.arrived = self.available;
            // The final frame is for another bentpipe that was asked to receive, which would otherwise keep the session
            // for long. Other peers do not need it.
            if self.acknowledges || self.config.request.is_some() {
                self.last_status = Some(self.heard());
            }
            return self.end(Event::Done);
        }
        // A peer that was sent no timestamps cannot say which question it answers.
        if echo.is_some() || self.config.nonce.is_none() {
            self.answered_at = now;
        }
        self.learn(status, echo, now);
    }

    /// The final frame, which tells the peer that its last STATUS was heard.
    fn heard(&self) -> Frame {
        echo(self.config.metadata.session, None)
    }

    fn completes(&self, status: &Status, echo: Option<(u64, Instant)>) -> bool {
        let size = u128::from(self.available);
        let exact = status.progress == size && status.in_response_to == size;
        // Damage that UDP's checksum does not show must not make a report of what has come so far, or of what is being
        // verified, one of the end. One bit makes none of what another bentpipe says there, and of what whoever echoes
        // timestamps says one only of its last words.
        let all = match (self.is_ours, echo) {
            (true, _) => exact && status.voluntary,
            (false, Some(_)) => exact,
            (false, None) => status.progress >= size,
        };
        all && self.ended
            && self.metadata_sent > 0
            && !self.config.metadata.checksum.is_later()
            && !status.metadata_missing
            && !status.incomplete
            && status.holes.is_empty()
    }

    /// Before the content is deleted here, the peer says twice that it has all: once more in answer to what was sent after
    /// it had said so. One that echoes nothing cannot show that.
    fn is_confirmed(&mut self, echo: Option<(u64, Instant)>, now: Instant) -> bool {
        let Some((answered, _)) = echo.filter(|_| self.deletes) else {
            return true;
        };
        let from = *self.confirms_from.get_or_insert_with(|| {
            self.ask_at = now;
            self.number
        });
        answered >= from
    }

    /// Whether a report with this `echo` is of this session: who echoes its timestamp has heard of it. A peer that was sent
    /// none cannot show it.
    fn is_of_now(&self, echo: Option<(u64, Instant)>) -> bool {
        let expected = self.config.nonce.is_some() && (self.echoes || !self.config.blind);
        echo.is_some() || !expected
    }

    /// Whether the report is of after the peer knew where the content ends: of a stream it may have all that was
    /// sent and wait for more.
    fn knows_the_end(&self, echo: Option<(u64, Instant)>, now: Instant) -> bool {
        if self.config.metadata.kind != Kind::Stream {
            return true;
        }
        self.end_sent.is_some_and(|(number, at)| match echo {
            Some((answered, _)) => answered >= number,
            // It does not say what it answers: then an answer takes as long as others took.
            None => now >= at + self.timing.round_trip().unwrap_or(UNKNOWN),
        })
    }

    /// Takes what the report says of octets.
    fn learn(&mut self, status: &Status, echo: Option<(u64, Instant)>, now: Instant) {
        if let Some((number, sent)) = echo {
            self.echoes = true;
            if number < self.answered {
                // A later report has overtaken this one.
                return;
            }
            self.answered = number;
            if !status.voluntary {
                self.timing.sample(now.since(sent));
                // The first questions are asked without knowing how long an answer takes.
                self.ask_at = self.ask_at.min(now + self.interval(now));
            }
            let least = self.timing.least();
            self.window.on_report(number, self.rate(), least, now);
            self.held = false;
        }
        let clipped = |value: u128| {
            u64::try_from(value).map_or(self.available, |value| value.min(self.available))
        };
        // The peer has octets that this sender has not sent, because it resumes an earlier session.
        let seen = clipped(status.in_response_to);
        self.progress.sent = self.progress.sent.max(seen);
        let sent = self.progress.sent;
        let progress = clipped(status.progress);
        let lowest = status
            .holes
            .first()
            .map_or(progress, |hole| clipped(hole.first));
        if self.is_of_now(echo) {
            self.progress.arrived = self.progress.arrived.max(progress.min(lowest).min(sent));
        }
        // If the peer writes exclusive ends of holes, one octet too many is sent, which is better than one too few.
        let holes: Vec<(u64, u64)> = { status.holes.iter() }
            .filter(|hole| hole.first <= hole.last)
            .map(|hole| {
                let to = clipped(hole.last.saturating_add(1)).min(sent);
                (clipped(hole.first), to)
            })
            .filter(|(from, to)| from < to)
            .collect();
        let horizon = match echo {
            Some((number, _)) => Horizon::Packet(number),
            None => {
                let pause = self.timing.round_trip().unwrap_or(UNKNOWN);
                let before = now.as_nanos().saturating_sub(pause.as_nanos() as u64);
                Horizon::Time(Instant::from_nanos(before))
            }
        };
        let heard = Heard {
            number: echo.map(|(number, _)| number),
            horizon,
            holes: &holes,
            end: seen.max(progress),
            incomplete: status.incomplete,
            in_order: progress,
            available: self.available,
        };
        let probe = self.reach.on_report(&heard, now);
        let mut new = self.repairs.report(holes.iter().copied(), horizon);
        if let (Some(tfrc), Some((number, at)), Some(round_trip)) =
            (&mut self.tfrc, echo, self.timing.round_trip())
        {
            // A list that is not the whole tells of what is between its holes.
            let told = match (status.incomplete, holes.first(), holes.last()) {
                (false, ..) => (0, seen.max(progress)),
                (true, Some(&(from, _)), Some(&(_, to))) => (from, to),
                (true, ..) => (0, 0),
            };
            if let Some((from, to)) = probe {
                new.remove(from, to);
            }
            // What came before the peer knew the session it has thrown away: the path has not lost it.
            if !status.metadata_missing {
                self.known_from.get_or_insert(self.number);
            }
            if self.known_from.is_none_or(|from| number < from) {
                new = Stretches::default();
            }
            let said = Said {
                number,
                sent: at,
                holes: &holes,
                told,
                new: &new,
            };
            let verdict = self.suspects.report(&said, round_trip, self.number);
            let feedback = Feedback {
                number,
                verdict,
                round_trip,
                interval: self.timing.interval(now),
            };
            let content = u64::from(self.reach.content());
            tfrc.resize(Bytes(content) + self.config.overhead);
            tfrc.report(feedback, now);
            self.pacer.raise_rate(self.rate());
        }
    }

    /// Number and time of the DATA whose timestamp this is; `None` if it was never sent.
    fn echo(&self, stamp: Timestamp) -> Option<(u64, Instant)> {
        let (number, at) = stamp::read(stamp, self.config.nonce?)?;
        (number > 0 && number < self.number).then_some((number, at))
    }
}
