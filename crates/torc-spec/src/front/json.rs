//! JSON and JSON5 with the place of every value.

use super::{Builder, Stop};
use crate::diagnostic::{SourceMap, excerpt};
use crate::keys;
use crate::node::{Entry, JOBS, Kind, Node, Span};
use crate::packed::Collector;
use std::borrow::Cow;

/// No known key is longer.
const MAX_KNOWN_KEY: usize = 64;

/// Which of the two languages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// RFC 8259.
    Json,
    /// JSON5 1.0.
    Json5,
}

/// Reads a text into a tree.
pub fn parse<'a>(
    map: &'a SourceMap,
    dialect: Dialect,
    builder: &mut Builder<'a>,
) -> Result<Node, Stop> {
    let mut parser = Parser { text: map.text(), at: 0, dialect, builder };
    parser.at = if parser.text.starts_with('\u{FEFF}') { 3 } else { 0 };
    parser.space()?;
    if parser.peek().is_none() {
        return Err(
            parser.fail("the file is empty", Some("a workflow needs at least `name` and `jobs`"))
        );
    }
    let node = parser.value(0)?;
    parser.space()?;
    if parser.peek().is_some() {
        return Err(parser.fail("unexpected text after the end of the workflow", None));
    }
    Ok(node)
}

struct Parser<'a, 'b> {
    text: &'a str,
    at: usize,
    dialect: Dialect,
    builder: &'b mut Builder<'a>,
}

