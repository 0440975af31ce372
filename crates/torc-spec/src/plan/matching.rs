//! Regular expressions over many names, each distinct expression once, without looking at every
//! name for every expression where that can be avoided.

use aho_corasick::AhoCorasick;
use regex::Regex;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Names, sorted once, against which expressions are matched.
pub struct Names<'a> {
    names: Vec<&'a str>,
    sorted: OnceCell<Vec<u32>>,
}

/// The indexes of the names that an expression matches.
pub type Matches = Rc<[u32]>;

/// An expression in the cheapest form that means the same.
enum Pattern {
    Exact(String),
    Prefix(String),
    /// Names that contain the text are candidates; the rest decides.
    Contains(String, NameCondition),
    /// Nothing can be said before matching.
    Regex,
}

/// What must hold besides containing a text. Expressions are compiled when they are needed:
/// thousands of them take hundreds of megabytes.
#[derive(PartialEq)]
enum NameCondition {
    Nothing,
    AtEnd,
    Regex,
}

/// Expressions that must look at every name may cost this many looks in all.
const MAX_LOOKS: usize = 100_000_000;

impl<'a> Names<'a> {
    /// For a list of names.
    pub fn new(names: Vec<&'a str>) -> Self {
        Self { names, sorted: OnceCell::new() }
    }

    /// Matches every distinct expression; indexes are in the order of the names.
    pub fn match_all<'p>(
        &self,
        patterns: impl IntoIterator<Item = &'p str>,
    ) -> HashMap<&'p str, Result<Matches, String>> {
        let mut found: HashMap<&str, Result<Matches, String>> = HashMap::new();
        let mut contained: Vec<(&str, String, NameCondition)> = Vec::new();
        let mut looks = 0usize;
        for pattern in patterns {
            if found.contains_key(pattern) {
                continue;
            }
            let matches = match Pattern::parse(pattern) {
                Pattern::Exact(text) => Ok(self
                    .with_prefix(&text)
                    .filter(|i| self.names[*i as usize] == text)
                    .collect()),
                Pattern::Prefix(text) => Ok(self.with_prefix(&text).collect()),
                Pattern::Regex => {
                    looks += self.names.len();
                    if looks > MAX_LOOKS {
                        Err("there are too many different expressions of this kind; begin them with plain text".into())
                    } else {
                        self.filtered(pattern, (0..self.names.len() as u32).collect())
                    }
                }
                Pattern::Contains(text, rest) => {
                    contained.push((pattern, text, rest));
                    Ok(Vec::new())
                }
            };
            found.insert(pattern, matches.map(in_order));
        }
        self.match_contained(contained, &mut found);
        found
    }

    /// One pass over the names for all the texts that may stand anywhere in them.
    fn match_contained<'p>(
        &self,
        texts: Vec<(&'p str, String, NameCondition)>,
        found: &mut HashMap<&'p str, Result<Matches, String>>,
    ) {
        if texts.is_empty() {
            return;
        }
        let automaton = match AhoCorasick::new(texts.iter().map(|(_, text, _)| text)) {
            Ok(automaton) => automaton,
            Err(error) => {
                found.extend(texts.iter().map(|(pattern, ..)| (*pattern, Err(error.to_string()))));
                return;
            }
        };
        let mut matches: Vec<Vec<u32>> = vec![Vec::new(); texts.len()];
        for (index, name) in self.names.iter().enumerate() {
            for hit in automaton.find_overlapping_iter(name) {
                let pattern = hit.pattern().as_usize();
                let list = &mut matches[pattern];
                if list.last() == Some(&(index as u32)) {
                    continue;
                }
                if texts[pattern].2 != NameCondition::AtEnd || hit.end() == name.len() {
                    list.push(index as u32);
                }
            }
        }
        for ((pattern, _, rest), matches) in texts.into_iter().zip(matches) {
            let matches = if rest == NameCondition::Regex {
                self.filtered(pattern, matches)
            } else {
                Ok(matches)
            };
            found.insert(pattern, matches.map(Matches::from));
        }
    }

    /// Those of the candidates that an expression matches.
    fn filtered(&self, pattern: &str, mut candidates: Vec<u32>) -> Result<Vec<u32>, String> {
        let regex = Regex::new(pattern).map_err(|error| error.to_string())?;
        candidates.retain(|i| regex.is_match(self.names[*i as usize]));
        Ok(candidates)
    }

    fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = u32> + '_ {
        let sorted = self.sorted.get_or_init(|| {
            let mut sorted: Vec<u32> =
                (0..u32::try_from(self.names.len()).unwrap_or(u32::MAX)).collect();
            sorted.sort_unstable_by_key(|index| self.names[*index as usize]);
            sorted
        });
        let start = sorted.partition_point(|i| self.names[*i as usize] < prefix);
        let owned = prefix.to_owned();
        sorted[start..]
            .iter()
            .copied()
            .take_while(move |i| self.names[*i as usize].starts_with(&owned))
    }
}

