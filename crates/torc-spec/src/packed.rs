//! Long lists in little memory: a file may have a million jobs, and a tree of them takes several
//! times the file.
//!
//! The elements stand one after the other as bytes, with their places, and are made into nodes one
//! at a time whenever it is read. Only the list of jobs is ever kept like this, and only if it
//! is long.

use crate::keys;
use crate::node::{Entry, Kind, Node, Span};
use serde_json::Number;
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// Longer lists are packed.
pub const MAX_PLAIN: usize = 4_096;

/// Elements that are packed together: the room of a part is free again as soon as it has been read
/// for the last time.
const PART: usize = 256;

/// A list of nodes as bytes.
#[derive(Clone, Debug, Default)]
pub struct Packed {
    parts: Vec<Part>,
    /// The known keys that occur anywhere in it.
    keys: HashSet<&'static str>,
}

/// Some consecutive elements; all parts but the last have [`PART`] of them.
#[derive(Clone, Debug, Default)]
struct Part {
    count: usize,
    /// Kinds, lengths and places.
    bytes: Vec<u8>,
    /// All texts, one after the other.
    texts: String,
}

// What the first byte of a node says: its kind, and whether a place or a spelling follows.
const NULL: u8 = 0;
const FALSE: u8 = 1;
const TRUE: u8 = 2;
const POSITIVE: u8 = 3;
const NEGATIVE: u8 = 4;
const FLOAT: u8 = 5;
const TEXT: u8 = 6;
const LIST: u8 = 7;
const MAP: u8 = 8;
const KIND: u8 = 0x0f;
const PLACED: u8 = 0x10;
const SPELT: u8 = 0x20;

impl Packed {
    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.parts.len().saturating_sub(1) * PART + self.parts.last().map_or(0, |part| part.count)
    }

    /// Whether a key that the tables know occurs in any element, at any depth.
    pub fn mentions(&self, key: &str) -> bool {
        self.keys.contains(key)
    }

    /// One element.
    pub fn get(&self, index: usize) -> Option<Node> {
        let part = self.parts.get(index / PART)?;
        part.cursor().take(part.count).nth(index % PART)
    }

    /// All elements, made one at a time.
    pub fn iter(&self) -> impl Iterator<Item = Node> + '_ {
        self.parts.iter().flat_map(|part| part.cursor().take(part.count))
    }

    /// The same for the last time: what has been read takes no more room.
    pub fn consume(self) -> impl Iterator<Item = Node> {
        self.parts.into_iter().flat_map(|part| {
            let (mut at, mut left) = ((0, 0), part.count);
            std::iter::from_fn(move || {
                left = left.checked_sub(1)?;
                let mut cursor = PartCursor { part: &part, at: at.0, text_at: at.1 };
                let node = cursor.next();
                at = (cursor.at, cursor.text_at);
                node
            })
        })
    }

    /// Each element changed.
    pub fn map(self, mut change: impl FnMut(usize, &mut Node)) -> Self {
        let mut changed = Self::default();
        for (index, mut node) in self.consume().enumerate() {
            change(index, &mut node);
            changed.push(&node);
        }
        changed
    }

    /// Adds an element.
    pub fn push(&mut self, node: &Node) {
        if self.parts.last().is_none_or(|part| part.count == PART) {
            if let Some(part) = self.parts.last_mut() {
                part.bytes.shrink_to_fit();
                part.texts.shrink_to_fit();
            }
            self.parts.push(Part::default());
        }
        let Some(part) = self.parts.last_mut() else { return };
        part.count += 1;
        let mut last = 0;
        part.node(node, &mut last, &mut self.keys);
    }
}

impl Extend<Node> for Packed {
    fn extend<T: IntoIterator<Item = Node>>(&mut self, nodes: T) {
        nodes.into_iter().for_each(|node| self.push(&node));
    }
}

