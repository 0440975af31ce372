//! The strict reader: checks a tree against the key tables and brings it into the canonical form.
//!
//! It reports every mistake it finds and goes on, so that one pass shows them all. Texts that
//! contain a `{variable}` of the workflow are left as they are: their meaning is checked when the
//! variables have been put in.

use crate::diagnostic::{Diagnostic, Diagnostics, Severity, SourceMap, excerpt, nearest, suggest};
use crate::keys::{self, Field, KeyRule, Object, Shape};
use crate::node::{Entry, Kind, Node, NodePath, PathStep, Span};
use crate::packed::Collector;
use crate::template;
use crate::values;
use serde_json::Number;
use std::collections::HashSet;
use std::sync::Arc;
use torc_model::labels;
use torc_model::units::{Memory, Runtime};

/// Reads one tree.
pub struct Reader<'a> {
    map: &'a SourceMap,
    path: Vec<PathStep>,
    kdl: bool,
    variables: HashSet<String>,
    /// What was found so far.
    pub found: Diagnostics,
}

impl<'a> Reader<'a> {
    /// For a tree of this source. `kdl` allows KDL's names for keys.
    pub fn new(map: &'a SourceMap, kdl: bool) -> Self {
        Self {
            map,
            path: Vec::new(),
            kdl,
            variables: HashSet::new(),
            found: Diagnostics::default(),
        }
    }

    /// Leaves texts that use one of these names alone.
    pub fn defer(mut self, variables: HashSet<String>) -> Self {
        self.variables = variables;
        self
    }

    /// Records a diagnostic at a span.
    pub fn report(&mut self, span: Span, diagnostic: Diagnostic) {
        let place = self.map.place(span, NodePath(self.path.clone()).to_string());
        self.found.push(diagnostic.at(place));
    }

