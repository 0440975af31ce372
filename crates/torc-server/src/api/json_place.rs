//! Which field of a JSON text a place in it belongs to.
//!
//! The reader of JSON says where it stopped, not in which field. A reader that keeps the path while
//! it reads would have to be instantiated for every type of a request a second time.

/// An object or a list that is open, with the part of it that was read last.
enum Open {
    /// The key, once it was read.
    Object(Option<String>),
    List(usize),
}

/// The field at a line and column as `serde_json` counts them, as in `items[0].name`; None where it is the whole text. The text
/// must be valid up to there.
pub fn field_at(text: &[u8], line: usize, column: usize) -> Option<String> {
    let before: usize =
        text.split_inclusive(|byte| *byte == b'\n').take(line - 1).map(<[u8]>::len).sum();
    let mut rest = text.get(..before + column)?;
    let mut open = Vec::new();
    while let [byte, after @ ..] = rest {
        rest = after;
        match byte {
            b'{' => open.push(Open::Object(None)),
            b'[' => open.push(Open::List(0)),
            b'}' | b']' => {
                open.pop();
            }
            b',' => match open.last_mut() {
                Some(Open::Object(key)) => *key = None,
                Some(Open::List(index)) => *index += 1,
                None => {}
            },
            b'"' => {
                let length = string_length(rest);
                if let Some(Open::Object(key @ None)) = open.last_mut() {
                    *key = Some(String::from_utf8_lossy(&rest[..length]).into_owned());
                }
                rest = rest.get(length + 1..).unwrap_or_default();
            }
            _ => {}
        }
    }
    let mut path = String::new();
    for part in open {
        match part {
            Open::Object(Some(key)) if path.is_empty() => path = key,
            Open::Object(Some(key)) => path = format!("{path}.{key}"),
            Open::List(index) => path = format!("{path}[{index}]"),
            Open::Object(None) => {}
        }
    }
    (!path.is_empty()).then_some(path)
}

/// How many bytes there are before the quote that ends a string.
fn string_length(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let is_end = |byte: &u8| {
        let ends = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        ends
    };
    text.iter().position(is_end).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether it can be read counts")]
    struct Outer {
        name: Option<String>,
        items: Vec<Item>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether it can be read counts")]
    struct Item {
        code: i64,
        #[serde(default)]
        flag: bool,
    }

    fn wrong(text: &str) -> Option<String> {
        let Err(error) = serde_json::from_slice::<Outer>(text.as_bytes()) else {
            panic!("`{text}` is not wrong")
        };
        field_at(text.as_bytes(), error.line(), error.column())
    }

    #[test]
    fn a_value_of_the_wrong_type_is_found() {
        for (text, field) in [
            (r#"{"name": 5, "items": []}"#, "name"),
            (r#"{"name": [1], "items": []}"#, "name"),
            (r#"{"name": {"a": 1}, "items": []}"#, "name"),
            (r#"{"items": {}}"#, "items"),
            (r#"{"items": [{"code": "x"}]}"#, "items[0].code"),
            (
                "{\"name\": \"a\\\"]}\",\n \"items\": [{\"code\": 1},\n{\"flag\": 1.5}]}",
                "items[1].flag",
            ),
            (r#"{"items": [{"code": 1, "flag": true}, 7]}"#, "items[1]"),
        ] {
            assert_eq!(wrong(text).as_deref(), Some(field), "{text}");
        }
    }

    #[test]
    fn an_unknown_field_is_named_and_a_missing_one_is_its_objects() {
        assert_eq!(wrong(r#"{"nam": 5, "items": []}"#).as_deref(), Some("nam"));
        assert_eq!(
            wrong(r#"{"items": [{"code": 1}, {"cod": 2}]}"#).as_deref(),
            Some("items[1].cod")
        );
        assert_eq!(wrong(r#"{"items": [{"flag": true}]}"#).as_deref(), Some("items[0]"));
        assert_eq!(wrong(r#"{"name": "a"}"#), None);
    }
}
