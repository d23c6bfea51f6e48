//! The figures and the steps that measure them: one table each.

use super::traffic::Direction;

/// One column of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figure {
    /// Name in the table, in JSON and for `--figures`.
    pub name: &'static str,
    /// Unit of its values.
    pub unit: &'static str,
    /// Whether less is better.
    pub lower_is_better: bool,
    /// Whether it decides: a figure that does not is given for information.
    pub decides: bool,
}

/// One measurement; it yields its figures in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Bulk transfer.
    Bulk { direction: Direction, flows: usize },
    /// One byte there and back, on one connection.
    RoundTrip,
    /// Connect, one byte each way, close.
    Connects { at_once: usize },
    /// Flows that are open and silent.
    Idle,
    /// Bulk over some flows beside many that are open and silent.
    Crowd { busy: usize, silent: usize },
}

const fn gain(name: &'static str, unit: &'static str) -> Figure {
    Figure {
        name,
        unit,
        lower_is_better: false,
        decides: true,
    }
}

const fn cost(name: &'static str, unit: &'static str) -> Figure {
    Figure {
        name,
        unit,
        lower_is_better: true,
        decides: true,
    }
}

const fn information(name: &'static str, unit: &'static str) -> Figure {
    Figure {
        name,
        unit,
        lower_is_better: true,
        decides: false,
    }
}

const GBIT: &str = "Gbit/s";
const S_PER_GB: &str = "s/GB";
const PER_FLOW: &str = "B/flow";

/// Every step of a full run with its figures, in the order of the run. Names of bulk figures end
/// in direction and number of flows; up is from client to server.
pub(super) const STEPS: &[(Step, &[Figure])] = &[
    (
        bulk(Direction::Up, 1),
        &[
            gain("goodput_up_1", GBIT),
            cost("cpu_up_1", S_PER_GB),
            information("proxy_cpu_up_1", S_PER_GB),
        ],
    ),
    (
        bulk(Direction::Down, 1),
        &[
            gain("goodput_down_1", GBIT),
            cost("cpu_down_1", S_PER_GB),
            information("proxy_cpu_down_1", S_PER_GB),
        ],
    ),
    (
        bulk(Direction::Up, 100),
        &[
            gain("goodput_up_100", GBIT),
            cost("cpu_up_100", S_PER_GB),
            information("proxy_cpu_up_100", S_PER_GB),
        ],
    ),
    (
        bulk(Direction::Down, 100),
        &[
            gain("goodput_down_100", GBIT),
            cost("cpu_down_100", S_PER_GB),
            information("proxy_cpu_down_100", S_PER_GB),
        ],
    ),
    (Step::RoundTrip, &[cost("round_trip", "µs")]),
    (
        Step::Connects { at_once: 1 },
        &[
            gain("connects_1", "1/s"),
            information("proxy_cpu_connects_1", "µs"),
            information("path_cpu_connects_1", "µs"),
        ],
    ),
    (
        Step::Connects { at_once: 50 },
        &[
            gain("connects_50", "1/s"),
            information("proxy_cpu_connects_50", "µs"),
            information("path_cpu_connects_50", "µs"),
        ],
    ),
    (
        Step::Idle,
        &[
            cost("idle_memory", PER_FLOW),
            cost("idle_proxy_memory", PER_FLOW),
            cost("idle_kernel_memory", PER_FLOW),
            cost("idle_descriptors", "1/flow"),
        ],
    ),
    (
        Step::Crowd {
            busy: 1000,
            silent: 8000,
        },
        &[gain("crowd_jain", "1"), gain("crowd_goodput", GBIT)],
    ),
];

const fn bulk(direction: Direction, flows: usize) -> Step {
    Step::Bulk { direction, flows }
}

/// All figures, in the order of the table.
pub fn figures() -> impl Iterator<Item = &'static Figure> {
    STEPS.iter().flat_map(|(_, figures)| figures.iter())
}

/// Whether `name` asks for `figure`: it is its name or, where it is no figure's name, the beginning
/// of it, such as `goodput`.
pub(super) fn asks_for(name: &str, figure: &Figure) -> bool {
    let is_exact = figures().any(|figure| figure.name == name);
    figure.name == name || (!is_exact && figure.name.starts_with(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_reachable() {
        let names: Vec<_> = figures().map(|figure| figure.name).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{name} twice");
        }
        let picked = |name: &str| -> Vec<&str> {
            figures()
                .filter(|figure| asks_for(name, figure))
                .map(|figure| figure.name)
                .collect()
        };
        assert_eq!(picked("connects"), ["connects_1", "connects_50"]);
        assert_eq!(picked("goodput_up_1"), ["goodput_up_1"]);
        assert!(picked("speed").is_empty());
    }

    #[test]
    fn bulk_figures_carry_the_name_of_their_step() {
        for (step, figures) in STEPS {
            if let Step::Bulk { direction, flows } = step {
                let end = format!("_{direction}_{flows}");
                assert!(figures.iter().all(|figure| figure.name.ends_with(&end)));
            }
        }
    }
}
