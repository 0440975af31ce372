//! The one tree that every format is read into: values with the place they were written at.

use crate::keys;
use crate::packed::{Collector, Packed};
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess,
    Visitor,
};
use serde::{Serialize, Serializer, forward_to_deserialize_any};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// A range of bytes in the source text. Specs that did not come from text have [`Span::NONE`]
/// everywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// The byte after the last.
    pub end: u32,
}

impl Span {
    /// No place in any text.
    pub const NONE: Self = Self { start: u32::MAX, end: u32::MAX };

    /// From byte offsets; sources are limited to far less than 4 GiB.
    pub fn new(start: usize, end: usize) -> Self {
        let clamp = |offset: usize| u32::try_from(offset).unwrap_or(u32::MAX - 1);
        Self { start: clamp(start), end: clamp(end.max(start)) }
    }

    /// There is no text behind it.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// The key of a file whose list is packed if it is long.
pub const JOBS: &str = "jobs";

/// A value and its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub kind: Kind,
    /// Its place.
    pub span: Span,
}

/// The kinds of values that all four formats share.
#[derive(Clone, Debug)]
pub enum Kind {
    /// Nothing; the same as an absent key.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number, with its spelling where that differs from how we print it (`007`, `1.10`, `0x1F`).
    Number(Number, Option<Box<str>>),
    /// A string.
    Text(String),
    /// Values in order.
    List(Vec<Node>),
    /// The same for the list of jobs if it is long.
    Long(Arc<Packed>),
    /// Keys in the order of the file; the front ends guarantee that they differ.
    Map(Vec<Entry>),
}

/// One key of a map.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key; that of a known field is not copied.
    pub key: Cow<'static, str>,
    /// Its place.
    pub key_span: Span,
    /// What it maps to.
    pub value: Node,
}

impl Node {
    /// A node.
    pub fn new(kind: Kind, span: Span) -> Self {
        Self { kind, span }
    }

    /// A text node.
    pub fn text(text: impl Into<String>, span: Span) -> Self {
        Self::new(Kind::Text(text.into()), span)
    }

    /// The value of a key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The entry of a key, if this is a map that has it.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        match &self.kind {
            Kind::Map(entries) => entries.iter().find(|entry| entry.key == key),
            _ => None,
        }
    }

    /// The elements, if this is a list of no special length; else nothing.
    pub fn items(&self) -> &[Self] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// It is `true`.
    pub fn is_true(&self) -> bool {
        matches!(self.kind, Kind::Bool(true))
    }

    /// The text, if this is one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// What messages call this kind of value.
    pub fn kind_name(&self) -> &'static str {
        match &self.kind {
            Kind::Null => "nothing",
            Kind::Bool(_) => "true or false",
            Kind::Number(..) => "a number",
            Kind::Text(_) => "text",
            Kind::List(_) | Kind::Long(_) => "a list",
            Kind::Map(_) => "a map",
        }
    }

    /// The same value without places.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Number(number, _) => Value::Number(number.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Kind::Long(items) => Value::Array(items.iter().map(|item| item.to_value()).collect()),
            Kind::Map(entries) => Value::Object(
                entries
                    .iter()
                    .map(|e| (e.key.to_string(), e.value.to_value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }

    /// A whole file without places.
    pub fn from_file(value: Value) -> Self {
        let Value::Object(map) = value else { return Self::from_value(value) };
        let entry = |(key, value): (String, Value)| {
            let value = match value {
                Value::Array(items) if key == JOBS => {
                    let items: Collector = items.into_iter().map(Self::from_value).collect();
                    Self::new(items.finish(), Span::NONE)
                }
                value => Self::from_value(value),
            };
            Entry { key: key.into(), key_span: Span::NONE, value }
        };
        Self::new(Kind::Map(map.into_iter().map(entry).collect()), Span::NONE)
    }

    /// The same value with no place at all.
    pub fn from_value(value: Value) -> Self {
        let kind = match value {
            Value::Null => Kind::Null,
            Value::Bool(value) => Kind::Bool(value),
            Value::Number(number) => Kind::Number(number, None),
            Value::String(text) => Kind::Text(text),
            Value::Array(items) => Kind::List(items.into_iter().map(Self::from_value).collect()),
            Value::Object(map) => Kind::Map(
                map.into_iter()
                    .map(|(key, value)| Entry {
                        key: key.into(),
                        key_span: Span::NONE,
                        value: Self::from_value(value),
                    })
                    .collect(),
            ),
        };
        Self::new(kind, Span::NONE)
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.kind {
            Kind::Null => serializer.serialize_unit(),
            Kind::Bool(value) => serializer.serialize_bool(*value),
            Kind::Number(number, _) => number.serialize(serializer),
            Kind::Text(text) => serializer.serialize_str(text),
            Kind::List(items) => serializer.collect_seq(items),
            Kind::Long(items) => serializer.collect_seq(items.iter()),
            Kind::Map(entries) => {
                serializer.collect_map(entries.iter().map(|entry| (&entry.key, &entry.value)))
            }
        }
    }
}

/// Reads a file from what another program sent: values without places. Of keys that occur twice the
/// last one counts.
impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        TreeVisitor::File.deserialize(deserializer)
    }
}

