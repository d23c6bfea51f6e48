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

/// Players 0, 1, 2, ... with the time each is due; [`Instant::MAX`]: never.
#[derive(Clone, Debug)]
pub(crate) struct Tournament {
    /// Nodes of a complete binary tree, root at 1, the children of i at 2i and 2i + 1; the second
    /// half are the players.
    tree: Vec<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    due: Instant,
    player: u32,
}

impl Tournament {
    /// `players` that are never due.
    pub(crate) fn new(players: usize) -> Self {
        let leaves = players.next_power_of_two().max(2);
        let mut tree: Vec<Entry> = (0..2 * leaves)
            .map(|index| Entry {
                due: Instant::MAX,
                // At most the number of links and nodes of a simulation.
                player: index.saturating_sub(leaves) as u32,
            })
            .collect();
        for node in (1..leaves).rev() {
            // Nobody is due: the lower number.
            tree[node] = tree[2 * node];
        }
        Self { tree }
    }

    /// When `player` is due.
    #[inline]
    pub(crate) fn due(&self, player: usize) -> Instant {
        self.tree[self.tree.len() / 2 + player].due
    }

    /// `player` is due at `due`.
    #[inline]
    pub(crate) fn set(&mut self, player: usize, due: Instant) {
        let mut node = self.tree.len() / 2 + player;
        self.tree[node].due = due;
        let mut first = self.tree[node];
        while node > 1 {
            let rival = self.tree[node ^ 1];
            if rival.before(&first) {
                first = rival;
            }
            node /= 2;
            self.tree[node] = first;
        }
    }

    /// The time of the player due first, and its number.
    #[inline]
    pub(crate) fn first(&self) -> (Instant, usize) {
        let Entry { due, player } = self.tree[1];
        (due, player as usize)
    }
}

impl Entry {
    #[inline]
    fn before(&self, other: &Self) -> bool {
        self.due < other.due || (self.due == other.due && self.player < other.player)
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
            moves in prop::collection::vec((0usize..40, 0u64..20), 1..200),
        ) {
            let mut tournament = Tournament::new(players);
            let mut due = vec![Instant::MAX; players];
            for (player, at) in moves {
                let player = player % players;
                // 19 stands for "never".
                let at = if at == 19 { Instant::MAX } else { Instant::from_nanos(at) };
                tournament.set(player, at);
                due[player] = at;
                let first = due.iter().zip(0..).min().map(|(due, player)| (*due, player));
                prop_assert_eq!(Some(tournament.first()), first);
                prop_assert_eq!(tournament.due(player), at);
            }
        }
    }
}