    /// Reads something one step further down.
    pub fn inside<T>(&mut self, step: impl Into<PathStep>, read: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step.into());
        let found = read(self);
        self.path.pop();
        found
    }

    /// A place for a remark.
    pub fn place(&self, span: Span) -> crate::diagnostic::Place {
        self.map.place(span, String::new())
    }

    fn expected(&mut self, node: &Node, what: &str) -> Option<Node> {
        let message = format!("expected {what}, found {}", node.kind_name());
        self.report(node.span, Diagnostic::error(message).label(format!("expected {what}")));
        None
    }

    /// Reads a map with known keys.
    pub fn object(&mut self, node: Node, object: &'static Object) -> Option<Node> {
        let span = node.span;
        let entries = match node.kind {
            Kind::Map(entries) => entries,
            Kind::Text(_) | Kind::Number(..) | Kind::Bool(_) if object.shorthand.is_some() => {
                let key = object.shorthand.unwrap_or_default().into();
                vec![Entry { key, key_span: span, value: node }]
            }
            _ => return self.expected(&node, &format!("{} (a map)", object.name)),
        };
        // With the position of the field, so that the keys can be brought into the canonical order.
        let mut canonical: Vec<(usize, Entry)> = Vec::with_capacity(entries.len());
        let mut seen: Vec<(usize, Span)> = Vec::with_capacity(entries.len());
        let mut misspelt: Vec<&str> = Vec::new();
        for entry in entries {
            let Some(field) = object.field(&entry.key, self.kdl) else {
                misspelt.extend(self.unknown_key(&entry, object));
                continue;
            };
            let position =
                object.fields.iter().position(|f| std::ptr::eq(f, field)).unwrap_or_default();
            if matches!(entry.value.kind, Kind::Null) {
                continue;
            }
            if let Some((_, first)) = seen.iter().find(|(other, _)| *other == position) {
                let first = self.place(*first);
                let message = format!("`{}` and `{}` are the same key", entry.key, field.key);
                self.report(
                    entry.key_span,
                    Diagnostic::error(message).remark_at("it was given here first", first),
                );
                continue;
            }
            let key_span = entry.key_span;
            seen.push((position, key_span));
            let errors = self.found.count(Severity::Error);
            match self.value(entry, field) {
                Some(entry) => canonical.push((position, entry)),
                None if self.found.count(Severity::Error) > errors => {
                    canonical.push((position, wrong(field, key_span)))
                }
                None => {}
            }
        }
        for (position, field) in object.fields.iter().enumerate() {
            if misspelt.contains(&field.key) && !seen.iter().any(|(other, _)| *other == position) {
                // The author who meant this key by another word has been told so.
                canonical.push((position, wrong(field, span)));
            } else if field.required && !seen.iter().any(|(other, _)| *other == position) {
                let message = format!("{} has no `{}`", object.name, field.key);
                let diagnostic =
                    Diagnostic::error(message).label(format!("`{}` is missing", field.key));
                let head = Span { start: span.start, end: self.first_line_end(span) };
                self.report(if span.is_none() { span } else { head }, diagnostic);
            }
        }
        canonical.sort_by_key(|(position, _)| *position);
        let canonical = canonical.into_iter().map(|(_, entry)| entry).collect();
        let mut node = Node::new(Kind::Map(canonical), span);
        if let Some(check) = object.check {
            check(self, &node);
        }
        if let Kind::Map(entries) = &mut node.kind {
            entries.retain(|entry| !matches!(entry.value.kind, Kind::Null));
        }
        Some(node)
    }

    fn first_line_end(&self, span: Span) -> u32 {
        let text = self.map.text().get(span.start as usize..span.end as usize).unwrap_or("");
        let line = text.split('\n').next().unwrap_or("").trim_end().len();
        span.start.saturating_add(u32::try_from(line).unwrap_or(0))
    }

    /// Reports an unknown key; gives the key that was probably meant.
    fn unknown_key(&mut self, entry: &Entry, object: &'static Object) -> Option<&'static str> {
        let usable = |field: &&Field| !matches!(field.shape, Shape::Ignored(_) | Shape::Refused(_));
        let known = object.fields.iter().filter(usable).map(|field| field.key);
        let others =
            object.fields.iter().flat_map(|field| field.aliases.iter().chain(field.kdl).copied());
        let meant = nearest(&entry.key, known.clone().chain(others))
            .and_then(|word| object.field(word, true));
        let elsewhere: Vec<&str> = keys::OBJECTS
            .iter()
            .filter(|other| other.field(&entry.key, false).is_some())
            .map(|other| other.name)
            .collect();
        let foreign = crate::foreign::answer(object, &entry.key);
        let meant = match &foreign {
            Some(foreign) => object.field(foreign.meant, false),
            None => meant,
        };
        let help = match (meant, elsewhere.as_slice()) {
            _ if foreign.is_some() => foreign.map_or("", |foreign| foreign.help).into(),
            (Some(field), _) => format!("did you mean `{}`?", field.key),
            (None, []) => {
                let words: Vec<String> = known.map(|key| format!("`{key}`")).collect();
                format!("known keys: {}", words.join(", "))
            }
            (None, owners) => format!("it is a key of {}", owners.join(" and of ")),
        };
        let message = format!("unknown key `{}` in {}", excerpt(&entry.key), object.name);
        let is_passed_over = keys::PASSES_OVER_UNKNOWN.contains(&object.id);
        let diagnostic = match is_passed_over {
            true => Diagnostic::warning(format!("{message} has no effect")),
            false => Diagnostic::error(message),
        };
        self.path.push(PathStep::Key(entry.key.clone()));
        self.report(entry.key_span, diagnostic.help(help));
        self.path.pop();
        meant.map(|field| field.key).filter(|_| !is_passed_over)
    }

    fn value(&mut self, entry: Entry, field: &Field) -> Option<Entry> {
        self.path.push(PathStep::Key(field.key.into()));
        let value = match field.shape {
            Shape::Ignored(reason) => {
                let message = format!("`{}` has no effect", entry.key);
                self.report(entry.key_span, Diagnostic::warning(message).label(reason));
                None
            }
            Shape::Refused(reason) => {
                let message = format!("`{}` is not supported", entry.key);
                self.report(entry.key_span, Diagnostic::error(message).label(reason));
                None
            }
            _ => self.shape(entry.value, &field.shape),
        };
        self.path.pop();
        let value = value.filter(|value| {
            field.required || matches!(field.shape, Shape::Json) || !is_empty(value)
        })?;
        Some(Entry { key: field.key.into(), key_span: entry.key_span, value })
    }

    /// Reads a value of any shape; nothing if it was wrong.
    pub fn shape(&mut self, node: Node, shape: &Shape) -> Option<Node> {
        if let Kind::Text(text) = &node.kind
            && !self.variables.is_empty()
            && !matches!(shape, Shape::List(_) | Shape::Object(_))
            && template::names(text).any(|name| self.variables.contains(name))
        {
            return Some(node);
        }
        match shape {
            Shape::Text => self.text(node, "text"),
            Shape::Line => {
                self.text(node, "text of one line").and_then(|node| self.checked(node, one_line))
            }
            Shape::Name => {
                self.text(node, "a name").and_then(|node| self.checked(node, template_name))
            }
            Shape::Labels => self.labels(node),
            Shape::FileName => {
                self.text(node, "a file").and_then(|node| self.checked(node, file_name))
            }
            Shape::Bool => self.bool(node),
            Shape::Int(least, most) => self.int(node, *least, *most),
            Shape::Number(least, most) => self.number(node, *least, *most),
            Shape::Memory => self.converted(node, "a memory size", |text| {
                Memory::parse(text).map(|memory| memory.to_string()).map_err(|error| error.0)
            }),
            Shape::Runtime => self.converted(node, "a duration", |text| {
                Runtime::parse(text).map(|runtime| runtime.to_string()).map_err(|error| error.0)
            }),
            Shape::Timeout => {
                self.converted(node, "a duration", |text| match Runtime::parse(text) {
                    Ok(Runtime(0)) => {
                        Err("a timeout must be at least 1 s; leave it out for none".into())
                    }
                    Ok(runtime) => Ok(runtime.to_string()),
                    Err(error) => Err(error.0),
                })
            }
            Shape::Seconds => self.seconds(node),
            Shape::Walltime => self.converted(node, "a duration", values::walltime),
            Shape::SlurmMemory => self.converted(node, "a memory size", values::slurm_memory),
            Shape::Word(words) => self.word(node, &words()),
            Shape::Signal => self.converted(node, "a signal", values::signal),
            Shape::EarlySignal => {
                self.converted(node, "a signal with seconds", values::early_signal)
            }
            Shape::Regex => self
                .text(node, "a regular expression")
                .and_then(|node| self.checked(node, template_regex)),
            Shape::List(item) => self.list(node, item),
            Shape::Map(rule, value) => self.map(node, *rule, value),
            Shape::Object(object) => self.object(node, object),
            Shape::Json => Some(node),
            Shape::Metadata => Some(metadata(node)),
            Shape::ParameterValues => self.parameter_values(node),
            Shape::Steps(part) => crate::steps::read(self, node, *part),
            Shape::Ignored(_) | Shape::Refused(_) => None,
        }
    }

    /// Text; numbers and booleans count as they are spelled.
    pub fn text(&mut self, node: Node, what: &str) -> Option<Node> {
        let text = match node.kind {
            Kind::Text(_) => return Some(node),
            Kind::Bool(value) => value.to_string(),
            Kind::Number(number, raw) => raw.map_or_else(|| number.to_string(), String::from),
            Kind::Null | Kind::List(_) | Kind::Long(_) | Kind::Map(_) => {
                return self.expected(&node, what);
            }
        };
        Some(Node::text(text, node.span))
    }

    /// Labels, as one text.
    fn labels(&mut self, node: Node) -> Option<Node> {
        let span = node.span;
        let names = self.shape(node, &Shape::List(&Shape::Name))?;
        let joined = labels::joined(names.items().iter().filter_map(Node::as_text));
        Some(Node::text(joined.unwrap_or_default(), span))
    }

    fn checked(&mut self, node: Node, check: fn(&str) -> Result<(), String>) -> Option<Node> {
        match check(node.as_text().unwrap_or_default()) {
            Ok(()) => Some(node),
            Err(message) => {
                self.report(node.span, Diagnostic::error(message));
                None
            }
        }
    }

    fn converted(
        &mut self,
        node: Node,
        what: &str,
        convert: impl Fn(&str) -> Result<String, String>,
    ) -> Option<Node> {
        let node = self.text(node, what)?;
        match convert(node.as_text().unwrap_or_default()) {
            Ok(text) => Some(Node::text(text, node.span)),
            Err(message) => {
                self.report(
                    node.span,
                    Diagnostic::error(message).label(format!("expected {what}")),
                );
                None
            }
        }
    }

    fn bool(&mut self, node: Node) -> Option<Node> {
        let value = match &node.kind {
            Kind::Bool(_) => return Some(node),
            Kind::Text(text) if text == "true" => true,
            Kind::Text(text) if text == "false" => false,
            Kind::Text(text) => {
                let meant = match text.to_ascii_lowercase().as_str() {
                    "yes" | "y" | "on" | "t" | "1" => Some("write `true`".to_owned()),
                    "no" | "n" | "off" | "f" | "0" => Some("write `false`".to_owned()),
                    _ => suggest(text, ["true", "false"]),
                };
                let message = format!("expected true or false, found `{}`", excerpt(text));
                self.report(
                    node.span,
                    Diagnostic::error(message).label("expected true or false").maybe_help(meant),
                );
                return None;
            }
            _ => return self.expected(&node, "true or false"),
        };
        Some(Node::new(Kind::Bool(value), node.span))
    }

    fn int(&mut self, node: Node, least: i64, most: i64) -> Option<Node> {
        let value = match &node.kind {
            Kind::Number(number, _) => number.as_i64().or_else(|| whole(number.as_f64()?)),
            Kind::Text(text) => text.trim().parse().ok(),
            _ => return self.expected(&node, "a whole number"),
        };
        let range = range_words(least, most);
        match value {
            Some(value) if (least..=most).contains(&value) => {
                Some(Node::new(Kind::Number(value.into(), None), node.span))
            }
            Some(value) => {
                let message = format!("`{value}` is out of range");
                self.report(
                    node.span,
                    Diagnostic::error(message).label(format!("expected a whole number {range}")),
                );
                None
            }
            None => {
                let shown = node.to_value();
                let shown = shown.as_str().map_or_else(|| shown.to_string(), str::to_owned);
                let message = format!("`{}` is not a whole number", excerpt(&shown));
                self.report(
                    node.span,
                    Diagnostic::error(message).label(format!("expected a whole number {range}")),
                );
                None
            }
        }
    }

    fn number(&mut self, node: Node, least: f64, most: f64) -> Option<Node> {
        let value = match &node.kind {
            Kind::Number(number, _) => number.as_f64(),
            Kind::Text(text) => text.trim().parse().ok().filter(|value: &f64| value.is_finite()),
            _ => return self.expected(&node, "a number"),
        };
        match value {
            Some(value) if (least..=most).contains(&value) => {
                Some(Node::new(Kind::Number(tidy(value), None), node.span))
            }
            _ => {
                let message = format!("expected a number from {least} to {most}");
                self.report(node.span, Diagnostic::error(message.clone()).label(message));
                None
            }
        }
    }

    fn seconds(&mut self, node: Node) -> Option<Node> {
        if matches!(node.kind, Kind::Number(..)) {
            return self.number(node, 0.0, 1e9);
        }
        let node = self.text(node, "a duration")?;
        let text = node.as_text().unwrap_or_default();
        match text.trim().parse::<f64>() {
            Ok(_) => self.number(node, 0.0, 1e9),
            Err(_) => match Runtime::parse(text) {
                Ok(runtime) => Some(Node::new(Kind::Number(runtime.0.into(), None), node.span)),
                Err(error) => {
                    self.report(node.span, Diagnostic::error(error.0).label("expected a duration"));
                    None
                }
            },
        }
    }

    fn word(&mut self, node: Node, words: &[&str]) -> Option<Node> {
        let list = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let what = if words.len() == 1 { list } else { format!("one of {list}") };
        let node = self.text(node, &what)?;
        let text = node.as_text().unwrap_or_default();
        if words.contains(&text) {
            return Some(node);
        }
        // `TimeSeries` and `time-series` are the same word.
        let same = |word: &&&str| {
            let letters = |text: &str| text.replace(['_', '-'], "").to_ascii_lowercase();
            letters(word) == letters(text)
        };
        if let Some(word) = words.iter().find(same) {
            return Some(Node::text(*word, node.span));
        }
        let help =
            nearest(text, words.iter().copied()).map(|word| format!("did you mean `{word}`?"));
        let message = format!("unknown word `{}`", excerpt(text));
        self.report(
            node.span,
            Diagnostic::error(message).label(format!("expected {what}")).maybe_help(help),
        );
        None
    }

    fn list(&mut self, node: Node, item: &'static Shape) -> Option<Node> {
        let span = node.span;
        let items = match node.kind {
            Kind::List(items) => items,
            Kind::Long(items) => {
                let mut read = Collector::default();
                for (index, node) in Arc::unwrap_or_clone(items).consume().enumerate() {
                    read.extend(self.element(index, node, item));
                }
                return Some(Node::new(read.finish(), span));
            }
            Kind::Map(_) if !matches!(item, Shape::Object(_)) => {
                return self.expected(&node, "a list");
            }
            // A single map where a list of maps belongs is usually a forgotten dash.
            Kind::Map(_) => {
                let diagnostic =
                    Diagnostic::error("expected a list, found a map").label("expected a list");
                self.report(span, diagnostic.help("begin each element with `- `"));
                return None;
            }
            kind => vec![Node::new(kind, span)],
        };
        let mut read = Vec::with_capacity(items.len());
        for (index, node) in items.into_iter().enumerate() {
            read.extend(self.element(index, node, item));
        }
        Some(Node::new(Kind::List(read), span))
    }

    fn element(&mut self, index: usize, node: Node, item: &'static Shape) -> Option<Node> {
        self.path.push(PathStep::Index(index));
        let read = if matches!(node.kind, Kind::Null) {
            let diagnostic = Diagnostic::error("an element of this list is empty");
            self.report(
                node.span,
                diagnostic.help("remove the lone `-`, or write a value after it"),
            );
            None
        } else {
            self.shape(node, item)
        };
        self.path.pop();
        read
    }

    fn map(&mut self, node: Node, rule: KeyRule, shape: &'static Shape) -> Option<Node> {
        let span = node.span;
        let Kind::Map(entries) = node.kind else { return self.expected(&node, "a map") };
        let mut read: Vec<Entry> = Vec::with_capacity(entries.len());
        for entry in entries {
            let key = match rule.apply(&entry.key) {
                Ok(key) => key,
                Err(message) => {
                    self.report(entry.key_span, Diagnostic::error(message));
                    continue;
                }
            };
            if let Some(first) = read.iter().find(|other| other.key == key) {
                let first = self.place(first.key_span);
                self.report(
                    entry.key_span,
                    Diagnostic::error(format!("`{key}` is given twice"))
                        .remark_at("first here", first),
                );
                continue;
            }
            self.path.push(PathStep::Key(key.clone().into()));
            let value = match entry.value.kind {
                Kind::Null => self.expected(&entry.value, "a value"),
                _ => self.shape(entry.value, shape),
            };
            self.path.pop();
            read.extend(value.map(|value| Entry {
                key: key.into(),
                key_span: entry.key_span,
                value,
            }));
        }
        Some(Node::new(Kind::Map(read), span))
    }

    fn parameter_values(&mut self, node: Node) -> Option<Node> {
        match &node.kind {
            Kind::Text(text) => {
                if let Err(error) = values::parameter_text(text) {
                    self.report(node.span, Diagnostic::error(error.message).maybe_help(error.help));
                    return None;
                }
                Some(node)
            }
            Kind::Number(..) | Kind::Bool(_) => {
                Some(Node::new(Kind::List(vec![scalar(node.clone())]), node.span))
            }
            Kind::List(items) => {
                if let Some(bad) = items
                    .iter()
                    .find(|item| matches!(item.kind, Kind::Null | Kind::List(_) | Kind::Map(_)))
                {
                    return self.expected(&bad.clone(), "a text, a number or a boolean");
                }
                let Kind::List(items) = node.kind else { return None };
                Some(Node::new(Kind::List(items.into_iter().map(scalar).collect()), node.span))
            }
            Kind::Null | Kind::Long(_) | Kind::Map(_) => {
                self.expected(&node, "values such as `1:10`, `[a, b]` or a list")
            }
        }
    }
}

