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

#[cfg(test)]
mod tests {
    use super::*;

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
