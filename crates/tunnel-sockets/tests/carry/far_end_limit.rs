//! The far end admits no more tunnels, where its connection has room for more.

use super::*;

/// One that a server answers.
fn works(pair: &Pair) {
    let (target, server) = serve(|mut socket| socket.write_all(b"x").unwrap());
    pair.client(target).read_exact(&mut [0]).unwrap();
    server.join().unwrap();
}

fn until_up(pair: &Pair, patience: Duration) {
    let begun = Instant::now();
    while !pair.near.is_up() {
        assert!(begun.elapsed() < patience, "no tunnels are offered");
        thread::sleep(Duration::from_millis(1));
    }
}

/// What the far end says is heeded: none are offered for a while, or until one of those that there are ends; and when the far end admits
/// more, that is found out.
#[test]
fn who_is_refused_for_the_far_ends_bound_is_the_last_for_a_while() {
    let pair = Pair::with(all(), Limits::default(), 3);
    let stand = || {
        let (target, server) = serve(|mut socket| {
            socket.write_all(b"x").unwrap();
            socket.read(&mut [0])
        });
        let mut client = pair.client(target);
        client.read_exact(&mut [0]).unwrap();
        (client, server)
    };
    let mut standing: Vec<_> = (0..3).map(|_| stand()).collect();
    assert!(pair.near.is_up());
    let (target, _) = serve(drop);
    let mut refused = 0;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        if pair.near.admits() {
            assert!(is_reset(pair.client(target.clone()).read(&mut [0])));
            refused += 1;
        }
        thread::sleep(Duration::from_millis(10));
    }
    // At once, and after 2 s.
    assert_eq!(refused, 2);
    // In the middle of a pause of 4 s.
    assert!(!pair.near.is_up());
    let (client, server) = standing.remove(0);
    drop(client);
    assert_eq!(server.join().unwrap().unwrap(), 0);
    until_up(&pair, Duration::from_secs(1));
    standing.push(stand());
    assert!(!pair.near.is_up(), "it has taken the room");
    // Those of others have ended.
    let template = Template::of_authority("far.example").unwrap();
    let more = support::far(&template, all(), 1000, Duration::from_secs(120));
    pair.handles[1].serve(more);
    until_up(&pair, Duration::from_secs(10));
    for _ in 0..5 {
        works(&pair);
    }
}
