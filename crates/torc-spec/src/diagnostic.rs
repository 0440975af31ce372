//! What is wrong with a spec, where, and what to do about it; and how that looks on a terminal.

use crate::node::Span;
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing is created.
    Error,
    /// It will run, but perhaps not as meant.
    Warning,
    /// Good to know.
    Note,
}

impl Severity {
    /// As printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

/// A place in a spec.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Place {
    /// File name as the user gave it.
    pub file: String,
    /// Where in the tree, such as `jobs[0].memory`; empty when the text could not be read that far.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// From 1; 0 when the spec did not come from text.
    pub line: usize,
    /// From 1, in characters; 0 when the spec did not come from text.
    pub column: usize,
    /// Line of the end.
    pub end_line: usize,
    /// Column after the last character.
    pub end_column: usize,
    /// The line itself, or the part around the marker if it is very long.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// How many characters of the line come before `source`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub source_offset: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// A remark that belongs to a diagnostic, perhaps with a place of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// The remark.
    pub message: String,
    /// Where, if it has a place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

/// One thing that is wrong, doubtful or worth knowing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The place in the file; none: the file as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
    /// What was expected; printed beside the marker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Further places and facts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<Note>,
}

impl Diagnostic {
    /// An error without a place.
    pub fn error(message: impl Into<String>) -> Self {
        Self::new(Severity::Error, message)
    }

    /// A warning without a place.
    pub fn warning(message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, message)
    }

    /// A note without a place.
    pub fn note(message: impl Into<String>) -> Self {
        Self::new(Severity::Note, message)
    }

    fn new(severity: Severity, message: impl Into<String>) -> Self {
        Self {
            severity,
            message: message.into(),
            place: None,
            label: None,
            help: None,
            notes: Vec::new(),
        }
    }

    /// With a place.
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// With words beside the marker.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    /// With advice.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// With advice, if there is any.
    pub fn maybe_help(mut self, help: Option<String>) -> Self {
        self.help = help.or(self.help);
        self
    }

    /// With a remark.
    pub fn remark(mut self, message: impl Into<String>) -> Self {
        self.notes.push(Note { message: message.into(), place: None });
        self
    }

    /// With a remark about another place.
    pub fn remark_at(mut self, message: impl Into<String>, place: Place) -> Self {
        self.notes.push(Note { message: message.into(), place: Some(place) });
        self
    }

    /// Where it begins: diagnostics are sorted by it.
    pub(crate) fn place_key(&self) -> Option<(usize, usize)> {
        self.place.as_ref().map(|place| (place.line, place.column))
    }

    fn render(&self, out: &mut String, paint: &DiagnosticPaint) {
        let (open, close) = paint.severity(self.severity);
        out.push_str(&format!(
            "{open}{}{close}: {}\n",
            self.severity.as_str(),
            printable(&self.message)
        ));
        let gutter = self.gutter();
        if let Some(place) = &self.place {
            place.render(out, gutter, self.label.as_deref(), paint, self.severity);
        } else if let Some(label) = &self.label {
            out.push_str(&format!("{:gutter$} = {}\n", "", printable(label)));
        }
        for note in &self.notes {
            out.push_str(&format!(
                "{:gutter$} = note: {}\n",
                "",
                wrapped(&printable(&note.message), gutter + 9)
            ));
            if let Some(place) = &note.place {
                place.render(out, gutter, None, paint, Severity::Note);
            }
        }
        if let Some(help) = &self.help {
            out.push_str(&format!(
                "{:gutter$} = {}: {}\n",
                "",
                paint.help(),
                wrapped(&printable(help), gutter + 9)
            ));
        }
    }

    fn gutter(&self) -> usize {
        let places =
            self.place.iter().chain(self.notes.iter().filter_map(|note| note.place.as_ref()));
        places.map(|place| place.line.to_string().len()).max().unwrap_or(1) + 1
    }
}

impl Place {
    fn render(
        &self,
        out: &mut String,
        gutter: usize,
        label: Option<&str>,
        paint: &DiagnosticPaint,
        severity: Severity,
    ) {
        let label = label.map(|label| printable(label).into_owned());
        if self.line == 0 {
            let path = if self.path.is_empty() { "the top level" } else { &self.path };
            out.push_str(&format!(
                "{:gutter$}--> {}: {}\n",
                "",
                printable(&self.file),
                printable(path)
            ));
            if let Some(label) = label {
                out.push_str(&format!("{:gutter$} = {label}\n", ""));
            }
            return;
        }
        out.push_str(&format!(
            "{:gutter$}--> {}:{}:{}\n",
            "",
            printable(&self.file),
            self.line,
            self.column
        ));
        let window = Window::around(self);
        let (open, close) = paint.severity(severity);
        out.push_str(&format!("{:gutter$} |\n{:>gutter$} | {}\n", "", self.line, window.text));
        let label = label.map(|label| format!(" {label}")).unwrap_or_default();
        out.push_str(&format!(
            "{:gutter$} | {}{open}{}{label}{close}\n",
            "",
            window.indent,
            "^".repeat(window.marks)
        ));
    }
}

