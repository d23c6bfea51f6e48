//! Tests of `memory_pressure`.

use super::*;

fn client(last: u8) -> Client {
    Client::of([192, 0, 2, last].into())
}

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(100 + seconds)
}

#[test]
fn the_bound_is_met_and_left_well_below() {
    let memory = MemoryPressure::new(Bytes(1000), 2);
    memory.set_worker_usage(0, 300);
    memory.set_worker_usage(1, 200);
    memory.update(Bytes(500), at(0));
    assert!(!memory.is_over() && memory.held() == Bytes(1000));
    memory.update(Bytes(501), at(1));
    assert!(!memory.is_over(), "whose it is has yet to be found out");
    memory.update(Bytes(501), at(5));
    assert!(memory.is_over());
    memory.set_worker_usage(0, 200);
    memory.update(Bytes(501), at(6));
    assert!(memory.is_over(), "{:?} is not well below", memory.held());
    memory.update(Bytes(500), at(7));
    assert!(!memory.is_over());
    memory.set_bounds(Bytes(899), None);
    memory.update(Bytes(500), at(8));
    assert!(!memory.is_over());
    memory.update(Bytes(500), at(12));
    assert!(memory.is_over());
}

#[test]
fn memory_is_short_from_half_the_bound_on() {
    let memory = MemoryPressure::new(Bytes(1000), 1);
    for (held, under_pressure) in [(500, false), (501, true), (401, true), (400, false)] {
        memory.update(Bytes(held), at(0));
        assert_eq!(memory.is_under_pressure(), under_pressure, "{held}");
    }
    memory.update(Bytes(751), at(0));
    assert_eq!(memory.to_reclaim(), 1);
}

#[test]
fn what_is_light_is_never_short() {
    let memory = MemoryPressure::new(Bytes(1000), 1);
    memory.set_worker_usage(0, 100);
    memory.update(Bytes(500), at(0));
    assert!(memory.is_under_pressure());
    assert!(memory.is_surely_low(Bytes(300)) && !memory.is_surely_low(Bytes(301)));
    assert!(!memory.is_surely_low(Bytes(u64::MAX)));
    memory.update(Bytes(300), at(1));
    assert!(!memory.is_under_pressure());
}

#[test]
fn what_a_client_holds_beyond_its_share_keeps_nobody_out() {
    let memory = MemoryPressure::new(Bytes(1000), 2);
    let over = |held| {
        memory.update(Bytes(held), at(0));
        memory.update(Bytes(held), at(4));
        memory.is_over()
    };
    let seen = memory.report_stalled(0, [(client(1), 600)].into());
    assert_eq!((seen.share, seen.elsewhere), (250, HashSet::new()));
    let seen = memory.report_stalled(1, [(client(1), 200), (client(2), 50)].into());
    assert_eq!((seen.bytes[&client(1)], seen.share), (800, 250));
    assert_eq!(seen.elsewhere, [client(1)].into());
    assert!(!over(1550), "550 of the 1550 are about to be taken");
    assert!(over(1551), "others hold the bound");
    memory.report_stalled(0, StalledBytes::new());
    assert!(over(901), "nobody is over a share");
    // Each of nine has no more than a tenth.
    let nine = (0..9).map(|last| (client(last), 500)).collect();
    assert_eq!(memory.report_stalled(0, nine).share, 100);
    assert!(!over(1899));
    memory.update(Bytes(2001), at(5));
    assert!(
        memory.is_over(),
        "twice the bound is too much whosever it is"
    );
}
