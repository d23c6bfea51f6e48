//! nft owner tables: they say what nft said, nobody else can touch them, they vanish with us.

#![allow(
    clippy::unwrap_used,
    reason = "a helper of a test fails the test as well as the test itself"
)]

mod net_support;

use bentpipe_base::Bytes;
use bentpipe_os::need;
use bentpipe_os::netns::Netns;
use bentpipe_os::nft::{
    self, Count, HoldTable, Holding, Hook, NftError, OwnerTable, TableFamily, Tally,
};
use bentpipe_sockets::nfqueue::{Queues, Verdict};
use net_support::{Actor, playing, ready, within};
use std::net::UdpSocket;
use std::time::{Duration, Instant};

const BODY: &str = "
  # two chains, a set over several lines, a counter
  counter passed { }
  set wanted { type ipv4_addr; elements = { 10.0.0.1,
      10.0.0.2 } }
  chain divert { type filter hook prerouting priority -150; policy accept;
    socket transparent 1 meta mark set 1 accept
  }
  chain intercept {
    type filter hook prerouting priority -149; policy accept;
    ip daddr @wanted tcp dport 80 drop
  }
  chain count { type filter hook output priority 0; udp dport 9 counter name passed; }";

fn tables() -> String {
    nft::list(&["tables"]).unwrap()
}

#[test]
fn a_table_lives_as_long_as_its_value_and_can_be_changed_by_it_alone() {
    need!(Root, Nft);
    let netns = Netns::create("nft").unwrap();
    netns
        .run(|| {
            let table = OwnerTable::load(TableFamily::Inet, "Main Table", BODY).unwrap();
            assert!(
                table
                    .list()
                    .unwrap()
                    .contains("elements = { 10.0.0.1, 10.0.0.2 }")
            );
            assert!(tables().contains(&table.to_string()));

            let others = nft::apply(&format!("delete chain {table} intercept")).unwrap_err();
            assert!(
                others.to_string().contains("Operation not permitted"),
                "{others}"
            );
            assert!(nft::apply(&format!("delete table {table}")).is_err());
            nft::apply("flush ruleset").unwrap();
            assert!(table.list().unwrap().contains("chain intercept"), "flushed");

            table
                .apply(&format!("delete chain {table} intercept"))
                .unwrap();
            let left = table.list().unwrap();
            assert!(
                !left.contains("chain intercept") && left.contains("chain divert"),
                "{left}"
            );

            UdpSocket::bind("127.0.0.1:0")
                .unwrap()
                .send_to(b"x", "127.0.0.1:9")
                .unwrap();
            let counted = [Count {
                name: "passed".to_owned(),
                packets: 1,
                bytes: Bytes(29),
            }];
            let mut tally = Tally::open().unwrap();
            assert_eq!(
                tally.read(TableFamily::Inet, table.name()).unwrap(),
                counted
            );
            assert_eq!(tally.read(TableFamily::Inet, "other").unwrap(), []);

            drop(table);
            assert_eq!(tables(), "", "still there after the drop");
        })
        .unwrap();
}

#[test]
fn a_refusal_carries_the_words_of_nft_and_changes_nothing() {
    need!(Root, Nft);
    let netns = Netns::create("nft").unwrap();
    netns
        .run(|| {
            let bad =
                "chain c {\n type filter hook input priority 0\n tcp dport nonsense accept\n}";
            let Err(NftError::Refused { message, .. }) =
                OwnerTable::load(TableFamily::Ip, "bad", bad)
            else {
                panic!("nonsense was taken");
            };
            assert!(
                message.contains("nonsense") && message.contains("Error"),
                "{message}"
            );
            assert!(message.contains("ruleset:5:"), "the line: {message}");
            assert!(!message.contains("mark"), "our own marks: {message}");
            assert_eq!(tables(), "");

            let table = OwnerTable::load(TableFamily::Ip, "good", "chain c { }").unwrap();
            for _ in 0..3 {
                // One bad command spoils the good one before it; the kernel's refusal and the
                // parser's both come back, and only for the command at hand.
                let kernel = table
                    .apply(&format!(
                        "add chain {table} d\nadd rule {table} c jump nowhere"
                    ))
                    .unwrap_err();
                assert!(kernel.to_string().contains("add chain"), "{kernel}");
                let parser = table.apply("nonsense").unwrap_err().to_string();
                assert!(
                    parser.contains("syntax error") && !parser.contains("nowhere"),
                    "{parser}"
                );
                assert!(!table.list().unwrap().contains("chain d"));
                table
                    .apply(&format!(
                        "add rule {table} c counter\nflush chain {table} c"
                    ))
                    .unwrap();
            }
            table.apply("").unwrap();
        })
        .unwrap();
}

