//! Every workflow in `examples/` is right in all four formats, and fits the published schema.
//! Run with `UPDATE_EXPECTED=1` to write the schema and the other formats anew from the YAML files.

use serde_json::Value;
use std::path::{Path, PathBuf};
use torc_spec::{Format, Source};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn updating() -> bool {
    std::env::var_os("UPDATE_EXPECTED").is_some()
}

fn yaml_files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| Format::from_path(path) == Some(Format::Yaml)).collect();
    files.sort();
    files
}

#[test]
fn all_formats_of_an_example_are_the_same_workflow() {
    let files = yaml_files();
    assert!(files.len() >= 30, "{}", files.len());
    for path in files {
        let source = Source::read(&path).unwrap();
        let spec = torc_spec::parse(&source).unwrap_or_else(|errors| panic!("{errors}")).spec;
        let checked = spec.check(None).unwrap_or_else(|errors| panic!("{errors}"));
        assert!(!checked.plan.jobs.is_empty(), "{}", path.display());
        for format in [Format::Json, Format::Json5, Format::Kdl] {
            let other = path.with_extension(format.extension());
            if updating() {
                std::fs::write(&other, spec.write(format)).unwrap();
            }
            let twin = Source::read(&other).and_then(|source| torc_spec::parse(&source));
            let twin = twin.unwrap_or_else(|errors| panic!("{errors}")).spec;
            assert_eq!(twin, spec, "{}", other.display());
            assert_eq!(twin.plan().unwrap().0, checked.plan, "{}", other.display());
        }
    }
}

#[test]
fn the_published_schema_is_current_and_fits_every_example() {
    let schema = torc_spec::json_schema();
    let path = root().join("docs/torc-spec.schema.json");
    let text = format!("{schema:#}\n");
    if updating() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), text, "run with UPDATE_EXPECTED=1");
    for yaml in yaml_files() {
        let written: Value = raw(&yaml);
        fits(&written, &schema, &schema).unwrap_or_else(|why| panic!("{}: {why}", yaml.display()));
    }
    let wrong = serde_json::json!({"name": "x", "jobs": [{"name": "a", "comand": "true"}]});
    assert!(fits(&wrong, &schema, &schema).is_err());
    let missing = serde_json::json!({"name": "x"});
    assert!(fits(&missing, &schema, &schema).is_err());
}

/// The canonical form of a file; its spellings are among those that the schema allows.
fn raw(path: &Path) -> Value {
    torc_spec::parse(&Source::read(path).unwrap()).unwrap().spec.to_value()
}

/// The part of JSON Schema that ours uses.
fn fits(value: &Value, schema: &Value, root: &Value) -> Result<(), String> {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#')).ok_or(format!("no {reference}"))?;
        fits(value, target, root)?;
    }
    if let Some(options) = schema["anyOf"].as_array() {
        let tries: Vec<_> = options.iter().map(|option| fits(value, option, root)).collect();
        if tries.iter().all(Result::is_err) {
            return Err(tries.into_iter().filter_map(Result::err).collect::<Vec<_>>().join(" | "));
        }
    }
    if let Some(known) = schema["enum"].as_array()
        && !known.contains(value)
    {
        return Err(format!("{value} is not one of {known:?}"));
    }
    if let Some(pattern) = schema["pattern"].as_str()
        && !value.as_str().is_some_and(|text| text.contains(pattern.trim_start_matches('\\')))
    {
        return Err(format!("{value} does not match {pattern}"));
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(many) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is = |name: &str| match name {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    };
    if !types.is_empty() && !types.iter().any(|name| is(name)) {
        return Err(format!("{value} is none of {types:?}"));
    }
    for (key, fine) in [
        ("minimum", value.as_f64() >= schema["minimum"].as_f64()),
        ("maximum", value.as_f64() <= schema["maximum"].as_f64()),
    ] {
        if value.is_number() && schema[key].is_number() && !fine {
            return Err(format!("{value} breaks {key}"));
        }
    }
    for item in value.as_array().into_iter().flatten() {
        if schema["items"].is_object() {
            fits(item, &schema["items"], root)?;
        }
    }
    for key in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        value.get(key).ok_or(format!("`{key}` is missing"))?;
    }
    for (key, entry) in value.as_object().into_iter().flatten() {
        match schema["properties"].get(key) {
            Some(property) => fits(entry, property, root).map_err(|why| format!("{key}: {why}"))?,
            None if schema["additionalProperties"] == Value::Bool(false) => return Err(format!("unknown key `{key}`")),
            None if schema["additionalProperties"].is_object() => fits(entry, &schema["additionalProperties"], root)?,
            None => {}
        }
    }
    Ok(())
}
