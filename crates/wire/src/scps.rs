//! The options of SCPS-TP (CCSDS 714.0-B-2, section 3.2; kinds 20 to 23 of IANA's registry), which stand among the
//! options that are not typed: only who speaks SCPS-TP reads them, and all others see options that they do not know.
//!
//! The layout is that of the standard's reference implementation on the wire. [`CompressedTcp`] reads its compressed
//! headers.

mod compressed;

pub use compressed::CompressedTcp;

use crate::bytes::be16;
use crate::{Error, RawOptions};
use core::ops::{BitOr, Range};

const CAPABILITIES: u8 = 20;
const SNACK: u8 = 21;
const RECORD_BOUNDARY: u8 = 22;
const CORRUPTION_EXPERIENCED: u8 = 23;
/// The kinds of its options.
pub const KINDS: [u8; 4] = [CAPABILITIES, SNACK, RECORD_BOUNDARY, CORRUPTION_EXPERIENCED];

/// What a segment says in options of SCPS-TP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScpsOptions {
    /// What the sender of a SYN can do (kind 20, length 4).
    pub capabilities: Option<Capabilities>,
    /// Capabilities of other bodies than CCSDS (kind 20, any other length), behind [`Self::capabilities`] alone.
    pub extended: Option<ExtendedCapabilities>,
    /// What the receiver of the data misses (kind 21).
    pub snack: Option<Snack>,
    /// The segment ends a record (kind 22).
    pub record_boundary: bool,
    /// Packets arrive damaged at the sender of this (kind 23).
    pub corruption_experienced: bool,
}

/// The SCPS capabilities option of a SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// What is offered.
    pub vector: CapabilityVector,
    /// The identity that the sender gives to its compressed headers; 0 without compression.
    pub connection: u8,
}

/// The bits of a [`Capabilities`] option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CapabilityVector(u8);

/// The list of binding spaces of an extended capabilities option, as its bytes are on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtendedCapabilities(Box<[u8]>);

/// One body's capabilities in an [`ExtendedCapabilities`] option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindingSpace<'a> {
    /// Who defines the meaning.
    pub id: u16,
    /// The first four bits of the content, which stand beside the length.
    pub nibble: u8,
    /// The rest of the content.
    pub content: &'a [u8],
}

/// A selective negative acknowledgement: a hole in what the receiver holds, or several.
///
/// Its unit is the MSS that the sender of the *data* put into its own SYN, less 12 bytes where timestamps are in use,
/// also where segments are shorter than that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snack {
    /// Where the hole begins, in units above the acknowledgement number; a part of a unit does not count.
    pub offset: u16,
    /// The length of the hole in units; a part of a unit counts as one.
    pub size: u16,
    /// The units behind the hole, the first in the highest bit: 1 has arrived whole, and 0 misses something, where any 1
    /// follows; the zeros at the end say nothing. Empty in the short form, the only one that is sent to a peer without
    /// [`CapabilityVector::SNACK_LONG`].
    pub vector: Box<[u8]>,
}

impl ScpsOptions {
    /// What of SCPS-TP stands among `options`. Of a kind that comes twice the first counts, and a malformed one does not.
    pub fn parse(options: &RawOptions) -> Self {
        let mut all = Self::default();
        for option in options.iter() {
            match *option {
                [CAPABILITIES, 4, vector, connection] if all.capabilities.is_none() => {
                    all.capabilities = Some(Capabilities {
                        vector: CapabilityVector(vector),
                        connection,
                    });
                }
                // The form of length 4 has gone by: what follows it is the extended one.
                [CAPABILITIES, _, ref spaces @ ..]
                    if all.capabilities.is_some() && all.extended.is_none() =>
                {
                    all.extended = ExtendedCapabilities::new(spaces);
                }
                [SNACK, _, a, b, c, d, ref vector @ ..] if all.snack.is_none() => {
                    all.snack = Some(Snack {
                        offset: be16(a, b),
                        size: be16(c, d),
                        vector: vector.into(),
                    });
                }
                [RECORD_BOUNDARY, 2] => all.record_boundary = true,
                [CORRUPTION_EXPERIENCED, 2] => all.corruption_experienced = true,
                _ => {}
            }
        }
        all
    }

