//! Numbers that look random and are always the same for the same seed.

/// Spreads a seed over all bits (the last step of splitmix64).
pub fn mix(seed: u64) -> u64 {
    let z = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in 0..1.
pub fn unit(seed: u64) -> f64 {
    (mix(seed) >> 11) as f64 / (1u64 << 53) as f64
}

/// The seed of the `n`th number from one seed.
pub fn nth(seed: u64, n: u64) -> u64 {
    seed ^ n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A stream of numbers that its seed determines (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The stream of this seed. Neighbouring seeds give unrelated streams.
    pub fn new(seed: u64) -> Self {
        let mut rng = Self(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ 0x5851_f42d_4c95_7f2d);
        rng.word();
        rng
    }

    /// 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.word() % n
    }

    /// A number from `low` to `high`, both included.
    pub fn range(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }

    /// True so many times in a thousand.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    /// A waiting time with this mean and a long tail.
    pub fn wait(&mut self, mean: i64) -> i64 {
        let unit = ((self.word() >> 11) as f64 + 1.0) / (1u64 << 53) as f64;
        ((-unit.ln()) * mean as f64) as i64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_stream() {
        let draw = |seed| {
            let mut rng = Rng::new(seed);
            [rng.word(), rng.below(10), rng.wait(1000) as u64]
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn numbers_of_neighbours_are_spread() {
        // Attempts have consecutive ids: a tenth of them falls into each tenth, or nearly.
        let mut tenths = [0; 10];
        for id in 1..=10_000 {
            tenths[(unit(id) * 10.0) as usize] += 1;
        }
        assert!(tenths.iter().all(|n| (900..1_100).contains(n)), "{tenths:?}");
        assert_eq!(unit(7), unit(7));
    }
}
