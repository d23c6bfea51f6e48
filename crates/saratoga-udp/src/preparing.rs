//! What is to be sent is prepared by a thread, such as the checksum of a file. Where that takes a while, a client asks the
//! server meanwhile, so that a refusal comes at once; and from one that takes a checksum last nothing has to wait for it.

use crate::Error;
use bentpipe_base::Instant;
use bentpipe_saratoga::sender::Failure;
use bentpipe_saratoga_files::{Outgoing, Task};
use bentpipe_sockets::timer;
use bentpipe_wire::saratoga::{Code, Frame, Request};
use core::time::Duration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;

/// What is prepared sooner needs no question of its own: its sender asks.
const SOON: Duration = Duration::from_millis(100);
/// Between two questions: longer than the longest round trip.
const AGAIN: Duration = Duration::from_secs(1);
/// An older answer is asked for anew by the sender, for the server may have forgotten the session.
const FRESH: Duration = Duration::from_secs(5);

/// See the file's head.
pub(crate) struct Preparing {
    task: Task<Result<Box<Outgoing>, Error>>,
    /// How long it goes on for a peer that does not ask again, and until when.
    patience: Duration,
    until: Instant,
    question: Option<Box<Question>>,
    /// What was prepared while the server is asked: another question would be one session's too many.
    prepared: Option<Box<Outgoing>>,
}

/// What a client asks of its server meanwhile.
pub(crate) struct Question {
    request: Request,
    /// How long the server may say nothing.
    silence: Duration,
    began: Instant,
    ask_at: Instant,
    /// Tells the thread that the checksum may come last. Who has a key has a server of our kind, which takes it so.
    late: Arc<AtomicBool>,
    answer: Option<(Frame, Instant)>,
    refused: Option<Code>,
}

impl Question {
    /// Asks `request`, unless all is prepared soon. `late` becomes true where the checksum may come last.
    pub(crate) fn new(request: Request, silence: Duration, late: Arc<AtomicBool>) -> Self {
        let began = timer::now();
        Self {
            request,
            silence,
            began,
            ask_at: began + SOON,
            late,
            answer: None,
            refused: None,
        }
    }

    fn input(&mut self, frame: Frame, now: Instant) {
        let Frame::Status(status) = &frame else {
            return;
        };
        if status.code == Code::OK {
            // Before any DATA only a server that takes it last has a timestamp in its STATUS.
            if status.timestamp.is_some() {
                self.late.store(true, Ordering::Relaxed);
            }
            self.answer = Some((frame, now));
        } else if self.answer.is_none() {
            self.refused = Some(status.code);
        }
        // What a server that has waited for long says, the sender hears when it asks.
    }

    fn transmit(&mut self, now: Instant) -> Option<Frame> {
        if self.answer.is_some() || now < self.ask_at {
            return None;
        }
        self.ask_at = now + AGAIN;
        if !self.request.authentication.is_empty() {
            // A REQUEST with a key is believed for a short time: its sender asks, as soon as it is there.
            self.late.store(true, Ordering::Relaxed);
            return None;
        }
        Some(Frame::Request(self.request.clone()))
    }

    /// It was sent, and has no answer.
    fn is_open(&self) -> bool {
        let sent = self.request.authentication.is_empty() && self.ask_at > self.began + SOON;
        sent && self.answer.is_none()
    }

    fn failure(&self, now: Instant) -> Option<Failure> {
        let asked = self.request.authentication.is_empty();
        let silent = asked && self.answer.is_none() && now >= self.began + SOON + self.silence;
        let refused = self.refused.map(Failure::Peer);
        refused.or_else(|| silent.then_some(Failure::Silence))
    }
}

impl Preparing {
    /// `task` prepares it, for a peer that must ask again within `patience`.
    pub(crate) fn new(task: Task<Result<Box<Outgoing>, Error>>, patience: Duration) -> Self {
        Self {
            task,
            patience,
            until: timer::now() + patience,
            question: None,
            prepared: None,
        }
    }

    /// `task` of this side prepares it, which asks `question` meanwhile.
    pub(crate) fn asking(
        task: Task<Result<Box<Outgoing>, Error>>,
        question: Option<Question>,
    ) -> Self {
        Self {
            question: question.map(Box::new),
            ..Self::new(task, Duration::MAX)
        }
    }

    /// A frame of the peer arrives.
    pub(crate) fn input(&mut self, frame: Frame, now: Instant) {
        self.until = now + self.patience;
        if let Some(question) = &mut self.question {
            question.input(frame, now);
        }
    }

    /// What is to be said meanwhile.
    pub(crate) fn transmit(&mut self, now: Instant) -> Option<Frame> {
        self.question.as_mut()?.transmit(now)
    }

    /// When it is to be said.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let question = self.question.as_ref()?;
        question.answer.is_none().then_some(question.ask_at)
    }

    /// What was prepared, or why it is over without; `path` tells of it in messages.
    pub(crate) fn outcome(
        &mut self,
        path: &str,
        now: Instant,
    ) -> Option<Result<Box<Outgoing>, Error>> {
        let question = self.question.as_deref_mut();
        let failure = match self.task.try_recv() {
            _ if self.prepared.is_some() => question?.failure(now),
            Ok(Ok(outgoing)) => {
                self.prepared = Some(outgoing);
                question.and_then(|question| question.failure(now))
            }
            Ok(Err(error)) => return Some(Err(error)),
            Err(TryRecvError::Disconnected) => Some(Failure::Own(Code::CANNOT_SEND)),
            Err(TryRecvError::Empty) if self.until <= now => Some(Failure::Silence),
            Err(TryRecvError::Empty) => question.and_then(|question| question.failure(now)),
        };
        let Some(failure) = failure else {
            return self.begin(now).map(Ok);
        };
        Some(Err(Error::session(path, failure)))
    }

    /// What was prepared, unless the answer to a question is still to come.
    fn begin(&mut self, now: Instant) -> Option<Box<Outgoing>> {
        let question = self.question.as_deref();
        if question.is_some_and(Question::is_open) {
            return None;
        }
        let mut outgoing = self.prepared.take()?;
        let answer = self
            .question
            .as_mut()
            .and_then(|question| question.answer.take());
        if let Some((answer, at)) = answer
            && now.since(at) < FRESH
        {
            outgoing.input(answer, now);
        }
        Some(outgoing)
    }
}
