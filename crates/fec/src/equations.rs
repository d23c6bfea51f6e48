//! Linear equations between packets that have not come, solved as each one is added.
//!
//! The equations are kept in reduced row echelon form: each has one unknown of its own, its pivot, with the factor 1,
//! which no other equation has. An equation whose pivot is its only unknown tells what that packet was.

use crate::MAX_WINDOW;
use crate::gf256::{add_scaled, inverse, mul, scale};

/// Packets that equations may be about at a time.
const MAX_UNKNOWNS: usize = MAX_WINDOW;
/// Equations kept at a time: more repairs than wait for others within the longest window, at the overheads that there are.
const MAX_EQUATIONS: usize = 128;

/// The sum that the packets of an equation have, each times its factor.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    /// Of their lengths, octet by octet.
    pub(crate) length: [u8; 2],
    /// Of the packets, shorter ones with zeros behind them.
    pub(crate) symbol: Vec<u8>,
}

impl Sum {
    /// Adds `other` times `factor`.
    fn add(&mut self, other: &Self, factor: u8) {
        self.add_parts(other.length, &other.symbol, factor);
    }

    /// Adds `packet` times `factor`.
    fn add_packet(&mut self, packet: &[u8], factor: u8) {
        self.add_parts(length_of(packet), packet, factor);
    }

    fn add_parts(&mut self, length: [u8; 2], symbol: &[u8], factor: u8) {
        add_scaled(&mut self.length, &length, factor);
        if self.symbol.len() < symbol.len() {
            self.symbol.resize(symbol.len(), 0);
        }
        add_scaled(&mut self.symbol, symbol, factor);
    }

    /// The packet that it is, where it is one: as long as its length says, with nothing behind it.
    fn into_packet(mut self) -> Option<Vec<u8>> {
        let length = usize::from(u16::from_be_bytes(self.length));
        let behind = self.symbol.get(length..)?;
        if behind.iter().any(|octet| *octet != 0) {
            return None;
        }
        self.symbol.truncate(length);
        Some(self.symbol)
    }
}

/// The length of a packet as it is combined. None is longer than a datagram can be.
pub(crate) fn length_of(packet: &[u8]) -> [u8; 2] {
    (packet.len() as u16).to_be_bytes()
}

/// One equation.
#[derive(Debug)]
struct Equation {
    /// The factor of each unknown, by its place in [`Equations::unknowns`].
    factors: Vec<u8>,
    /// The place of the unknown that only this equation has.
    pivot: usize,
    sum: Sum,
}

impl Equation {
    /// Adds `other` times `factor`.
    fn add(&mut self, other: &Self, factor: u8) {
        add_scaled(&mut self.factors, &other.factors, factor);
        self.sum.add(&other.sum, factor);
    }

    fn is_solved(&self) -> bool {
        self.factors.iter().filter(|factor| **factor != 0).count() == 1
    }
}

/// What became of an equation that was added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// It is kept.
    Kept,
    /// It says nothing that the others do not.
    Redundant,
    /// It contradicts the others: something that was received was not what had been sent.
    Contradiction,
    /// There is no room for it.
    Full,
}

/// Equations between unknown packets.
#[derive(Debug, Default)]
pub(crate) struct Equations {
    /// The ids of the packets that equations are about.
    unknowns: Vec<u64>,
    equations: Vec<Equation>,
}

