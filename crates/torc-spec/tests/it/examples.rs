//! Every workflow in `examples/` is right in all four formats, and fits the published schema.
//! Run with `UPDATE_EXPECTED=1` to write the schema and the other formats anew from the YAML files.

use saphyr::LoadableYamlNode as _;
use serde_json::Value;
use std::path::{Path, PathBuf};
use torc_spec::{Source, SpecFormat};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn updating() -> bool {
    std::env::var_os("UPDATE_EXPECTED").is_some()
}

fn yaml_files() -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(root().join("examples")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| SpecFormat::from_path(path) == Some(SpecFormat::Yaml)).collect();
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
        let checked = spec.check(Default::default()).unwrap_or_else(|errors| panic!("{errors}"));
        assert!(!checked.plan.jobs.is_empty(), "{}", path.display());
        for format in [SpecFormat::Json, SpecFormat::Json5, SpecFormat::Kdl] {
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
fn the_published_schema_is_current() {
    let path = root().join("docs/torc-spec.schema.json");
    let text = format!("{:#}\n", torc_spec::json_schema());
    if updating() {
        std::fs::write(&path, &text).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap_or_default(),
        text,
        "run with UPDATE_EXPECTED=1"
    );
}

/// The files as people wrote them, short forms and all, judged by a validator that is not ours.
#[test]
fn every_example_fits_the_schema_as_it_is_written() {
    let validator = jsonschema::validator_for(&torc_spec::json_schema()).unwrap();
    for path in yaml_files() {
        for written in [as_written(&path), canonical(&path)] {
            let errors: Vec<String> = validator
                .iter_errors(&written)
                .map(|error| format!("{}: {error}", error.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{}: {}", path.display(), errors.join("\n"));
        }
    }
}

/// An editor that goes by the schema sees a key that is misspelt and a value of the wrong kind
/// wherever they stand.
#[test]
fn what_the_reader_refuses_the_schema_refuses_too() {
    let validator = jsonschema::validator_for(&torc_spec::json_schema()).unwrap();
    let mut refused = 0;
    for path in yaml_files() {
        let right = as_written(&path);
        // What a variable is called and which ones there are is beyond a schema.
        for place in places(&right).iter().filter(|place| !place.starts_with("/variables")) {
            for wrong in
                [misspelt(&right, place), of_wrong_kind(&right, place)].into_iter().flatten()
            {
                let text = wrong.to_string();
                let source = Source::new("wrong", text.as_str(), SpecFormat::Json);
                if let Err(errors) = torc_spec::parse(&source) {
                    assert!(
                        !validator.is_valid(&wrong),
                        "{} at {place}: {text}\n{errors}",
                        path.display()
                    );
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 800, "only {refused} mutations were wrong");
}

/// The value of every key, as JSON pointers.
fn places(value: &Value) -> Vec<String> {
    let inside = |key: String, value: &Value| -> Vec<String> {
        places(value).into_iter().map(|place| format!("/{key}{place}")).collect()
    };
    match value {
        Value::Object(map) => map
            .iter()
            .flat_map(|(key, value)| {
                let key = key.replace('~', "~0").replace('/', "~1");
                let mut all = vec![format!("/{key}")];
                all.extend(inside(key, value));
                all
            })
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .flat_map(|(index, value)| inside(index.to_string(), value))
            .collect(),
        _ => Vec::new(),
    }
}

fn misspelt(value: &Value, place: &str) -> Option<Value> {
    let mut value = value.clone();
    let (parent, key) = place.rsplit_once('/')?;
    let map = value.pointer_mut(parent)?.as_object_mut()?;
    let key = key.replace("~1", "/").replace("~0", "~");
    let entry = map.shift_remove(&key)?;
    map.insert(format!("{key}_misspelt"), entry);
    Some(value)
}

fn of_wrong_kind(value: &Value, place: &str) -> Option<Value> {
    let mut value = value.clone();
    *value.pointer_mut(place)? = serde_json::json!({"no_such_key": [[]]});
    Some(value)
}

/// A YAML file read by another library, without any knowledge of workflows.
fn as_written(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap();
    let mut documents = saphyr::Yaml::load_from_str(&text).unwrap();
    value_of(&documents.remove(0))
}

fn value_of(yaml: &saphyr::Yaml<'_>) -> Value {
    use saphyr::{Scalar, Yaml};
    match yaml {
        Yaml::Value(Scalar::Null) => Value::Null,
        Yaml::Value(Scalar::Boolean(value)) => (*value).into(),
        Yaml::Value(Scalar::Integer(value)) => (*value).into(),
        Yaml::Value(Scalar::FloatingPoint(value)) => value.into_inner().into(),
        Yaml::Value(Scalar::String(value)) => value.as_ref().into(),
        Yaml::Sequence(items) => items.iter().map(value_of).collect(),
        Yaml::Mapping(map) => {
            let key = |key: &Yaml<'_>| match value_of(key) {
                Value::String(text) => text,
                other => other.to_string(),
            };
            Value::Object(map.iter().map(|(name, value)| (key(name), value_of(value))).collect())
        }
        other => panic!("not in an example: {other:?}"),
    }
}

/// The canonical form of a file; its spellings are among those that the schema allows.
fn canonical(path: &Path) -> Value {
    torc_spec::parse(&Source::read(path).unwrap()).unwrap().spec.to_value()
}
