//! Finds names in a list without keeping a second copy of each: there may be a million.

use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher};

/// Takes a number that is a hash already as it is.
#[derive(Debug, Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        debug_assert!(false, "only numbers are keys, not {} bytes", bytes.len());
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Positions by the hash of the name that stands there. Who asks also says how to read the name at
/// a position.
#[derive(Debug, Default)]
pub struct Index {
    state: RandomState,
    by_hash: HashMap<u64, u32, BuildHasherDefault<Hashed>>,
    /// Names whose hash belonged to another one already.
    others: HashMap<String, u32>,
}

impl Index {
    /// Makes room for this many names at once.
    pub fn reserve(&mut self, more: usize) {
        self.by_hash.reserve(more);
    }

    /// Where a name stands.
    pub fn get<'a>(&self, name: &str, at: impl Fn(usize) -> &'a str) -> Option<usize> {
        let found = *self.by_hash.get(&self.state.hash_one(name))? as usize;
        if at(found) == name {
            Some(found)
        } else {
            self.others.get(name).map(|position| *position as usize)
        }
    }

    /// Adds a name that is not in it yet.
    pub fn add<'a>(&mut self, name: &str, position: usize, at: impl Fn(usize) -> &'a str) {
        debug_assert!(self.get(name, at).is_none(), "`{name}` is added twice");
        let position = u32::try_from(position).unwrap_or(u32::MAX);
        match self.by_hash.entry(self.state.hash_one(name)) {
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(position);
            }
            std::collections::hash_map::Entry::Occupied(_) => {
                self.others.insert(name.to_owned(), position);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_the_same_hash_are_told_apart() {
        let names: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        let at = |position: usize| names[position].as_str();
        let mut index = Index::default();
        index.add("a", 0, at);
        // As if `b` had the hash of `a`.
        index.by_hash.insert(index.state.hash_one("b"), 0);
        index.add("b", 1, at);
        index.add("c", 2, at);
        let found: Vec<Option<usize>> =
            ["a", "b", "c", "d"].iter().map(|name| index.get(name, at)).collect();
        assert_eq!(found, [Some(0), Some(1), Some(2), None]);
    }
}