impl Equations {
    /// The equations kept.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.equations.len()
    }

    /// The unknowns that they are about.
    #[cfg(test)]
    pub(crate) fn unknowns(&self) -> usize {
        self.unknowns.len()
    }

    /// Whether another equation about `unknowns` has room.
    pub(crate) fn has_room(&self, unknowns: &[(u64, u8)]) -> bool {
        let new = unknowns.iter().filter(|(id, _)| self.place(*id).is_none());
        self.equations.len() < MAX_EQUATIONS && self.unknowns.len() + new.count() <= MAX_UNKNOWNS
    }

    /// Adds the equation that `unknowns`, each times its factor, make `sum`.
    pub(crate) fn add(&mut self, unknowns: &[(u64, u8)], sum: Sum) -> Added {
        if !self.has_room(unknowns) {
            return Added::Full;
        }
        let places: Vec<usize> = unknowns
            .iter()
            .map(|(id, _)| self.place_or_new(*id))
            .collect();
        let mut factors = vec![0; self.unknowns.len()];
        for (place, (_, factor)) in places.into_iter().zip(unknowns) {
            factors[place] = *factor;
        }
        let pivot = 0;
        let added = self.insert(Equation {
            factors,
            pivot,
            sum,
        });
        if added != Added::Kept {
            self.drop_unused();
        }
        added
    }

    /// Takes out one that is solved: the id of the packet, and the packet, unless it is none that could have been sent.
    pub(crate) fn solved(&mut self) -> Option<(u64, Option<Vec<u8>>)> {
        let index = self.equations.iter().position(Equation::is_solved)?;
        let equation = self.equations.swap_remove(index);
        let id = self.unknowns[equation.pivot];
        self.drop_unknown(equation.pivot);
        Some((id, equation.sum.into_packet()))
    }

    /// The packet `id` has come after all.
    pub(crate) fn know(&mut self, id: u64, packet: &[u8]) {
        let Some(place) = self.place(id) else {
            return;
        };
        for equation in &mut self.equations {
            let factor = core::mem::take(&mut equation.factors[place]);
            if factor != 0 {
                equation.sum.add_packet(packet, factor);
            }
        }
        // The equation that had it for its pivot needs another.
        let index = self.equations.iter().position(|one| one.pivot == place);
        let orphan = index.map(|index| self.equations.swap_remove(index));
        self.drop_unknown(place);
        if let Some(mut orphan) = orphan {
            orphan.factors.swap_remove(place);
            self.insert(orphan);
            self.drop_unused();
        }
    }

    /// The packet `id` will not be known any more: one equation goes with it, and no other is about it.
    pub(crate) fn forget(&mut self, id: u64) {
        let Some(place) = self.place(id) else {
            return;
        };
        let with = |one: &Equation| one.factors[place] != 0;
        if let Some(index) = self.equations.iter().position(with) {
            let given_up = self.equations.swap_remove(index);
            let scale = inverse(given_up.factors[place]);
            for equation in &mut self.equations {
                let factor = equation.factors[place];
                equation.add(&given_up, mul(factor, scale));
            }
        }
        self.drop_unknown(place);
        self.drop_unused();
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.unknowns.clear();
        self.equations.clear();
    }

    fn place(&self, id: u64) -> Option<usize> {
        self.unknowns.iter().position(|unknown| *unknown == id)
    }

    fn place_or_new(&mut self, id: u64) -> usize {
        self.place(id).unwrap_or_else(|| {
            self.unknowns.push(id);
            for equation in &mut self.equations {
                equation.factors.push(0);
            }
            self.unknowns.len() - 1
        })
    }

    /// Eliminates the pivots of the others from `new`, finds it one, and eliminates that from the others.
    fn insert(&mut self, mut new: Equation) -> Added {
        for equation in &self.equations {
            let factor = new.factors[equation.pivot];
            if factor != 0 {
                new.add(equation, factor);
            }
        }
        let Some(pivot) = new.factors.iter().position(|factor| *factor != 0) else {
            let zero = new.sum.length == [0; 2] && new.sum.symbol.iter().all(|octet| *octet == 0);
            return if zero {
                Added::Redundant
            } else {
                Added::Contradiction
            };
        };
        let factor = inverse(new.factors[pivot]);
        scale(&mut new.factors, factor);
        scale(&mut new.sum.length, factor);
        scale(&mut new.sum.symbol, factor);
        new.pivot = pivot;
        for equation in &mut self.equations {
            let factor = equation.factors[pivot];
            if factor != 0 {
                equation.add(&new, factor);
            }
        }
        self.equations.push(new);
        Added::Kept
    }

    /// Drops an unknown that no equation is about.
    fn drop_unknown(&mut self, place: usize) {
        self.unknowns.swap_remove(place);
        // The last one has taken its place.
        let moved = self.unknowns.len();
        for equation in &mut self.equations {
            equation.factors.swap_remove(place);
            if equation.pivot == moved {
                equation.pivot = place;
            }
        }
    }

    /// Drops all such unknowns.
    fn drop_unused(&mut self) {
        for place in (0..self.unknowns.len()).rev() {
            if self.equations.iter().all(|one| one.factors[place] == 0) {
                self.drop_unknown(place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &[u8] = b"the first";
    const B: &[u8] = b"second";
    const C: &[u8] = b"a third packet";

    /// The sum of packets, each times its factor.
    fn sum(terms: &[(&[u8], u8)]) -> Sum {
        let mut sum = Sum::default();
        for (packet, factor) in terms {
            sum.add_packet(packet, *factor);
        }
        sum
    }

    #[test]
    fn as_many_equations_as_unknowns_tell_the_packets() {
        let mut equations = Equations::default();
        let three = |a, b, c| {
            let unknowns = [(1, a), (2, b), (9, c)];
            (unknowns, sum(&[(A, a), (B, b), (C, c)]))
        };
        for (a, b, c) in [(1, 2, 3), (5, 9, 200)] {
            let (unknowns, sum) = three(a, b, c);
            assert_eq!(equations.add(&unknowns, sum), Added::Kept);
            assert_eq!(equations.solved(), None);
        }
        let (unknowns, again) = three(4, 11, 203);
        assert_eq!(equations.add(&unknowns, again), Added::Redundant);
        let (unknowns, _) = three(4, 11, 203);
        assert_eq!(
            equations.add(&unknowns, sum(&[(A, 1)])),
            Added::Contradiction
        );
        let (unknowns, third) = three(7, 7, 1);
        assert_eq!(equations.add(&unknowns, third), Added::Kept);
        let mut packets: Vec<_> = core::iter::from_fn(|| equations.solved()).collect();
        packets.sort();
        let expected = [(1, A), (2, B), (9, C)].map(|(id, it)| (id, Some(it.to_vec())));
        assert_eq!(packets, expected);
        assert_eq!((equations.len(), equations.unknowns()), (0, 0));
    }

    #[test]
    fn a_packet_that_comes_late_takes_part() {
        for late in [1, 2] {
            let mut equations = Equations::default();
            equations.add(&[(1, 3), (2, 4)], sum(&[(A, 3), (B, 4)]));
            equations.know(late, if late == 1 { A } else { B });
            let other = if late == 1 { B } else { A };
            assert_eq!(equations.solved(), Some((3 - late, Some(other.to_vec()))));
            assert_eq!(equations.unknowns(), 0);
        }
    }

    #[test]
    fn a_packet_that_is_forgotten_takes_one_equation_along() {
        for forgotten in [1, 2, 9] {
            let mut equations = Equations::default();
            equations.add(&[(1, 1), (2, 2), (9, 3)], sum(&[(A, 1), (B, 2), (C, 3)]));
            equations.add(&[(1, 7), (2, 9), (9, 1)], sum(&[(A, 7), (B, 9), (C, 1)]));
            equations.forget(forgotten);
            assert_eq!((equations.len(), equations.unknowns()), (1, 2));
            let [(known, packet), (other, expected)] = match forgotten {
                1 => [(2, B), (9, C)],
                2 => [(9, C), (1, A)],
                _ => [(1, A), (2, B)],
            };
            equations.know(known, packet);
            assert_eq!(equations.solved(), Some((other, Some(expected.to_vec()))));
        }
    }

    #[test]
    fn a_sum_that_is_no_packet_is_none() {
        let mut equations = Equations::default();
        let mut longer = sum(&[(A, 1)]);
        longer.length = [0, 200];
        equations.add(&[(1, 1)], longer);
        assert_eq!(equations.solved(), Some((1, None)));
        let mut shorter = sum(&[(A, 1)]);
        shorter.length = [0, 2];
        equations.add(&[(1, 1)], shorter);
        assert_eq!(equations.solved(), Some((1, None)));
    }
}
