//! Lists as CSV (RFC 4180): the fields that JSON has, one level deep, so that a spreadsheet gets
//! numbers and not words for people.

use serde_json::Value;
use std::collections::HashMap;

/// A heading and one line per item. Fields of objects inside become `outer.inner`; lists stay JSON.
pub fn render(items: Value) -> String {
    let items = match items {
        Value::Array(items) => items,
        other => vec![other],
    };
    let mut columns: Vec<String> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut rows: Vec<Vec<(usize, String)>> = Vec::with_capacity(items.len());
    for item in items {
        let mut row = Vec::new();
        for (name, text) in fields(item) {
            let next = columns.len();
            let place = *places.entry(name.clone()).or_insert(next);
            if place == next {
                columns.push(name);
            }
            row.push((place, text));
        }
        rows.push(row);
    }
    let mut out = line(columns.iter().map(String::as_str));
    for row in rows {
        let mut texts = vec![""; columns.len()];
        for (place, text) in &row {
            texts[*place] = text;
        }
        out += &line(texts.into_iter());
    }
    out
}

fn fields(value: Value) -> Vec<(String, String)> {
    let Value::Object(map) = value else { return vec![("value".into(), text(value))] };
    let mut found = Vec::with_capacity(map.len());
    for (name, value) in map {
        match value {
            Value::Object(inner) => {
                let named = |(key, value): (String, Value)| (format!("{name}.{key}"), text(value));
                found.extend(inner.into_iter().map(named));
            }
            other => found.push((name, text(other))),
        }
    }
    found
}

fn text(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text,
        other => other.to_string(),
    }
}

fn line<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let quoted = |text: &str| match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    };
    texts.map(quoted).collect::<Vec<_>>().join(",") + "\r\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_become_columns_and_commas_are_quoted() {
        let items = json!([
            {"id": 1, "name": "a, \"b\"", "last": {"seconds": 1.5}},
            {"id": 2, "name": "c\nd", "code": null, "list": [1, 2]},
        ]);
        assert_eq!(
            render(items),
            "id,name,last.seconds,code,list\r\n1,\"a, \"\"b\"\"\",1.5,,\r\n2,\"c\nd\",,,\"[1,2]\"\r\n"
        );
    }
}
