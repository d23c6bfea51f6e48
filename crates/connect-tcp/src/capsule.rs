//! How the bytes of a TCP connection travel in a request's stream: in capsules (RFC 9297, section 3.2), or bare.

use crate::draft_versions::Numbers;
use crate::udp;
use crate::varint::{self, Gather};
use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

/// How a stream carries the bytes of TCP, or a request UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// As they are; the end of the stream is the FIN. Classic CONNECT.
    Bare,
    /// In capsules of these types.
    Capsules(Numbers),
    /// CONNECT-UDP: what travels goes in HTTP Datagrams, and the stream has capsules that may hold such.
    Datagrams,
}

impl Framing {
    /// What precedes `length` bytes of the TCP stream, of which `last` are the last.
    pub fn header(self, length: u64, last: bool) -> Bytes {
        match self {
            Self::Bare | Self::Datagrams => Bytes::new(),
            Self::Capsules(numbers) => {
                let kind = if last {
                    numbers.final_data
                } else {
                    numbers.data
                };
                capsule(kind, length)
            }
        }
    }
}

/// The head of a capsule of this type and length.
pub fn capsule(kind: u64, length: u64) -> Bytes {
    let mut head = Vec::with_capacity(12);
    varint::put(kind, &mut head);
    varint::put(length, &mut head);
    head.into()
}

/// What a stream carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// The next bytes of TCP, at least one; a capsule's come before it is complete.
    Data(Bytes),
    /// A whole HTTP Datagram.
    Datagram(Bytes),
    /// There are no more: TCP's FIN.
    Final,
}

/// The stream breaks the protocol: the TCP connection is to be reset, and the stream too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Broken {
    /// Something follows the last bytes.
    #[error("the peer sent more after FINAL_DATA")]
    AfterFinal,
    /// The stream has ended without FINAL_DATA.
    #[error("the peer's stream ended before FINAL_DATA")]
    NoFinal,
    /// It has ended within a capsule.
    #[error("the peer's stream ended within a capsule")]
    Cut,
}

/// Takes a stream apart, however it is cut. It holds no payload but of a DATAGRAM capsule that has begun.
#[derive(Clone, Debug)]
pub struct Decoder {
    framing: Framing,
    state: State,
    gather: Gather,
    datagram: BytesMut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A capsule's type comes.
    Kind,
    /// Its length comes.
    Length(Content),
    /// So much of it is still to come.
    Payload(Content, u64),
    /// FINAL_DATA is complete.
    Final,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Data,
    FinalData,
    Datagram,
    /// Of a type that is unknown here, to be skipped.
    Other,
}

impl Decoder {
    /// At the beginning of a stream.
    pub fn new(framing: Framing) -> Self {
        Self {
            framing,
            state: State::Kind,
            gather: Gather::default(),
            datagram: BytesMut::new(),
        }
    }

    /// The next piece of what was received; `None` once all of `input` is taken.
    ///
    /// # Errors
    /// [`Broken::AfterFinal`].
    pub fn next(&mut self, input: &mut Bytes) -> Result<Option<Piece>, Broken> {
        match self.framing {
            Framing::Capsules(_) | Framing::Datagrams => {}
            Framing::Bare if input.is_empty() => return Ok(None),
            Framing::Bare if self.state == State::Final => return Err(Broken::AfterFinal),
            Framing::Bare => return Ok(Some(Piece::Data(input.split_to(input.len())))),
        }
        while !input.is_empty() {
            match self.state {
                State::Kind => {
                    if let Some(kind) = self.gather.byte(input.get_u8()) {
                        self.state = State::Length(Content::of(kind, self.framing));
                    }
                }
                State::Length(content) => {
                    if let Some(length) = self.gather.byte(input.get_u8()) {
                        let long = length > udp::CAPSULE_MAX;
                        let content = match content {
                            Content::Datagram if long => Content::Other,
                            other => other,
                        };
                        self.state = State::Payload(content, length);
                        if length == 0
                            && let Some(piece) = self.complete(content)
                        {
                            return Ok(Some(piece));
                        }
                    }
                }
                State::Payload(content, 0) => {
                    if let Some(piece) = self.complete(content) {
                        return Ok(Some(piece));
                    }
                }
                State::Payload(content, left) => {
                    let most = usize::try_from(left).unwrap_or(usize::MAX);
                    let piece = input.split_to(most.min(input.len()));
                    self.state = State::Payload(content, left - piece.len() as u64);
                    match content {
                        Content::Data | Content::FinalData => return Ok(Some(Piece::Data(piece))),
                        Content::Datagram => self.datagram.extend_from_slice(&piece),
                        Content::Other => {}
                    }
                }
                State::Final => return Err(Broken::AfterFinal),
            }
        }
        // What was taken whole may have been the last of a capsule.
        let State::Payload(content, 0) = self.state else {
            return Ok(None);
        };
        Ok(self.complete(content))
    }