/// Lets the rules between keys tell a wrong value from an absent one; taken out again after them.
fn wrong(field: &Field, span: Span) -> Entry {
    Entry { key: field.key.into(), key_span: span, value: Node::new(Kind::Null, span) }
}

/// Numbers whose spelling would be lost (`007`, `1.10`) are kept as the text that was written.
fn scalar(node: Node) -> Node {
    match node.kind {
        Kind::Number(_, Some(raw)) => Node::text(String::from(raw), node.span),
        kind => Node::new(kind, node.span),
    }
}

fn metadata(node: Node) -> Node {
    let parsed = node.as_text().filter(|text| text.trim_start().starts_with('{'));
    match parsed.and_then(|text| serde_json::from_str(text).ok()) {
        Some(value) => Node { span: node.span, ..Node::from_value(value) },
        None => node,
    }
}

fn is_empty(node: &Node) -> bool {
    match &node.kind {
        Kind::List(items) => items.is_empty(),
        Kind::Map(entries) => entries.is_empty(),
        _ => false,
    }
}

fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64)
}

/// 5.0 and 5 are the same setting.
fn tidy(value: f64) -> Number {
    whole(value).map(Number::from).or_else(|| Number::from_f64(value)).unwrap_or_else(|| 0.into())
}

fn range_words(least: i64, most: i64) -> String {
    if most >= i64::from(u32::MAX) {
        format!("of at least {least}")
    } else {
        format!("from {least} to {most}")
    }
}

