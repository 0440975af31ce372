//! KDL 2: text into nodes with arguments, properties and children. Knows nothing of workflows.

use super::{Builder, Stop};
use crate::diagnostic::{SourceMap, excerpt};
use crate::node::{Entry, Kind, Node, Span};

/// One KDL node.
#[derive(Debug)]
pub struct KdlNode {
    /// The type before its name.
    pub annotation: Option<String>,
    /// Its name.
    pub name: String,
    /// Where the name stands.
    pub name_span: Span,
    /// Values after the name.
    pub arguments: Vec<Node>,
    /// `key=value`; the last of equal keys counts, as KDL says.
    pub properties: Vec<Entry>,
    /// Between braces.
    pub children: Option<Vec<Self>>,
    /// All of it.
    pub span: Span,
}

/// Reads a text and hands over its nodes, one after the other.
pub fn parse(
    map: &SourceMap,
    builder: &mut Builder<'_>,
    take: &mut dyn FnMut(KdlNode),
) -> Result<(), Stop> {
    let mut parser = Parser { text: map.text(), at: 0, builder };
    parser.at = if parser.text.starts_with('\u{FEFF}') { 3 } else { 0 };
    parser.nodes(0, take)?;
    if parser.peek().is_some() {
        return Err(parser.fail("this brace closes nothing", None));
    }
    Ok(())
}

struct Parser<'t, 'b, 'm> {
    text: &'t str,
    at: usize,
    builder: &'b mut Builder<'m>,
}

/// What stands after a node's name.
enum Part {
    Argument(Node),
    Property(Entry),
}