    /// A capsule is complete; what that tells.
    fn complete(&mut self, content: Content) -> Option<Piece> {
        let last = content == Content::FinalData;
        self.state = if last { State::Final } else { State::Kind };
        match content {
            Content::FinalData => Some(Piece::Final),
            Content::Datagram => Some(Piece::Datagram(self.datagram.split().freeze())),
            Content::Data | Content::Other => None,
        }
    }

    /// The stream has ended, and [`Self::next`] has taken all of it. Returns whether that is the FIN.
    ///
    /// # Errors
    /// [`Broken::NoFinal`], [`Broken::Cut`].
    pub fn end(&mut self) -> Result<bool, Broken> {
        let within = self.framing == Framing::Datagrams && self.is_within();
        let ended = core::mem::replace(&mut self.state, State::Final) == State::Final;
        match self.framing {
            Framing::Datagrams if within => Err(Broken::Cut),
            Framing::Bare | Framing::Datagrams => Ok(!ended),
            Framing::Capsules(_) if ended => Ok(false),
            Framing::Capsules(_) => Err(Broken::NoFinal),
        }
    }

    /// Whether the FIN has come.
    pub fn is_final(&self) -> bool {
        self.state == State::Final
    }

    /// Whether a capsule has begun that is not complete.
    pub fn is_within(&self) -> bool {
        self.gather.is_partial() || matches!(self.state, State::Length(_) | State::Payload(..))
    }
}