/// The part of a line that is shown, and where the marker goes.
struct Window {
    text: String,
    indent: String,
    marks: usize,
}

impl Window {
    /// Longer lines are cut around the marker.
    const WIDTH: usize = 110;

    fn around(place: &Place) -> Self {
        let chars: Vec<char> = place
            .source
            .chars()
            .map(|c| if c.is_control() && c != '\t' { '\u{FFFD}' } else { c })
            .collect();
        let within = |column: usize| column.saturating_sub(1 + place.source_offset);
        let start = within(place.column).min(chars.len());
        let end = if place.end_line == place.line { within(place.end_column) } else { chars.len() };
        let end = end.clamp(start, chars.len());
        let from =
            if chars.len() <= Self::WIDTH { 0 } else { start.saturating_sub(Self::WIDTH / 3) };
        let to = chars.len().min(from + Self::WIDTH);
        let mut text = String::new();
        let mut indent = String::new();
        if from + place.source_offset > 0 {
            text.push('…');
            indent.push(' ');
        }
        text.extend(&chars[from..to]);
        if to < chars.len() {
            text.push('…');
        }
        indent.extend(chars[from..start].iter().map(|c| if *c == '\t' { '\t' } else { ' ' }));
        Self {
            text: text.trim_end().to_owned(),
            indent,
            marks: end.min(to).saturating_sub(start).max(1),
        }
    }
}

struct DiagnosticPaint {
    color: bool,
}

impl DiagnosticPaint {
    fn severity(&self, severity: Severity) -> (&'static str, &'static str) {
        match (self.color, severity) {
            (false, _) => ("", ""),
            (true, Severity::Error) => ("\u{1b}[1;31m", "\u{1b}[0m"),
            (true, Severity::Warning) => ("\u{1b}[1;33m", "\u{1b}[0m"),
            (true, Severity::Note) => ("\u{1b}[1;36m", "\u{1b}[0m"),
        }
    }

    fn help(&self) -> &'static str {
        if self.color { "\u{1b}[1;32mhelp\u{1b}[0m" } else { "help" }
    }
}

/// Control characters from a hostile file must not reach a terminal.
fn printable(text: &str) -> std::borrow::Cow<'_, str> {
    if text.chars().any(|c| c.is_control() && c != '\n') {
        text.chars()
            .map(|c| if c.is_control() && c != '\n' { '\u{FFFD}' } else { c })
            .collect::<String>()
            .into()
    } else {
        text.into()
    }
}

