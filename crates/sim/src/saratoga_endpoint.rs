//! One end of a file that is moved by Saratoga. The flow's start, or the peer's REQUEST, starts its session. Content is only
//! counted and there is no disk, so that a complete file is verified at once.

use bentpipe_base::{Bytes, Instant, Machine, Rate};
use bentpipe_saratoga::sender::{Congestion, Failure};
use bentpipe_saratoga::{HoleEnd, Receiver, Sender, receiver, sender};
use bentpipe_tcp::Cause;
use bentpipe_wire::saratoga::{
    Capabilities, Code, Entry, Frame, Kind, Metadata, Request, RequestKind, Width, Willingness,
};
use core::convert::Infallible;
use core::time::Duration;

/// What a flow moves, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) size: Bytes,
    pub(crate) rate: Rate,
    /// Bytes of an IP packet.
    pub(crate) packet: Bytes,
    /// IP and UDP headers.
    pub(crate) overhead: Bytes,
    /// Content of a full packet, which is less than 64 KiB.
    pub(crate) payload: Bytes,
    pub(crate) congestion: Congestion,
    /// Whether the opener has the file.
    pub(crate) puts: bool,
}

/// One end of a file; see the head of this file.
#[derive(Debug)]
pub(crate) struct SaratogaEndpoint {
    plan: Plan,
    sends: bool,
    /// When it begins by itself; the end that opens the flow does.
    start: Option<Instant>,
    machine: Option<Session>,
    /// Why it failed, if it has.
    pub(crate) broken: Option<Cause>,
    /// When it had or knew of everything.
    pub(crate) done: Option<Instant>,
    /// When it first heard of its peer.
    pub(crate) heard: Option<Instant>,
}

#[derive(Debug)]
enum Session {
    Sender(Box<Sender>),
    Receiver(Box<Receiver>),
}

const SESSION: u32 = 1;
/// The time is the default of `bentpipe saratoga`.
const SILENCE: Duration = Duration::from_secs(30);
const LINGER: Duration = Duration::from_secs(10);
const UNANNOUNCED: Bytes = Bytes(16 << 20);

impl SaratogaEndpoint {
    /// The opener's end, which begins at `start`, or the acceptor's, which begins when a REQUEST comes.
    pub(crate) const fn new(plan: Plan, start: Option<Instant>) -> Self {
        Self {
            sends: start.is_some() == plan.puts,
            plan,
            start,
            machine: None,
            broken: None,
            done: None,
            heard: None,
        }
    }

    fn open(&mut self, now: Instant) {
        let opens = self.start.is_some();
        let request = opens.then(|| self.request());
        self.machine = Some(if self.sends {
            Session::Sender(Box::new(Sender::new(self.sending(request), now)))
        } else {
            let mut receiver = Receiver::new(self.receiving(request), now);
            if !opens {
                receiver.repeat();
            }
            Session::Receiver(Box::new(receiver))
        });
    }

    fn request(&self) -> Request {
        Request {
            capabilities: Capabilities {
                width: Width::Bits64,
                streams: true,
                send: Willingness::Willing,
                receive: Willingness::Willing,
                udp_lite: false,
            },
            session: SESSION,
            kind: if self.plan.puts {
                RequestKind::Put
            } else {
                RequestKind::Get
            },
            late_checksum: false,
            path: "file".to_owned(),
            authentication: Vec::new(),
        }
    }

    fn sending(&self, request: Option<Request>) -> sender::Config {
        let Plan {
            size,
            rate,
            overhead,
            payload,
            congestion,
            ..
        } = self.plan;
        sender::Config {
            metadata: Metadata::new(SESSION, Kind::File, Entry::file("file", size.0)),
            request,
            rate,
            payload: payload.0 as u32,
            overhead,
            congestion,
            silence: SILENCE,
            late_checksum: false,
            // Nothing is forged in the simulator, so that the key need not be secret.
            nonce: Some(0),
            blind: false,
        }
    }

