//! Values of variables: paths into JSON, how a value reads as text, and selecting many values at
//! once.

use serde_json::Value;
use std::fmt;

/// A value larger than this is not exported to a process; its file is.
pub const EXPORT_MAX: usize = 64 << 10;
/// All exported values together take at most this much: the kernel limits what a process gets at
/// its start.
pub const EXPORT_TOTAL_MAX: usize = 512 << 10;

/// `item.tags[0].name`: a root and the way from there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DataPath {
    /// The variable.
    pub root: String,
    /// The way into its value.
    pub pieces: Vec<Piece>,
}

/// One piece of a way.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Piece {
    /// `.name`
    Key(String),
    /// `[3]`
    Index(usize),
}

fn word(text: &str) -> usize {
    let bytes = text.as_bytes();
    if !bytes.first().is_some_and(|b| b.is_ascii_alphabetic() || *b == b'_') {
        return 0;
    }
    bytes.iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count()
}

fn index(text: &str) -> Option<(usize, usize)> {
    let inner = text.strip_prefix('[')?;
    let end = inner.find(']')?;
    let number = &inner[..end];
    (!number.is_empty() && number.len() < 10 && number.bytes().all(|b| b.is_ascii_digit()))
        .then(|| (number.parse().unwrap_or_default(), end + 2))
}

impl DataPath {
    /// Reads a path at the beginning of a text; also gives its length.
    pub fn read(text: &str) -> Option<(Self, usize)> {
        let length = word(text);
        if length == 0 {
            return None;
        }
        let mut at = length;
        let mut pieces = Vec::new();
        loop {
            let rest = &text[at..];
            if let Some(after) = rest.strip_prefix('.') {
                let length = word(after);
                if length == 0 {
                    break;
                }
                pieces.push(Piece::Key(after[..length].into()));
                at += 1 + length;
            } else if let Some((number, length)) = index(rest) {
                pieces.push(Piece::Index(number));
                at += length;
            } else {
                break;
            }
        }
        Some((Self { root: text[..length].into(), pieces }, at))
    }

    /// Reads a whole text as a path.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text).filter(|(_, length)| *length == text.len()).map(|(path, _)| path)
    }
}

impl fmt::Display for DataPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)?;
        for piece in &self.pieces {
            match piece {
                Piece::Key(key) => write!(f, ".{key}")?,
                Piece::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

/// The value at the end of a way.
pub fn lookup<'a>(value: &'a Value, pieces: &[Piece]) -> Option<&'a Value> {
    pieces.iter().try_fold(value, |value, piece| match piece {
        Piece::Key(key) => value.get(key),
        Piece::Index(index) => value.get(index),
    })
}

/// A value as text: strings as they are, nothing for null, everything else as compact JSON.
pub fn show(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// `$.items[*].name`: the part of JSON paths that selects by key, index and `[*]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Select(Vec<Move>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Move {
    Key(String),
    Index(usize),
    All,
}

impl Select {
    /// Reads a selection.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a path; write it like `$.items[*]`, `$[*]` or `$.a[0].b`");
        let mut rest = text.trim().strip_prefix('$').ok_or_else(wrong)?;
        let mut moves = Vec::new();
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix("[*]").or_else(|| rest.strip_prefix(".*")) {
                moves.push(Move::All);
                rest = after;
            } else if let Some((number, length)) = index(rest) {
                moves.push(Move::Index(number));
                rest = &rest[length..];
            } else if let Some(quoted) = rest.strip_prefix("['") {
                let end = quoted.find("']").ok_or_else(wrong)?;
                moves.push(Move::Key(quoted[..end].into()));
                rest = &quoted[end + 2..];
            } else {
                let after = rest.strip_prefix('.').ok_or_else(wrong)?;
                let length = after.find(['.', '[']).unwrap_or(after.len());
                if length == 0 {
                    return Err(wrong());
                }
                moves.push(Move::Key(after[..length].into()));
                rest = &after[length..];
            }
        }
        Ok(Self(moves))
    }

    /// Every value it selects, in order.
    pub fn all<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![value];
        for step in &self.0 {
            found = found
                .into_iter()
                .flat_map(|value| -> Vec<&Value> {
                    match (step, value) {
                        (Move::Key(key), _) => value.get(key).into_iter().collect(),
                        (Move::Index(index), _) => value.get(index).into_iter().collect(),
                        (Move::All, Value::Array(items)) => items.iter().collect(),
                        (Move::All, Value::Object(map)) => map.values().collect(),
                        (Move::All, _) => Vec::new(),
                    }
                })
                .collect();
        }
        found
    }

    /// It can select more than one value.
    pub fn is_many(&self) -> bool {
        self.0.contains(&Move::All)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_read_and_look_up() {
        let (path, length) = DataPath::read("item.tags[0].name%.js}").unwrap();
        assert_eq!((path.to_string().as_str(), length), ("item.tags[0].name", 17));
        let value = json!({"tags": [{"name": "x.js"}]});
        assert_eq!(lookup(&value, &path.pieces), Some(&json!("x.js")));
        assert_eq!(DataPath::read("a[@]").map(|(_, length)| length), Some(1));
        assert!(DataPath::read("1a").is_none() && DataPath::parse("a.b-c").is_none());
    }

    #[test]
    fn selections_go_through_lists() {
        let value = json!({"items": [{"a": 1}, {"a": 2}, {}], "m": {"x": 5}});
        let select = |text: &str| {
            Select::parse(text).unwrap().all(&value).into_iter().cloned().collect::<Vec<_>>()
        };
        assert_eq!(select("$.items[*].a"), [json!(1), json!(2)]);
        assert_eq!(select("$.items[1]"), [json!({"a": 2})]);
        assert_eq!(select("$.m.*"), [json!(5)]);
        assert_eq!(select("$['m'].x"), [json!(5)]);
        assert_eq!(select("$"), std::slice::from_ref(&value));
        for bad in ["items", "$.", "$[x]", "$..a", "$['a"] {
            assert!(Select::parse(bad).is_err(), "{bad}");
        }
    }
}
