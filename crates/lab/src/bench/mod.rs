//! Measurements of our programs against their rivals, side by side in one run.

pub mod gateway;
pub mod sim;
mod stats;

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
