//! A short, repeatable pass of the fuzz targets' questions over their seeds and mutations of them.
//! It is blind to coverage; `scripts/fuzz` runs the guided search.

#[path = "../../../fuzz/src/model.rs"]
mod question;

use std::path::{Path, PathBuf};

/// Mutations of each target; more with `FUZZ_ROUNDS=100000`.
const ROUNDS: usize = 3_000;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(dir: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.iter().filter(|path| path.is_file()).map(|path| std::fs::read(path).unwrap()).collect()
}

/// Xorshift: the same mutations every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }

    fn part(&mut self, length: usize) -> std::ops::Range<usize> {
        let start = self.below(length + 1);
        start..start + self.below((length - start).min(40) + 1)
    }
}

fn mutate(text: &mut Vec<u8>, dice: &mut Dice, seeds: &[Vec<u8>]) {
    let part = dice.part(text.len());
    match dice.below(6) {
        0 => drop(text.drain(part)),
        1 => {
            let copy = text[part].to_vec();
            let at = dice.below(text.len() + 1);
            text.splice(at..at, copy);
        }
        2 if !part.is_empty() => text[part.start] ^= 1 << dice.below(8),
        3 => {
            let odd: [&[u8]; 10] = [
                b"0",
                b"-1",
                b"99999999999999999999",
                b"1e999",
                b"null",
                b"\"",
                b"|",
                b"\n",
                b"\xf0\x9f",
                b"(",
            ];
            text.splice(part, odd[dice.below(odd.len())].iter().copied());
        }
        _ => {
            let other = &seeds[dice.below(seeds.len())];
            let piece = other[dice.part(other.len())].to_vec();
            text.splice(part.start..part.start, piece);
        }
    }
}

fn pass(name: &str, more: Option<&str>, question: fn(&[u8])) {
    let mut seeds = files(&root().join("fuzz/seeds").join(name));
    seeds.extend(more.map(|dir| files(&root().join(dir))).unwrap_or_default());
    assert!(seeds.len() >= 2, "{} seeds", seeds.len());
    let asked = std::env::var("FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok());
    seeds.iter().for_each(|seed| question(seed));
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    for round in 0..asked.unwrap_or(ROUNDS) {
        let mut text = seeds[dice.below(seeds.len())].clone();
        for _ in 0..=dice.below(4) {
            mutate(&mut text, &mut dice, &seeds);
        }
        let result = std::panic::catch_unwind(|| question(&text));
        assert!(result.is_ok(), "round {round} broke on:\n{}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn mutated_filters_break_nothing() {
    pass("filter", None, question::filter);
}

#[test]
fn mutated_answers_of_slurm_break_nothing() {
    pass("slurm", Some("crates/torc-model/tests/fixtures/slurm"), question::slurm);
}

#[test]
fn mutated_messages_of_runners_break_nothing() {
    pass("wire", None, question::wire);
}

#[test]
fn searches_in_mutated_output_find_what_is_there() {
    pass("search", None, question::search_log);
}

#[test]
fn mutated_files_of_kept_results_break_nothing() {
    pass("kept", None, question::kept_results);
}
