//! YAML over the events of `saphyr-parser`: the core schema, anchors within a budget, merge keys.

use super::{Builder, Stop};
use crate::diagnostic::{SourceMap, excerpt};
use crate::node::{Entry, JOBS, Kind, Node, Span};
use crate::packed::Collector;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError};
use std::collections::{HashMap, HashSet};

/// Reads a text into a tree.
pub fn parse<'a>(map: &'a SourceMap, builder: &mut Builder<'a>) -> Result<Node, Stop> {
    let text = map.text();
    let mut reader = YamlReader {
        text,
        cursor: Cursor::default(),
        open: Vec::new(),
        anchors: HashMap::new(),
        builder,
    };
    let mut root = None;
    let mut parser = Parser::new_from_str(text);
    while let Some(next) = parser.next_event() {
        let (event, span) = match next {
            Ok(next) => next,
            Err(error) => return Err(reader.scan_error(&error)),
        };
        let span =
            Span::new(reader.cursor.byte(text, &span.start), reader.cursor.byte(text, &span.end));
        if let Some(node) = reader.event(event, span, root.is_some())? {
            root = Some(node);
        }
    }
    match root {
        Some(Node { kind: Kind::Null, .. }) | None => {
            let help = "a workflow needs at least `name` and `jobs`";
            Err(builder.stop(Span::new(0, 0), "the file is empty", Some(help)))
        }
        Some(root) => Ok(root),
    }
}

/// The parser counts characters, spans count bytes: walks along with it.
#[derive(Default)]
struct Cursor {
    chars: usize,
    bytes: usize,
}

impl Cursor {
    fn byte(&mut self, text: &str, marker: &Marker) -> usize {
        let index = marker.index();
        if index >= self.chars {
            let rest = &text[self.bytes..];
            let ahead =
                rest.char_indices().nth(index - self.chars).map_or(rest.len(), |(at, _)| at);
            self.bytes += ahead;
        } else {
            let before = &text[..self.bytes];
            let back =
                before.char_indices().rev().nth(self.chars - index - 1).map_or(0, |(at, _)| at);
            self.bytes = back;
        }
        self.chars = index;
        self.bytes
    }
}

/// A list or map whose end has not come yet.
struct Open {
    start: Span,
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Jobs(Collector),
    Map(Vec<Entry>, Option<(String, Span)>),
}

struct YamlReader<'a, 'b> {
    text: &'a str,
    cursor: Cursor,
    open: Vec<Open>,
    anchors: HashMap<usize, (Node, usize)>,
    builder: &'b mut Builder<'a>,
}

impl YamlReader<'_, '_> {
    /// Takes one event; gives the root when it is complete.
    fn event(
        &mut self,
        event: Event<'_>,
        span: Span,
        have_root: bool,
    ) -> Result<Option<Node>, Stop> {
        let (node, anchor) = match event {
            Event::DocumentStart(_) if have_root => {
                return Err(self.builder.stop(
                    span,
                    "a second document begins here",
                    Some("one file holds one workflow"),
                ));
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => {
                return Ok(None);
            }
            Event::Alias(anchor) => (self.alias(anchor, span)?, 0),
            Event::Scalar(text, style, anchor, tag) => {
                // A key is no value of its own, here as in the other formats.
                let is_key =
                    matches!(self.open.last(), Some(Open { content: Content::Map(_, None), .. }));
                self.builder.count(usize::from(!is_key), span)?;
                let tag = tag.as_ref().map(|tag| tag.to_string());
                (self.scalar(text.into_owned(), style, tag.as_deref(), span), anchor)
            }
            Event::SequenceStart(anchor, _) => {
                let content = if self.is_jobs() {
                    Content::Jobs(Collector::default())
                } else {
                    Content::List(Vec::new())
                };
                self.push(Open { start: span, anchor, content })?;
                return Ok(None);
            }
            Event::MappingStart(anchor, _) => {
                self.push(Open { start: span, anchor, content: Content::Map(Vec::new(), None) })?;
                return Ok(None);
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(None) };
                let (node, anchor) = (self.close(open.content, open.start, span), open.anchor);
                (node, anchor)
            }
        };
        if anchor > 0 {
            let size = count(&node);
            self.builder.count(size, span)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        self.add(node)
    }

    /// What begins now is the value of the key `jobs` of the file.
    fn is_jobs(&self) -> bool {
        matches!(&self.open[..], [Open { content: Content::Map(_, Some((key, _))), .. }] if key == JOBS)
    }

    fn push(&mut self, open: Open) -> Result<(), Stop> {
        self.builder.count(1, open.start)?;
        self.builder.check_depth(self.open.len(), open.start)?;
        self.open.push(open);
        Ok(())
    }

    fn close(&mut self, content: Content, start: Span, end: Span) -> Node {
        let end = end.end as usize;
        let begin = start.start as usize;
        let end = begin + self.text.get(begin..end).unwrap_or("").trim_end().len();
        let span = Span::new(begin, end);
        match content {
            Content::List(items) => Node::new(Kind::List(items), span),
            Content::Jobs(items) => Node::new(items.finish(), span),
            Content::Map(entries, _) => {
                let entries = if entries.iter().any(|e| e.key == "<<") {
                    self.merge(entries)
                } else {
                    entries
                };
                Node::new(Kind::Map(self.builder.unique(entries)), span)
            }
        }
    }

    /// `<<: *base` or `<<: [*a, *b]`: keys of the map itself win, then those of the first base.
    fn merge(&mut self, entries: Vec<Entry>) -> Vec<Entry> {
        let (merges, mut own): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry.key == "<<");
        let mut known: HashSet<std::borrow::Cow<'_, str>> =
            own.iter().map(|entry| entry.key.clone()).collect();
        for merge in merges {
            let bases = match merge.value.kind {
                Kind::List(bases) => bases,
                kind => vec![Node::new(kind, merge.value.span)],
            };
            for base in bases {
                let Kind::Map(base) = base.kind else {
                    self.builder.error(base.span, "`<<` takes a map or a list of maps", None);
                    continue;
                };
                own.extend(base.into_iter().filter(|entry| known.insert(entry.key.clone())));
            }
        }
        own
    }

