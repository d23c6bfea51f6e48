//! Measures our programs against their rivals, side by side in one run: [`gateway`] against kernel forwarding and
//! HAProxy, [`sim`] against ns-2 and ns-3, [`saratoga`] against iperf3, [`packet`] against smoltcp and the kernel. Begin with one of these. The commands and their
//! options are in `bentpipe-cli`.
#![forbid(unsafe_code)]

pub mod gateway;
mod ground;
pub mod packet;
mod report;
pub mod saratoga;
pub mod sim;
mod stats;

pub use report::{Line, LineReport};

use std::fs;
use std::io;
use std::path::Path;

/// The order of `count` subjects in pair number `pair`: it rotates, and runs once forwards and once
/// backwards before it does, so that nobody always comes after the same one.
fn turns(count: usize, pair: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.rotate_left(pair.div_ceil(2) % count.max(1));
    if pair.is_multiple_of(2) {
        order.reverse();
    }
    order
}

/// Writes `json` to `path`, making its folder where there is none.
fn write_json(path: &Path, json: String) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, json + "\n")
}

/// Three significant digits, and all of them before the point.
fn digits(value: f64) -> String {
    match value.abs() {
        big if big >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        small if small >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::turns;

    #[test]
    fn every_subject_has_its_turn_and_not_always_the_same() {
        let orders: Vec<_> = (1..=7).map(|pair| turns(4, pair)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3]);
        }
        for subject in 0..4 {
            assert!(orders.iter().any(|order| order[0] == subject));
        }
        assert!(turns(0, 3).is_empty());
    }
}
