//! JSON through one reader and one writer.
//!
//! Each kind of reader (of texts, of bytes, of trees) and of writer is instantiated for every type that goes through it. The program
//! has hundreds of types, so all of them go through bytes, as on the wire.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Result, Value};

/// Reads a text.
pub fn from_text<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_slice(text.as_bytes())
}

/// Reads a tree.
pub fn from_plain<T: DeserializeOwned>(value: &Value) -> Result<T> {
    serde_json::from_slice(&serde_json::to_vec(value)?)
}

/// A value as a tree.
pub fn plain<T: Serialize + ?Sized>(value: &T) -> Result<Value> {
    serde_json::from_slice(&serde_json::to_vec(value)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_tree_and_a_text_are_read_alike() {
        let value = json!({"a": [1, 2.5, null], "b": "\u{e9}\n"});
        assert_eq!(from_plain::<Value>(&value).unwrap(), value);
        assert_eq!(from_text::<Value>(&value.to_string()).unwrap(), value);
        assert_eq!(plain(&value).unwrap(), value);
        assert_eq!(plain(&0.1f32).unwrap(), json!(0.1));
    }
}
