//! What two sides are said to have in common.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bentpipe_study::{Comparison, Ratio, Side};
use std::collections::BTreeMap;

fn side(goodput_mbps: f64, cwnd: &[u32]) -> Side {
    Side {
        goodput_mbps,
        cwnd: cwnd.to_vec(),
        ..Side::default()
    }
}

fn compare(lab: &[Side], simulator: &[Side]) -> Comparison {
    let by_seed =
        |sides: &[Side]| -> BTreeMap<u64, Side> { (1..).zip(sides.iter().cloned()).collect() };
    Comparison::new("a", "b", &by_seed(lab), &by_seed(simulator))
}

#[test]
fn ten_percent_agrees_and_eleven_does_not() {
    let near = compare(&[side(4.0, &[10, 30])], &[side(4.39, &[14, 26, 99])]);
    assert!(near.agrees, "{near:?}");
    // (4 + 4) / (10 + 30)
    assert_eq!(near.cwnd_apart, Some(0.2));
    assert!(!compare(&[side(4.0, &[])], &[side(4.45, &[])]).agrees);
    let none = compare(&[], &[side(4.0, &[])]);
    assert!(!none.agrees && none.ratio.is_none() && none.cwnd_apart.is_none());
    assert!(none.ratios.goodput.is_none());
}

#[test]
fn the_interval_of_a_ratio_is_that_of_the_textbook() {
    // Of the means 2 and 3; what is left beside 1.5 times the lab's is 0.5, -1 and 0.5: s = 0.866, and 4.303 s / (sqrt(3) * 2).
    let ratio = Ratio::of(&[(1.0, 2.0), (2.0, 2.0), (3.0, 5.0)]).unwrap();
    assert!((ratio.mean - 1.5).abs() < 1e-12, "{ratio:?}");
    assert!((ratio.half.unwrap() - 1.076).abs() < 1e-3, "{ratio:?}");
}

#[test]
fn what_the_seeds_have_in_common_does_not_widen_the_interval() {
    let ratio = Ratio::of(&[(1.0, 1.1), (10.0, 11.0), (100.0, 110.0)]).unwrap();
    assert!((ratio.mean - 1.1).abs() < 1e-12 && ratio.half.unwrap() < 1e-9);
    assert_eq!(
        Ratio::of(&[(2.0, 1.0)]).unwrap(),
        Ratio {
            mean: 0.5,
            half: None
        }
    );
    assert!(Ratio::of(&[]).is_none() && Ratio::of(&[(0.0, 1.0)]).is_none());
}

#[test]
fn only_seeds_that_both_sides_have_make_the_ratios() {
    let broken = Side {
        broken: Some("a reset".to_owned()),
        ..side(9.0, &[])
    };
    let row = compare(
        &[side(1.0, &[]), broken, side(3.0, &[])],
        &[side(2.0, &[]), side(2.0, &[])],
    );
    assert_eq!(row.ratio, Some(1.0), "of all that each side has");
    assert_eq!(
        row.ratios.goodput,
        Some(Ratio {
            mean: 2.0,
            half: None
        })
    );
    assert!(row.ratios.local.is_none(), "no gateway tells");
}
