//! Choices of a seed.

use bentpipe_base::Stream;

pub(crate) struct Dice(Stream);

impl Dice {
    pub(crate) fn new(seed: u64, name: &str) -> Self {
        Self(Stream::new(seed, name))
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0.bits() % n.max(1)
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    pub(crate) fn hits(&mut self, chance: f64) -> bool {
        self.0.uniform() < chance
    }
}