impl Part {
    fn cursor(&self) -> PartCursor<'_> {
        PartCursor { part: self, at: 0, text_at: 0 }
    }

    fn number(&mut self, mut number: u64) {
        while number > 0x7f {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Places are told from the place before: most are close to it.
    fn place(&mut self, span: Span, last: &mut u32) {
        let step = i64::from(span.start) - i64::from(*last);
        self.number(zigzag(step));
        self.number(u64::from(span.end.saturating_sub(span.start)));
        *last = span.start;
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.texts.push_str(text);
    }

    fn node(&mut self, node: &Node, last: &mut u32, keys: &mut HashSet<&'static str>) {
        let kind = match &node.kind {
            Kind::Null => NULL,
            Kind::Bool(false) => FALSE,
            Kind::Bool(true) => TRUE,
            Kind::Number(number, _) if number.is_u64() => POSITIVE,
            Kind::Number(number, _) if number.is_i64() => NEGATIVE,
            Kind::Number(..) => FLOAT,
            Kind::Text(_) => TEXT,
            Kind::List(_) | Kind::Long(_) => LIST,
            Kind::Map(_) => MAP,
        };
        let spelt = matches!(&node.kind, Kind::Number(_, Some(_)));
        let placed = !node.span.is_none();
        self.bytes.push(kind | if placed { PLACED } else { 0 } | if spelt { SPELT } else { 0 });
        if placed {
            self.place(node.span, last);
        }
        match &node.kind {
            Kind::Null | Kind::Bool(_) => {}
            Kind::Number(number, spelling) => {
                match (number.as_u64(), number.as_i64(), number.as_f64()) {
                    (Some(number), ..) => self.number(number),
                    (None, Some(number), _) => self.number(zigzag(number)),
                    (None, None, number) => {
                        self.bytes.extend(number.unwrap_or_default().to_le_bytes())
                    }
                }
                if let Some(spelling) = spelling {
                    self.text(spelling);
                }
            }
            Kind::Text(text) => self.text(text),
            Kind::List(items) => {
                self.number(items.len() as u64);
                items.iter().for_each(|item| self.node(item, last, keys));
            }
            Kind::Long(items) => {
                self.number(items.len() as u64);
                items.iter().for_each(|item| self.node(&item, last, keys));
            }
            Kind::Map(entries) => {
                self.number(entries.len() as u64);
                for entry in entries {
                    let placed = u64::from(!entry.key_span.is_none());
                    match keys::number(&entry.key) {
                        Some((number, key)) => {
                            self.number((number as u64 + 1) << 1 | placed);
                            keys.insert(key);
                        }
                        None => {
                            self.number(placed);
                            self.text(&entry.key);
                        }
                    }
                    if placed == 1 {
                        self.place(entry.key_span, last);
                    }
                    self.node(&entry.value, last, keys);
                }
            }
        }
    }
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// Reads a part from its begin.
struct PartCursor<'a> {
    part: &'a Part,
    at: usize,
    text_at: usize,
}

impl Iterator for PartCursor<'_> {
    type Item = Node;

    /// Who asks knows how many there are.
    fn next(&mut self) -> Option<Node> {
        let mut last = 0;
        Some(self.node(&mut last))
    }
}

impl<'a> PartCursor<'a> {
    fn byte(&mut self) -> u8 {
        self.at += 1;
        self.part.bytes[self.at - 1]
    }

    fn number(&mut self) -> u64 {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return number;
            }
        }
    }

    fn place(&mut self, last: &mut u32) -> Span {
        let start = (i64::from(*last) + unzigzag(self.number())) as u32;
        *last = start;
        Span { start, end: start + self.number() as u32 }
    }

    fn text(&mut self) -> &'a str {
        let start = self.text_at;
        self.text_at += self.number() as usize;
        &self.part.texts[start..self.text_at]
    }

    fn node(&mut self, last: &mut u32) -> Node {
        let head = self.byte();
        let span = if head & PLACED == 0 { Span::NONE } else { self.place(last) };
        let spelling = |cursor: &mut Self| (head & SPELT != 0).then(|| cursor.text().into());
        let kind = match head & KIND {
            FALSE => Kind::Bool(false),
            TRUE => Kind::Bool(true),
            POSITIVE => {
                let number = Number::from(self.number());
                Kind::Number(number, spelling(self))
            }
            NEGATIVE => {
                let number = Number::from(unzigzag(self.number()));
                Kind::Number(number, spelling(self))
            }
            FLOAT => {
                let bytes = std::array::from_fn(|_| self.byte());
                let number =
                    Number::from_f64(f64::from_le_bytes(bytes)).unwrap_or_else(|| 0.into());
                Kind::Number(number, spelling(self))
            }
            TEXT => Kind::Text(self.text().into()),
            LIST => {
                let count = self.number();
                Kind::List((0..count).map(|_| self.node(last)).collect())
            }
            MAP => {
                let count = self.number();
                Kind::Map((0..count).map(|_| self.entry(last)).collect())
            }
            _ => Kind::Null,
        };
        Node::new(kind, span)
    }

    fn entry(&mut self, last: &mut u32) -> Entry {
        let head = self.number();
        let key = match (head >> 1).checked_sub(1) {
            Some(number) => Cow::Borrowed(keys::numbered(number as usize)),
            None => Cow::Owned(self.text().to_owned()),
        };
        let key_span = if head & 1 == 0 { Span::NONE } else { self.place(last) };
        Entry { key, key_span, value: self.node(last) }
    }
}

