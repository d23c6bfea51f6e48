//! A winner tree: which of a fixed set of players is due first.
//!
//! Moving one player costs a comparison a level; a heap would keep the entries that a moved deadline
//! leaves behind. Of players that are due together the one with
//! the lowest number wins, so that results never hang on the order in which entries were made.
//!
//! Source: D. E. Knuth, The Art of Computer Programming, volume 3, section 5.4.1 (replacement
//! selection by a tree of losers; this one keeps winners, for any player may move, not only the
//! last winner).

use bentpipe_base::Instant;

/// Players 0, 1, 2, ... with the time each is due; [`Instant::MAX`] is never. So is any time that the bits
/// beside the player's number do not hold: with 500 players what lies more than a year ahead.
///
/// The first players move all the time, and have a tree of their own: few players meet in few rounds.
#[derive(Clone, Debug)]
pub(crate) struct Tournament {
    busy: Tree,
    /// The number of the first player of `others`.
    bound: usize,
    others: Tree,
    /// Bits of a player's number.
    bits: u32,
}

impl Tournament {
    /// `busy` players and behind them `others`, all never due.
    pub(crate) fn new(busy: usize, others: usize) -> Self {
        let players = busy + others;
        let mut tournament = Self {
            busy: Tree::new(busy),
            bound: busy,
            others: Tree::new(others),
            bits: players.next_power_of_two().trailing_zeros().max(1),
        };
        (0..players).for_each(|player| tournament.set(player, Instant::MAX));
        tournament
    }

    /// The time due and below it the number of the player: the least key comes first, and no
    /// comparison is left to be foreseen.
    #[inline]
    fn key(&self, player: usize, due: Instant) -> u64 {
        due.as_nanos().min(u64::MAX >> self.bits) << self.bits | player as u64
    }

    /// `player` is due at `due`.
    #[inline]
    pub(crate) fn set(&mut self, player: usize, due: Instant) {
        let key = self.key(player, due);
        match player.checked_sub(self.bound) {
            None => self.busy.set(player, key),
            Some(other) => self.others.set(other, key),
        }
    }

    /// `player` is due at `due`, unless it is due earlier.
    #[inline]
    pub(crate) fn hasten(&mut self, player: usize, due: Instant) {
        let key = self.key(player, due);
        match player.checked_sub(self.bound) {
            None => self.busy.hasten(player, key),
            Some(other) => self.others.hasten(other, key),
        }
    }

    /// Whether `player` is due by `now`.
    #[inline]
    pub(crate) fn is_due(&self, player: usize, now: Instant) -> bool {
        let key = match player.checked_sub(self.bound) {
            None => self.busy.at(player),
            Some(other) => self.others.at(other),
        };
        key >> self.bits <= now.as_nanos()
    }

    /// The time of the player due first, and its number.
    #[inline]
    pub(crate) fn first(&self) -> (Instant, usize) {
        let key = self.busy.first.min(self.others.first);
        let due = key >> self.bits;
        let player = key & !(u64::MAX << self.bits);
        let due = if due == u64::MAX >> self.bits {
            Instant::MAX
        } else {
            Instant::from_nanos(due)
        };
        (due, player as usize)
    }
}

/// A tree of keys; the greatest is that of nobody.
#[derive(Clone, Debug)]
struct Tree {
    /// Nodes of a binary tree, root at 1, the children of i at 2i and 2i + 1; the second half are the
    /// players, some of them a round further up unless their number is a power of two. Node n is the
    /// (n mod 2)th of pair n / 2.
    tree: Vec<[u64; 2]>,
    /// The node that the first player is.
    leaves: usize,
    /// The least key.
    first: u64,
}

impl Tree {
    /// Of `players`, none of whom has a key.
    fn new(players: usize) -> Self {
        let leaves = players.max(2);
        Self {
            tree: vec![[u64::MAX; 2]; leaves],
            leaves,
            first: u64::MAX,
        }
    }

    #[inline]
    fn hasten(&mut self, player: usize, key: u64) {
        if key < self.at(player) {
            self.set(player, key);
        }
    }

    /// The key of `player`.
    #[inline]
    fn at(&self, player: usize) -> u64 {
        let leaf = self.leaves + player;
        self.tree[leaf / 2][leaf % 2]
    }

    /// Plays anew as far up as anything changes.
    #[inline]
    fn set(&mut self, player: usize, key: u64) {
        let (mut node, mut first) = (self.leaves + player, key);
        while node > 1 {
            let pair = &mut self.tree[node / 2];
            if pair[node % 2] == first {
                return;
            }
            pair[node % 2] = first;
            first = first.min(pair[(node % 2) ^ 1]);
            node /= 2;
        }
        self.first = first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the definition: the least (time, number) of all.
        #[test]
        fn the_first_is_the_earliest_and_of_equals_the_lowest(
            players in 1usize..40,
            busy in 0usize..40,
            moves in prop::collection::vec((0usize..40, 0u64..20, any::<bool>()), 1..200),
        ) {
            let busy = busy.min(players);
            let mut tournament = Tournament::new(busy, players - busy);
            let mut due = vec![Instant::MAX; players];
            for (player, at, sooner) in moves {
                let player = player % players;
                // 19 stands for "never".
                let at = if at == 19 { Instant::MAX } else { Instant::from_nanos(at) };
                if sooner {
                    tournament.hasten(player, at);
                    due[player] = at.min(due[player]);
                } else {
                    tournament.set(player, at);
                    due[player] = at;
                }
                let first = due.iter().zip(0..).min().map(|(due, player)| (*due, player));
                prop_assert_eq!(Some(tournament.first()), first);
            }
        }
    }
}