/// Breaks a long remark into lines, indented like its first.
fn wrapped(text: &str, indent: usize) -> String {
    let mut out = String::with_capacity(text.len());
    let mut column = indent;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > indent && column + 1 + width > Window::WIDTH {
            out.push('\n');
            out.push_str(&" ".repeat(indent));
            column = indent;
        } else if !out.is_empty() {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out
}

/// Shortens a text from the file for use inside a message.
pub(crate) fn excerpt(text: &str) -> String {
    const MAX: usize = 80;
    if text.chars().count() <= MAX {
        return text.to_owned();
    }
    text.chars().take(MAX).chain(['…']).collect()
}

/// A list of diagnostics, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// More than this many are not collected: no user reads them.
    pub const MAX: usize = 100;

    /// Adds one, unless there are too many already.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if self.0.len() < Self::MAX {
            self.0.push(diagnostic);
        }
    }

    /// At least one is an error.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|d| d.severity == Severity::Error)
    }

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// One after the other.
    pub fn iter(&self) -> std::slice::Iter<'_, Diagnostic> {
        self.0.iter()
    }

    /// Brings them into the order of the file.
    pub fn sort(&mut self) {
        self.0.sort_by_key(Diagnostic::place_key);
    }

    /// Adds all of another list.
    pub fn extend(&mut self, other: Self) {
        for diagnostic in other.0 {
            self.push(diagnostic);
        }
    }

    /// How many there are of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.0.iter().filter(|d| d.severity == severity).count()
    }

    /// For a terminal: each with its line and a marker, one blank line between them.
    pub fn render(&self, color: bool) -> String {
        let paint = DiagnosticPaint { color };
        let mut out = String::new();
        for (position, diagnostic) in self.0.iter().enumerate() {
            if position > 0 {
                out.push('\n');
            }
            diagnostic.render(&mut out, &paint);
        }
        if self.0.len() >= Self::MAX {
            out.push_str("\nnote: there are more; these are the first\n");
        }
        out
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for Diagnostics {}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl IntoIterator for Diagnostics {
    type Item = Diagnostic;
    type IntoIter = std::vec::IntoIter<Diagnostic>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// Turns byte offsets into places that people can find.
#[derive(Clone, Debug)]
pub struct SourceMap {
    name: Arc<str>,
    text: Arc<String>,
    lines: Arc<[u32]>,
}

impl SourceMap {
    /// The longest line that is copied into a diagnostic.
    const MAX_LINE: usize = 4096;

    /// For a text.
    pub fn new(name: &str, text: String) -> Self {
        let starts = std::iter::once(0)
            .chain(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1));
        let lines = starts.map(|start| u32::try_from(start).unwrap_or(u32::MAX)).collect();
        Self { name: name.into(), text: Arc::new(text), lines }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place of a span.
    pub fn place(&self, span: Span, path: String) -> Place {
        if span.is_none() {
            return Place { file: self.name.to_string(), path, ..Place::default() };
        }
        let (line, column) = self.line_column(span.start as usize);
        let (end_line, end_column) = self.line_column((span.end as usize).max(span.start as usize));
        let source_offset = if column > Self::MAX_LINE { column - Self::MAX_LINE / 2 } else { 0 };
        let source = self.line(line, source_offset);
        Place {
            file: self.name.to_string(),
            path,
            line,
            column,
            end_line,
            end_column,
            source,
            source_offset,
        }
    }

    /// Narrows a span to a part of its text, if that part is there word for word.
    pub fn narrow(&self, span: Span, part: &str) -> Span {
        if span.is_none() || part.is_empty() {
            return span;
        }
        let found =
            self.text.get(span.start as usize..span.end as usize).and_then(|text| text.find(part));
        found.map_or(span, |at| {
            Span::new(span.start as usize + at, span.start as usize + at + part.len())
        })
    }

    fn line_column(&self, offset: usize) -> (usize, usize) {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.lines.partition_point(|start| *start as usize <= offset).max(1);
        let start = self.lines[line - 1] as usize;
        (line, self.text[start..offset].chars().count() + 1)
    }

    fn line(&self, line: usize, skip: usize) -> String {
        let start = self.lines[line - 1] as usize;
        let rest = &self.text[start..];
        let end = rest.find('\n').unwrap_or(rest.len());
        rest[..end].trim_end_matches('\r').chars().skip(skip).take(Self::MAX_LINE).collect()
    }
}

/// The word of `known` that was probably meant by `word`.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > 200 {
        return None;
    }
    let lower = word.to_lowercase();
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let length = candidate.chars().count();
        // Of very short words nearly any two are near each other.
        let longest = length.max(word.chars().count());
        let allowed = if longest < 3 { 0 } else { (longest / 3).max(1) };
        if length.abs_diff(lower.chars().count()) > allowed {
            continue;
        }
        let distance = strsim::osa_distance(&lower, &candidate.to_lowercase());
        if distance <= allowed && best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// Looks for what was meant, but not for ever: of ten thousand wrong names among ten thousand known
/// ones the first few get advice.
#[derive(Debug)]
pub struct Advice(Cell<usize>);

impl Default for Advice {
    /// As many comparisons as take no noticeable time.
    fn default() -> Self {
        Self(Cell::new(10_000))
    }
}

impl Advice {
    /// As [`suggest`].
    pub fn suggest<'a>(
        &self,
        word: &str,
        known: impl IntoIterator<Item = &'a str, IntoIter: ExactSizeIterator> + Clone,
    ) -> Option<String> {
        self.pay(known.clone().into_iter().len()).then(|| suggest(word, known)).flatten()
    }

    /// As [`nearest`].
    pub fn nearest<'a>(&self, word: &str, known: &[&'a str]) -> Option<&'a str> {
        self.pay(known.len()).then(|| nearest(word, known.iter().copied())).flatten()
    }

    /// Whether one of many is so, as far as there is time to look.
    pub fn any(&self, known: &[&str], is: impl Fn(&str) -> bool) -> bool {
        // A plain test of a name is far cheaper than the distance between two.
        self.pay(known.len() / 16) && known.iter().any(|name| is(name))
    }

    fn pay(&self, cost: usize) -> bool {
        // Whatever there is, one look is affordable.
        let left = self.0.get();
        self.0.set(left.saturating_sub(cost));
        left > 0
    }
}

/// `did you mean ...?`, or the list of what there is if it is short enough to help.
pub fn suggest<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> Option<String> {
    if let Some(word) = nearest(word, known.clone()) {
        return Some(format!("did you mean `{}`?", excerpt(word)));
    }
    let mut listed: Vec<&str> = known.into_iter().take(11).collect();
    if listed.is_empty() {
        return None;
    }
    let more = listed.len() > 10;
    listed.truncate(10);
    let names: Vec<String> = listed.iter().map(|name| format!("`{}`", excerpt(name))).collect();
    Some(format!("known: {}{}", names.join(", "), if more { ", ..." } else { "" }))
}
