//! The page of all keys is made from the tables that the reader uses, and every example on it is
//! accepted. Run with `UPDATE_EXPECTED=1` to write it anew, then read the difference.

use torc_spec::reference::sections;

const HEAD: &str = "\
# Reference of the workflow file

Every key of every part of the file, in all four formats; [workflow-file.md](workflow-file.md) explains how they work together,
and `torc help spec KEY` shows one of them. The page is made from the key tables in `crates/torc-spec` (`reference.rs`), and a
test keeps it so. `list` means that a single value stands for a list of one.

";

fn page() -> String {
    let sections: Vec<String> = sections().iter().map(|section| section.markdown()).collect();
    format!("{HEAD}{}", sections.join("\n"))
}

#[test]
fn the_page_of_keys_is_the_one_in_the_docs() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workflow-reference.md");
    let page = page();
    if std::env::var_os("UPDATE_EXPECTED").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == page,
        "docs/workflow-reference.md is out of date; UPDATE_EXPECTED=1 writes it anew"
    );
}

/// An example that the schema refuses would teach a mistake.
#[test]
fn every_example_fits_the_schema() {
    let schema = torc_spec::json_schema();
    let mut wrong = Vec::new();
    for section in sections() {
        for key in section.keys {
            let Some(example) = key.example else { continue };
            let text = format!("name: x\njobs: []\nmetadata: {{{example}}}\n");
            let parsed =
                torc_spec::Source::new("example.yaml", text, torc_spec::SpecFormat::Yaml).parse();
            let value = match parsed {
                Ok(parsed) => parsed.spec.to_value()["metadata"][key.name].clone(),
                Err(errors) => {
                    wrong.push(format!("{}.{}: {}", section.id, key.name, errors.render(false)));
                    continue;
                }
            };
            let mut part = schema.clone();
            part.as_object_mut().unwrap().shift_remove("anyOf");
            let place = &schema["$defs"][section.id];
            let object = match place.get("properties") {
                Some(_) => place.clone(),
                None => place["anyOf"][1].clone(),
            };
            part["allOf"] = serde_json::json!([object["properties"][key.name]]);
            let validator = jsonschema::validator_for(&part).expect("a schema");
            for error in validator.iter_errors(&value) {
                wrong.push(format!("{}.{}: {example}: {error}", section.id, key.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
