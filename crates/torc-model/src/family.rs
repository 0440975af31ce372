//! Families: the entries of a spec that jobs came from, which people look at instead of jobs.
//!
//! A family is given to a job when the job is created and never changes with its status. An entry
//! with parameters or a map is one family, however many jobs it makes. A spec that writes out
//! thousands of entries one by one would make as many families, so there the digits of the names
//! are masked, and then everything behind the first word.

use std::collections::{HashMap, HashSet};

/// More entries than this are grouped by their names.
pub const MAX_ENTRIES: usize = 300;

/// Gives families to the entries of one spec, in the order of the spec.
#[derive(Clone, Debug)]
pub struct Families {
    /// Whether each entry is a family of its own.
    by_entry: bool,
    names: Vec<String>,
    taken: HashSet<String>,
    known: HashMap<String, u32>,
}

impl Families {
    /// For a spec with this many entries.
    pub fn new(entries: usize) -> Self {
        Self {
            by_entry: entries <= MAX_ENTRIES,
            names: Vec::new(),
            taken: HashSet::new(),
            known: HashMap::new(),
        }
    }

    /// The family of the next entry; `name` is its name with parameters in braces.
    pub fn assign(&mut self, name: &str) -> u32 {
        if self.by_entry {
            let short = stem(name);
            let name = match self.taken.contains(&short) {
                true => self.unused(&masked(name, false)),
                false => short,
            };
            return self.add(name);
        }
        let keys = [stem(&masked(name, true)), first_word(name), "others".to_owned()];
        for (level, key) in keys.into_iter().enumerate() {
            if let Some(family) = self.known.get(&key) {
                return *family;
            }
            if self.names.len() < MAX_ENTRIES * (level + 1) || level == 2 {
                let family = self.add(key.clone());
                self.known.insert(key, family);
                return family;
            }
        }
        0
    }

    /// The names, by number.
    pub fn into_names(self) -> Vec<String> {
        self.names
    }

    fn add(&mut self, name: String) -> u32 {
        self.taken.insert(name.clone());
        self.names.push(name);
        self.names.len() as u32 - 1
    }

    fn unused(&self, name: &str) -> String {
        let numbered = |n: usize| if n == 1 { name.to_owned() } else { format!("{name}#{n}") };
        (1..).map(numbered).find(|name| !self.taken.contains(name)).unwrap_or_default()
    }
}

/// The family of a job that another job added: the entry's name without its numbers, because a loop
/// of jobs adds the same entries again and again with the next number.
pub fn of_added(entry: &str) -> String {
    stem(&masked(entry, true))
}

/// Parameters in braces, and perhaps runs of digits, as `*`.
fn masked(name: &str, digits: bool) -> String {
    let mut out = String::with_capacity(name.len());
    let mut depth = 0usize;
    for c in name.chars() {
        let is_masked = match c {
            '{' => {
                depth += 1;
                true
            }
            '}' => {
                depth = depth.saturating_sub(1);
                true
            }
            _ => depth > 0 || (digits && c.is_ascii_digit()),
        };
        match is_masked {
            true if out.ends_with('*') => {}
            true => out.push('*'),
            false => out.push(c),
        }
    }
    out
}

/// Without what the parameters stand for at the end: `train_{rate}_{seed}` is `train`.
fn stem(name: &str) -> String {
    let masked = masked(name, false);
    let short = masked.trim_end_matches(|c: char| c == '*' || "_-.:/ ".contains(c));
    if short.is_empty() || !masked.ends_with('*') { masked } else { short.to_owned() }
}

fn first_word(name: &str) -> String {
    let end = name.find(|c: char| !c.is_alphabetic()).unwrap_or(name.len());
    if end == 0 { "others".into() } else { name[..end].to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(entries: &[&str]) -> Vec<String> {
        let mut families = Families::new(entries.len());
        entries.iter().for_each(|name| {
            families.assign(name);
        });
        families.into_names()
    }

    #[test]
    fn a_family_is_named_after_its_entry_without_parameters() {
        let given = ["prep", "train_{rate}_{seed}", "{a}", "x{i}y", "report"];
        assert_eq!(names(&given), ["prep", "train", "*", "x*y", "report"]);
    }

    #[test]
    fn entries_never_share_a_name() {
        let given = ["train", "train_{i}", "train_{j}", "train_{i}"];
        assert_eq!(names(&given), ["train", "train_*", "train_*#2", "train_*#3"]);
    }

    #[test]
    fn thousands_of_entries_are_grouped_by_their_names() {
        let mut families = Families::new(100_000);
        let numbers: Vec<u32> =
            ["work_00001", "work_00002", "merge"].map(|name| families.assign(name)).into();
        assert_eq!(numbers, [0, 0, 1]);
        assert_eq!(families.into_names(), ["work", "merge"]);
    }

    #[test]
    fn names_that_have_nothing_in_common_still_make_few_families() {
        let mut families = Families::new(100_000);
        let letters = |n: u32| char::from(b'a' + (n % 26) as u8);
        for n in 0..20_000u32 {
            let name: String = [n, n / 26, n / 676, n / 17576].map(letters).iter().collect();
            families.assign(&name);
        }
        assert!(families.into_names().len() <= 3 * MAX_ENTRIES);
    }
}