#[test]
fn a_command_takes_little_time() {
    need!(Root, Nft);
    let netns = Netns::create("nft").unwrap();
    netns
        .run(|| {
            let start = Instant::now();
            let table = OwnerTable::load(TableFamily::Inet, "time", BODY).unwrap();
            let load = start.elapsed();
            let start = Instant::now();
            for _ in 0..20 {
                table
                    .apply(&format!("add rule {table} count counter"))
                    .unwrap();
            }
            let apply = start.elapsed() / 20;
            std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("owner table: load {load:?}, further command {apply:?}\n"),
            )
            .unwrap();
            assert!(load < Duration::from_secs(2) && apply < Duration::from_millis(500));
        })
        .unwrap();
}

#[test]
fn several_tables_live_side_by_side() {
    need!(Root, Nft);
    let netns = Netns::create("nft").unwrap();
    netns
        .run(|| {
            let load = |_| OwnerTable::load(TableFamily::Ip6, "same", "chain c { }").unwrap();
            let made: Vec<_> = (0..3).map(load).collect();
            assert_eq!(tables().lines().count(), 3);
            drop(made);
            assert_eq!(tables(), "");
        })
        .unwrap();
}

#[test]
#[ignore = "a role in a_table_vanishes_with_a_killed_process"]
fn table_role() {
    if !playing("table_role") {
        return;
    }
    // From a thread that ends: the table belongs to the process.
    let load = || OwnerTable::load(TableFamily::Inet, "victim", BODY).unwrap();
    let table = std::thread::spawn(load).join().unwrap();
    ready(&[table.name()]);
}

#[test]
fn a_table_vanishes_with_a_killed_process() {
    need!(Root, Nft);
    let netns = Netns::create("nft").unwrap();
    let mut actor = Actor::start(&netns, "table_role");
    netns
        .run(|| {
            assert!(tables().contains(&actor.words[0]));
            actor.kill();
            let gone = within(Duration::from_secs(1), || tables().is_empty());
            let gone = gone.unwrap_or_else(|| panic!("after 1 s: {}", tables()));
            std::io::Write::write_fmt(
                &mut std::io::stderr(),
                format_args!("owner table gone {gone:?} after kill -9\n"),
            )
            .unwrap();
        })
        .unwrap();
}

/// A packet that a rule holds waits for the verdict on it: passed, passed with a mark, dropped.
#[test]
fn a_held_packet_waits_for_its_verdict() {
    need!(Root, Nft);
    let netns = Netns::create("hold").unwrap();
    netns
        .run(|| {
            bentpipe_os::netlink::Netlink::open()
                .unwrap()
                .set_up("lo")
                .unwrap();
            for (family, host) in [(TableFamily::Ip, "127.0.0.1"), (TableFamily::Ip6, "::1")] {
                hold_packets_to(family, host);
            }
        })
        .unwrap();
}

/// Another table of this kind that comes takes nothing that waits along; one that goes does, and that is told.
fn other_tables_come_and_go(
    (queues, first): (&mut Queues, u16),
    receiver: &UdpSocket,
    sender: &UdpSocket,
) {
    let held = [(0x6200_0020, first)];
    let holding = Holding {
        hook: Hook::Output,
        place: 0,
        queues: &held,
        marked: None,
        looped: None,
    };
    let mut wait = || {
        sender
            .send_to(b"held", receiver.local_addr().unwrap())
            .unwrap();
        assert_eq!(queues.receive().unwrap(), 1);
        queues.next_packet().map(|waiting| waiting.id).unwrap()
    };
    let [first, second] = [wait(), wait()];
    let mut let_go = |id| {
        queues.give(1, id, Verdict::Pass).unwrap();
        queues.tell().unwrap();
        queues.receive().unwrap();
        let gone: Vec<_> = queues.gone().collect();
        let arrived = receiver.recv(&mut [0; 8]).is_ok();
        assert_eq!(gone, if arrived { vec![] } else { vec![(1, id)] });
        arrived
    };
    let another = HoldTable::load(&[TableFamily::Ip], &holding).unwrap();
    assert!(let_go(first), "a table that came took it along");
    drop(another);
    assert!(!let_go(second), "this kernel keeps what waits");
}

/// What waits is taken in batches, every packet once and in order, and told in one.
fn many_packets_take_few_calls(queues: &mut Queues, receiver: &UdpSocket, sender: &UdpSocket) {
    const MANY: u8 = 100;
    let to = receiver.local_addr().unwrap();
    for number in 0..MANY {
        sender.send_to(&[number], to).unwrap();
    }
    let mut calls = 0;
    let mut taken = Vec::new();
    while queues.receive().unwrap() > 0 {
        calls += 1;
        while let Some(waiting) = queues.next_packet() {
            taken.push((waiting.queue, waiting.id, *waiting.packet.last().unwrap()));
        }
    }
    assert!(calls < 5, "{calls} calls for {MANY} packets");
    let numbers: Vec<u8> = taken.iter().map(|(.., number)| *number).collect();
    assert_eq!(numbers, (0..MANY).collect::<Vec<_>>());
    assert_eq!(queues.take_overrun(), 0);
    for (queue, id, _) in taken {
        queues.give(queue, id, Verdict::Pass).unwrap();
    }
    queues.tell().unwrap();
    let arrived = std::iter::from_fn(|| receiver.recv(&mut [0; 8]).ok());
    assert_eq!(arrived.count(), usize::from(MANY));
}

