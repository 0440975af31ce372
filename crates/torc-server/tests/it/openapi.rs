//! The document in the repository is the one that the server serves, and it says what clients need.

use crate::world::World;
use serde_json::Value;
use std::collections::HashSet;
use std::path::Path;

const HOW: &str =
    "write it anew with `UPDATE_OPENAPI=1 cargo test -p torc-server --test it openapi`";

#[test]
fn document_in_the_repository_is_that_of_the_handlers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let document = torc_server::api::document();
    let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        return;
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == text, "docs/openapi.json is out of date; {HOW}");
}

#[tokio::test]
async fn document_in_the_repository_is_the_one_served() {
    let served = World::new().await.get("/openapi.json").await.ok();
    let stored: Value =
        serde_json::from_str(include_str!("../../../../docs/openapi.json")).unwrap();
    assert!(served == stored, "the program was built with another document");
}

#[test]
fn every_operation_is_described_and_named_once() {
    let document = torc_server::api::document();
    let mut ids = HashSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let at = format!("{method} {path}");
            assert!(
                ids.insert(operation["operationId"].as_str().unwrap().to_string()),
                "{at}: the id is used twice"
            );
            assert!(
                operation["summary"].as_str().is_some_and(|s| !s.is_empty()),
                "{at}: no summary"
            );
            for (status, response) in operation["responses"].as_object().unwrap() {
                let described = response["description"].as_str().is_some_and(|s| !s.is_empty());
                assert!(described, "{at} {status}: no description");
            }
            for parameter in operation["parameters"].as_array().unwrap_or(&Vec::new()) {
                let described = parameter["description"].as_str().is_some_and(|s| !s.is_empty());
                assert!(described, "{at}: parameter {} has no description", parameter["name"]);
                let placed = parameter["in"].as_str().unwrap();
                assert_eq!(
                    path.contains(&format!("{{{}}}", parameter["name"].as_str().unwrap())),
                    placed == "path",
                    "{at}"
                );
            }
        }
    }
}

/// A 32-bit integer in the document would make clients refuse numbers that the server takes.
#[test]
fn integers_are_wide_and_references_lead_somewhere() {
    let document = torc_server::api::document();
    let schemas: HashSet<&String> =
        document["components"]["schemas"].as_object().unwrap().keys().collect();
    let mut todo: Vec<(&Value, String)> = vec![(&document, String::new())];
    while let Some((value, at)) = todo.pop() {
        match value {
            Value::Object(map) => {
                assert_ne!(map.get("format").and_then(Value::as_str), Some("int32"), "{at}");
                if let Some(reference) = map.get("$ref").and_then(Value::as_str) {
                    let name = reference.strip_prefix("#/components/schemas/").unwrap_or(reference);
                    assert!(schemas.contains(&name.to_string()), "{at}: `{name}` is not there");
                }
                todo.extend(map.iter().map(|(key, value)| (value, format!("{at}/{key}"))));
            }
            Value::Array(list) => {
                todo.extend(list.iter().enumerate().map(|(i, value)| (value, format!("{at}/{i}"))))
            }
            _ => {}
        }
    }
}

/// What the server says must be among the words that the document lists.
#[test]
fn words_are_the_ones_on_the_wire() {
    use torc_model::status::{
        ActionState, AttemptState, Cause, JobStatus, Origin, Outcome, Trigger,
    };
    let document = torc_server::api::document();
    let check = |name: &str, words: Vec<Value>| {
        assert_eq!(document["components"]["schemas"][name]["enum"], Value::from(words), "{name}");
    };
    fn wire<T: serde::Serialize>(all: &[T]) -> Vec<Value> {
        all.iter().map(|word| serde_json::to_value(word).unwrap()).collect()
    }
    check("JobStatus", wire(JobStatus::ALL));
    check("AttemptState", wire(AttemptState::ALL));
    check("Cause", wire(Cause::ALL));
    check("Origin", wire(Origin::ALL));
    check("Outcome", wire(Outcome::ALL));
    check("ActionState", wire(ActionState::ALL));
    check("Trigger", wire(Trigger::ALL));
}
