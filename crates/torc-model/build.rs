//! Turns the rules under `rules/` into one Rust table, so that a mistake in them fails the build.

use saphyr::{LoadableYamlNode as _, Yaml};
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

/// The keys of a rule that hold lists of texts.
const LISTS: [&str; 6] = ["says", "codes", "classes", "programs", "examples", "unlike"];

fn main() {
    println!("cargo::rerun-if-changed=rules");
    let mut out = String::from("&[\n");
    let mut files: Vec<_> = fs::read_dir("rules")
        .expect("the directory of rules")
        .map(|entry| entry.expect("a file of rules").path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    for file in &files {
        one(file, &mut out);
    }
    out.push_str("]\n");
    let to = Path::new(&env::var("OUT_DIR").expect("set by cargo")).join("rules.rs");
    fs::write(to, out).expect("the table of rules");
}

fn one(file: &Path, out: &mut String) {
    let name = file.file_stem().and_then(|s| s.to_str()).expect("a name");
    let text = fs::read_to_string(file).expect("readable");
    let documents = Yaml::load_from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    let document = documents.first().unwrap_or_else(|| panic!("{name}: empty"));
    let source = get(document, "source").unwrap_or_else(|| panic!("{name}: `source` is missing"));
    let rules = document
        .as_mapping_get("rules")
        .and_then(Yaml::as_sequence)
        .unwrap_or_else(|| panic!("{name}: `rules` is missing"));
    for rule in rules {
        let field = |key: &str| get(rule, key);
        let id = field("rule").unwrap_or_else(|| panic!("{name}: a rule without `rule`"));
        let at = format!("{name}.{id}");
        let known = ["rule", "kind", "nature", "sure", "first", "source", "exits", "generic"];
        for (key, _) in rule.as_mapping().unwrap_or_else(|| panic!("{at}: not a mapping")) {
            let key = key.as_str().unwrap_or_default();
            assert!(known.contains(&key) || LISTS.contains(&key), "{at}: unknown key `{key}`");
        }
        let lists: Vec<Vec<String>> = LISTS.iter().map(|key| list(rule, key, &at)).collect();
        let exits: Vec<String> = list(rule, "exits", &at);
        for code in &exits {
            code.parse::<i64>().unwrap_or_else(|_| panic!("{at}: exit code `{code}`"));
        }
        let kind = field("kind").unwrap_or_else(|| panic!("{at}: `kind` is missing"));
        let nature = field("nature").unwrap_or_else(|| panic!("{at}: `nature` is missing"));
        let sure: f64 = field("sure").map_or(0.9, |s| s.parse().expect("a number"));
        assert!((0.0..=1.0).contains(&sure), "{at}: `sure` is not a chance");
        assert!(
            !lists[0].is_empty() || !lists[2].is_empty() || !exits.is_empty(),
            "{at}: it matches nothing"
        );
        let flag = |key: &str| field(key).as_deref() == Some("true");
        write!(
            out,
            "RuleText {{ id: {at:?}, kind: {kind:?}, nature: {nature:?}, sure: {sure:?}, first: {}, \
             generic: {}, source: {:?}, exits: &[{}]",
            flag("first"),
            flag("generic"),
            field("source").unwrap_or_else(|| source.clone()),
            exits.join(", ")
        )
        .expect("a string");
        for (key, values) in LISTS.iter().zip(&lists) {
            write!(out, ", {key}: &{values:?}").expect("a string");
        }
        out.push_str(" },\n");
    }
}

fn scalar(value: &Yaml<'_>) -> Option<String> {
    if let Some(text) = value.as_str() {
        return Some(text.to_owned());
    }
    if let Some(number) = value.as_integer() {
        return Some(number.to_string());
    }
    if let Some(flag) = value.as_bool() {
        return Some(flag.to_string());
    }
    value.as_floating_point().map(|n| n.to_string())
}

fn get(value: &Yaml<'_>, key: &str) -> Option<String> {
    value.as_mapping_get(key).and_then(scalar)
}

fn list(rule: &Yaml<'_>, key: &str, at: &str) -> Vec<String> {
    let Some(values) = rule.as_mapping_get(key) else { return Vec::new() };
    let values = values.as_sequence().unwrap_or_else(|| panic!("{at}: `{key}` is not a list"));
    let mut all = Vec::new();
    for value in values {
        // A list inside is one that several rules share by a YAML anchor.
        match value.as_sequence() {
            Some(inner) => all.extend(inner.iter().filter_map(scalar)),
            None => {
                all.push(scalar(value).unwrap_or_else(|| panic!("{at}: `{key}` holds no text")))
            }
        }
    }
    all
}