    fn alias(&mut self, anchor: usize, span: Span) -> Result<Node, Stop> {
        match self.anchors.get(&anchor) {
            Some((node, size)) => {
                self.builder.count(*size, span)?;
                let mut node = node.clone();
                self.builder.check_depth(self.open.len() + depth(&node), span)?;
                // Errors inside point at the anchor's text; the whole points at the alias.
                node.span = span;
                Ok(node)
            }
            None => Err(self.builder.stop(span, "an alias stands inside its own anchor", None)),
        }
    }

    fn add(&mut self, node: Node) -> Result<Option<Node>, Stop> {
        let Some(open) = self.open.last_mut() else { return Ok(Some(node)) };
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Jobs(items) => items.push(node),
            Content::Map(entries, key) => match key.take() {
                Some((key, key_span)) => {
                    entries.push(Entry { key: key.into(), key_span, value: node })
                }
                None => {
                    let text = match node.kind {
                        Kind::Text(text) => text,
                        Kind::Null => {
                            let raw = self
                                .text
                                .get(node.span.start as usize..node.span.end as usize)
                                .unwrap_or("");
                            if raw.is_empty() {
                                return Err(self.builder.stop(
                                    node.span,
                                    "a key is missing here",
                                    None,
                                ));
                            }
                            raw.to_owned()
                        }
                        Kind::Bool(_) => self
                            .text
                            .get(node.span.start as usize..node.span.end as usize)
                            .unwrap_or("")
                            .to_owned(),
                        Kind::Number(number, raw) => {
                            raw.map_or_else(|| number.to_string(), String::from)
                        }
                        Kind::List(_) | Kind::Long(_) | Kind::Map(_) => {
                            let help = "if it is meant as text, put it in quotes";
                            return Err(self.builder.stop(
                                node.span,
                                "a key must be text",
                                Some(help),
                            ));
                        }
                    };
                    *key = Some((text, node.span));
                }
            },
        }
        Ok(None)
    }

    fn scalar(&mut self, text: String, style: ScalarStyle, tag: Option<&str>, span: Span) -> Node {
        let forced = match tag {
            None => style != ScalarStyle::Plain,
            Some(tag) if tag.ends_with("str") || tag == "!" => true,
            Some(tag)
                if ["int", "float", "bool", "null"].iter().any(|known| tag.ends_with(known)) =>
            {
                false
            }
            Some(tag) => {
                self.builder.error(
                    span,
                    format!("unknown tag `{}`", excerpt(tag)),
                    Some("remove it"),
                );
                true
            }
        };
        let span = if style == ScalarStyle::Plain { trimmed(self.text, span) } else { span };
        if forced {
            return self.builder.text(text, span);
        }
        plain(self.builder, text, span)
    }

    fn scan_error(&mut self, error: &ScanError) -> Stop {
        let at = self.cursor.byte(self.text, error.marker());
        let line = self.text[..at].rsplit('\n').next().unwrap_or("");
        let rest = self.text[at..].split('\n').next().unwrap_or("");
        let tab = line.trim_start_matches(' ').starts_with('\t') || rest.starts_with('\t');
        let braces = rest.trim_start().starts_with(['{', '%', '@', '`', '*', '&', '!', '|', '>'])
            || line.contains(": {")
            || line.contains("- {");
        let help = if tab {
            Some("YAML is indented with spaces, not with tabs")
        } else if error.info().contains("quoted scalar")
            || (error.info().contains("did not find") && line.contains('"'))
        {
            Some("is a quotation mark missing, or one too many?")
        } else if error.info().contains("mapping values are not allowed") {
            Some("text that contains `: ` must stand in quotes; else check the indentation")
        } else if error.info().contains("block collection")
            || error.info().contains("block mapping")
        {
            Some("check the indentation: the keys of one element stand in the same column")
        } else if braces {
            Some(
                "text that begins with a special character such as `{`, `*` or `%` must stand in quotes",
            )
        } else {
            None
        };
        let width = self.text[at..].chars().next().map_or(0, char::len_utf8);
        if error.info().contains("recursion limit") {
            let message = format!("nested more than {} levels deep", super::MAX_DEPTH);
            return self.builder.stop(Span::new(at, at + width), message, None);
        }
        let info = error.info().trim();
        self.builder.stop(
            Span::new(at, at + width),
            format!("this is not valid YAML: {info}"),
            help,
        )
    }
}

