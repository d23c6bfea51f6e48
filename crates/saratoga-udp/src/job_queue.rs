//! The queue of a client's jobs, and how many of them go at once.
//!
//! A few jobs go at once whatever they are. Beyond these, short ones are begun until what is under way fills the link
//! for [`AHEAD`], so that none waits for another's round trips; for longer where such jobs take longer, over longer round trips
//! or because a session begins slowly. However long a job is, it counts as one of the few there:
//! as many of them fill the link, and one leaves the rest to short ones. When the server has no room for one more session,
//! it is asked again when a session of ours is over, and where few are under way after a pause too. How many sessions it
//! takes is found out as TCP finds out a window: half as many after a refusal, once for all that went side by side, and more
//! with each that is done.

use crate::job::Job;
use bentpipe_base::{Bytes, Instant, Rate};
use core::time::Duration;
use std::collections::{BTreeMap, VecDeque};

/// Jobs are begun until those under way fill the line for so long: the time of a put over a geostationary satellite,
/// which takes two round trips; where jobs take longer for almost as long as they do, and no longer than the second.
const AHEAD: [Duration; 2] = [Duration::from_millis(1200), Duration::from_secs(12)];
/// Jobs at once at most.
const MOST: usize = 250;
/// The approximate octets on the line of a job besides its content: REQUEST, METADATA twice and STATUS.
const FRAMES: u64 = 500;
/// Octets of a file or list of which nothing is known, about.
const UNKNOWN: u64 = 16 << 10;
/// Sessions for which a server has room, and the line towards it, as far as is known at first.
const ROOM: f64 = 100.0;
/// The pauses, first and longest, before a server without room is asked again, unless one of ours is over there before.
const PAUSE: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
/// By how much each job that is done raises the sessions for which a server is asked: half as many more for each full round of
/// them, for others may just have left, and a refusal costs little; and for how many it is always asked.
const GROWTH: f64 = 0.5;
const FEW: f64 = 4.0;
/// How long a server may have no room while nothing of ours is under way there.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long this side may: nobody else's work ends here.
const OWN_PATIENCE: Duration = Duration::from_secs(5);

/// A job that the server forgets begins anew so often at most, unless more has arrived in a session that has lasted for that long: of
/// two that end one another one gives up.
const LASTING: Duration = Duration::from_secs(1);
/// The pauses, first and longest, from the second time in vain on.
const PAUSE_IN_VAIN: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(800)];

/// Who has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The server.
    There,
    /// This process.
    Here,
}

/// A job that waits or is under way.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) number: usize,
    pub(crate) job: Job,
    /// How often it was begun, and when last.
    pub(crate) begun: u32,
    began: Instant,
    /// Octets that had arrived at most when the server forgot it, and how often it did since in vain.
    furthest: u64,
    in_vain: u32,
}

impl Entry {
    /// The server has forgotten it when `done` octets had arrived: whether it begins anew, `most` times in vain.
    pub(crate) fn begins_anew(&mut self, done: u64, most: u32, now: Instant) -> bool {
        let further = done > self.furthest && now.since(self.began) >= LASTING;
        self.furthest = self.furthest.max(done);
        self.in_vain = if further { 0 } else { self.in_vain + 1 };
        self.in_vain <= most
    }
}

/// Nothing is begun for a while, because a server had no room.
#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    length: Duration,
    /// Whether nothing of ours is under way there.
    all: bool,
}

/// See the file's head.
#[derive(Debug)]
pub(crate) struct JobQueue {
    waiting: VecDeque<Entry>,
    /// By session Id.
    under_way: BTreeMap<u32, Entry>,
    parallel: usize,
    /// Jobs at once at most, of any length.
    most: usize,
    rate: Rate,
    /// How long short jobs take, each in the proportion of its length.
    takes: Duration,
    /// Sessions for which the server has room, as far as that is known, and when it was found to be less. Refusals of what was
    /// begun before say nothing new.
    room: f64,
    fell_at: Instant,
    pause: Option<Pause>,
    /// When the server took something of ours last.
    taken_at: Instant,
    /// Jobs given, and the files among them.
    given: usize,
    files: usize,
    files_over: usize,
}

