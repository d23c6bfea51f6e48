use super::FrameError;

/// The width of a descriptor: an offset or a size in octets.
///
/// In BEACON and REQUEST the widest that the peer can use (it can use all narrower ones too), in
/// other frames the one used. Orders by width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Width {
    /// 16 bits: files up to 65,535 octets. Everyone can use it.
    #[default]
    Bits16,
    /// 32 bits.
    Bits32,
    /// 64 bits.
    Bits64,
    /// 128 bits.
    Bits128,
}

impl Width {
    /// All, narrowest first.
    pub const ALL: [Self; 4] = [Self::Bits16, Self::Bits32, Self::Bits64, Self::Bits128];

    /// Octets of a descriptor.
    pub const fn octets(self) -> usize {
        2 << self as usize
    }

    /// The greatest value.
    pub const fn limit(self) -> u128 {
        u128::MAX >> (128 - 8 * self.octets())
    }

    /// The narrowest that holds `value`.
    pub const fn holding(value: u128) -> Self {
        match value {
            0..=0xffff => Self::Bits16,
            0x1_0000..=0xffff_ffff => Self::Bits32,
            0x1_0000_0000..=0xffff_ffff_ffff_ffff => Self::Bits64,
            _ => Self::Bits128,
        }
    }

    /// From the two lowest bits of `code`.
    pub(super) const fn from_code(code: u32) -> Self {
        Self::ALL[(code & 3) as usize]
    }

    pub(super) const fn code(self) -> u32 {
        self as u32
    }

    /// Appends `value`.
    pub(super) fn emit(
        self,
        value: u128,
        what: &'static str,
        out: &mut Vec<u8>,
    ) -> Result<(), FrameError> {
        if value > self.limit() {
            return Err(FrameError::TooLong { what });
        }
        out.extend_from_slice(&value.to_be_bytes()[16 - self.octets()..]);
        Ok(())
    }
}