    /// These options as a segment carries them; `None` where there are none.
    ///
    /// # Errors
    /// More than 40 bytes, and extended capabilities without the others.
    pub fn to_raw(&self) -> Result<Option<RawOptions>, Error> {
        let mut bytes = Vec::new();
        if let Some(Capabilities { vector, connection }) = self.capabilities {
            bytes.extend_from_slice(&[CAPABILITIES, 4, vector.0, connection]);
        }
        if let Some(ExtendedCapabilities(spaces)) = &self.extended {
            if self.capabilities.is_none() {
                return Err(Error::Inconsistent {
                    why: "extended SCPS capabilities stand behind SCPS capabilities only",
                });
            }
            put(&mut bytes, CAPABILITIES, spaces);
        }
        if let Some(snack) = &self.snack {
            let [a, b] = snack.offset.to_be_bytes();
            let [c, d] = snack.size.to_be_bytes();
            put(&mut bytes, SNACK, &[&[a, b, c, d], &*snack.vector].concat());
        }
        if self.record_boundary {
            put(&mut bytes, RECORD_BOUNDARY, &[]);
        }
        if self.corruption_experienced {
            put(&mut bytes, CORRUPTION_EXPERIENCED, &[]);
        }
        if bytes.is_empty() {
            return Ok(None);
        }
        RawOptions::new(&bytes).map(Some).ok_or(Error::TooLong {
            what: "the list of SCPS options",
            have: bytes.len(),
            most: RawOptions::MOST,
        })
    }
}

/// Appends an option. A length beyond a byte is cut, and refused with the whole list, which is too long then.
fn put(bytes: &mut Vec<u8>, kind: u8, content: &[u8]) {
    bytes.extend_from_slice(&[kind, (content.len() + 2) as u8]);
    bytes.extend_from_slice(content);
}

impl CapabilityVector {
    /// Best effort transport service: the receiver goes on behind a hole.
    pub const BETS: Self = Self(0x80);
    /// [`Snack`] in its short form is understood.
    pub const SNACK_SHORT: Self = Self(0x40);
    /// [`Snack`] with a bit vector is understood.
    pub const SNACK_LONG: Self = Self(0x20);
    /// Headers may be compressed, see [`CompressedTcp`].
    pub const COMPRESSION: Self = Self(0x10);
    /// Timestamps of the network layer.
    pub const NETWORK_TIMESTAMPS: Self = Self(0x08);

    /// The bits as they are on the wire; the lower three are reserved.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The bits as they are on the wire.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `bits` are set.
    pub const fn contains(self, bits: Self) -> bool {
        self.0 & bits.0 == bits.0
    }

    /// What both sides offer, and so is in use.
    #[must_use]
    pub const fn agreed(self, peer: Self) -> Self {
        Self(self.0 & peer.0)
    }
}

impl BitOr for CapabilityVector {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl ExtendedCapabilities {
    /// The list of binding spaces in `bytes`; `None` where a space reaches beyond them, where there is none, and where
    /// the option would be taken for the other form.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        while !rest.is_empty() {
            (_, rest) = space(rest)?;
        }
        (!bytes.is_empty() && bytes.len() != 2).then(|| Self(bytes.into()))
    }

    /// The spaces, in their order.
    pub fn spaces(&self) -> impl Iterator<Item = BindingSpace<'_>> {
        let mut rest = &*self.0;
        std::iter::from_fn(move || {
            let (first, behind) = space(rest)?;
            rest = behind;
            Some(first)
        })
    }
}

/// The first binding space, and what stands behind it. The upper half of its second byte is its length in words of two
/// bytes, without the first word. An identity above 255 has 255 in the first byte, and what it is above 256 in the third.
fn space(bytes: &[u8]) -> Option<(BindingSpace<'_>, &[u8])> {
    let length = 2 * (usize::from(*bytes.get(1)? >> 4) + 1);
    let (space, behind) = bytes.split_at_checked(length)?;
    let (id, content) = match *space {
        [0xff, _, above, ref content @ ..] => (256 + u16::from(above), content),
        [0xff, ..] => return None,
        [id, _, ref content @ ..] => (u16::from(id), content),
        _ => return None,
    };
    let nibble = space[1] & 0xf;
    let space = BindingSpace {
        id,
        nibble,
        content,
    };
    Some((space, behind))
}

impl Snack {
    /// The short form.
    pub fn short(offset: u16, size: u16) -> Self {
        Self {
            offset,
            size,
            vector: Box::default(),
        }
    }