/// Plain scalars may be reported with the white space that follows.
fn trimmed(text: &str, span: Span) -> Span {
    let (start, end) = (span.start as usize, span.end as usize);
    Span::new(start, start + text.get(start..end).unwrap_or("").trim_end().len())
}

/// The core schema's reading of a scalar without quotes.
fn plain(builder: &mut Builder<'_>, text: String, span: Span) -> Node {
    let kind = match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" => Kind::Null,
        "true" | "True" | "TRUE" => Kind::Bool(true),
        "false" | "False" | "FALSE" => Kind::Bool(false),
        _ => {
            let (negative, body) = match text.as_bytes()[0] {
                b'-' => (true, &text[1..]),
                b'+' => (false, &text[1..]),
                _ => (false, text.as_str()),
            };
            let all = |digits: &str, radix| {
                !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix))
            };
            if all(body, 10) {
                return builder.integer(negative, body, 10, &text, span);
            }
            if let Some(digits) = text.strip_prefix("0x").filter(|digits| all(digits, 16)) {
                return builder.integer(false, digits, 16, &text, span);
            }
            if let Some(digits) = text.strip_prefix("0o").filter(|digits| all(digits, 8)) {
                return builder.integer(false, digits, 8, &text, span);
            }
            if is_float(body) {
                return builder.float(text.trim_start_matches('+').parse().ok(), &text, span);
            }
            if matches!(body, ".inf" | ".Inf" | ".INF")
                || matches!(text.as_str(), ".nan" | ".NaN" | ".NAN")
            {
                return builder.float(None, &text, span);
            }
            return builder.text(text, span);
        }
    };
    Node::new(kind, span)
}

/// `(. digits | digits [. digits*]) [e [sign] digits]`
fn is_float(body: &str) -> bool {
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if exponent
        .is_some_and(|exponent| !digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)))
    {
        return false;
    }
    match mantissa.split_once('.') {
        None => exponent.is_some() && digits(mantissa),
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
    }
}

/// How much an alias to this costs: long texts count as several values.
fn count(node: &Node) -> usize {
    match &node.kind {
        Kind::Text(text) => 1 + text.len() / 64,
        Kind::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Kind::Long(items) => 1 + items.iter().map(|item| count(&item)).sum::<usize>(),
        Kind::Map(entries) => {
            1 + entries.iter().map(|entry| 1 + count(&entry.value)).sum::<usize>()
        }
        _ => 1,
    }
}

fn depth(node: &Node) -> usize {
    match &node.kind {
        Kind::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Kind::Long(items) => 1 + items.iter().map(|item| depth(&item)).max().unwrap_or(0),
        Kind::Map(entries) => {
            1 + entries.iter().map(|entry| depth(&entry.value)).max().unwrap_or(0)
        }
        _ => 0,
    }
}
