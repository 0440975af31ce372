//! Front ends: each turns one format's text into the same spanned tree. They know nothing of
//! workflows, except that KDL's nodes are arranged with the help of the key tables.

pub mod json;
pub mod kdl;
pub mod kdl_tree;
pub mod yaml;

use crate::diagnostic::{Diagnostic, Diagnostics, SourceMap, excerpt};
use crate::node::{Entry, Kind, Node, Span};
use serde_json::Number;
use std::borrow::Cow;
use std::collections::HashMap;

/// Deeper nesting is refused: no workflow needs it, and trees are walked by recursion.
pub const MAX_DEPTH: usize = 100;

/// More values than this are refused, aliases counted as often as they are used. A million jobs
/// with a name and a command fit.
pub const MAX_NODES: usize = 3_500_000;

/// What all front ends need while they build a tree.
pub struct Builder<'a> {
    map: &'a SourceMap,
    nodes: usize,
    /// Mistakes that do not keep the rest from being read.
    pub errors: Diagnostics,
}

/// Reading cannot go on; the reason has been pushed to [`Builder::errors`].
#[derive(Debug)]
pub struct Stop;

impl<'a> Builder<'a> {
    /// For a text.
    pub fn new(map: &'a SourceMap) -> Self {
        Self { map, nodes: 0, errors: Diagnostics::default() }
    }

    /// Records an error.
    pub fn error(&mut self, span: Span, message: impl Into<String>, help: Option<&str>) {
        let diagnostic = Diagnostic::error(message).at(self.map.place(span, String::new()));
        self.errors.push(diagnostic.maybe_help(help.map(str::to_owned)));
    }

    /// Records an error after which nothing more can be read.
    pub fn stop(&mut self, span: Span, message: impl Into<String>, help: Option<&str>) -> Stop {
        self.error(span, message, help);
        Stop
    }

    /// Counts nodes against the limit.
    pub fn count(&mut self, nodes: usize, span: Span) -> Result<(), Stop> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            let help = "write jobs that differ only in a value as one job with `parameters`";
            return Err(self.stop(
                span,
                format!("the file has more than {MAX_NODES} values"),
                Some(help),
            ));
        }
        Ok(())
    }

    /// Refuses deep nesting.
    pub fn check_depth(&mut self, depth: usize, span: Span) -> Result<(), Stop> {
        if depth > MAX_DEPTH {
            return Err(self.stop(span, format!("nested more than {MAX_DEPTH} levels deep"), None));
        }
        Ok(())
    }

    /// A text node; NUL can stand in no command, name, path or environment.
    pub fn text(&mut self, text: String, span: Span) -> Node {
        self.check_text(&text, span);
        Node::new(Kind::Text(text), span)
    }

    /// The same for a text that is not kept as a node.
    pub fn check_text(&mut self, text: &str, span: Span) {
        if text.contains('\0') {
            self.error(span, "text contains a NUL character", None);
        }
    }

    /// A number node; `text` is how it was written.
    pub fn number(&mut self, number: Number, text: &str, span: Span) -> Node {
        let raw = (number.to_string() != text).then(|| text.into());
        Node::new(Kind::Number(number, raw), span)
    }

    /// A whole number from its digits, or an error if it is too large to be kept exactly.
    pub fn integer(
        &mut self,
        negative: bool,
        digits: &str,
        radix: u32,
        text: &str,
        span: Span,
    ) -> Node {
        let magnitude = u64::from_str_radix(digits, radix).ok();
        let number = match (negative, magnitude) {
            (false, Some(value)) => Some(Number::from(value)),
            (true, Some(value)) => 0i64.checked_sub_unsigned(value).map(Number::from),
            (_, None) => None,
        };
        match number {
            Some(number) => self.number(number, text, span),
            None => {
                let message = format!("`{}` is too large to be kept exactly", excerpt(text));
                self.error(span, message, Some("put it in quotes if it is meant as text"));
                self.number(0.into(), "0", span)
            }
        }
    }

    /// A floating point number, or an error if JSON could not hold it.
    pub fn float(&mut self, value: Option<f64>, text: &str, span: Span) -> Node {
        match value.and_then(Number::from_f64) {
            Some(number) => self.number(number, text, span),
            None => {
                let message = format!("`{}` is not a number that can be kept", excerpt(text));
                self.error(span, message, Some("put it in quotes if it is meant as text"));
                self.number(0.into(), "0", span)
            }
        }
    }

    /// Reports keys that occur twice, with both places, and keeps the first.
    pub fn unique(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        // Looking through a few keys is quicker than hashing them.
        let few = |entries: &[Entry]| {
            (1..entries.len()).all(|i| entries[..i].iter().all(|e| e.key != entries[i].key))
        };
        if entries.len() <= 16 && few(&entries) {
            return entries;
        }
        let mut seen: HashMap<Cow<'static, str>, Span> = HashMap::with_capacity(entries.len());
        let mut kept = Vec::with_capacity(entries.len());
        for entry in entries {
            if let Some(first) = seen.get(&entry.key) {
                let first = self.map.place(*first, String::new());
                let diagnostic =
                    Diagnostic::error(format!("key `{}` occurs twice", excerpt(&entry.key)))
                        .at(self.map.place(entry.key_span, String::new()))
                        .remark_at("it was given here first", first);
                self.errors.push(diagnostic);
                continue;
            }
            seen.insert(entry.key.clone(), entry.key_span);
            kept.push(entry);
        }
        kept
    }
}