fn one_line(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("expected text, found nothing".into());
    }
    if text.chars().any(char::is_control) {
        return Err("expected one line without control characters".into());
    }
    Ok(())
}

/// A name or a path: what a path may be is the kernel's business.
fn file_name(text: &str) -> Result<(), String> {
    one_line(text)?;
    if text.trim() != text {
        return Err(format!("the file `{}` begins or ends with a space", excerpt(text)));
    }
    match text.len() {
        0..=MAX_PATH => Ok(()),
        _ => Err(format!("the path `{}` is longer than {MAX_PATH} bytes", excerpt(text))),
    }
}

/// The longest path that Linux takes.
const MAX_PATH: usize = 4095;

/// Names may still contain placeholders, so their length is judged again when these are filled in.
fn template_name(text: &str) -> Result<(), String> {
    check_name(text)
}

/// The longest name that is accepted, in bytes: what a file name may have.
pub const MAX_NAME: usize = 255;

/// Why a text cannot be a name.
pub fn check_name(text: &str) -> Result<(), String> {
    let shown = excerpt(text);
    if text.is_empty() {
        return Err("a name must not be empty".into());
    }
    if text.len() > MAX_NAME {
        return Err(format!("the name `{shown}` is longer than {MAX_NAME} bytes"));
    }
    if text.chars().any(char::is_control) {
        return Err(format!("the name `{}` contains a control character", shown.escape_debug()));
    }
    if text.trim() != text {
        return Err(format!("the name `{shown}` begins or ends with a space"));
    }
    if text.starts_with('/') || text.split(['/', '\\']).any(|part| part == ".." || part == ".") {
        return Err(format!("the name `{shown}` would lead out of a directory"));
    }
    Ok(())
}