/// Changes each element of a list.
pub fn change(list: &mut Arc<Packed>, change: impl FnMut(usize, &mut Node)) {
    let packed = Arc::unwrap_or_clone(std::mem::take(list));
    *list = Arc::new(packed.map(change));
}

/// A list in the making, packed as soon as it is long.
#[derive(Debug, Default)]
pub struct Collector {
    plain: Vec<Node>,
    packed: Packed,
}

impl Collector {
    /// Adds an element.
    pub fn push(&mut self, node: Node) {
        if self.packed.len() > 0 {
            self.packed.push(&node);
            return;
        }
        self.plain.push(node);
        if self.plain.len() > MAX_PLAIN {
            for node in std::mem::take(&mut self.plain) {
                self.packed.push(&node);
            }
        }
    }

    /// The list.
    pub fn finish(self) -> Kind {
        if self.packed.len() > 0 {
            Kind::Long(Arc::new(self.packed))
        } else {
            Kind::List(self.plain)
        }
    }
}

impl Extend<Node> for Collector {
    fn extend<T: IntoIterator<Item = Node>>(&mut self, nodes: T) {
        nodes.into_iter().for_each(|node| self.push(node));
    }
}

impl FromIterator<Node> for Collector {
    fn from_iter<T: IntoIterator<Item = Node>>(nodes: T) -> Self {
        let mut collector = Self::default();
        collector.extend(nodes);
        collector
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &'static str, key_span: Span, value: Node) -> Entry {
        Entry { key: key.into(), key_span, value }
    }

    fn sample(n: usize) -> Node {
        let at = |from: usize| Span::new(n * 40 + from, n * 40 + from + 3);
        let numbers = [
            Number::from(n),
            Number::from(-(n as i64) - 1),
            Number::from_f64(n as f64 + 0.5).unwrap(),
        ];
        let mut list: Vec<Node> =
            numbers.into_iter().map(|n| Node::new(Kind::Number(n, None), at(9))).collect();
        list.push(Node::new(Kind::Number(7.into(), Some("007".into())), Span::NONE));
        list.push(Node::new(Kind::Bool(n.is_multiple_of(2)), at(1)));
        list.push(Node::new(Kind::Null, at(0)));
        Node::new(
            Kind::Map(vec![
                entry("name", at(2), Node::text(format!("jöb {n}"), at(30))),
                entry("no such key", Span::NONE, Node::new(Kind::List(list), at(5))),
                entry(
                    "env",
                    at(1),
                    Node::new(
                        Kind::Map(vec![entry("A", at(7), Node::text("", at(8)))]),
                        Span::NONE,
                    ),
                ),
            ]),
            at(0),
        )
    }

    #[test]
    fn what_is_packed_comes_out_as_it_was() {
        let count = 3 * PART + 7;
        let mut packed = Packed::default();
        (0..count).for_each(|n| packed.push(&sample(n)));
        let shown = |node: &Node| format!("{node:?}");
        assert_eq!(packed.len(), count);
        assert!(packed.mentions("name") && packed.mentions("env") && !packed.mentions("map"));
        assert!(packed.iter().enumerate().all(|(n, node)| shown(&node) == shown(&sample(n))));
        for n in [0, 1, PART - 1, PART, count - 1] {
            assert_eq!(packed.get(n).map(|node| shown(&node)), Some(shown(&sample(n))));
        }
        assert!(packed.get(count).is_none());
        let changed = packed.map(|n, node| node.span = Span::new(n, n + 1));
        assert!(changed.consume().enumerate().all(|(n, node)| {
            let was = Node { span: Span::new(n, n + 1), ..sample(n) };
            shown(&node) == shown(&was)
        }));
    }

    #[test]
    fn only_long_lists_are_packed() {
        let list = |count: usize| (0..count).map(sample).collect::<Collector>().finish();
        assert!(matches!(list(MAX_PLAIN), Kind::List(items) if items.len() == MAX_PLAIN));
        assert!(matches!(list(MAX_PLAIN + 1), Kind::Long(items) if items.len() == MAX_PLAIN + 1));
    }
}
