//! What tells one spec from another.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// The digest of a spec in its canonical form: the same for equal values, whatever the order of
/// their keys.
pub fn of_spec(spec: &Value) -> String {
    let mut hash = Sha256::new();
    feed(spec, &mut hash);
    crate::token::hex(&hash.finalize())
}

fn feed(value: &Value, hash: &mut Sha256) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            hash.update(b"{");
            for (key, value) in entries {
                hash.update(Value::String(key.clone()).to_string());
                feed(value, hash);
            }
            hash.update(b"}");
        }
        Value::Array(items) => {
            hash.update(b"[");
            items.iter().for_each(|item| feed(item, hash));
            hash.update(b"]");
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            hash.update(value.to_string());
            hash.update(b",");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_specs_have_equal_digests_and_others_have_not() {
        let spec = json!({ "name": "w", "jobs": [{ "name": "a", "command": "x" }, 12, 3] });
        let same = json!({ "jobs": [{ "command": "x", "name": "a" }, 12, 3], "name": "w" });
        assert_eq!(of_spec(&spec), of_spec(&same));
        for other in [
            json!({ "name": "w", "jobs": [{ "name": "a", "command": "y" }, 12, 3] }),
            json!({ "name": "w", "jobs": [12, { "name": "a", "command": "x" }, 3] }),
            json!({ "name": "w", "jobs": [{ "name": "a", "command": "x" }, 1, 23] }),
            json!({ "name": "w", "jobs": [{ "name": "a", "command": "x" }, "12", 3] }),
            json!({ "name": "w", "jobs": [{ "name": "a", "command": "x" }, 12], "3": null }),
        ] {
            assert_ne!(of_spec(&spec), of_spec(&other), "{other}");
        }
    }
}
