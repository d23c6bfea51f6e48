//! Divides the file descriptors of the process among flows, pipes and the rest, and so finds how many flows fit.

use bentpipe_base::Instant;
use bentpipe_gateway_config::Limits;
use bentpipe_relay::FlowBounds;
use std::time::Duration;

/// Descriptors of an idle flow.
const OF_A_FLOW: usize = 2;
/// Descriptors of a pipe.
const OF_A_PIPE: usize = 2;
/// Descriptors kept for logs, the operator, questions to the kernel and the like.
const RESERVE: usize = 24;

/// How long new flows pass at least after the kernel has refused a descriptor, and at most before it is tried again.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(8)];
/// One that comes so soon after new flows were split again is of the same lack as the one before.
const SAME: Duration = Duration::from_secs(5);

/// The division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    pub(crate) bounds: FlowBounds,
    /// Pipes of each worker.
    pub(crate) pipes: usize,
}

/// The descriptors of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// How many the kernel allows.
    pub(crate) available: usize,
    /// How many were open before the first flow.
    pub(crate) used: usize,
    /// How many workers share the others.
    pub(crate) workers: usize,
}

/// Divides the descriptors among the pipes of the workers, a reserve for whatever else the process
/// opens, and flows. `None` when not two flows remain.
///
/// Interception is suspended before the last flow that fits: connections that were intercepted until
/// the suspension took hold have their place too.
pub(crate) fn budget(limits: &Limits, descriptors: &Descriptors) -> Option<Budget> {
    let Descriptors {
        available,
        used,
        workers,
    } = *descriptors;
    let available = limits
        .descriptors
        .map_or(available, |limit| limit.min(available));
    let pipes = limits.pipes.min(available / 32).div_ceil(workers);
    let spoken_for = used + pipes * workers * OF_A_PIPE + RESERVE;
    let fits = available.checked_sub(spoken_for)? / OF_A_FLOW;
    let underway = (fits / 32).max(64.min(fits / 2));
    let suspend = (fits - underway).min(limits.flows);
    if suspend == 0 || underway == 0 {
        return None;
    }
    Some(Budget {
        bounds: FlowBounds {
            suspend,
            // A fortieth less: at the limit, interception does not flap with every flow. One host with many addresses
            // (`client_flows` of `bentpipe-relay`) holds a sixteenth less at the most, and does not keep it suspended.
            resume: suspend - suspend.div_ceil(40),
            hard: suspend + underway,
        },
        pipes,
    })
}

/// How long new flows pass after the kernel has refused a descriptor: twice as long each time, where the lack lasts. Else
/// splitting would begin and end with every few flows that come and go.
#[derive(Debug)]
pub(crate) struct RefusalPause {
    length: Duration,
    until: Instant,
    begun: bool,
    /// A refusal before this time is of the same lack.
    same_until: Instant,
}

impl RefusalPause {
    pub(crate) fn new() -> Self {
        Self {
            length: Duration::ZERO,
            until: Instant::ZERO,
            begun: false,
            same_until: Instant::ZERO,
        }
    }

    /// A descriptor was refused, and new flows pass from now on.
    pub(crate) fn begin(&mut self, now: Instant) {
        let [least, most] = PAUSES;
        self.length = if now < self.same_until {
            (2 * self.length).clamp(least, most)
        } else {
            least
        };
        self.until = now + self.length;
        self.begun = true;
    }

    pub(crate) fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// New flows are split again.
    pub(crate) fn end(&mut self, now: Instant) {
        if std::mem::take(&mut self.begun) {
            self.same_until = now + SAME;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn twenty_thousand_descriptors_carry_nine_thousand_flows() {
        let descriptors = Descriptors {
            available: 20_000,
            used: 60,
            workers: 2,
        };
        let budget = budget(&Limits::default(), &descriptors).unwrap();
        assert!(budget.bounds.suspend >= 9_000, "{budget:?}");
        assert_eq!(budget.pipes, 256);
    }

    #[test]
    fn pauses_grow_while_the_lack_lasts() {
        let mut pause = RefusalPause::new();
        assert!(pause.is_over(Instant::ZERO));
        let mut now = Instant::ZERO;
        let mut take = |between| {
            now += between;
            pause.begin(now);
            let begun = now;
            while !pause.is_over(now) {
                now += Duration::from_millis(100);
            }
            pause.end(now);
            now.since(begun).as_secs()
        };
        let soon = Duration::from_millis(10);
        let lengths: Vec<u64> = (0..7).map(|_| take(soon)).collect();
        assert_eq!(lengths, [1, 2, 4, 8, 8, 8, 8]);
        assert_eq!(take(SAME), 1);
    }

    proptest! {
        #[test]
        fn the_descriptors_are_never_overspent(
            available in 100usize..100_000,
            used in 0usize..100,
            workers in 1usize..64,
            flows in 1usize..20_000,
        ) {
            let limits = Limits { flows, ..Limits::default() };
            let descriptors = Descriptors { available, used, workers };
            if let Some(budget) = budget(&limits, &descriptors) {
                let FlowBounds { suspend, resume, hard } = budget.bounds;
                prop_assert!(resume < suspend && suspend < hard);
                prop_assert!(suspend <= flows);
                let most = used + 2 * hard + 2 * budget.pipes * workers;
                prop_assert!(most <= available, "{most} of {available}");
            }
        }
    }
}
