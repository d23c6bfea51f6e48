//! Divides the file descriptors of the process among flows, pipes and the rest, and so finds how many flows fit.

use bentpipe_gateway_config::Limits;
use bentpipe_relay::FlowBounds;

/// Descriptors of an idle flow.
const OF_A_FLOW: usize = 2;
/// Descriptors of a pipe.
const OF_A_PIPE: usize = 2;
/// Descriptors kept for logs, the operator, questions to the kernel and the like.
const RESERVE: usize = 24;

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
            // A twentieth less: at the limit, interception does not flap with every flow.
            resume: suspend - suspend.div_ceil(20),
            hard: suspend + underway,
        },
        pipes,
    })
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