impl<'t> Parser<'t, '_, '_> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn starts(&self, text: &str) -> bool {
        self.rest().starts_with(text)
    }

    fn fail(&mut self, message: impl Into<String>, help: Option<&str>) -> Stop {
        let width = self.peek().map_or(0, char::len_utf8);
        self.builder.stop(Span::new(self.at, self.at + width), message, help)
    }

    fn found(&self) -> String {
        self.peek().map_or("the file ends here".into(), |c| format!("found `{}`", c.escape_debug()))
    }

    /// Nodes up to a closing brace or the end of the file.
    fn nodes(&mut self, depth: usize, take: &mut dyn FnMut(KdlNode)) -> Result<(), Stop> {
        self.builder.check_depth(depth, Span::new(self.at, self.at))?;
        loop {
            self.line_space()?;
            while self.peek() == Some(';') {
                self.at += 1;
                self.line_space()?;
            }
            if self.peek().is_none_or(|c| c == '}') {
                return Ok(());
            }
            let ignored = self.slashdash()?;
            let node = self.node(depth)?;
            if !ignored {
                take(node);
            }
        }
    }

    fn node(&mut self, depth: usize) -> Result<KdlNode, Stop> {
        self.builder.count(1, Span::new(self.at, self.at + 1))?;
        let annotation = self.annotation()?;
        let start = self.at;
        if !self.peek().is_some_and(|c| is_identifier(c) || c == '"' || c == '#')
            || self.starts_number()
        {
            let found = self.found();
            return Err(self.fail(format!("expected the name of a node, {found}"), None));
        }
        let name = self.string()?;
        let name_span = Span::new(start, self.at);
        let mut node = KdlNode {
            annotation,
            name,
            name_span,
            arguments: Vec::new(),
            properties: Vec::new(),
            children: None,
            span: name_span,
        };
        loop {
            let spaced = self.node_space()?;
            let ignored = self.slashdash()?;
            match self.peek() {
                Some('{') => {
                    let children = self.children(depth)?;
                    if !ignored {
                        if node.children.is_some() {
                            return Err(self.fail("a node has only one block of children", None));
                        }
                        node.children = Some(children);
                        node.span = Span::new(start, self.at);
                    }
                }
                None | Some(';' | '}') if !ignored => break,
                Some(c) if (is_newline(c) || self.starts("//")) && !ignored => break,
                None => return Err(self.fail("the file ends after `/-`", None)),
                Some(_) => {
                    if !spaced && !ignored {
                        let found = self.found();
                        return Err(self.fail(
                            format!("expected a space or the end of the node, {found}"),
                            None,
                        ));
                    }
                    if node.children.is_some() && !ignored {
                        let help = Some("end the node with `;` or a new line");
                        return Err(self.fail("nothing may follow a block of children", help));
                    }
                    let part = self.part()?;
                    if ignored {
                        continue;
                    }
                    node.span = Span::new(start, self.at);
                    match part {
                        Part::Argument(value) => node.arguments.push(value),
                        Part::Property(entry) => {
                            node.properties.retain(|other| other.key != entry.key);
                            node.properties.push(entry);
                        }
                    }
                }
            }
        }
        if self.peek() == Some(';') {
            self.at += 1;
        }
        Ok(node)
    }

    fn children(&mut self, depth: usize) -> Result<Vec<KdlNode>, Stop> {
        let open = self.at;
        self.at += 1;
        let mut nodes = Vec::new();
        self.nodes(depth + 1, &mut |node| nodes.push(node))?;
        if self.peek() != Some('}') {
            let message = "the file ends before this is closed with `}`";
            return Err(self.builder.stop(Span::new(open, open + 1), message, None));
        }
        self.at += 1;
        Ok(nodes)
    }

    fn part(&mut self) -> Result<Part, Stop> {
        self.builder.count(1, Span::new(self.at, self.at + 1))?;
        let start = self.at;
        let value = self.value()?;
        let after = self.at;
        self.node_space()?;
        if self.peek() != Some('=') {
            self.at = after;
            return Ok(Part::Argument(value));
        }
        let Kind::Text(key) = value.kind else {
            return Err(self.builder.stop(value.span, "the name of a property must be text", None));
        };
        self.at += 1;
        self.node_space()?;
        let value = self.value()?;
        Ok(Part::Property(Entry { key: key.into(), key_span: Span::new(start, after), value }))
    }

    fn value(&mut self) -> Result<Node, Stop> {
        self.annotation()?;
        let start = self.at;
        if self.starts_number() {
            return self.number();
        }
        match self.peek() {
            Some('#') if !self.is_raw_string() => self.keyword(),
            Some(c) if c == '"' || c == '#' || is_identifier(c) => {
                let text = self.string()?;
                let span = Span::new(start, self.at);
                Ok(self.builder.text(text, span))
            }
            _ => {
                let found = self.found();
                Err(self.fail(format!("expected a value, {found}"), None))
            }
        }
    }

    /// `(type)`; only `(list)` and `(map)` before a node say something that a workflow needs.
    fn annotation(&mut self) -> Result<Option<String>, Stop> {
        if self.peek() != Some('(') {
            return Ok(None);
        }
        self.at += 1;
        self.node_space()?;
        if !self.peek().is_some_and(|c| is_identifier(c) || c == '"' || c == '#') {
            return Err(self.fail("expected the name of a type", None));
        }
        let name = self.string()?;
        self.node_space()?;
        if self.peek() != Some(')') {
            return Err(self.fail("expected `)` after the name of the type", None));
        }
        self.at += 1;
        self.node_space()?;
        Ok(Some(name))
    }

    fn keyword(&mut self) -> Result<Node, Stop> {
        let start = self.at;
        let word: String = self
            .rest()
            .chars()
            .enumerate()
            .take_while(|(i, c)| *i == 0 || is_identifier(*c))
            .map(|(_, c)| c)
            .collect();
        let span = Span::new(start, start + word.len());
        self.at += word.len();
        Ok(match word.as_str() {
            "#true" => Node::new(Kind::Bool(true), span),
            "#false" => Node::new(Kind::Bool(false), span),
            "#null" => Node::new(Kind::Null, span),
            "#inf" | "#-inf" | "#nan" => self.builder.float(None, &word, span),
            _ => {
                let message = format!("unknown keyword `{}`", excerpt(&word));
                return Err(self.builder.stop(
                    span,
                    message,
                    Some("known keywords: `#true`, `#false`, `#null`"),
                ));
            }
        })
    }

    fn starts_number(&self) -> bool {
        let body = self.rest().strip_prefix(['+', '-']).unwrap_or(self.rest());
        body.starts_with(|c: char| c.is_ascii_digit())
    }

    fn number(&mut self) -> Result<Node, Stop> {
        let start = self.at;
        let length = self.rest().find(|c| !is_identifier(c)).unwrap_or(self.rest().len());
        let text = &self.rest()[..length];
        let span = Span::new(start, start + length);
        self.at += length;
        let negative = text.starts_with('-');
        let body = text.strip_prefix(['+', '-']).unwrap_or(text);
        for (prefix, radix) in [("0x", 16), ("0o", 8), ("0b", 2)] {
            if let Some(digits) = body.strip_prefix(prefix)
                && is_digits(digits, radix)
            {
                return Ok(self.builder.integer(
                    negative,
                    &digits.replace('_', ""),
                    radix,
                    text,
                    span,
                ));
            }
        }
        let (mantissa, exponent) =
            body.find(['e', 'E']).map_or((body, None), |at| (&body[..at], Some(&body[at + 1..])));
        let (whole, fraction) =
            mantissa.split_once('.').map_or((mantissa, None), |(w, f)| (w, Some(f)));
        let exponent_fits =
            exponent.is_none_or(|e| is_digits(e.strip_prefix(['+', '-']).unwrap_or(e), 10));
        if !is_digits(whole, 10)
            || !fraction.is_none_or(|fraction| is_digits(fraction, 10))
            || !exponent_fits
        {
            let message = format!("`{}` is not a number", excerpt(text));
            return Err(self.builder.stop(
                span,
                message,
                Some("put it in quotes if it is meant as text"),
            ));
        }
        if fraction.is_none() && exponent.is_none() {
            return Ok(self.builder.integer(negative, &whole.replace('_', ""), 10, text, span));
        }
        let value = text.replace('_', "").trim_start_matches('+').parse().ok();
        Ok(self.builder.float(value, text, span))
    }

    fn is_raw_string(&self) -> bool {
        self.rest().trim_start_matches('#').starts_with('"')
    }

    fn string(&mut self) -> Result<String, Stop> {
        match self.peek() {
            Some('"') if self.starts("\"\"\"") => self.multi_line(0),
            Some('"') => self.quoted(),
            Some('#') => {
                let hashes = self.rest().len() - self.rest().trim_start_matches('#').len();
                if !self.is_raw_string() {
                    return Err(self.fail("expected text after `#`", None));
                }
                if self.rest()[hashes..].starts_with("\"\"\"") {
                    return self.multi_line(hashes);
                }
                self.raw(hashes)
            }
            _ => self.identifier(),
        }
    }

    fn identifier(&mut self) -> Result<String, Stop> {
        let start = self.at;
        let length = self.rest().find(|c| !is_identifier(c)).unwrap_or(self.rest().len());
        let word = &self.rest()[..length];
        let span = Span::new(start, start + length);
        self.at += length;
        if matches!(word, "true" | "false" | "null" | "inf" | "-inf" | "nan") {
            let help = format!("write `#{word}` for the value or `\"{word}\"` for the text");
            return Err(self.builder.stop(
                span,
                format!("the bare word `{word}` is not allowed"),
                Some(&help),
            ));
        }
        if word == "r" && (self.starts("\"") || self.starts("#")) {
            return Err(self.builder.stop(
                span,
                "this is how KDL 1 wrote raw text",
                Some("write `#\"...\"#`"),
            ));
        }
        if let Some(c) = word.chars().find(|c| is_disallowed(*c)) {
            return Err(self.builder.stop(
                span,
                format!("the character `{}` is not allowed", c.escape_unicode()),
                None,
            ));
        }
        Ok(word.to_owned())
    }

    fn quoted(&mut self) -> Result<String, Stop> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let Some(c) = self.peek() else { return Err(self.unclosed(start)) };
            match c {
                '"' => {
                    self.at += 1;
                    return Ok(out);
                }
                '\\' => self.escape(&mut out)?,
                c if is_newline(c) => {
                    let help = Some(
                        "close it with `\"`; text of several lines begins and ends with `\"\"\"`",
                    );
                    return Err(self.builder.stop(
                        Span::new(start, self.at),
                        "this text is not closed on its line",
                        help,
                    ));
                }
                c if is_disallowed(c) => {
                    return Err(self.fail("this character must be escaped", None));
                }
                c => {
                    out.push(c);
                    self.at += c.len_utf8();
                }
            }
        }
    }

    fn raw(&mut self, hashes: usize) -> Result<String, Stop> {
        let start = self.at;
        self.at += hashes + 1;
        let close = format!("\"{}", "#".repeat(hashes));
        let Some(length) = self.rest().find(&close) else { return Err(self.unclosed(start)) };
        let body = &self.rest()[..length];
        if body.contains(is_newline) {
            let help = Some("text of several lines begins and ends with `\"\"\"`");
            return Err(self.builder.stop(
                Span::new(start, start + hashes + 1),
                "this text is not closed on its line",
                help,
            ));
        }
        self.at += length + close.len();
        Ok(body.to_owned())
    }

    fn unclosed(&mut self, start: usize) -> Stop {
        self.builder.stop(Span::new(start, start + 1), "this text is not closed", None)
    }

    fn escape(&mut self, out: &mut String) -> Result<(), Stop> {
        let start = self.at;
        self.at += 1;
        let Some(c) = self.peek() else {
            return Err(self.fail("the file ends inside a text", None));
        };
        self.at += c.len_utf8();
        match c {
            '"' | '\\' => out.push(c),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            's' => out.push(' '),
            'u' => {
                let digits = self
                    .rest()
                    .strip_prefix('{')
                    .and_then(|rest| rest.split_once('}'))
                    .map(|(digits, _)| digits);
                let fitting = digits.filter(|d| {
                    (1..=6).contains(&d.len()) && d.bytes().all(|b| b.is_ascii_hexdigit())
                });
                let decoded = fitting.and_then(|d| {
                    Some((d.len(), char::from_u32(u32::from_str_radix(d, 16).ok()?)?))
                });
                let Some((length, c)) = decoded else {
                    let span = Span::new(start, self.at);
                    return Err(self.builder.stop(
                        span,
                        "expected a character code like `\\u{1F600}`",
                        None,
                    ));
                };
                out.push(c);
                self.at += length + 2;
            }
            c if is_newline(c) || is_space(c) => {
                let rest = self.rest().trim_start_matches(|c| is_newline(c) || is_space(c));
                self.at = self.text.len() - rest.len();
            }
            c => {
                let span = Span::new(start, self.at);
                let message = format!("unknown escape `\\{}`", c.escape_debug());
                return Err(self.builder.stop(
                    span,
                    message,
                    Some("write `\\\\` for a backslash, or use raw text `#\"...\"#`"),
                ));
            }
        }
        Ok(())
    }

    /// Between `"""`: the last line's indentation is taken off every line.
    fn multi_line(&mut self, hashes: usize) -> Result<String, Stop> {
        let start = self.at;
        self.at += hashes + 3;
        let open = Span::new(start, self.at);
        let Some(after) = strip_newline(self.rest()) else {
            return Err(self.builder.stop(
                open,
                "the text after `\"\"\"` begins on a new line",
                None,
            ));
        };
        self.at = self.text.len() - after.len();
        let close = format!("\"\"\"{}", "#".repeat(hashes));
        let body_start = self.at;
        let mut end = None;
        let mut chars = self.rest().char_indices();
        while let Some((at, c)) = chars.next() {
            if c == '\\' && hashes == 0 {
                chars.next();
            } else if c == '"' && self.rest()[at..].starts_with(&close) {
                end = Some(at);
                break;
            }
        }
        let Some(length) = end else {
            return Err(self.builder.stop(open, "this text is not closed", None));
        };
        let body = normalise_lines(&self.rest()[..length]);
        self.at += length + close.len();
        // Escaped line breaks vanish before the indentation is looked at.
        let body = if hashes == 0 { drop_escaped_space(&body) } else { body };
        let (content, indent) = match body.rsplit_once('\n') {
            Some((content, indent)) => (Some(content), indent),
            None => (None, body.as_str()),
        };
        if !indent.chars().all(is_space) {
            return Err(self.builder.stop(
                open,
                "the closing `\"\"\"` must stand on a line of its own",
                None,
            ));
        }
        let mut out = String::new();
        for (number, line) in
            content.into_iter().flat_map(|content| content.split('\n')).enumerate()
        {
            if number > 0 {
                out.push('\n');
            }
            if line.chars().all(is_space) {
                continue;
            }
            let Some(line) = line.strip_prefix(indent) else {
                let help = "every line must begin with the same spaces as the closing `\"\"\"`";
                return Err(self.builder.stop(
                    Span::new(body_start, self.at),
                    "a line is indented too little",
                    Some(help),
                ));
            };
            out.push_str(line);
        }
        if let Some(c) = out.chars().find(|c| is_disallowed(*c)) {
            return Err(self.builder.stop(
                open,
                format!("the character `{}` is not allowed", c.escape_unicode()),
                None,
            ));
        }
        if hashes > 0 { Ok(out) } else { self.unescape(&out, open) }
    }

    fn unescape(&mut self, text: &str, span: Span) -> Result<String, Stop> {
        if !text.contains('\\') {
            return Ok(text.to_owned());
        }
        // The same rules as between single quotes, over the text without its indentation.
        let mut inner = Parser { text, at: 0, builder: &mut *self.builder };
        let mut out = String::new();
        while let Some(c) = inner.peek() {
            if c == '\\' {
                let errors = inner.builder.errors.len();
                if inner.escape(&mut out).is_err() {
                    // Its place would be one in the inner text.
                    let message = inner.builder.errors.0.get(errors).map(|d| d.message.clone());
                    inner.builder.errors.0.truncate(errors);
                    return Err(self.builder.stop(
                        span,
                        message.unwrap_or_else(|| "unknown escape".into()),
                        None,
                    ));
                }
            } else {
                out.push(c);
                inner.at += c.len_utf8();
            }
        }
        Ok(out)
    }

    /// Skips spaces, comments and escaped line ends; true if there were any.
    fn node_space(&mut self) -> Result<bool, Stop> {
        let start = self.at;
        loop {
            match self.peek() {
                Some(c) if is_space(c) => self.at += c.len_utf8(),
                Some('/') if self.starts("/*") => self.block_comment()?,
                Some('\\') => {
                    let before = self.at;
                    self.at += 1;
                    while self.peek().is_some_and(is_space) {
                        self.at += self.peek().map_or(0, char::len_utf8);
                    }
                    if self.starts("//") {
                        self.line_comment();
                    }
                    if self.peek().is_none() {
                        return Ok(true);
                    }
                    let Some(after) = strip_newline(self.rest()) else {
                        self.at = before;
                        return Err(self.fail("expected the end of the line after `\\`", None));
                    };
                    self.at = self.text.len() - after.len();
                }
                _ => return Ok(self.at > start),
            }
        }
    }

    fn line_space(&mut self) -> Result<(), Stop> {
        loop {
            self.node_space()?;
            match self.peek() {
                Some(c) if is_newline(c) => self.at += c.len_utf8(),
                Some('/') if self.starts("//") => self.line_comment(),
                _ => return Ok(()),
            }
        }
    }

    fn line_comment(&mut self) {
        self.at += self.rest().find(is_newline).unwrap_or(self.rest().len());
    }

    fn block_comment(&mut self) -> Result<(), Stop> {
        let start = self.at;
        let mut depth = 0usize;
        loop {
            let Some(next) = self.rest().find(['/', '*']) else {
                return Err(self.builder.stop(
                    Span::new(start, start + 2),
                    "this comment has no end",
                    Some("close it with `*/`"),
                ));
            };
            self.at += next;
            if self.starts("/*") {
                depth += 1;
                self.at += 2;
            } else if self.starts("*/") {
                depth -= 1;
                self.at += 2;
                if depth == 0 {
                    return Ok(());
                }
            } else {
                self.at += 1;
            }
        }
    }

    fn slashdash(&mut self) -> Result<bool, Stop> {
        if !self.starts("/-") {
            return Ok(false);
        }
        self.at += 2;
        self.line_space()?;
        Ok(true)
    }
}

