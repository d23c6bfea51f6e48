//! Bounds how often a peer changes its settings: a change of the initial window goes through all of its streams (RFC 9113, section
//! 6.9.2), so that a few bytes would cost more time than anything else that it can say.

/// SETTINGS of a connection that are no acknowledgements. Most peers send one; some another whenever they find the path to be wider.
const MOST: u32 = 1000;
/// What a client says first (RFC 9113, section 3.4).
const PREFACE: usize = 24;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;

/// The peer has said more of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

/// Follows the frames in what a peer says.
#[derive(Clone, Debug)]
pub(crate) struct SettingsCount {
    /// Bytes until the next frame begins.
    left: usize,
    /// The header of a frame, as far as it has come.
    header: [u8; 9],
    come: usize,
    seen: u32,
}

impl SettingsCount {
    /// Of a peer that begins by a preface, as clients do, or by a frame.
    pub(crate) const fn new(of_client: bool) -> Self {
        Self {
            left: if of_client { PREFACE } else { 0 },
            header: [0; 9],
            come: 0,
            seen: 0,
        }
    }

    /// The peer has said `bytes`.
    ///
    /// # Errors
    /// [`TooMany`].
    pub(crate) fn hear(&mut self, mut bytes: &[u8]) -> Result<(), TooMany> {
        while !bytes.is_empty() {
            if self.left > 0 {
                let passed = self.left.min(bytes.len());
                self.left -= passed;
                bytes = &bytes[passed..];
                continue;
            }
            let missing = &mut self.header[self.come..];
            let taken = missing.len().min(bytes.len());
            missing[..taken].copy_from_slice(&bytes[..taken]);
            self.come += taken;
            bytes = &bytes[taken..];
            if let ([a, b, c, kind, flags, ..], 9) = (self.header, self.come) {
                self.come = 0;
                self.left = u32::from_be_bytes([0, a, b, c]) as usize;
                self.seen += u32::from(kind == SETTINGS && flags & ACK == 0);
                if self.seen > MOST {
                    return Err(TooMany);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_counted_however_they_are_cut() {
        let settings = [0, 0, 6, SETTINGS, 0, 0, 0, 0, 0, 0, 4, 0, 0, SETTINGS, 0];
        let others = [
            &[0, 0, 0, SETTINGS, ACK, 0, 0, 0, 0][..],
            &[0, 0, 4, 0, 0, 0, 0, 0, 1, 0, 0, SETTINGS, 0],
        ];
        let said = [&settings[..], others[0], others[1]].concat();
        for (piece, of_client) in [(1, true), (7, false), (1 << 20, true)] {
            let mut all = vec![0; if of_client { PREFACE } else { 0 }];
            all.extend(said.repeat(MOST as usize));
            let mut count = SettingsCount::new(of_client);
            let heard: Result<Vec<()>, _> =
                all.chunks(piece).map(|bytes| count.hear(bytes)).collect();
            assert!(heard.is_ok() && count.seen == MOST);
            assert_eq!(count.hear(&settings), Err(TooMany));
        }
    }
}