    fn receiving(&self, request: Option<Request>) -> receiver::Config {
        receiver::Config {
            session: SESSION,
            request,
            width: Width::Bits16,
            kept: None,
            unannounced: UNANNOUNCED,
            hole_end: HoleEnd::Inclusive,
            room: (self.plan.packet - self.plan.overhead).0 as usize,
            silence: SILENCE,
            linger: LINGER,
        }
    }

    fn hear(&mut self, now: Instant) {
        let failed = |failure: Failure| match failure {
            Failure::Silence | Failure::Vain | Failure::Unechoed => Cause::TimedOut,
            Failure::Peer(Code::OK) | Failure::Own(_) => Cause::Local,
            Failure::Peer(_) => Cause::Reset,
        };
        match &mut self.machine {
            Some(Session::Sender(sender)) => match sender.event() {
                Some(sender::Event::Done) => self.done = Some(now),
                Some(sender::Event::Failed(failure)) => self.broken = Some(failed(failure)),
                None => {}
            },
            Some(Session::Receiver(receiver)) => {
                while let Some(event) = receiver.event() {
                    match event {
                        receiver::Event::Complete => {
                            receiver.verified(now);
                            self.done = Some(now);
                        }
                        // The peer may have forgotten the session after it was complete.
                        receiver::Event::Failed(failure) if self.done.is_none() => {
                            self.broken = Some(failed(failure));
                        }
                        _ => {}
                    }
                }
            }
            None => {}
        }
    }

    /// Bytes of the IP packet that `frame` goes in.
    pub(crate) fn length(&self, frame: &Frame) -> Bytes {
        let octets = match frame {
            Frame::Data(data) => data.header_len() + data.len as usize,
            other => {
                let mut octets = Vec::new();
                // Our own machine made it, and makes no frame that cannot be emitted.
                let _ = other.emit(&mut octets);
                octets.len()
            }
        };
        self.plan.overhead + Bytes(octets as u64)
    }

    /// Bytes of content that are here, of a receiver.
    pub(crate) fn received(&self) -> u64 {
        match &self.machine {
            Some(Session::Receiver(receiver)) => receiver.have().total(),
            _ => 0,
        }
    }

    /// Payload of a full packet.
    pub(crate) const fn payload(&self) -> Bytes {
        self.plan.payload
    }

    /// The name of its congestion control.
    pub(crate) const fn control(&self) -> &'static str {
        self.plan.congestion.name()
    }

    /// Content that it sent, what it sent again counted again, and the part that it sent again.
    pub(crate) fn sent(&self) -> [u64; 2] {
        match &self.machine {
            Some(Session::Sender(sender)) => {
                let progress = sender.progress();
                let again = progress.transmitted.saturating_sub(progress.sent);
                [progress.transmitted, again]
            }
            _ => [0; 2],
        }
    }
}

impl Machine for SaratogaEndpoint {
    type Packet = Frame;
    type Port = ();
    type Event = Infallible;

    fn input(&mut self, (): (), frame: Frame, now: Instant) {
        self.heard.get_or_insert(now);
        if self.machine.is_none() {
            if matches!(frame, Frame::Request(_)) {
                self.open(now);
            }
            return;
        }
        match &mut self.machine {
            Some(Session::Sender(sender)) => match frame {
                Frame::Request(_) => sender.repeat(now),
                frame => sender.input((), frame, now),
            },
            Some(Session::Receiver(receiver)) => receiver.input((), frame, now),
            None => {}
        }
        self.hear(now);
    }

    fn timeout(&mut self, now: Instant) {
        match &mut self.machine {
            Some(Session::Sender(sender)) => sender.timeout(now),
            Some(Session::Receiver(receiver)) => receiver.timeout(now),
            None => self.open(now),
        }
        self.hear(now);
    }

    fn transmit(&mut self, now: Instant) -> Option<((), Frame)> {
        let ((), frame) = match self.machine.as_mut()? {
            Session::Sender(sender) => sender.transmit(now)?,
            Session::Receiver(receiver) => receiver.transmit(now)?,
        };
        Some(((), frame))
    }

    fn event(&mut self) -> Option<Infallible> {
        None
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.machine {
            Some(Session::Sender(sender)) => sender.deadline(),
            Some(Session::Receiver(receiver)) => receiver.deadline(),
            None => self.start,
        }
    }
}
