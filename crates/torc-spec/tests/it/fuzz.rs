//! A short, repeatable pass of the fuzz targets' question over their seeds and mutations of them.
//! It is blind to coverage; `scripts/fuzz` runs the guided search.

#[path = "../../../../fuzz/src/spec.rs"]
mod property;

use std::path::{Path, PathBuf};
use torc_spec::SpecFormat;

/// Mutations of each format; more with `FUZZ_ROUNDS=100000`.
const ROUNDS: usize = 300;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What the guided search begins with.
fn seeds(format: SpecFormat) -> Vec<Vec<u8>> {
    let own = root().join("fuzz/seeds").join(format.extension());
    let mut paths: Vec<PathBuf> = ["examples", "crates/torc-spec/tests/errors"]
        .iter()
        .flat_map(|dir| std::fs::read_dir(root().join(dir)).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| SpecFormat::from_path(path) == Some(format))
        .collect();
    paths.extend(std::fs::read_dir(own).unwrap().map(|entry| entry.unwrap().path()));
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// The words of libFuzzer's dictionary.
fn words() -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(root().join("fuzz/torc.dict")).unwrap();
    let quoted = text.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    quoted.map(unescape).collect()
}

fn unescape(word: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (*first, after) {
            (b'\\', [b'x', high, low, tail @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
                rest = tail;
            }
            (b'\\', [escaped, tail @ ..]) => {
                bytes.push(*escaped);
                rest = tail;
            }
            (byte, _) => bytes.push(byte),
        }
    }
    bytes
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

fn mutate(text: &mut Vec<u8>, dice: &mut Dice, seeds: &[Vec<u8>], words: &[Vec<u8>]) {
    let part = dice.part(text.len());
    match dice.below(7) {
        0 => drop(text.drain(part)),
        1 => {
            let copy = text[part].to_vec();
            let at = dice.below(text.len() + 1);
            text.splice(at..at, copy);
        }
        2 => {
            let word = words[dice.below(words.len())].clone();
            text.splice(part, word);
        }
        3 => {
            let word = words[dice.below(words.len())].clone();
            text.splice(part.start..part.start, word);
        }
        4 if !part.is_empty() => text[part.start] ^= 1 << dice.below(8),
        5 => {
            let mut lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
            if !lines.is_empty() {
                let (one, two) = (dice.below(lines.len()), dice.below(lines.len()));
                lines.swap(one, two);
            }
            *text = lines.concat();
        }
        _ => {
            let other = &seeds[dice.below(seeds.len())];
            let piece = other[dice.part(other.len())].to_vec();
            text.splice(part.start..part.start, piece);
        }
    }
}

fn pass(format: SpecFormat, seed: u64) {
    let (seeds, words) = (seeds(format), words());
    assert!(seeds.len() >= 30 && words.len() > 100, "{} seeds, {} words", seeds.len(), words.len());
    let rounds =
        std::env::var("FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS);
    seeds.iter().for_each(|seed| property::hold(seed, format));
    let mut dice = Dice(seed);
    for round in 0..rounds {
        let mut text = seeds[dice.below(seeds.len())].clone();
        for _ in 0..=dice.below(4) {
            mutate(&mut text, &mut dice, &seeds, &words);
        }
        let result = std::panic::catch_unwind(|| property::hold(&text, format));
        assert!(result.is_ok(), "round {round} broke on:\n{}", String::from_utf8_lossy(&text));
    }
}

#[test]
fn mutated_yaml_breaks_nothing() {
    pass(SpecFormat::Yaml, 0x9E37_79B9_7F4A_7C15);
}

#[test]
fn mutated_json_breaks_nothing() {
    pass(SpecFormat::Json, 0xD1B5_4A32_D192_ED03);
}

#[test]
fn mutated_json5_breaks_nothing() {
    pass(SpecFormat::Json5, 0x8CB9_2BA7_2F3D_8DD7);
}

#[test]
fn mutated_kdl_breaks_nothing() {
    pass(SpecFormat::Kdl, 0xA076_1D64_78BD_642F);
}
