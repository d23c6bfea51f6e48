use super::*;
use crate::script::{Cookie, Expected, Flags, Packet, Tcp, TcpOption, Value};

fn one(text: &str) -> Event {
    let script = parse(text).unwrap();
    assert_eq!(script.events.len(), 1, "{text}");
    script.events[0].clone()
}

fn tcp(text: &str) -> Tcp {
    match one(text).action {
        Action::Inbound(Packet::Tcp(tcp)) | Action::Outbound(Packet::Tcp(tcp)) => tcp,
        other => panic!("{other:?}"),
    }
}

#[test]
fn times_are_absolute_relative_ranges_or_any() {
    for (text, time) in [
        ("0", Time::At(0)),
        ("1.5", Time::At(1_500_000)),
        ("+.04", Time::After(40_000)),
        ("+0", Time::After(0)),
        ("+0.000001", Time::After(1)),
        ("*", Time::Any),
        ("0.1~0.2", Time::Between(100_000, 200_000)),
        ("+.1~+.2", Time::AfterBetween(100_000, 200_000)),
    ] {
        assert_eq!(
            one(&format!("{text} > . 1:1(0) ack 1")).time,
            time,
            "{text}"
        );
    }
}

#[test]
fn a_blocking_call_has_an_end() {
    let event = one("+.1...0.25 accept(3, ..., ...) = 4");
    assert_eq!(event.time, Time::After(100_000));
    let Action::Call(call) = event.action else {
        panic!("no call");
    };
    assert_eq!(call.end, Some(Time::After(250_000)));
    assert_eq!(call.arguments[1], Value::Whatever);
    assert_eq!(call.result, Expected::Value(4));
    let Action::Call(apart) = one("+.002 ... 0.004 accept(3, ..., ...) = 4").action else {
        panic!("no call");
    };
    assert_eq!(apart.end, Some(Time::After(4_000)));
}

#[test]
fn a_fast_open_option_asks_for_a_cookie_or_has_one() {
    let option = |text: &str| {
        let syn = tcp(&format!("+0 < S 0:0(0) win 1000 <mss 1000,{text}>"));
        let shown = syn.options.unwrap()[1].to_string();
        assert_eq!(shown, text);
        tcp(&format!("+0 < S 0:0(0) win 1000 <{text}>"))
            .options
            .unwrap()
    };
    assert_eq!(option("FO"), [TcpOption::FastOpen(Cookie::Request)]);
    assert_eq!(
        option("FO TFO_COOKIE"),
        [TcpOption::FastOpen(Cookie::OfStack)]
    );
    let octets = vec![0x01, 0xab, 0x00, 0xff];
    assert_eq!(
        option("FO 01ab00ff"),
        [TcpOption::FastOpen(Cookie::Octets(octets))]
    );
    for wrong in ["FO 01a", "FO 0g", "FO 000102030405060708090a0b0c0d0e0f10"] {
        let error = parse(&format!("+0 < S 0:0(0) win 1000 <{wrong}>")).unwrap_err();
        assert!(error.to_string().contains("cookie"), "{error}");
    }
}

#[test]
fn a_segment_has_flags_numbers_and_options_in_order() {
    let syn = tcp("+0 < S 0:0(0) win 32792 <mss 1000,sackOK,TS val 7 ecr 0,nop,wscale 7>");
    assert_eq!((syn.flags, syn.window), (Flags::SYN, Some(32_792)));
    let options = syn.options.unwrap();
    assert_eq!(options[0], TcpOption::Mss(1000));
    assert_eq!(options[2], TcpOption::Timestamps { value: 7, echo: 0 });
    assert_eq!(options[4], TcpOption::WindowScale(7));
    let data = tcp("* > [ect0] P. 1:1001(1000) ack 5 <...>");
    assert_eq!((data.seq, data.length, data.ack), (1, 1_000, Some(5)));
    assert_eq!((data.ecn, data.options), (Some(2), None));
    let ack = tcp("+0 < . 1:1(0) ack 1 win 9 <nop,nop,sack 11:21 31:41>");
    assert_eq!(
        ack.options.unwrap()[2],
        TcpOption::Sack(vec![(11, 21), (31, 41)])
    );
    assert_eq!(tcp("0 < - 1:1(0) win 5").flags, Flags::default());
}

