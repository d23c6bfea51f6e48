//! A stream of capsules is taken apart the same way however the network cuts it, and what it carries is never more than it
//! has; requests, templates and answers of any bytes are read or refused.
#![no_main]

use bentpipe_connect_tcp::{
    DRAFTS, Decoder, DialError, Framing, Piece, Request, Target, Template,
};
use bytes::Bytes;
use libfuzzer_sys::fuzz_target;

/// What came out, and whether it was broken; cut each so many bytes.
fn decode(framing: Framing, stream: &Bytes, cut: usize) -> (Vec<u8>, bool, bool) {
    let mut decoder = Decoder::new(framing);
    let (mut data, mut last) = (Vec::new(), false);
    for start in (0..stream.len()).step_by(cut) {
        let mut part = stream.slice(start..stream.len().min(start + cut));
        loop {
            match decoder.next(&mut part) {
                Ok(Some(Piece::Data(piece) | Piece::Datagram(piece))) => data.extend_from_slice(&piece),
                Ok(Some(Piece::Final)) => {
                    assert!(!last, "two ends");
                    last = true;
                }
                Ok(None) => break,
                Err(_) => return (data, last, true),
            }
        }
        assert!(part.is_empty());
    }
    let ended = decoder.end();
    (data, last || ended == Ok(true), ended.is_err())
}

fuzz_target!(|input: &[u8]| {
    let Some((&first, rest)) = input.split_first() else {
        return;
    };
    let stream = Bytes::copy_from_slice(rest);
    let capsules = Framing::Capsules(DRAFTS[0].numbers);
    for framing in [Framing::Bare, capsules, Framing::Datagrams] {
        let whole = decode(framing, &stream, usize::MAX);
        assert!(whole.0.len() <= stream.len());
        assert_eq!(whole, decode(framing, &stream, usize::from(first).max(1)));
    }
    let Ok(text) = core::str::from_utf8(rest) else {
        return;
    };
    if let Ok(target) = text.parse::<Target>() {
        assert_eq!(target.to_string().parse(), Ok(target.clone()));
        let template = Template::of_authority("p").expect("the default template is one");
        assert_eq!(template.find(&template.expand(&target)), Ok(Some(target)));
    }
    let _ = text.parse::<Template>();
    let _ = DialError::of_answer(u16::from(first) * 4, text.lines().map(str::as_bytes));
    let fields = text.lines().filter_map(|line| line.split_once('='));
    let fields = fields.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let templates = [Template::of_authority("p").expect("the default template is one")];
    let _ = Request::read(fields, &templates);
});