fn is_digits(text: &str, radix: u32) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_digit(radix)) && chars.all(|c| c.is_digit(radix) || c == '_')
}

fn is_newline(c: char) -> bool {
    matches!(c, '\r' | '\n' | '\u{85}' | '\u{B}' | '\u{C}' | '\u{2028}' | '\u{2029}')
}

fn is_space(c: char) -> bool {
    matches!(
        c,
        '\t' | ' ' | '\u{A0}' | '\u{1680}' | '\u{2000}'
            ..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}'
    )
}

fn is_identifier(c: char) -> bool {
    !is_space(c)
        && !is_newline(c)
        && !matches!(c, '\\' | '/' | '(' | ')' | '{' | '}' | ';' | '[' | ']' | '"' | '#' | '=')
}

/// Characters that KDL wants escaped.
pub fn is_disallowed(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{E}'..='\u{1F}' | '\u{7F}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}'
        | '\u{2066}'..='\u{2069}' | '\u{FEFF}')
}

fn strip_newline(text: &str) -> Option<&str> {
    text.strip_prefix("\r\n").or_else(|| text.strip_prefix(is_newline))
}

/// Every kind of line end becomes `\n`.
fn normalise_lines(text: &str) -> String {
    text.replace("\r\n", "\n").chars().map(|c| if is_newline(c) { '\n' } else { c }).collect()
}

/// Removes each backslash that is followed by white space, together with that white space.
fn drop_escaped_space(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
        } else if chars.peek().is_some_and(|c| is_newline(*c) || is_space(*c)) {
            while chars.next_if(|c| is_newline(*c) || is_space(*c)).is_some() {}
        } else {
            out.push(c);
            out.extend(chars.next());
        }
    }
    out
}
