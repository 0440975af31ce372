//! JSON5: bare keys and trailing commas.

use crate::template::is_identifier;
use serde_json::Value;

/// Writes a value.
pub fn write(value: &Value) -> String {
    let mut out = String::new();
    put(value, 0, &mut out);
    out.push('\n');
    out
}

fn put(value: &Value, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth + 1);
    match value {
        Value::Array(items) if items.is_empty() => out.push_str("[]"),
        Value::Object(map) if map.is_empty() => out.push_str("{}"),
        Value::Array(items) => {
            out.push_str("[\n");
            for item in items {
                out.push_str(&indent);
                put(item, depth + 1, out);
                out.push_str(",\n");
            }
            out.push_str(&"  ".repeat(depth));
            out.push(']');
        }
        Value::Object(map) => {
            out.push_str("{\n");
            for (key, value) in map {
                out.push_str(&indent);
                if is_identifier(key) {
                    out.push_str(key);
                } else {
                    out.push_str(&Value::from(key.as_str()).to_string());
                }
                out.push_str(": ");
                put(value, depth + 1, out);
                out.push_str(",\n");
            }
            out.push_str(&"  ".repeat(depth));
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}
