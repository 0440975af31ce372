//! What a map found when it looked for its items, compared with the items that it has.

use super::index::JobIx;
use serde_json::Value;
use std::collections::BTreeMap;
use torc_model::steps::Item;

/// The difference between the items that a map has and those that it found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ItemDifference {
    /// Items that are what they were.
    pub kept: Vec<JobIx>,
    /// Items with another value.
    pub changed: Vec<(JobIx, Item)>,
    /// Items that it did not have.
    pub new: Vec<Item>,
    /// Items that were not found.
    pub gone: Vec<JobIx>,
}

impl ItemDifference {
    /// Compares by key. `known` are the items that there are, by their keys.
    pub fn of(mut known: BTreeMap<String, (JobIx, Value)>, found: Vec<Item>) -> Self {
        let mut difference = Self::default();
        for item in found {
            match known.remove(&item.key) {
                Some((at, value)) if value == item.item => difference.kept.push(at),
                Some((at, _)) => difference.changed.push((at, item)),
                None => difference.new.push(item),
            }
        }
        difference.gone = known.into_values().map(|(at, _)| at).collect();
        difference
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_are_compared_by_key_and_value() {
        let ix = JobIx::new;
        let item = |key: &str, value: i64| Item { key: key.into(), item: json!(value) };
        let known = [("a", 1, 1), ("b", 2, 2), ("c", 3, 3)];
        let known = known.into_iter().map(|(key, at, value)| (key.into(), (ix(at), json!(value))));
        let found = vec![item("d", 4), item("b", 9), item("a", 1)];
        let difference = ItemDifference::of(known.collect(), found);
        let expected = ItemDifference {
            kept: vec![ix(1)],
            changed: vec![(ix(2), item("b", 9))],
            new: vec![item("d", 4)],
            gone: vec![ix(3)],
        };
        assert_eq!(difference, expected);
    }
}