impl JobQueue {
    /// An empty queue for a line of `rate`. `parallel` jobs of any length run at once, and short ones beyond them up to
    /// `able`.
    pub(crate) fn new(rate: Rate, parallel: usize, able: usize, now: Instant) -> Self {
        let parallel = parallel.clamp(1, able);
        Self {
            waiting: VecDeque::new(),
            under_way: BTreeMap::new(),
            parallel,
            most: MOST.max(parallel).min(able),
            rate,
            takes: Duration::ZERO,
            room: ROOM,
            fell_at: Instant::ZERO,
            pause: None,
            taken_at: now,
            given: 0,
            files: 0,
            files_over: 0,
        }
    }

    /// More to do. Lists come first: they tell of the rest.
    pub(crate) fn add(&mut self, jobs: Vec<Job>) {
        for job in jobs {
            let list = job.is_list();
            let entry = Entry {
                number: self.given,
                job,
                begun: 0,
                began: Instant::ZERO,
                furthest: 0,
                in_vain: 0,
            };
            self.given += 1;
            self.files += usize::from(!list);
            if list {
                self.waiting.push_front(entry)
            } else {
                self.waiting.push_back(entry)
            }
        }
    }

    /// The line carries `rate`.
    pub(crate) const fn set_rate(&mut self, rate: Rate) {
        self.rate = rate;
    }

    /// Octets that are to be under way; of a job no more than the second count.
    fn budget(&self) -> (u64, u64) {
        // All of what they take would be kept up by the queue of a full line.
        let [least, most] = AHEAD;
        let Bytes(budget) = self.rate.over((self.takes * 7 / 8).clamp(least, most));
        (budget, budget.div_ceil(self.parallel as u64))
    }

