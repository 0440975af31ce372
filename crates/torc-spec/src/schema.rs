//! The JSON Schema of the spec, made from the same key tables that the reader uses, so that editors
//! complete and check what people write.

use crate::keys::{Object, Shape, WORKFLOW};
use crate::steps::{Part, part_object};
use serde_json::{Map, Value, json};

/// The JSON Schema of a spec.
pub fn json_schema() -> Value {
    let mut definitions = Map::new();
    define(&WORKFLOW, &mut definitions);
    // Short forms for a file with steps only.
    let steps = shape(&Shape::Steps(Part::Steps), &mut definitions);
    let map = shape(&Shape::Steps(Part::Map), &mut definitions);
    if let Some(workflow) = definitions.get_mut("workflow") {
        for (key, schema) in [
            ("tasks", &steps),
            ("commands", &steps),
            ("setup", &steps),
            ("reduce", &steps),
            ("map", &map),
        ] {
            workflow["properties"][key] = schema.clone();
        }
        let alone = |key: &str| json!({ "required": [key] });
        workflow["anyOf"] = json!([{ "required": ["name", "jobs"] }, alone("tasks"), alone("commands"), alone("setup"), alone("map")]);
        if let Some(workflow) = workflow.as_object_mut() {
            workflow.shift_remove("required");
        }
    }
    // A handler may be a step with the handler's keys beside its own, instead of a list of
    // commands.
    let step = definitions.get("step").map(|step| step["properties"].clone()).unwrap_or_default();
    if let Some(handler) = definitions.get_mut("handler").and_then(Value::as_object_mut) {
        handler.shift_remove("required");
        for (key, schema) in step.as_object().into_iter().flatten() {
            if handler["properties"].get(key).is_none() {
                handler["properties"][key] = schema.clone();
            }
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Torc workflow",
        "anyOf": [{ "$ref": "#/$defs/workflow" }, { "type": "array", "items": { "$ref": "#/$defs/step" } }],
        "$defs": definitions,
    })
}

fn define(object: &'static Object, definitions: &mut Map<String, Value>) -> Value {
    let reference = json!({ "$ref": format!("#/$defs/{}", object.id) });
    if definitions.contains_key(object.id) {
        return reference;
    }
    definitions.insert(object.id.into(), Value::Null);
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in object.fields {
        let mut schema = match field.shape {
            Shape::Refused(_) => continue,
            Shape::Ignored(_) => json!({ "deprecated": true }),
            ref known => shape(known, definitions),
        };
        schema["description"] = field.doc.into();
        for alias in field.aliases {
            properties.insert((*alias).into(), schema.clone());
        }
        properties.insert(field.key.into(), schema);
        if field.required && field.aliases.is_empty() {
            required.push(field.key);
        }
    }
    let mut schema =
        json!({ "type": "object", "properties": properties, "additionalProperties": false });
    if !required.is_empty() && object.shorthand.is_none() {
        schema["required"] = required.into();
    }
    if let Some(field) = object.shorthand.and_then(|key| object.field(key, false)) {
        let short = shape(&field.shape, definitions);
        schema = json!({ "anyOf": [short, schema] });
    }
    definitions.insert(object.id.into(), schema);
    reference
}

/// Every scalar may also be a text with a `{variable}` in it.
fn shape(shape_of: &Shape, definitions: &mut Map<String, Value>) -> Value {
    match shape_of {
        Shape::Text | Shape::Line | Shape::Name | Shape::FileName | Shape::Regex => {
            json!({ "type": ["string", "number", "boolean"] })
        }
        Shape::Labels => shape(&Shape::List(&Shape::Name), definitions),
        Shape::Bool => json!({ "type": ["boolean", "string"] }),
        Shape::Int(least, most) => {
            json!({ "type": ["integer", "string"], "minimum": least, "maximum": most })
        }
        Shape::Number(least, most) => {
            json!({ "type": ["number", "string"], "minimum": least, "maximum": most })
        }
        Shape::Memory
        | Shape::Runtime
        | Shape::Timeout
        | Shape::Seconds
        | Shape::Walltime
        | Shape::SlurmMemory
        | Shape::Signal
        | Shape::EarlySignal => {
            json!({ "type": ["string", "number"] })
        }
        Shape::Word(words) => {
            json!({ "anyOf": [{ "enum": words() }, { "type": "string", "pattern": "\\{" }] })
        }
        Shape::List(item @ Shape::Object(_)) => {
            json!({ "type": "array", "items": shape(item, definitions) })
        }
        Shape::List(item) => {
            let item = shape(item, definitions);
            json!({ "anyOf": [item, { "type": "array", "items": item }] })
        }
        Shape::Map(_, value) => {
            json!({ "type": "object", "additionalProperties": shape(value, definitions) })
        }
        Shape::Object(object) => define(object, definitions),
        Shape::ParameterValues => {
            let items = json!({ "type": ["string", "number", "boolean"] });
            json!({ "type": ["string", "number", "boolean", "array"], "items": items })
        }
        Shape::Steps(part) => part_schema(*part, definitions),
        Shape::Json | Shape::Metadata | Shape::Ignored(_) | Shape::Refused(_) => json!({}),
    }
}

fn part_schema(part: Part, definitions: &mut Map<String, Value>) -> Value {
    match (part, part_object(part)) {
        (Part::Steps, Some(step)) => {
            let step = define(step, definitions);
            let one = json!({ "anyOf": [{ "type": "string" }, step] });
            json!({ "anyOf": [one, { "type": "array", "items": one }] })
        }
        (Part::Handler, Some(handler)) => {
            let steps = part_schema(Part::Steps, definitions);
            json!({ "anyOf": [steps, define(handler, definitions)] })
        }
        (Part::Items, Some(items)) => {
            json!({ "anyOf": [{ "type": "array" }, define(items, definitions)] })
        }
        (_, Some(object)) => define(object, definitions),
        (Part::Resume, None) => shape(&Shape::Word(|| vec!["start", "step"]), definitions),
        (Part::Capture, None) => {
            let source = json!({ "type": "string" });
            json!({ "anyOf": [source, { "type": "object", "additionalProperties": source }] })
        }
        (Part::AgentCommand, None) => shape(&Shape::List(&Shape::Text), definitions),
        (Part::Only | Part::Tolerate, None) => json!({ "type": ["string", "number"] }),
        (_, None) => shape(&Shape::Text, definitions),
    }
}
