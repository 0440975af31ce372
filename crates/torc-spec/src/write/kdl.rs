//! KDL 2, arranged by the key tables: lists of things as repeated nodes, data as JSON text.

use crate::front::kdl::is_disallowed;
use crate::keys::{Object, Shape, WORKFLOW};
use serde_json::{Map, Value};

/// Writes a canonical spec.
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    if let Value::Object(map) = value {
        fields(map, &WORKFLOW, 0, &mut out);
    }
    out
}

fn pad(depth: usize) -> String {
    "    ".repeat(depth)
}

fn fields(map: &Map<String, Value>, object: &'static Object, depth: usize, out: &mut String) {
    for (key, value) in map {
        let Some(field) = object.field(key, false) else { continue };
        let name = field.kdl.first().copied().unwrap_or(field.key);
        field_nodes(name, value, field.shape, depth, out);
    }
}

fn field_nodes(name: &str, value: &Value, shape: Shape, depth: usize, out: &mut String) {
    match (shape, value) {
        (Shape::List(Shape::Object(object)), Value::Array(items)) => {
            for item in items {
                thing(name, item, object, depth, out);
            }
        }
        (Shape::List(_), Value::Array(items)) => {
            for chunk in items.chunks(8) {
                out.push_str(&format!("{}{}", pad(depth), word(name)));
                chunk.iter().for_each(|item| out.push_str(&format!(" {}", scalar(item, depth))));
                out.push('\n');
            }
        }
        (Shape::Object(object), Value::Object(_)) => thing(name, value, object, depth, out),
        (Shape::Json | Shape::Metadata, _) => {
            out.push_str(&format!("{}{} {}\n", pad(depth), word(name), raw(&value.to_string())));
        }
        _ => generic(name, value, depth, out),
    }
}

fn thing(name: &str, value: &Value, object: &'static Object, depth: usize, out: &mut String) {
    let Value::Object(map) = value else { return generic(name, value, depth, out) };
    let mut rest = map.clone();
    let title = rest
        .shift_remove("name")
        .map(|title| format!(" {}", scalar(&title, depth)))
        .unwrap_or_default();
    out.push_str(&format!("{}{}{title} {{\n", pad(depth), word(name)));
    fields(&rest, object, depth + 1, out);
    out.push_str(&format!("{}}}\n", pad(depth)));
}

/// Any value: the elements of a list are children named `-`.
fn generic(name: &str, value: &Value, depth: usize, out: &mut String) {
    let doubt = match value {
        Value::Array(items) if items.is_empty() => "(list)",
        Value::Object(map) if !map.is_empty() && map.keys().all(|key| key == "-") => "(map)",
        _ => "",
    };
    out.push_str(&format!("{}{doubt}{}", pad(depth), word(name)));
    match value {
        Value::Object(map) => {
            out.push_str(" {\n");
            map.iter().for_each(|(key, value)| generic(key, value, depth + 1, out));
            out.push_str(&format!("{}}}\n", pad(depth)));
        }
        Value::Array(items) => {
            out.push_str(" {\n");
            items.iter().for_each(|item| generic("-", item, depth + 1, out));
            out.push_str(&format!("{}}}\n", pad(depth)));
        }
        scalar_value => out.push_str(&format!(" {}\n", scalar(scalar_value, depth))),
    }
}

fn scalar(value: &Value, depth: usize) -> String {
    match value {
        Value::String(text) => multi_line(text, depth).unwrap_or_else(|| quoted(text)),
        Value::Bool(value) => format!("#{value}"),
        Value::Null => "#null".into(),
        other => other.to_string(),
    }
}

/// A name for a node, with quotes unless it is a plain word.
fn word(text: &str) -> String {
    let plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'))
        && !matches!(text, "true" | "false" | "null" | "inf" | "nan");
    if plain || text == "-" { text.to_owned() } else { quoted(text) }
}

/// JSON stays readable between `#`; text that could end too early gets escapes instead.
fn raw(text: &str) -> String {
    if text.contains("\"#") || text.starts_with('"') || text.chars().any(must_escape) {
        quoted(text)
    } else {
        format!("#\"{text}\"#")
    }
}

fn must_escape(c: char) -> bool {
    is_disallowed(c)
        || matches!(c, '\n' | '\r' | '\u{85}' | '\u{B}' | '\u{C}' | '\u{2028}' | '\u{2029}')
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            c if must_escape(c) => out.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => out.push(c),
        }
    }
    out
}

/// Text of several lines between `"""`, if none of its lines consists of spaces alone.
fn multi_line(text: &str, depth: usize) -> Option<String> {
    let fits = text.contains('\n')
        && text.split('\n').all(|line| line.is_empty() || line.chars().any(|c| !c.is_whitespace()));
    fits.then(|| {
        let indent = pad(depth + 1);
        let mut out = String::from("\"\"\"\n");
        for line in text.split('\n') {
            if !line.is_empty() {
                out.push_str(&indent);
                out.push_str(&escaped(line));
            }
            out.push('\n');
        }
        out.push_str(&indent);
        out.push_str("\"\"\"");
        out
    })
}