/// As many rules as the most workers and entrances need, in one batch.
#[test]
fn thousands_of_queues_are_held_by_one_table() {
    need!(Root, Nft);
    let netns = Netns::create("hold_many").unwrap();
    netns
        .run(|| {
            let queues: Vec<(u32, u16)> = (0..2032).map(|n| (0x6200_0000 + n, n as u16)).collect();
            let holding = Holding {
                hook: Hook::Forward,
                place: 0,
                queues: &queues,
                marked: None,
                looped: None,
            };
            let hold = HoldTable::load(&[TableFamily::Ip, TableFamily::Ip6], &holding).unwrap();
            assert_eq!(tables().lines().count(), 2);
            drop(hold);
            assert_eq!(tables(), "");
        })
        .unwrap();
}

fn hold_packets_to(family: TableFamily, host: &str) {
    let receiver = UdpSocket::bind((host, 0)).unwrap();
    receiver.set_nonblocking(true).unwrap();
    let to = receiver.local_addr().unwrap();
    let tag = format!(
        "chain tag {{ type filter hook output priority -302; udp dport {} meta priority set 0x62000011; }}
         counter marked {{ }}
         chain marked {{ type filter hook prerouting priority -300; meta mark 0x77 counter name marked; }}",
        to.port()
    );
    let table = OwnerTable::load(TableFamily::Inet, "tag", &tag).unwrap();
    let mut queues = Queues::open(2, 100).unwrap();
    let first = queues.first();
    let holding = Holding {
        hook: Hook::Output,
        place: -301,
        queues: &[(0x6200_0010, first), (0x6200_0011, first + 1)],
        marked: None,
        looped: None,
    };
    let hold = HoldTable::load(&[family], &holding).unwrap();
    let sender = UdpSocket::bind((host, 0)).unwrap();
    let arrived = || receiver.recv(&mut [0; 8]).is_ok();
    for verdict in [Verdict::Pass, Verdict::PassMarked(0x77), Verdict::Drop] {
        sender.send_to(b"held", to).unwrap();
        assert!(!arrived(), "it does not wait");
        assert_eq!(queues.receive().unwrap(), 1);
        let waiting = queues.next_packet().unwrap();
        assert!(waiting.packet.ends_with(b"held"));
        let (queue, id) = (waiting.queue, waiting.id);
        assert_eq!(queue, 1);
        queues.give(queue, id, verdict).unwrap();
        assert!(!arrived(), "the verdict has not been told");
        queues.tell().unwrap();
        assert_eq!(arrived(), verdict != Verdict::Drop, "{verdict:?}");
        queues.receive().unwrap();
        assert_eq!(queues.gone().count(), 0);
        // A second word on it is no harm.
        queues.give(queue, id, verdict).unwrap();
        queues.tell().unwrap();
        queues.receive().unwrap();
        assert_eq!(queues.next_packet(), None);
        assert_eq!(queues.gone().collect::<Vec<_>>(), [(queue, id)]);
        assert_eq!(queues.receive().unwrap(), 0);
    }
    other_tables_come_and_go((&mut queues, first), &receiver, &sender);
    many_packets_take_few_calls(&mut queues, &receiver, &sender);
    assert!(
        table.list().unwrap().contains("packets 1 bytes"),
        "marked once"
    );
    // With nobody listening packets pass, and with the value the rule is gone. What is sent while the kernel still
    // ends the queues may be lost with them.
    drop(queues);
    let passes = within(Duration::from_secs(1), || {
        sender.send_to(b"free", to).unwrap();
        arrived()
    });
    assert!(passes.is_some());
    drop(hold);
    drop(table);
    assert_eq!(tables(), "");
}

#[test]
fn two_ranges_of_queues_are_two() {
    need!(Root, Nft);
    let netns = Netns::create("queues").unwrap();
    netns
        .run(|| {
            let one = Queues::open(2, 10).unwrap();
            let first = one.first();
            let two = Queues::open(2, 10).unwrap();
            assert_eq!(two.first(), first + 2);
            drop(one);
            assert_eq!(Queues::open(2, 10).unwrap().first(), first);
            let several = Queues::open_for(3, 4, 10).unwrap();
            assert_eq!(several.len(), 3);
            assert!(several.iter().all(|one| one.first() == first + 12));
            assert!(
                Queues::open_for(300, 300, 10).is_err(),
                "more than there are"
            );
        })
        .unwrap();
}