#[test]
fn calls_have_names_texts_lists_and_records() {
    let event = one(
        "+0 poll([{fd=4, events=POLLIN|POLLOUT, revents=POLLOUT}], 1, -1) = -1 EAGAIN (Try again)",
    );
    let Action::Call(call) = event.action else {
        panic!("no call");
    };
    let Value::List(list) = &call.arguments[0] else {
        panic!("no list");
    };
    let Value::Record(fields) = &list[0] else {
        panic!("no record");
    };
    let both = i64::from(libc::POLLIN | libc::POLLOUT);
    assert_eq!(fields[1], ("events".to_owned(), Value::Number(both)));
    assert_eq!(call.arguments[2], Value::Number(-1));
    assert_eq!(call.result, Expected::Error("EAGAIN".to_owned()));
    let event =
        one("+0 sendmsg(4, {msg_name(...)=..., msg_iov(1)=[{..., 9}], msg_flags=0}, 0) = 9");
    assert!(matches!(event.action, Action::Call(_)));
}

#[test]
fn comments_commands_and_code_are_passed_over() {
    let text = "// one\n--ip_version=ipv6\n`sysctl -w x=1`\n/* two\nlines */\n+0 %{ assert True }%\n# three\n+1 close(3) = 0\n";
    let script = parse(text).unwrap();
    assert_eq!(
        script.options[0],
        ("ip_version".to_owned(), "ipv6".to_owned())
    );
    assert_eq!(script.events.len(), 3);
    assert_eq!(
        (script.events[2].line, script.events[2].time),
        (8, Time::After(1_000_000))
    );
}

#[test]
fn what_cannot_be_read_is_told_with_its_line() {
    for (text, line, word) in [
        ("+0 < S 0:0(0)\n+x > . 1:1(0)", 2, "a time"),
        ("+0 < Q 0:0(0)", 1, "set of flags"),
        ("+0 < S 0:5(0)", 1, "do not span"),
        ("+0 < S 0:0(0) <mss 1000", 1, "`,`"),
        ("+0 < S 0:0(0) <mood 1>", 1, "no TCP option"),
        ("+0 < S 0:0(0) win 70000", 1, "window"),
        ("\n\n+0 frob(1 2) = 0", 3, "`,`"),
        ("+0 close(nobody) = 0", 1, "neither a number"),
        ("+0 close(3) = -1 EWRONG", 1, "no error"),
        ("+0 close(3)", 1, "`=`"),
        ("+0.1234567 close(3) = 0", 1, "six behind"),
        ("+.2~.1 > . 1:1(0)", 1, "ends before"),
        ("+0...1 > . 1:1(0)", 1, "only a system call"),
        ("+0 %{ open", 1, "closed by"),
        ("+0", 1, "after a time"),
        ("+0 < [red] . 1:1(0)", 1, "noecn"),
        ("+0 < icmp echo [1:1(0)]", 1, "unreachable"),
    ] {
        let error = parse(text).expect_err(text);
        assert_eq!(error.line, line, "{text}: {error}");
        assert!(error.what.contains(word), "{text}: {error}");
    }
}

#[test]
fn arbitrary_text_is_read_or_refused() {
    // A fixed walk over what scripts are made of: nothing makes the reader panic or run on for ever.
    let pieces = [
        "+0",
        " ",
        "<",
        ">",
        "S.",
        "0:0(0)",
        "(",
        ")",
        "ack",
        "1",
        "\n",
        "`",
        "%{",
        "}%",
        "...",
        "~",
        "*",
        "é",
        "\"",
        "[",
        "{",
        "}",
        "]",
        ",",
        "=",
        "-1",
        "EAGAIN",
        "0x",
        "99999999999999999999",
        "/*",
        "#",
        "--",
    ];
    let mut seed = 1u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..12 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
        }
        let _either = parse(&text);
    }
}
