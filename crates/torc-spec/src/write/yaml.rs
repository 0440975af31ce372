//! YAML as people write it: block style, text of several lines as a literal block, short lists in
//! one line.

use serde_json::Value;

/// Lists of short scalars up to this width stand in one line.
const WIDTH: usize = 100;

/// Writes a value.
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                entry(key, value, 0, &mut out);
            }
        }
        other => {
            out.push_str(&flow(other));
            out.push('\n');
        }
    }
    out
}

fn pad(depth: usize) -> String {
    "  ".repeat(depth)
}

/// `key: value` at the current position, which is already indented for the first line of a list
/// element.
fn entry(key: &str, value: &Value, depth: usize, out: &mut String) {
    out.push_str(&scalar_text(key));
    out.push(':');
    after_colon(value, depth, out);
}

fn after_colon(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            for (key, value) in map {
                out.push_str(&pad(depth + 1));
                entry(key, value, depth + 1, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            if let Some(line) = short(items) {
                out.push_str(&format!(" {line}\n"));
                return;
            }
            out.push('\n');
            for item in items {
                out.push_str(&pad(depth + 1));
                element(item, depth + 1, out);
            }
        }
        Value::String(text) => match block(text, depth + 1) {
            Some(block) => out.push_str(&format!(" {block}")),
            None => out.push_str(&format!(" {}\n", scalar_text(text))),
        },
        other => out.push_str(&format!(" {}\n", flow(other))),
    }
}

fn element(item: &Value, depth: usize, out: &mut String) {
    out.push('-');
    match item {
        Value::Object(map) if !map.is_empty() => {
            out.push(' ');
            for (position, (key, value)) in map.iter().enumerate() {
                if position > 0 {
                    out.push_str(&pad(depth + 1));
                }
                entry(key, value, depth + 1, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            if let Some(line) = short(items) {
                out.push_str(&format!(" {line}\n"));
                return;
            }
            out.push(' ');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push_str(&pad(depth + 1));
                }
                element(item, depth + 1, out);
            }
        }
        other => after_colon(other, depth, out),
    }
}

/// A list of scalars in one line, if it is short.
fn short(items: &[Value]) -> Option<String> {
    if items.iter().any(|item| item.is_object() || item.is_array()) {
        return None;
    }
    let mut line = String::from("[");
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            line.push_str(", ");
        }
        line.push_str(&flow(item));
        if line.len() > WIDTH {
            return None;
        }
    }
    line.push(']');
    Some(line)
}

fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar_text(text),
        other => other.to_string(),
    }
}

/// A literal block, if the text survives it.
fn block(text: &str, depth: usize) -> Option<String> {
    let (body, header) = match text.strip_suffix('\n') {
        Some(body) => (body, "|"),
        None => (text, "|-"),
    };
    let fits = body.contains('\n')
        && !body.ends_with('\n')
        && !body.starts_with([' ', '\t', '\n'])
        && body.chars().all(|c| c == '\n' || c == '\t' || is_printable(c))
        && body.split('\n').all(|line| line.is_empty() || !line.trim().is_empty());
    fits.then(|| {
        let mut out = format!("{header}\n");
        for line in body.split('\n') {
            if !line.is_empty() {
                out.push_str(&pad(depth));
                out.push_str(line);
            }
            out.push('\n');
        }
        out
    })
}

fn is_printable(c: char) -> bool {
    !c.is_control() && !matches!(c, '\u{2028}' | '\u{2029}' | '\u{FEFF}' | '\u{FFFE}' | '\u{FFFF}')
}

/// Without quotes where no reader could take it for anything but text.
fn scalar_text(text: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '/')
        && text.chars().all(|c| word(c) || c == ' ')
        && !text.ends_with(' ')
        && !matches!(
            text.to_ascii_lowercase().as_str(),
            "true" | "false" | "null" | "yes" | "no" | "on" | "off" | "y" | "n" | "inf" | "nan"
        );
    if plain { text.to_owned() } else { quoted(text) }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if is_printable(c) => out.push(c),
            c if u32::from(c) > 0xFFFF => out.push_str(&format!("\\U{:08X}", u32::from(c))),
            c => out.push_str(&format!("\\u{:04X}", u32::from(c))),
        }
    }
    out.push('"');
    out
}