    /// What to begin now, if anything.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Entry> {
        if self.pause.is_some_and(|pause| now < pause.until) {
            return None;
        }
        let next = self.waiting.front()?;
        let count = self.under_way.len();
        let (budget, most) = self.budget();
        let costs = || {
            let all = self.under_way.values().chain([next]);
            sum(all.map(|entry| cost(&entry.job).min(most)))
        };
        let fits = count < self.parallel || costs() <= budget;
        let room = count < (self.room as usize).clamp(1, self.most);
        (fits && room).then(|| self.waiting.pop_front()).flatten()
    }

    /// Takes a waiting job that is no longer to be begun, if there is one.
    pub(crate) fn drop_next(&mut self) -> Option<Entry> {
        let entry = self.waiting.pop_front()?;
        self.files_over += usize::from(!entry.job.is_list());
        Some(entry)
    }

    /// It was begun as session `id`.
    pub(crate) fn begun(&mut self, id: u32, mut entry: Entry, now: Instant) {
        entry.begun += 1;
        entry.began = now;
        self.under_way.insert(id, entry);
    }

    /// Puts a job back that cannot be begun just now, or begins anew.
    pub(crate) fn again(&mut self, entry: Entry) {
        self.waiting.push_front(entry);
    }

    /// Puts `entry` back, which begins anew: after the first time in vain not at once, for what ends it may last for a moment.
    pub(crate) fn begin_anew(&mut self, entry: Entry, now: Instant) {
        if entry.in_vain == 0 {
            self.taken_at = now;
        }
        if let Some(times) = entry.in_vain.checked_sub(2) {
            let [first, longest] = PAUSE_IN_VAIN;
            let pause = self.pause.get_or_insert(Pause {
                until: now,
                length: PAUSE[0] / 2,
                all: false,
            });
            let until = now + (first * 2_u32.pow(times.min(10))).min(longest);
            pause.until = pause.until.max(until);
        }
        self.again(entry);
    }

    /// Session `id` is over: the job, if it was one.
    pub(crate) fn over(&mut self, id: u32) -> Option<Entry> {
        self.under_way.remove(&id)
    }

    /// `entry` was refused for want of room, `full`, and waits; an error when that was tried for too long.
    pub(crate) fn refused(&mut self, entry: Entry, full: Full, now: Instant) -> Result<(), Entry> {
        let count = self.under_way.len();
        match full {
            Full::Here => self.room = self.room.min(count as f64),
            Full::There if entry.began < self.fell_at => {}
            Full::There => {
                self.room = self.room.min((count + 1) as f64 / 2.0).max(FEW);
                self.fell_at = now;
            }
        }
        if count > 0 && count >= self.room as usize {
            // One of ours will be over first.
            self.again(entry);
            return Ok(());
        }
        let patience = match full {
            Full::There => PATIENCE,
            Full::Here => OWN_PATIENCE,
        };
        if count == 0 && now.since(self.taken_at) >= patience {
            return Err(entry);
        }
        let [first, longest] = PAUSE;
        let pause = self.pause.get_or_insert(Pause {
            until: now,
            length: first / 2,
            all: false,
        });
        pause.all = count == 0;
        // What went side by side is refused once.
        if now >= pause.until {
            pause.length = (pause.length * 2).min(longest);
            pause.until = now + pause.length;
        }
        self.again(entry);
        Ok(())
    }

    /// `entry` is done, or failed for another reason than want of room.
    pub(crate) fn settled(&mut self, entry: &Entry, now: Instant) {
        self.files_over += usize::from(!entry.job.is_list());
        let (budget, most) = self.budget();
        let cost = cost(&entry.job);
        if cost < most {
            let part = cost as f64 / budget as f64;
            let took = now.since(entry.began).min(AHEAD[1] * 2);
            self.takes = self.takes.mul_f64(1.0 - part) + took.mul_f64(part);
        }
        self.room = (self.room.max(1.0) + GROWTH).min(MOST as f64);
        self.pause = None;
        self.taken_at = now;
    }

    pub(crate) fn is_under_way(&self, id: u32) -> bool {
        self.under_way.contains_key(&id)
    }

    /// The jobs under way, by session Id.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = (u32, &Entry)> {
        self.under_way.iter().map(|(id, entry)| (*id, entry))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// Octets of what waits, as far as they are known.
    pub(crate) fn octets_waiting(&self) -> u64 {
        sum(self.waiting.iter().filter_map(|entry| entry.job.size()))
    }

    /// Files that are over, and all.
    pub(crate) const fn files(&self) -> (usize, usize) {
        (self.files_over, self.files)
    }

    /// Whether all waits for room. It does while that is asked for again.
    pub(crate) fn waits(&self) -> bool {
        self.pause.is_some_and(|pause| pause.all) && self.under_way.is_empty()
    }

    /// When something may be begun, where that is a matter of time.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let pause = self.pause.filter(|pause| now < pause.until)?;
        (!self.waiting.is_empty()).then_some(pause.until)
    }
}

/// The sum of `sizes`, which a server names: as many as can be counted, where there are more.
fn sum(sizes: impl Iterator<Item = u64>) -> u64 {
    sizes.fold(0, u64::saturating_add)
}

