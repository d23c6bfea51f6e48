//! The client: it begins sessions that get, put, take, give, list and delete.

use crate::beacon;
use crate::capacity::most_at_once;
use crate::endpoint::{Endpoint, Link, Stray, Turn, key, nonce};
use crate::job_queue::{Entry as Item, Full, JobQueue};
use crate::preparing::{Preparing, Question};
use crate::session::{Session, Work};
use crate::{Error, Key, session_id};
use bentpipe_base::Rate;
use bentpipe_saratoga::sender::Failure;
use bentpipe_saratoga::{Inquiry, Receiver, Sender, refusal};
use bentpipe_saratoga_files::checksum::Algorithm;
use bentpipe_saratoga_files::{
    Cancel, ChecksumOnRead, FairSemaphore, Incoming, ListMemory, LocalFile, Original, Outgoing,
    Part, Sink, Source, Stdout, Task, WIDEST, announce, passed_on, path, spawn, stream,
    unnamed_file,
};
use bentpipe_sockets::timer;
use bentpipe_sockets::udp::Udp;
use bentpipe_wire::saratoga::{Capabilities, Code, Frame, Request, RequestKind, Willingness};
use core::time::Duration;
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use verdict::{Answers, forgotten, is_silence, say_refused};

#[cfg(test)]
mod tests;
mod verdict;

pub use crate::job::{Job, Progress, Report, Target};

/// How a client works.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// The properties of the path to the server.
    pub link: Link,
    /// REQUESTs are authenticated with it.
    pub key: Option<Key>,
    /// How files that go are summed up.
    pub checksum: Algorithm,
    /// Octets of a file that comes at most.
    pub max_size: u64,
    /// Jobs at once at most: small files then do not wait for one another's round trips.
    pub parallel: usize,
    /// Files go without a REQUEST: for servers that know no other way.
    pub blind: bool,
}

/// Talks with one server.
pub struct Client {
    endpoint: Endpoint,
    server: SocketAddr,
    config: ClientConfig,
    /// Makes the Ids of its sessions others than those of any client before.
    fresh: u32,
    /// Of checksums that come last, a few are made at once.
    turns: FairSemaphore,
}

/// Between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(100);

/// What a server takes that has not said so.
const ASSUMED: Rate = Rate::from_bits_per_sec(1_000_000);
/// How long a server is asked for its rate.
const ASKED_FOR: Duration = Duration::from_secs(10);
/// When all is here, the last words are said again for so long, so that one is heard: the server needs no
/// more, and who waits for the files nothing.
const FAREWELL: Duration = Duration::from_millis(100);
/// Between two of them.
const WORDS: Duration = Duration::from_millis(25);

/// What is over of the jobs of one call.
struct Totals {
    done: u64,
    known: u64,
    /// A job ended because the server said nothing, and it was not heard since.
    silent: bool,
    answers: Answers,
}