    /// The hole of `size` units at `offset` with a bit vector of at most `room` bytes, in which the units of `arrived` are 1,
    /// counted from the end of that hole on. It is the short form where none of them has room.
    pub fn long(
        (offset, size): (u16, u16),
        arrived: impl IntoIterator<Item = Range<u64>>,
        room: usize,
    ) -> Self {
        let mut vector = vec![0; room];
        let mut filled = 0;
        let units = 8 * room as u64;
        for stretch in arrived {
            if stretch.start >= units {
                break;
            }
            for unit in stretch.start..stretch.end.min(units) {
                let byte = unit as usize / 8;
                vector[byte] |= 0x80 >> (unit % 8);
                filled = byte + 1;
            }
        }
        vector.truncate(filled);
        Self {
            vector: vector.into(),
            ..Self::short(offset, size)
        }
    }

    /// All holes that it names: where each begins, in units above the acknowledgement number, and its length in units.
    pub fn holes(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let end = u32::from(self.offset) + u32::from(self.size);
        let bits = self.vector.iter().flat_map(|byte| {
            let bit = move |place: u32| byte << place & 0x80 != 0;
            (0..u8::BITS).map(bit)
        });
        let mut missing = 0;
        let behind = (end..).zip(bits).filter_map(move |(unit, arrived)| {
            if arrived {
                let length = core::mem::take(&mut missing);
                return (length > 0).then(|| (unit - length, length));
            }
            missing += 1;
            None
        });
        [(self.offset.into(), self.size.into())]
            .into_iter()
            .chain(behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(bytes: &[u8]) -> ScpsOptions {
        ScpsOptions::parse(&RawOptions::new(bytes).unwrap())
    }

    /// Each was put into a SYN by the reference implementation, for the identity and the value in hexadecimal that it
    /// was configured with.
    #[test]
    fn extended_capabilities_are_read_as_the_reference_implementation_writes_them() {
        let first = [0x14, 4, 0x40, 0];
        let cases: [(&[u8], u16, u8, &[u8]); 3] = [
            (
                &[0x14, 8, 5, 0x2a, 0xbc, 0xd1, 0x10, 0],
                5,
                0xa,
                &[0xbc, 0xd1, 0x10, 0],
            ),
            (&[0x14, 6, 5, 0x11, 0xf2, 0xe0], 5, 1, &[0xf2, 0xe0]),
            (
                &[0x14, 8, 0xff, 0x20, 0x2c, 0x77, 0xaa, 0],
                300,
                0,
                &[0x77, 0xaa, 0],
            ),
        ];
        for (option, id, nibble, content) in cases {
            let options = parse(&[&first, option].concat());
            let extended = options.extended.as_ref().unwrap();
            let spaces: Vec<_> = extended.spaces().collect();
            let expected = BindingSpace {
                id,
                nibble,
                content,
            };
            assert_eq!(spaces, [expected]);
            let emitted = options.to_raw().unwrap().unwrap();
            assert_eq!(emitted.as_slice(), [&first, option].concat());
            assert_eq!(parse(option).extended, None, "without the option before it");
        }
    }

    #[test]
    fn spaces_that_reach_beyond_their_option_are_none() {
        let refused: [&[u8]; 5] = [&[], &[5], &[5, 0x00], &[5, 0x20, 1, 2], &[0xff, 0x00]];
        for bytes in refused {
            assert_eq!(ExtendedCapabilities::new(bytes), None, "{bytes:?}");
        }
        assert!(ExtendedCapabilities::new(&[5, 0x00, 6, 0x00]).is_some());
    }

    #[test]
    fn what_is_malformed_or_comes_twice_is_passed_over() {
        let options = parse(&[
            21, 4, 0, 1, 21, 7, 0, 1, 0, 2, 0x80, 21, 6, 9, 9, 9, 9, 22, 3, 0, 23, 2, 20, 4, 0xf8,
            7, 20, 4, 1, 1, 99, 2,
        ]);
        let expected = ScpsOptions {
            capabilities: Some(Capabilities {
                vector: CapabilityVector(0xf8),
                connection: 7,
            }),
            snack: Some(Snack {
                offset: 1,
                size: 2,
                vector: [0x80].into(),
            }),
            corruption_experienced: true,
            ..ScpsOptions::default()
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn what_no_segment_can_carry_is_refused() {
        let long = ScpsOptions {
            snack: Some(Snack {
                vector: [0; 300].into(),
                ..Snack::short(0, 1)
            }),
            ..ScpsOptions::default()
        };
        assert!(matches!(long.to_raw(), Err(Error::TooLong { .. })));
        let alone = ScpsOptions {
            extended: ExtendedCapabilities::new(&[5, 0x11, 0xf2, 0xe0]),
            ..ScpsOptions::default()
        };
        assert!(matches!(alone.to_raw(), Err(Error::Inconsistent { .. })));
        assert_eq!(ScpsOptions::default().to_raw(), Ok(None));
    }

    #[test]
    fn a_bit_vector_names_the_holes_below_what_arrived() {
        let snack = Snack {
            vector: [0b1001_1100, 0b0000_0010, 0].into(),
            ..Snack::short(3, 2)
        };
        let holes: Vec<_> = snack.holes().collect();
        // The zeros behind the last 1 are no hole.
        assert_eq!(holes, [(3, 2), (6, 2), (11, 8)]);
        let arrived = [0..1, 3..6, 14..15];
        assert_eq!(
            Snack::long((3, 2), arrived.clone(), 3).vector[..],
            [0x9c, 2]
        );
        assert_eq!(Snack::long((3, 2), arrived.clone(), 1).vector[..], [0x9c]);
        assert_eq!(Snack::long((3, 2), arrived, 0), Snack::short(3, 2));
        // What arrived lies beyond the room.
        assert_eq!(
            Snack::long((3, 2), core::iter::once(16..40), 2),
            Snack::short(3, 2)
        );
    }

    #[test]
    fn both_sides_have_to_offer_what_is_used() {
        let ours = CapabilityVector::SNACK_SHORT | CapabilityVector::SNACK_LONG;
        let agreed = ours.agreed(CapabilityVector::from_bits(0xd8));
        assert_eq!(agreed, CapabilityVector::SNACK_SHORT);
        assert!(!agreed.contains(ours));
    }

    proptest! {
        #[test]
        fn what_is_emitted_is_read_again(
            capabilities: Option<(u8, u8)>,
            spaces in prop::option::of(prop::collection::vec(any::<u8>(), 0..14)),
            snack in prop::option::of((any::<(u16, u16)>(), prop::collection::vec(any::<u8>(), 0..8))),
            record_boundary: bool,
            corruption_experienced: bool,
        ) {
            let capabilities = capabilities.map(|(vector, connection)| Capabilities {
                vector: CapabilityVector(vector),
                connection,
            });
            let options = ScpsOptions {
                capabilities,
                extended: spaces
                    .and_then(|bytes| ExtendedCapabilities::new(&bytes))
                    .filter(|_| capabilities.is_some()),
                snack: snack.map(|((offset, size), vector)| Snack {
                    offset,
                    size,
                    vector: vector.into(),
                }),
                record_boundary,
                corruption_experienced,
            };
            match options.to_raw().unwrap() {
                Some(raw) => prop_assert_eq!(ScpsOptions::parse(&raw), options),
                None => prop_assert_eq!(ScpsOptions::default(), options),
            }
        }

        #[test]
        fn holes_of_a_bit_vector_are_those_it_was_made_of(
            hole: (u16, u16),
            units in prop::collection::vec(any::<bool>(), 0..300),
            room in 0usize..40,
        ) {
            let arrived = (0u64..).zip(&units).filter(|(_, arrived)| **arrived);
            let snack = Snack::long(hole, arrived.map(|(unit, _)| unit..unit + 1), room);
            prop_assert!(snack.vector.len() <= room);
            let known = units.len().min(8 * room);
            let end = units[..known].iter().rposition(|arrived| *arrived).map_or(0, |last| last + 1);
            let base = usize::from(hole.0) + usize::from(hole.1);
            let mut named = vec![true; end];
            for (from, length) in snack.holes().skip(1) {
                let from = from as usize - base;
                named[from..from + length as usize].fill(false);
            }
            prop_assert_eq!(&named, &units[..end]);
        }

        #[test]
        fn arbitrary_options_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..41)) {
            if let Some(raw) = RawOptions::new(&bytes) {
                let options = ScpsOptions::parse(&raw);
                prop_assert!(options.to_raw().is_ok());
                let holes = options.snack.iter().flat_map(Snack::holes);
                prop_assert!(holes.count() <= 137);
            }
        }
    }
}
