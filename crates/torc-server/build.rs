//! Takes what the program needs of the OpenAPI document out of `docs/openapi.json`: the text, packed, and who may call what. A test
//! compares that file with the handlers. To put the document together at run time would take code for every type and route.

use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

const DOCUMENT: &str = "../../docs/openapi.json";

fn main() {
    println!("cargo::rerun-if-changed={DOCUMENT}");
    let text = fs::read(DOCUMENT).expect("the document");
    let document: Value = serde_json::from_slice(&text).expect("a document in JSON");
    let out = env::var("OUT_DIR").expect("set by cargo");
    let packed = miniz_oxide::deflate::compress_to_vec(&text, 9);
    fs::write(Path::new(&out).join("openapi.deflated"), packed).expect("the packed document");
    fs::write(Path::new(&out).join("operations.rs"), operations(&document)).expect("the table");
}

/// One row for each operation: the method, the path, the id, and the roles of tokens or `None` where the document says nothing.
fn operations(document: &Value) -> String {
    let mut table = String::from("&[\n");
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods of a path") {
            let id = operation["operationId"].as_str().expect("an operation's id");
            let method = method.to_uppercase();
            let tokens = match operation["security"].as_array().map(Vec::as_slice) {
                None => "Tokens::Owner".to_owned(),
                Some([one]) if one["token"].is_array() => {
                    format!("Tokens::Also(&{})", one["token"])
                }
                Some([one]) if *one == Value::Object(serde_json::Map::new()) => {
                    "Tokens::None".into()
                }
                Some(other) => panic!("{id}: what does the security {other:?} mean?"),
            };
            writeln!(table, "({method:?}, {path:?}, {id:?}, {tokens}),").expect("a text");
        }
    }
    table + "]\n"
}