fn in_order(mut indexes: Vec<u32>) -> Matches {
    indexes.sort_unstable();
    indexes.into()
}

impl Pattern {
    fn parse(pattern: &str) -> Self {
        Self::simple(pattern).unwrap_or_else(|| match required(pattern) {
            Some(text) => Self::Contains(text, NameCondition::Regex),
            None => Self::Regex,
        })
    }

    /// Plain text, perhaps anchored, perhaps with `.*` at an end.
    fn simple(pattern: &str) -> Option<Self> {
        let (from_start, rest) =
            pattern.strip_prefix('^').map_or((false, pattern), |rest| (true, rest));
        let (from_start, rest) = match rest.strip_prefix(".*") {
            Some(rest) => (false, rest),
            None => (from_start, rest),
        };
        let (to_end, rest) = match rest.strip_suffix('$') {
            Some(body) if !ends_escaped(body) => (true, body),
            _ => (false, rest),
        };
        let (to_end, rest) = match rest.strip_suffix(".*") {
            Some(body) if !ends_escaped(body) => (false, body),
            _ => (to_end, rest),
        };
        let text = unescape(rest)?;
        // `.` does not match a line break, but names have none.
        Some(match (from_start, to_end) {
            (true, true) => Self::Exact(text),
            (true, false) => Self::Prefix(text),
            (false, _) if text.is_empty() => Self::Prefix(text),
            (false, true) => Self::Contains(text, NameCondition::AtEnd),
            (false, false) => Self::Contains(text, NameCondition::Nothing),
        })
    }
}

/// An odd number of backslashes takes the meaning from the next character.
fn ends_escaped(text: &str) -> bool {
    text.bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1
}

/// The text that an expression without operators stands for.
fn unescape(pattern: &str) -> Option<String> {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => out.push(
                chars
                    .next()
                    .filter(char::is_ascii_punctuation)
                    .filter(|c| !matches!(c, '<' | '>'))?,
            ),
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' | '$' => {
                return None;
            }
            c => out.push(c),
        }
    }
    Some(out)
}

/// The longest plain text that every match must contain, if that is easy to see.
fn required(pattern: &str) -> Option<String> {
    if pattern.contains(['|', '(']) {
        return None;
    }
    let mut best = String::new();
    let mut run = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        let literal = match c {
            '\\' => {
                chars.next().filter(char::is_ascii_punctuation).filter(|c| !matches!(c, '<' | '>'))
            }
            '[' => {
                // `[` and `]` can stand inside in several ways: give up on the rest.
                best = longer(best, &mut run);
                break;
            }
            '{' => {
                chars.by_ref().find(|c| *c == '}');
                None
            }
            '.' | '*' | '+' | '?' | '^' | '$' => None,
            c => Some(c),
        };
        match (literal, chars.peek()) {
            // The last character may occur not at all.
            (Some(_), Some('*' | '?' | '{')) | (None, _) => best = longer(best, &mut run),
            (Some(c), _) => run.push(c),
        }
    }
    best = longer(best, &mut run);
    (!best.is_empty()).then_some(best)
}

fn longer(best: String, run: &mut String) -> String {
    let run = std::mem::take(run);
    if run.len() > best.len() { run } else { best }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matched(names: &[&str], pattern: &str) -> Vec<u32> {
        let found = Names::new(names.to_vec()).match_all([pattern]);
        found[pattern].as_ref().unwrap().to_vec()
    }

    #[test]
    fn each_form_matches_what_the_regex_matches() {
        let names = ["t_1", "t_10", "t_2", "x.t_1", "xat_1", "prep", ""];
        let patterns = [
            "^t_",
            "^t_1$",
            "t_1",
            "t_1$",
            "^t_.*",
            ".*",
            "",
            r"x\.t",
            "^t_[12]$",
            "^tx*_",
            "(a|x)",
            "^t_.*$",
            "prep|t_2",
            "t_\\d+$",
            "a?t_[0-9]",
            "_1{1}",
        ];
        for pattern in patterns {
            let regex = Regex::new(pattern).unwrap();
            let expected: Vec<u32> =
                (0..names.len() as u32).filter(|i| regex.is_match(names[*i as usize])).collect();
            assert_eq!(matched(&names, pattern), expected, "{pattern}");
        }
    }

    proptest! {
        #[test]
        fn shortcuts_never_change_the_meaning(
            names in proptest::collection::vec("[ab_.1$^]{0,5}", 0..20),
            pattern in r"\^?(\.\*)?[ab_1]{0,3}(\\[.$^])?[.]?[*+?]?(\.\*)?\$?",
        ) {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if let Ok(regex) = Regex::new(&pattern) {
                let expected: Vec<u32> = (0..names.len() as u32).filter(|i| regex.is_match(names[*i as usize])).collect();
                prop_assert_eq!(matched(&names, &pattern), expected);
            }
        }
    }
}