/// Octets that `job` takes on the line, about.
fn cost(job: &Job) -> u64 {
    let content = match job {
        Job::Delete { .. } => 0,
        job => job.size().unwrap_or(UNKNOWN),
    };
    content.saturating_add(FRAMES)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::ZERO;

    fn job_queue(count: usize, size: u64) -> JobQueue {
        let mut job_queue = JobQueue::new(Rate::from_bits_per_sec(8_000_000), 8, 1000, START);
        job_queue.room = MOST as f64;
        add(&mut job_queue, count, size);
        job_queue
    }

    fn add(job_queue: &mut JobQueue, count: usize, size: u64) {
        let job = |i: usize| Job::Put {
            local: None,
            remote: format!("{i}"),
            give: false,
            size: Some(size),
        };
        job_queue.add((0..count).map(job).collect());
    }

    /// Begins what may be begun; how many are under way then.
    fn fill(job_queue: &mut JobQueue, id: &mut u32, now: Instant) -> usize {
        while let Some(entry) = job_queue.next(now) {
            *id += 1;
            job_queue.begun(*id, entry, now);
        }
        job_queue.under_way.len()
    }

    #[test]
    fn short_files_fill_the_line_and_long_ones_are_few() {
        assert_eq!(fill(&mut job_queue(1000, 1000), &mut 0, START), MOST);
        // 1.2 s of 8 Mbit/s are 1.2 MB.
        assert_eq!(fill(&mut job_queue(1000, 9500), &mut 0, START), 120);
        assert_eq!(fill(&mut job_queue(1000, 1_000_000_000), &mut 0, START), 8);
        assert_eq!(fill(&mut job_queue(3, 1_000_000_000), &mut 0, START), 3);
        let mut slow = job_queue(1000, 1000);
        slow.set_rate(Rate::from_bits_per_sec(64_000));
        assert_eq!(fill(&mut slow, &mut 0, START), 8);
    }

    #[test]
    fn where_files_take_long_more_of_them_go_at_once() {
        // Each is 100 ms of the line, beside which it takes so many seconds.
        for (takes, count) in [(1, 12), (2, 17), (8, 70), (30, 120)] {
            let mut job_queue = job_queue(10_000, 99_500);
            let mut under_way = VecDeque::new();
            for ms in (0..200_000).step_by(100) {
                let now = START + Duration::from_millis(ms);
                let over = under_way.front().is_some_and(|(_, at)| *at <= now);
                if let Some((id, _)) = over.then(|| under_way.pop_front()).flatten() {
                    let entry = job_queue.over(id).unwrap();
                    job_queue.settled(&entry, now);
                }
                while let Some(entry) = job_queue.next(now) {
                    let id = entry.number as u32;
                    under_way.push_back((id, now + Duration::from_secs(takes)));
                    job_queue.begun(id, entry, now);
                }
            }
            let counts = under_way.len();
            assert!(counts.abs_diff(count) < 2, "{takes} s: {counts}");
        }
    }

    #[test]
    fn long_files_leave_room_for_short_ones() {
        for (long, all) in [(1, 106), (4, 64), (7, 22), (8, 8), (9, 8)] {
            let mut job_queue = job_queue(long, 1_000_000_000);
            add(&mut job_queue, 1000, 9500);
            assert_eq!(fill(&mut job_queue, &mut 0, START), all, "{long} long ones");
        }
    }

    #[test]
    fn what_is_forgotten_begins_anew_as_long_as_more_arrives() {
        let mut entry = job_queue(1, 1000).next(START).unwrap();
        let mut tries = |done: fn(u64) -> u64, lasted| {
            let again = (1..100).take_while(|i| {
                entry.began = START;
                entry.begins_anew(done(*i), 20, START + lasted)
            });
            again.count()
        };
        assert_eq!(tries(|i| i, LASTING), 99);
        assert_eq!(tries(|_| 50, LASTING), 20);
        // Two that put the same end one another at once.
        assert_eq!(tries(|i| 1000 + i, LASTING), 99);
        assert_eq!(tries(|i| 2000 + i, LASTING / 10), 20);
    }

    /// A path that has two ports for half a second, on a short path: the tries outlast that.
    #[test]
    fn what_ends_sessions_for_a_moment_is_outlasted() {
        let mut job_queue = job_queue(1, 1000);
        let mut now = START;
        let mut entry = job_queue.next(now).unwrap();
        while {
            now += Duration::from_millis(2);
            entry.begins_anew(0, 20, now)
        } {
            job_queue.begin_anew(entry, now);
            now = now.max(job_queue.deadline(now).unwrap_or(now));
            entry = job_queue.next(now).unwrap();
        }
        let lasted = now.since(START);
        assert!((5..20).contains(&lasted.as_secs()), "{lasted:?}");
    }

    #[test]
    fn sizes_that_a_server_makes_up_are_counted_as_far_as_that_goes() {
        let mut job_queue = job_queue(20, u64::MAX / 2);
        assert_eq!(job_queue.octets_waiting(), u64::MAX);
        assert_eq!(fill(&mut job_queue, &mut 0, START), 8);
    }

    /// A server with so much room for ours after so many seconds, of 500 that fit a round trip all: how often it is asked until
    /// all are done, and when that is.
    fn takes(room: impl Fn(u64) -> usize) -> (u32, Instant) {
        let mut job_queue = job_queue(500, 1000);
        let (mut id, mut now, mut asked, mut done) = (0, START, 0, 0);
        while !job_queue.is_empty() {
            let first = id + 1;
            fill(&mut job_queue, &mut id, now);
            asked += id + 1 - first;
            now += Duration::from_millis(600);
            let room = room(now.as_nanos() / 1_000_000_000);
            // A refusal is there before the content.
            let ids: Vec<u32> = job_queue.under_way.keys().copied().collect();
            for id in ids.iter().skip(room) {
                let entry = job_queue.over(*id).unwrap();
                job_queue.refused(entry, Full::There, now).unwrap();
            }
            for id in ids.iter().take(room) {
                let entry = job_queue.over(*id).unwrap();
                job_queue.settled(&entry, now);
                done += 1;
            }
        }
        assert_eq!(done, 500);
        (asked, now)
    }

    #[test]
    fn who_is_refused_waits_until_there_is_room() {
        let (asked, took) = takes(|_| 16);
        assert!(asked < 1200, "asked {asked} times");
        assert!(took < START + Duration::from_secs(25), "took {took:?}");
    }

    /// A server that has room for two and is a round trip of 50 ms away is not asked for more at each of them.
    #[test]
    fn a_few_under_way_are_no_reason_to_ask_again_at_once() {
        let mut job_queue = job_queue(10, 1_000_000_000);
        let (mut id, mut now) = (0, START);
        while now < START + Duration::from_secs(60) {
            fill(&mut job_queue, &mut id, now);
            now += Duration::from_millis(50);
            let ids: Vec<u32> = job_queue.under_way.keys().copied().collect();
            for id in ids.iter().skip(2) {
                let entry = job_queue.over(*id).unwrap();
                job_queue.refused(entry, Full::There, now).unwrap();
            }
            assert!(!job_queue.waits());
        }
        assert!(id < 50, "asked {id} times");
    }

    /// Others had all of it for three seconds.
    #[test]
    fn room_that_others_leave_is_soon_found() {
        let (_, took) = takes(|seconds| if seconds < 3 { 2 } else { 250 });
        assert!(took < START + Duration::from_secs(12), "took {took:?}");
    }

    /// Asks again and again, and nothing is ever taken: how often, and when it is given up.
    fn in_vain(full: Full) -> (u32, Instant) {
        let mut job_queue = job_queue(3, 1000);
        let (mut now, mut asked) = (START, 0);
        loop {
            let Some(entry) = job_queue.next(now) else {
                now = job_queue.deadline(now).unwrap();
                continue;
            };
            asked += 1;
            assert_eq!(job_queue.waits(), asked > 1);
            if let Err(entry) = job_queue.refused(entry, full, now) {
                assert_eq!(entry.number, 0);
                return (asked, now);
            }
        }
    }

    /// A server that was started again has given the room to others, and a transfer that went on for long waits as any does.
    #[test]
    fn what_began_long_ago_waits_for_room_too() {
        let mut job_queue = job_queue(1, 1_000_000_000);
        let entry = job_queue.next(START).unwrap();
        job_queue.begun(7, entry, START);
        let later = START + 2 * PATIENCE;
        let mut entry = job_queue.over(7).unwrap();
        assert!(entry.begins_anew(1000, 20, later));
        job_queue.begin_anew(entry, later);
        let entry = job_queue.next(later).unwrap();
        assert!(job_queue.refused(entry, Full::There, later).is_ok());
    }

    /// When it is time to ask again, and nothing more is to be begun, nobody looks at the clock for it.
    #[test]
    fn a_pause_that_is_over_is_no_deadline() {
        let mut job_queue = job_queue(20, 1_000_000_000);
        let entry = job_queue.next(START).unwrap();
        job_queue.refused(entry, Full::There, START).unwrap();
        assert!(job_queue.waits());
        let until = job_queue.deadline(START).unwrap();
        fill(&mut job_queue, &mut 0, until);
        assert_eq!(job_queue.deadline(until), None);
        assert!(!job_queue.waits());
    }

    #[test]
    fn a_server_without_any_room_is_asked_now_and_then_and_not_for_ever() {
        let (asked, until) = in_vain(Full::There);
        assert!((100..140).contains(&asked), "{asked}");
        assert!(until >= START + PATIENCE);
        let (asked, until) = in_vain(Full::Here);
        assert!((4..10).contains(&asked), "{asked}");
        assert!(until < START + 2 * OWN_PATIENCE);
    }
}
