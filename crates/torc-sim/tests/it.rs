//! The simulator holds its own promises: a seed is one history, honest seeds hold, and every defect
//! is found.

use torc_sim::{Sabotage, play, trace};

#[test]
fn a_seed_is_one_history() {
    for seed in [1, 17, 4711] {
        let (first, _) = trace(seed, None);
        let (second, _) = trace(seed, None);
        assert!(first.len() > 10);
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn the_invariants_hold() {
    for seed in 0..400 {
        let (_, verdict) = play(seed, None);
        assert_eq!(
            verdict,
            Ok(()),
            "replay: cargo run --release -p torc-sim -- --seed {seed} --trace"
        );
    }
}

#[test]
fn every_defect_is_found() {
    /// The rarest of them shows about once in two thousand seeds.
    const WITHIN: u64 = 3000;
    let missed: Vec<String> = Sabotage::all()
        .iter()
        .filter(|defect| (0..WITHIN).all(|seed| play(seed, Some(**defect)).1.is_ok()))
        .map(|defect| defect.name())
        .collect();
    assert!(missed.is_empty(), "no seed found {missed:?} within {WITHIN} seeds");
}
