use rand::Rng;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

/// A stream of chance for one named entity of one seeded run.
///
/// ChaCha8 keyed by SHA-256 of seed and name: streams of different names are independent, so adding
/// an entity never moves another's draws, and equal (seed, name) give equal streams everywhere.
#[derive(Clone, Debug)]
pub struct Stream(ChaCha8Rng);

impl Stream {
    /// The stream of entity `name` (such as `"link.sat.forward"`) under `seed`.
    pub fn new(seed: u64, name: &str) -> Self {
        let digest = Sha256::new()
            .chain_update(seed.to_le_bytes())
            .chain_update(name)
            .finalize();
        Self(ChaCha8Rng::from_seed(digest.into()))
    }

    /// The next draw, uniform in [0, 1), of 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }

    /// Whether something that happens once in `n` times does.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of `choices`, of which there is at least one.
    pub fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// The generator, for distributions of `rand_distr`.
    pub fn rng(&mut self) -> &mut ChaCha8Rng {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_follows_from_seed_and_name_alone() {
        let draws = |seed, name| {
            let mut stream = Stream::new(seed, name);
            [stream.bits(), stream.bits(), stream.bits()]
        };
        assert_eq!(draws(1, "link.a"), draws(1, "link.a"));
        assert_ne!(draws(1, "link.a"), draws(1, "link.b"));
        assert_ne!(draws(1, "link.a"), draws(2, "link.a"));
    }

    #[test]
    fn uniform_draws_have_the_moments_of_the_unit_interval() {
        let mut stream = Stream::new(7, "moments");
        let draws: Vec<f64> = (0..100_000).map(|_| stream.uniform()).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 1e5;
        assert!((mean - 0.5).abs() < 0.004, "mean {mean}");
        assert!((variance - 1.0 / 12.0).abs() < 0.001, "variance {variance}");
        assert!(draws.iter().all(|x| (0.0..1.0).contains(x)));
    }
}