/// What is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TreeVisitor {
    /// A whole file.
    File,
    /// Its jobs.
    Jobs,
    /// Anything else.
    Value,
}

impl<'de> DeserializeSeed<'de> for TreeVisitor {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(self).map(|kind| Node::new(kind, Span::NONE))
    }
}

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Kind;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Kind, E> {
        Ok(Kind::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Kind, E> {
        Ok(Kind::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into(), None))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Kind, E> {
        Ok(Kind::Number(value.into(), None))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Kind, E> {
        Ok(Number::from_f64(value).map_or(Kind::Null, |number| Kind::Number(number, None)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Kind, E> {
        Ok(Kind::Text(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Kind, E> {
        Ok(Kind::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Kind, A::Error> {
        if self == Self::Jobs {
            let mut items = Collector::default();
            while let Some(item) = access.next_element_seed(Self::Value)? {
                items.push(item);
            }
            return Ok(items.finish());
        }
        let mut items = Vec::new();
        while let Some(item) = access.next_element_seed(Self::Value)? {
            items.push(item);
        }
        Ok(Kind::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Kind, A::Error> {
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(Key(key)) = access.next_key()? {
            let part = if self == Self::File && key == JOBS { Self::Jobs } else { Self::Value };
            entries.push(Entry { key, key_span: Span::NONE, value: access.next_value_seed(part)? });
        }
        let few = |entries: &[Entry]| {
            (1..entries.len()).all(|i| entries[..i].iter().all(|e| e.key != entries[i].key))
        };
        if entries.len() > 16 || !few(&entries) {
            let last: HashMap<Cow<'static, str>, usize> =
                entries.iter().enumerate().map(|(i, e)| (e.key.clone(), i)).collect();
            let mut index = 0;
            entries.retain(|entry| {
                index += 1;
                last.get(&entry.key) == Some(&(index - 1))
            });
        }
        entries.shrink_to_fit();
        Ok(Kind::Map(entries))
    }
}

/// A key that is read; that of a known field is not copied.
struct Key(Cow<'static, str>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl Visitor<'_> for KeyVisitor {
            type Value = Key;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E>(self, key: &str) -> Result<Key, E> {
                Ok(Key(keys::known(key).map_or_else(|| Cow::Owned(key.to_owned()), Cow::Borrowed)))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

/// Lets plain types be read from a tree without a copy of it in between.
impl<'de> Deserializer<'de> for &'de Node {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match &self.kind {
            Kind::Null => visitor.visit_unit(),
            Kind::Bool(value) => visitor.visit_bool(*value),
            Kind::Number(number, _) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (None, Some(number), _) => visitor.visit_i64(number),
                (None, None, number) => visitor.visit_f64(number.unwrap_or_default()),
            },
            Kind::Text(text) => visitor.visit_borrowed_str(text),
            Kind::List(items) => visitor.visit_seq(SeqDeserializer::new(items.iter())),
            Kind::Long(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(Owned))),
            Kind::Map(entries) => visitor.visit_map(MapDeserializer::new(
                entries.iter().map(|entry| (&*entry.key, &entry.value)),
            )),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match &self.kind {
            Kind::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_enum(self.as_text().unwrap_or_default().into_deserializer())
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, de::value::Error> for &'de Node {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

/// The same for a node that is not needed any more.
pub struct Owned(pub Node);

impl<'de> Deserializer<'de> for Owned {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.0.kind {
            Kind::Null => visitor.visit_unit(),
            Kind::Bool(value) => visitor.visit_bool(value),
            Kind::Number(number, _) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (None, Some(number), _) => visitor.visit_i64(number),
                (None, None, number) => visitor.visit_f64(number.unwrap_or_default()),
            },
            Kind::Text(text) => visitor.visit_string(text),
            Kind::List(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(Self)))
            }
            Kind::Long(items) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(Self))),
            Kind::Map(entries) => {
                let entries = entries.into_iter().map(|entry| (entry.key, Self(entry.value)));
                visitor.visit_map(MapDeserializer::new(entries))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match &self.0.kind {
            Kind::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        let word = self.0.as_text().unwrap_or_default().to_owned();
        visitor.visit_enum(word.into_deserializer())
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, de::value::Error> for Owned {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

/// A key or an index on the way from the root to a node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathStep {
    /// Key of a map.
    Key(Cow<'static, str>),
    /// Index into a list.
    Index(usize),
}

impl From<&str> for PathStep {
    fn from(key: &str) -> Self {
        Self::Key(key.to_owned().into())
    }
}

impl From<usize> for PathStep {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// The way from the root to a node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodePath(pub Vec<PathStep>);

impl NodePath {
    /// One step further.
    pub fn join(&self, step: impl Into<PathStep>) -> Self {
        let mut steps = self.0.clone();
        steps.push(step.into());
        Self(steps)
    }

    /// The deepest node on this path that exists under `root`.
    pub fn resolve<'a>(&self, root: &'a Node) -> Cow<'a, Node> {
        let mut node = root;
        for (depth, step) in self.0.iter().enumerate() {
            let next = match (step, &node.kind) {
                (PathStep::Key(key), _) => node.get(key),
                (PathStep::Index(index), Kind::List(items)) => items.get(*index),
                (PathStep::Index(index), Kind::Long(items)) => match items.get(*index) {
                    Some(item) => {
                        let rest = Self(self.0[depth + 1..].to_vec());
                        return Cow::Owned(rest.resolve(&item).into_owned());
                    }
                    None => None,
                },
                (PathStep::Index(_), _) => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        Cow::Borrowed(node)
    }
}

impl std::fmt::Display for NodePath {
    /// `jobs[3].depends_on[0]`, with quotes around keys that are not words.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (position, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Index(index) => write!(f, "[{index}]")?,
                PathStep::Key(key)
                    if !key.is_empty()
                        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') =>
                {
                    write!(f, "{}{key}", if position > 0 { "." } else { "" })?;
                }
                PathStep::Key(key) => write!(f, "[{key:?}]")?,
            }
        }
        Ok(())
    }
}

/// A [`NodePath`] in the making, on the stack: most places are only needed if something is wrong there.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    parent: Option<&'a Self>,
    step: AtStep<'a>,
}

#[derive(Clone, Copy, Debug)]
enum AtStep<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> At<'a> {
    /// A key of the root.
    pub const fn top(key: &'a str) -> Self {
        Self { parent: None, step: AtStep::Key(key) }
    }

    /// A key of this.
    pub const fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: AtStep::Key(key) }
    }

    /// An element of this.
    pub const fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: AtStep::Index(index) }
    }

    /// The whole way.
    pub fn path(&self) -> NodePath {
        let mut path = self.parent.map(Self::path).unwrap_or_default();
        path.0.push(match self.step {
            AtStep::Key(key) => PathStep::Key(key.to_owned().into()),
            AtStep::Index(index) => PathStep::Index(index),
        });
        path
    }
}