impl Content {
    fn of(kind: u64, framing: Framing) -> Self {
        match framing {
            Framing::Capsules(numbers) if kind == numbers.data => Self::Data,
            Framing::Capsules(numbers) if kind == numbers.final_data => Self::FinalData,
            Framing::Datagrams if kind == udp::CAPSULE => Self::Datagram,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DRAFTS;
    use proptest::prelude::*;

    /// What a stream that comes in `cuts` carries, and whether its FIN came.
    fn decode(framing: Framing, stream: &[u8], cuts: &[usize]) -> Result<(Vec<u8>, bool), Broken> {
        let mut decoder = Decoder::new(framing);
        let (mut data, mut last) = (Vec::new(), false);
        let mut rest = Bytes::copy_from_slice(stream);
        let mut cuts = cuts.iter().cycle();
        while !rest.is_empty() {
            let cut = cuts.next().map_or(1, |&cut| cut.max(1));
            let mut part = rest.split_to(cut.min(rest.len()));
            while let Some(piece) = decoder.next(&mut part)? {
                match piece {
                    Piece::Data(piece) | Piece::Datagram(piece) => data.extend_from_slice(&piece),
                    Piece::Final => last = true,
                }
            }
        }
        Ok((data, decoder.end()? || last))
    }

    fn capsules() -> Framing {
        Framing::Capsules(DRAFTS[0].numbers)
    }

    fn put(kind: u64, content: &[u8]) -> Vec<u8> {
        [&capsule(kind, content.len() as u64)[..], content].concat()
    }

    #[test]
    fn datagrams_are_taken_of_their_capsules_whole() {
        let framing = Framing::Datagrams;
        let unknown = put(0x17, b"unknown");
        let long = put(udp::CAPSULE, &[1; udp::CAPSULE_MAX as usize + 1]);
        let stream = [
            put(udp::CAPSULE, b"\0one"),
            unknown,
            long,
            put(udp::CAPSULE, b""),
        ]
        .concat();
        for cut in [1, 2, 3, 7, usize::MAX] {
            let whole = decode(framing, &stream, &[cut]);
            assert_eq!(whole, Ok((b"\0one".to_vec(), true)));
            let within = &stream[..stream.len() - 1];
            assert_eq!(decode(framing, within, &[cut]), Err(Broken::Cut));
        }
        let mut decoder = Decoder::new(framing);
        let mut input = Bytes::from(stream);
        let pieces: Vec<_> = core::iter::from_fn(|| decoder.next(&mut input).unwrap()).collect();
        assert_eq!(
            pieces,
            [
                Piece::Datagram(Bytes::from_static(b"\0one")),
                Piece::Datagram(Bytes::new())
            ]
        );
    }

    #[test]
    fn the_wire_form() {
        let head = capsules().header(5, false);
        assert_eq!(head[..], [0xa0, 0x28, 0xd7, 0xf2, 0x05]);
        let head = capsules().header(0, true);
        assert_eq!(head[..], [0xa0, 0x28, 0xd7, 0xf3, 0x00]);
        assert!(Framing::Bare.header(5, false).is_empty());
    }

    #[test]
    fn empty_capsules_are_no_end_and_the_final_one_may_be_empty_too() {
        let Numbers { data, final_data } = DRAFTS[0].numbers;
        let stream = [
            put(data, b""),
            put(data, b"ab"),
            put(data, b""),
            put(final_data, b""),
        ]
        .concat();
        for cut in [1, 2, 5, 1000] {
            assert_eq!(
                decode(capsules(), &stream, &[cut]),
                Ok((b"ab".to_vec(), true))
            );
        }
    }

    #[test]
    fn a_stream_that_ends_early_or_goes_on_is_broken() {
        let Numbers { data, final_data } = DRAFTS[0].numbers;
        let whole = [put(data, b"abc"), put(final_data, b"de")].concat();
        for end in 0..whole.len() {
            assert_eq!(
                decode(capsules(), &whole[..end], &[3]),
                Err(Broken::NoFinal),
                "{end}"
            );
        }
        assert_eq!(
            decode(capsules(), &whole, &[3]),
            Ok((b"abcde".to_vec(), true))
        );
        for more in [put(data, b""), put(7, b"x"), put(final_data, b""), vec![0]] {
            let stream = [&whole[..], &more].concat();
            assert_eq!(
                decode(capsules(), &stream, &[1000]),
                Err(Broken::AfterFinal)
            );
        }
    }

    /// Nothing is held, however long a capsule says it is, and its bytes come before it is complete.
    #[test]
    fn gigantic_lengths_are_passed_on_as_they_come() {
        for (kind, passed) in [(DRAFTS[0].numbers.data, 1000), (0x17, 0)] {
            let mut decoder = Decoder::new(capsules());
            let mut head = capsule(kind, varint::MAX);
            assert_eq!(decoder.next(&mut head), Ok(None));
            let mut seen = 0;
            for _ in 0..100 {
                let mut part = Bytes::from_static(&[0; 10]);
                while let Ok(Some(Piece::Data(piece))) = decoder.next(&mut part) {
                    seen += piece.len();
                }
            }
            assert_eq!(seen, passed);
            assert!(decoder.is_within());
        }
    }

    proptest! {
        /// However the sender divides the bytes among capsules, whatever unknown ones are between, and however the network cuts
        /// the stream: the bytes come out.
        #[test]
        fn the_bytes_come_out(
            draft in 0..DRAFTS.len(),
            parts in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..70), any::<u8>()), 0..12),
            last in prop::collection::vec(any::<u8>(), 0..70),
            cuts in prop::collection::vec(1_usize..50, 1..10),
        ) {
            let Numbers { data, final_data } = DRAFTS[draft].numbers;
            let (mut stream, mut bytes) = (Vec::new(), Vec::new());
            for (part, other) in &parts {
                if other % 3 == 0 {
                    stream.extend(put(u64::from(*other), part));
                } else {
                    stream.extend(put(data, part));
                    bytes.extend(part);
                }
            }
            stream.extend(put(final_data, &last));
            bytes.extend(&last);
            let framing = Framing::Capsules(DRAFTS[draft].numbers);
            prop_assert_eq!(decode(framing, &stream, &cuts), Ok((bytes.clone(), true)));
            prop_assert_eq!(decode(Framing::Bare, &bytes, &cuts), Ok((bytes, true)));
        }

        /// Arbitrary bytes are taken or refused, and how they are cut makes no difference.
        #[test]
        fn any_stream_is_judged_the_same_however_it_is_cut(
            stream in prop::collection::vec(any::<u8>(), 0..200),
            cuts in prop::collection::vec(1_usize..20, 1..10),
        ) {
            prop_assert_eq!(decode(capsules(), &stream, &cuts), decode(capsules(), &stream, &[1000]));
        }
    }
}