impl Parser<'_, '_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn fail(&mut self, message: impl Into<String>, help: Option<&str>) -> Stop {
        let width = self.peek().map_or(0, char::len_utf8);
        let span = Span::new(self.at, self.at + width);
        self.builder.stop(span, message, help)
    }

    fn found(&self) -> String {
        match self.peek() {
            Some(c) => format!("found `{}`", c.escape_debug()),
            None => "the file ends here".into(),
        }
    }

    /// Skips white space and, in JSON5, comments.
    fn space(&mut self) -> Result<(), Stop> {
        loop {
            let json5 = self.dialect == Dialect::Json5;
            match self.peek() {
                Some(' ' | '\t' | '\n' | '\r') => self.at += 1,
                Some(c) if json5 && (c.is_whitespace() || c == '\u{FEFF}') => {
                    self.at += c.len_utf8()
                }
                Some('/') if self.rest().starts_with("//") || self.rest().starts_with("/*") => {
                    if !json5 {
                        let help = "name the file `.json5` to use comments";
                        return Err(self.fail("JSON has no comments", Some(help)));
                    }
                    if self.rest().starts_with("//") {
                        self.at += self
                            .rest()
                            .find(['\n', '\r', '\u{2028}', '\u{2029}'])
                            .unwrap_or(self.rest().len());
                    } else {
                        match self.rest().find("*/") {
                            Some(end) => self.at += end + 2,
                            None => {
                                return Err(self
                                    .fail("this comment has no end", Some("close it with `*/`")));
                            }
                        }
                    }
                }
                _ => return Ok(()),
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, Stop> {
        let start = self.at;
        self.builder.count(1, Span::new(start, start + 1))?;
        self.builder.check_depth(depth, Span::new(start, start + 1))?;
        match self.peek() {
            Some('{') => self.object(depth),
            Some('[') => self.array(depth, Vec::new(), Kind::List),
            Some('"') => {
                self.string().map(|text| self.builder.text(text, Span::new(start, self.at)))
            }
            Some('\'') if self.dialect == Dialect::Json5 => {
                self.string().map(|text| self.builder.text(text, Span::new(start, self.at)))
            }
            Some('\'') => {
                Err(self.fail("JSON text stands in double quotes", Some("use `\"` instead of `'`")))
            }
            Some(c) if c.is_ascii_digit() || matches!(c, '-' | '+' | '.') => self.number(),
            Some(c) if is_key_start(c) => self.word(),
            _ => Err(self.fail(format!("expected a value, {}", self.found()), None)),
        }
    }

    fn word(&mut self) -> Result<Node, Stop> {
        let start = self.at;
        let length = self.rest().find(|c| !is_key_part(c)).unwrap_or(self.rest().len());
        let word = self.rest()[..length].to_owned();
        let span = Span::new(start, start + length);
        let kind = match word.as_str() {
            "null" => Kind::Null,
            "true" => Kind::Bool(true),
            "false" => Kind::Bool(false),
            "Infinity" | "NaN" if self.dialect == Dialect::Json5 => {
                self.at += length;
                return Ok(self.builder.float(None, &word, span));
            }
            _ => {
                let message = format!("unknown word `{}`", excerpt(&word));
                return Err(self.builder.stop(span, message, Some("text stands in quotes")));
            }
        };
        self.at += length;
        Ok(Node::new(kind, span))
    }

    fn object(&mut self, depth: usize) -> Result<Node, Stop> {
        let start = self.at;
        self.at += 1;
        let mut entries = Vec::new();
        loop {
            self.space()?;
            match self.peek() {
                Some('}') => break,
                None => return Err(self.unclosed(start, '}')),
                _ => {}
            }
            let key_start = self.at;
            let key = self.key()?;
            let key_span = Span::new(key_start, self.at);
            self.builder.check_text(&key, key_span);
            self.space()?;
            if self.peek() != Some(':') {
                let found = self.found();
                return Err(
                    self.fail(format!("expected `:` after key `{}`, {found}", excerpt(&key)), None)
                );
            }
            self.at += 1;
            self.space()?;
            let value = if depth == 0 && key == JOBS && self.peek() == Some('[') {
                self.builder.count(1, Span::new(self.at, self.at + 1))?;
                self.array(depth + 1, Collector::default(), Collector::finish)?
            } else {
                self.value(depth + 1)?
            };
            entries.push(Entry { key, key_span, value });
            if !self.separator('}', start)? {
                break;
            }
        }
        self.at += 1;
        entries.shrink_to_fit();
        Ok(Node::new(Kind::Map(self.builder.unique(entries)), Span::new(start, self.at)))
    }

    fn array<T: Extend<Node>>(
        &mut self,
        depth: usize,
        mut items: T,
        finish: impl FnOnce(T) -> Kind,
    ) -> Result<Node, Stop> {
        let start = self.at;
        self.at += 1;
        loop {
            self.space()?;
            match self.peek() {
                Some(']') => break,
                None => return Err(self.unclosed(start, ']')),
                _ => {}
            }
            items.extend(Some(self.value(depth + 1)?));
            if !self.separator(']', start)? {
                break;
            }
        }
        self.at += 1;
        Ok(Node::new(finish(items), Span::new(start, self.at)))
    }

    /// After an element: true if another may follow, false at the closing character.
    fn separator(&mut self, close: char, start: usize) -> Result<bool, Stop> {
        self.space()?;
        match self.peek() {
            Some(',') => {
                let comma = self.at;
                self.at += 1;
                self.space()?;
                if self.dialect == Dialect::Json && self.peek() == Some(close) {
                    let help = Some("remove it, or name the file `.json5`");
                    return Err(self.builder.stop(
                        Span::new(comma, comma + 1),
                        "JSON allows no comma before the end",
                        help,
                    ));
                }
                Ok(true)
            }
            Some(c) if c == close => Ok(false),
            None => Err(self.unclosed(start, close)),
            _ => {
                let found = self.found();
                Err(self.fail(format!("expected `,` or `{close}`, {found}"), None))
            }
        }
    }

    fn unclosed(&mut self, start: usize, close: char) -> Stop {
        let message = format!("the file ends before this is closed with `{close}`");
        self.builder.stop(Span::new(start, start + 1), message, None)
    }

    fn key(&mut self) -> Result<Cow<'static, str>, Stop> {
        if let Some((known, length)) = self.known_key() {
            self.at += length;
            return Ok(known.into());
        }
        match (self.peek(), self.dialect) {
            (Some('"'), _) | (Some('\''), Dialect::Json5) => self.string().map(Cow::Owned),
            (Some(c), Dialect::Json5) if is_key_start(c) => {
                let length = self.rest().find(|c| !is_key_part(c)).unwrap_or(self.rest().len());
                let key = self.rest()[..length].to_owned();
                self.at += length;
                Ok(key.into())
            }
            (Some(c), Dialect::Json) if is_key_start(c) || c == '\'' => {
                let help = "name the file `.json5` to write keys without double quotes";
                Err(self.fail("JSON keys stand in double quotes", Some(help)))
            }
            _ => {
                let found = self.found();
                Err(self.fail(format!("expected a key, {found}"), None))
            }
        }
    }

    /// A known key in double quotes, as most are, and how long it is with them.
    fn known_key(&self) -> Option<(&'static str, usize)> {
        let text = self.rest().strip_prefix('"')?;
        let length = text.bytes().take(MAX_KNOWN_KEY + 1).position(|b| b == b'"')?;
        keys::known(&text[..length]).map(|known| (known, length + 2))
    }

    fn string(&mut self) -> Result<String, Stop> {
        let start = self.at;
        let quote = self.rest().chars().next().unwrap_or('"');
        self.at += 1;
        let mut out = String::new();
        loop {
            let stop = |c: char| c == quote || c == '\\' || c < ' ';
            let plain = self.rest().find(stop).unwrap_or(self.rest().len());
            out.push_str(&self.text[self.at..self.at + plain]);
            self.at += plain;
            match self.peek() {
                Some(c) if c == quote => {
                    self.at += 1;
                    return Ok(out);
                }
                Some('\\') => self.escape(&mut out)?,
                Some('\n' | '\r') | None => {
                    let span = Span::new(start, self.at);
                    return Err(self.builder.stop(
                        span,
                        format!("this text is not closed with `{quote}`"),
                        None,
                    ));
                }
                Some('\t') if self.dialect == Dialect::Json5 => {
                    out.push('\t');
                    self.at += 1;
                }
                Some(c) => {
                    let message =
                        format!("write the control character as `\\u{:04x}`", u32::from(c));
                    return Err(self.fail(message, None));
                }
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), Stop> {
        let json5 = self.dialect == Dialect::Json5;
        self.at += 1;
        let Some(c) = self.peek() else {
            return Err(self.fail("the file ends inside a text", None));
        };
        self.at += c.len_utf8();
        match c {
            '"' | '\\' | '/' => out.push(c),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'u' => out.push(self.unicode()?),
            'x' if json5 => {
                let code = self.hex(2)?;
                out.push(char::from_u32(code).unwrap_or('\u{FFFD}'));
            }
            'v' if json5 => out.push('\u{b}'),
            '0' if json5 && !self.peek().is_some_and(|c| c.is_ascii_digit()) => out.push('\0'),
            '\r' if json5 => self.at += usize::from(self.peek() == Some('\n')),
            '\n' | '\u{2028}' | '\u{2029}' if json5 => {}
            c if json5 && !c.is_ascii_digit() => out.push(c),
            c => {
                self.at -= c.len_utf8();
                return Err(self.fail(
                    format!("unknown escape `\\{}`", c.escape_debug()),
                    Some("write `\\\\` for a backslash"),
                ));
            }
        }
        Ok(())
    }

    fn unicode(&mut self) -> Result<char, Stop> {
        let start = self.at - 2;
        let high = self.hex(4)?;
        if (0xD800..0xDC00).contains(&high) && self.rest().starts_with("\\u") {
            self.at += 2;
            let low = self.hex(4)?;
            if (0xDC00..0xE000).contains(&low) {
                let code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
                return Ok(char::from_u32(code).unwrap_or('\u{FFFD}'));
            }
        }
        match char::from_u32(high) {
            Some(c) => Ok(c),
            None => {
                let span = Span::new(start, self.at);
                Err(self.builder.stop(span, "half of a surrogate pair is not a character", None))
            }
        }
    }

    fn hex(&mut self, digits: usize) -> Result<u32, Stop> {
        let text =
            self.rest().get(..digits).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
        match text.and_then(|text| u32::from_str_radix(text, 16).ok()) {
            Some(code) => {
                self.at += digits;
                Ok(code)
            }
            None => Err(self.fail(format!("expected {digits} hexadecimal digits"), None)),
        }
    }

    fn number(&mut self) -> Result<Node, Stop> {
        let start = self.at;
        let part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let length = self.rest().find(|c| !part(c)).unwrap_or(self.rest().len());
        let text = self.rest()[..length].to_owned();
        let span = Span::new(start, start + length);
        self.at += length;
        let json5 = self.dialect == Dialect::Json5;
        let (sign, body) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' if json5 => (false, &text[1..]),
            _ => (false, text.as_str()),
        };
        if json5 {
            if matches!(body, "Infinity" | "NaN") {
                return Ok(self.builder.float(None, &text, span));
            }
            let hex = body.strip_prefix("0x").or_else(|| body.strip_prefix("0X"));
            if let Some(hex) =
                hex.filter(|hex| !hex.is_empty() && hex.bytes().all(|b| b.is_ascii_hexdigit()))
            {
                return Ok(self.builder.integer(sign, hex, 16, &text, span));
            }
        }
        match shape(body, json5) {
            Some(JsonShape::Integer) => Ok(self.builder.integer(sign, body, 10, &text, span)),
            Some(JsonShape::Float) => {
                Ok(self.builder.float(text.trim_start_matches('+').parse().ok(), &text, span))
            }
            None => {
                let message = format!("`{}` is not a number", excerpt(&text));
                Err(self.builder.stop(
                    span,
                    message,
                    Some("put it in quotes if it is meant as text"),
                ))
            }
        }
    }
}

enum JsonShape {
    Integer,
    Float,
}

/// `digits [. digits] [e digits]`; JSON5 also allows a missing side of the point.
fn shape(body: &str, json5: bool) -> Option<JsonShape> {
    let (mantissa, exponent) = match body.find(['e', 'E']) {
        Some(at) => (&body[..at], Some(&body[at + 1..])),
        None => (body, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if let Some(exponent) = exponent {
        digits(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)).then_some(())?;
    }
    let whole_ok = |whole: &str| digits(whole) && (whole == "0" || !whole.starts_with('0'));
    match mantissa.split_once('.') {
        None => whole_ok(mantissa).then_some(if exponent.is_some() {
            JsonShape::Float
        } else {
            JsonShape::Integer
        }),
        Some((whole, "")) => (json5 && whole_ok(whole)).then_some(JsonShape::Float),
        Some(("", fraction)) => (json5 && digits(fraction)).then_some(JsonShape::Float),
        Some((whole, fraction)) => {
            (whole_ok(whole) && digits(fraction)).then_some(JsonShape::Float)
        }
    }
}

fn is_key_start(c: char) -> bool {
    c.is_alphabetic() || c == '_' || c == '$'
}

fn is_key_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '\u{200C}' | '\u{200D}')
}