/// Placeholders stand for plain text while the syntax is checked.
fn template_regex(text: &str) -> Result<(), String> {
    let plain = template::blank(text, true);
    regex::Regex::new(&plain).map(|_| ()).map_err(|error| {
        let reason = error.to_string();
        let reason =
            reason.lines().last().unwrap_or("").trim().trim_start_matches("error: ").to_owned();
        format!("`{}` is not a regular expression: {reason}", excerpt(text))
    })
}

impl KeyRule {
    /// The canonical spelling of a key, or why it cannot be one.
    fn apply(self, key: &str) -> Result<String, String> {
        let shown = excerpt(key);
        match self {
            Self::Identifier if !template::is_identifier(key) => Err(format!(
                "`{shown}` is not a name: use letters, digits and `_`, and begin with a letter"
            )),
            Self::Environment if !template::is_identifier(key) => {
                Err(format!("`{shown}` cannot be the name of an environment variable"))
            }
            Self::Environment if torc_model::plan::is_reserved_variable(key) => {
                Err(format!("`{shown}` is set by Torc itself; choose another name"))
            }
            Self::SlurmOption => values::slurm_option(key),
            Self::Name => check_name(key).map(|()| key.to_owned()),
            Self::Identifier | Self::Environment => Ok(key.to_owned()),
        }
    }
}