impl Client {
    /// A client of `server`.
    ///
    /// # Errors
    /// When no port can be had.
    pub fn new(server: SocketAddr, config: ClientConfig) -> Result<Self, Error> {
        let own = match server.ip() {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let port = config.link.peer_port.unwrap_or(0);
        let endpoint = Endpoint::on(Udp::bind(SocketAddr::new(own, port)), config.link)?;
        if config.link.peer_port.is_none() {
            // Nobody else is heard, and the kernel tells when nothing listens there.
            endpoint
                .udp
                .connect(server)
                .map_err(Error::socket("find a way to the server"))?;
        }
        Ok(Self {
            endpoint,
            server,
            config,
            fresh: nonce(),
            turns: FairSemaphore::new(std::thread::available_parallelism().map_or(1, usize::from)),
        })
    }

    /// Does `jobs`, some at once, and tells `watch` now and then how far it has come; what came of each, as
    /// they end.
    ///
    /// # Errors
    /// The socket, or `stop`, which leaves what has arrived for the next time. What fails a single
    /// job is in its report.
    pub fn run(
        &mut self,
        jobs: Vec<Job>,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<Vec<Report>, Error> {
        let mut reports = Vec::new();
        self.run_on(jobs, stop, watch, &mut |report| {
            reports.push(report);
            Ok(Vec::new())
        })?;
        Ok(reports)
    }

    /// As [`Self::run`], but each report goes to `next`, which says what more there is to do: jobs that are
    /// numbered on; or why nothing more is to be done, which stops what is under way.
    ///
    /// # Errors
    /// As there, and what `next` says.
    pub fn run_on(
        &mut self,
        jobs: Vec<Job>,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Progress),
        next: &mut dyn FnMut(Report) -> Result<Vec<Job>, Error>,
    ) -> Result<(), Error> {
        let puts = jobs.iter().all(|job| matches!(job, Job::Put { .. }));
        let asked = if puts { None } else { self.ask_rate() };
        let rate = if puts { self.config.link.rate } else { ASSUMED };
        let able = most_at_once().min(self.config.link.most_sessions());
        let mut job_queue = JobQueue::new(rate, self.config.parallel, able, timer::now());
        job_queue.add(jobs);
        let mut sum = Totals {
            done: 0,
            known: 0,
            silent: false,
            answers: Answers::new(timer::now()),
        };
        while !job_queue.is_empty() {
            if stop.load(Ordering::Relaxed) {
                self.stop()?;
                return Err(Error::Stopped);
            }
            if let Some(Ok(Ok(rate))) = asked.as_ref().map(Task::try_recv) {
                job_queue.set_rate(rate);
            }
            let mut reports = Vec::new();
            self.begin_some(&mut job_queue, &sum, &mut reports);
            let now = timer::now();
            let pause = job_queue.deadline(now).map(|at| at.since(now));
            let mut turn = self
                .endpoint
                .turn(pause.map_or(LOOK, |pause| pause.min(LOOK)))?;
            self.refuse_strays(&turn.strays);
            if self.endpoint.is_refused() {
                let server = self.server;
                return Err(Error::Unreachable { server });
            }
            self.settle(&mut turn, &mut job_queue, &mut sum, &mut reports);
            self.endpoint.remove_ended(&turn)?;
            for report in reports {
                match next(report) {
                    Ok(jobs) => job_queue.add(jobs),
                    Err(error) => {
                        self.stop()?;
                        return Err(error);
                    }
                }
            }
            watch(self.progress(&job_queue, &sum));
        }
        self.linger(stop)
    }

    /// What comes of sessions that this client has not begun, or no longer knows, is not wanted: somebody else
    /// may have asked for it in its name.
    fn refuse_strays(&mut self, strays: &[Stray]) {
        let server = key(self.server, 0).0;
        for stray in strays {
            let ((from, id), datagram) = (stray.key, &stray.datagram);
            let data =
                matches!(Frame::parse(datagram), Ok((Frame::Data(data), _)) if data.status_wanted);
            if from == server && data {
                let unknown = refusal(id, Code::UNKNOWN_ID);
                self.endpoint.handle(stray);
                self.endpoint.reply(&unknown, from, None);
            }
        }
    }

    /// Asks the server, in a thread, for the rate that it takes.
    fn ask_rate(&self) -> Option<Task<Result<Rate, Error>>> {
        let (server, key) = (self.server, self.config.key.clone());
        let ask = move |_: &_| beacon::ask_rate(server, key.as_ref(), ASKED_FOR);
        // Without it short files take longer.
        spawn("rate", ask).ok()
    }

    /// Begins as many waiting jobs as may run at once.
    fn begin_some(&mut self, job_queue: &mut JobQueue, sum: &Totals, reports: &mut Vec<Report>) {
        let now = timer::now();
        if sum.silent {
            // The server does not answer at all, so that waiting jobs would only time out too.
            while job_queue.under_way().next().is_none()
                && let Some(Item { number, job, .. }) = job_queue.drop_next()
            {
                let path = job.remote().to_owned();
                let result = Err(Error::session(&path, Failure::Silence));
                reports.push(Report {
                    number,
                    path,
                    result,
                });
            }
            return;
        }
        while let Some(entry) = job_queue.next(now) {
            let id = self.id(&entry);
            if job_queue.is_under_way(id)
                || self.endpoint.sessions.contains_key(&key(self.server, id))
            {
                // Another session has the same Id, by chance or because the job is the same; this one waits until that
                // is over.
                return job_queue.again(entry);
            }
            let path = entry.job.remote().to_owned();
            let asks = self.asks(&entry.job);
            let request = asks.then(|| self.request(&entry.job, id));
            match self.work(&entry.job, id, request.clone()) {
                Ok(work) => {
                    let (peer, secret) = (self.server, self.config.key.as_ref());
                    let session = Session::asking(peer, path, work, request, secret);
                    self.endpoint.start(key(peer, id), session);
                    job_queue.begun(id, entry, now);
                }
                Err(error) => {
                    let mut entry = entry;
                    if error.is_want_of_room() {
                        say_refused(&path, &error);
                        match job_queue.refused(entry, Full::Here, now) {
                            Ok(()) => return,
                            Err(given_up) => entry = given_up,
                        }
                    }
                    job_queue.settled(&entry, now);
                    reports.push(Report {
                        number: entry.number,
                        path,
                        result: Err(error),
                    });
                }
            }
        }
    }

    /// Takes what came of sessions: those that are over, and those of which all is here and verified, though
    /// their last word may not have been heard.
    fn settle(
        &mut self,
        turn: &mut Turn,
        job_queue: &mut JobQueue,
        sum: &mut Totals,
        reports: &mut Vec<Report>,
    ) {
        let now = timer::now();
        let mut settled: Vec<(u32, Result<Vec<u8>, Error>)> = Vec::new();
        for ended in &mut turn.ended {
            let id = ended.key.1;
            if job_queue.is_under_way(id) {
                settled.push((id, std::mem::replace(&mut ended.result, Ok(Vec::new()))));
            }
        }
        for (id, entry) in job_queue.under_way() {
            let session = self.endpoint.sessions.get_mut(&key(self.server, id));
            // What is taken is over when the server says what became of its own.
            if entry.job.kind() != RequestKind::Take
                && let Some(Work::Receiving(incoming)) = session.map(|session| &mut session.work)
                && !settled.iter().any(|(over, _)| *over == id)
                && let Some(result) = incoming.settled()
            {
                settled.push((id, result));
            }
        }
        for (id, mut result) in settled {
            let (done, known) = self.counts(id);
            let Some(mut entry) = job_queue.over(id) else {
                continue;
            };
            if entry.job.is_passed_on() && done > 0 && forgotten(&result).is_some() {
                let path = entry.job.remote();
                result = Err(Error::file("go on with", path)(passed_on()));
            }
            let again = !entry.job.is_stream();
            // What is sent may lack room once its sender is believed; what is fetched, when something else is.
            let at_start = done == 0
                || matches!(entry.job, Job::Put { .. })
                || matches!(result, Err(Error::Promised { .. }));
            sum.answers.note(&result, now);
            let starves = sum.answers.starves(&result, self.config.link.silence, now);
            if again
                && let Err(error) = &result
                && (starves || at_start && error.is_want_of_room())
            {
                say_refused(entry.job.remote(), error);
                let full = match error {
                    Error::File { .. } | Error::Promised { .. } => Full::Here,
                    _ => Full::There,
                };
                match job_queue.refused(entry, full, now) {
                    Ok(()) => continue,
                    Err(given_up) => entry = given_up,
                }
            }
            if again
                && let Some(in_vain) = forgotten(&result)
                && entry.begins_anew(done, in_vain, now)
            {
                tracing::info!(
                    path = entry.job.remote(),
                    "the server began anew; so does this"
                );
                job_queue.begin_anew(entry, now);
                continue;
            }
            if !entry.job.is_list() {
                sum.done = sum.done.saturating_add(done);
                sum.known = sum.known.saturating_add(known);
            }
            sum.silent = is_silence(&result);
            job_queue.settled(&entry, now);
            reports.push(Report {
                number: entry.number,
                path: entry.job.remote().to_owned(),
                result,
            });
        }
    }

    /// What is over, under way and still waits.
    fn progress(&self, job_queue: &JobQueue, sum: &Totals) -> Progress {
        let (over, jobs) = job_queue.files();
        let mut progress = Progress {
            done: sum.done,
            known: sum.known.saturating_add(job_queue.octets_waiting()),
            over,
            jobs,
            waits: job_queue.waits(),
        };
        for (id, entry) in job_queue.under_way() {
            if !entry.job.is_list() {
                let (done, known) = self.counts(id);
                let known = known.max(entry.job.size().unwrap_or(0));
                progress.done = progress.done.saturating_add(done);
                progress.known = progress.known.saturating_add(known);
            }
        }
        progress
    }

    /// Says the last words until they are heard, or were said often enough.
    fn linger(&mut self, stop: &AtomicBool) -> Result<(), Error> {
        let end = timer::now() + FAREWELL;
        while !self.endpoint.sessions.is_empty()
            && timer::now() < end
            && !stop.load(Ordering::Relaxed)
        {
            let turn = self.endpoint.turn(WORDS)?;
            self.endpoint.remove_ended(&turn)?;
            for session in self.endpoint.sessions.values_mut() {
                if let Work::Receiving(incoming) = &mut session.work {
                    incoming.receiver.repeat();
                }
            }
        }
        self.endpoint.sessions.clear();
        Ok(())
    }

    /// Octets of session `id` that have arrived, and all.
    fn counts(&self, id: u32) -> (u64, u64) {
        let session = self.endpoint.sessions.get(&key(self.server, id));
        match session.map(|session| &session.work) {
            Some(Work::Sending(outgoing)) => {
                let arrived = outgoing.sender.progress().arrived;
                (arrived, outgoing.sender.size().unwrap_or(arrived))
            }
            Some(Work::Receiving(incoming)) => {
                let arrived = incoming.receiver.have().total();
                (arrived, incoming.receiver.size().unwrap_or(arrived))
            }
            _ => (0, 0),
        }
    }

    /// Tells the server, and leaves what has arrived for the next time.
    fn stop(&mut self) -> Result<(), Error> {
        for session in self.endpoint.sessions.values_mut() {
            match &mut session.work {
                Work::Sending(outgoing) => outgoing.sender.abort(Code::TERMINATED),
                Work::Receiving(incoming) if !incoming.is_verified() => {
                    incoming.let_go();
                    incoming.receiver.refuse(Code::NO_LONGER_WANTED);
                }
                _ => {}
            }
        }
        self.endpoint.turn(Duration::ZERO)?;
        // Closes the files.
        self.endpoint.sessions.clear();
        Ok(())
    }

    /// Whether `job` begins with a REQUEST.
    const fn asks(&self, job: &Job) -> bool {
        !(self.config.blind && matches!(job, Job::Put { .. }))
    }

    fn work(&self, job: &Job, id: u32, request: Option<Request>) -> Result<Work, Error> {
        path::normal(job.remote())?;
        let (now, link) = (timer::now(), self.endpoint.link());
        let sealed = self.config.key.is_some();
        Ok(match job {
            Job::Delete { .. } => {
                let request = request.unwrap_or_else(|| self.request(job, id));
                Work::Asking(Box::new(Inquiry::new(request, link.silence, now)))
            }
            Job::List { remote } => {
                let config = Endpoint::receiving(link, id, request, None);
                let sink = Sink::Memory(ListMemory::default());
                Work::Receiving(Box::new(self.incoming(
                    Receiver::new(config, now),
                    sink,
                    remote,
                )))
            }
            Job::Get {
                remote,
                target,
                take,
                ..
            } => {
                let (sink, kept) = match target {
                    Target::Stdout => {
                        let pipe = Stdout::new(unnamed_file()?);
                        (Sink::Pipe(pipe), None)
                    }
                    Target::File(tree, path) => {
                        let (folder, name) = tree.place(path, true)?;
                        let (part, kept) = Part::open(folder, name, path, sealed)?;
                        (Sink::Part(Box::new(part)), kept)
                    }
                };
                let config = Endpoint::receiving(link, id, request, kept);
                let incoming = self.incoming(Receiver::new(config, now), sink, remote);
                Work::Receiving(Box::new(if *take { incoming.taking() } else { incoming }))
            }
            Job::Put {
                local: Some(local),
                remote,
                give,
                ..
            } => {
                let (local, remote, give) = (local.clone(), remote.clone(), *give);
                let (link, peer, algorithm) = (*link, self.server, self.config.checksum);
                let blind = request.is_none();
                let late = Arc::new(AtomicBool::new(false));
                let question = request
                    .clone()
                    .filter(|request| request.late_checksum)
                    .map(|request| Question::new(request, link.silence, Arc::clone(&late)));
                let turns = self.turns.clone();
                let prepare = move |cancel: &Cancel| {
                    let (metadata, file, was, begun) =
                        announce(&local, &remote, id, algorithm, cancel, &late)?;
                    let original = if give {
                        Some(Original::at(
                            &local,
                            duplicate(&file, &local)?,
                            was.clone(),
                        )?)
                    } else {
                        None
                    };
                    let mut config = Endpoint::sending(&link, metadata, request, peer, sealed);
                    config.blind = blind;
                    let begun = begun.map(|sum| Box::new(ChecksumOnRead::new(sum, turns, peer)));
                    let (sender, source) = (
                        Sender::new(config, timer::now()),
                        Source::file(file, was, begun),
                    );
                    let outgoing = Outgoing::new(sender, source, remote);
                    Ok(Box::new(match original {
                        Some(original) => outgoing.deleting(original),
                        None => outgoing,
                    }))
                };
                let prepared =
                    spawn("prepare", prepare).map_err(Error::file("prepare", job.remote()))?;
                // The session waits for a thread of its own side, not for the peer.
                Work::Preparing(Preparing::asking(prepared, question))
            }
            Job::Put {
                local: None,
                remote,
                ..
            } => {
                let source = Source::stdin(unnamed_file()?)
                    .map_err(Error::file("read", "standard input"))?;
                let blind = request.is_none();
                let mut config =
                    Endpoint::sending(link, stream(remote, id), request, self.server, sealed);
                config.blind = blind;
                let outgoing = Outgoing::new(Sender::new(config, now), source, remote.clone());
                Work::Sending(Box::new(outgoing))
            }
        })
    }

    fn incoming(&self, receiver: Receiver, sink: Sink, path: &str) -> Incoming {
        let (most, now) = (self.config.max_size, timer::now());
        Incoming::new(receiver, sink, path.to_owned(), most, now)
    }

    fn request(&self, job: &Job, session: u32) -> Request {
        let mut request = Request {
            capabilities: Capabilities {
                width: WIDEST,
                streams: true,
                // One bit tells a take from a get: a take says it once more, for it has the server delete.
                send: match job.kind() {
                    RequestKind::Take => Willingness::Capable,
                    _ => Willingness::Willing,
                },
                receive: Willingness::Willing,
                udp_lite: false,
            },
            session,
            kind: job.kind(),
            // A list is short, and a stream has none.
            late_checksum: match job {
                Job::Get { .. } => true,
                Job::Put { local, .. } => local.is_some() && self.config.link.timestamps,
                Job::List { .. } | Job::Delete { .. } => false,
            },
            path: job.remote().to_owned(),
            authentication: Vec::new(),
        };
        if let Some(key) = &self.config.key {
            key.sign(&mut request);
        }
        request
    }

    /// The Id of the next session of a job.
    fn id(&self, Item { job, begun, .. }: &Item) -> u32 {
        let echoed = self.config.link.timestamps && self.asks(job);
        session_id::of(job, self.server, self.fresh, *begun, echoed)
    }
}

fn duplicate(file: &File, local: &LocalFile) -> Result<File, Error> {
    let name = local.path().display().to_string();
    file.try_clone().map_err(Error::file("read", name))
}
