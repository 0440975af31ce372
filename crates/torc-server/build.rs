//! Makes what the program holds of files. Of `docs/openapi.json` the text, packed, and who may call what: a test compares that file with the
//! handlers, and to put the document together at run time would take code for every type and route. Of the page one script, and all of
//! it packed.

// Tests of the library use the rest of the two.
#[path = "src/api/page_modules.rs"]
mod page_modules;
#[path = "src/api/page_squeeze.rs"]
mod page_squeeze;

use serde_json::Value;
use std::fmt::Write as _;
use std::num::NonZeroU64;
use std::path::Path;
use std::{env, fs};
use zopfli::{Format, Options, compress};

const DOCUMENT: &str = "../../docs/openapi.json";
/// How often the packer looks for a shorter way; each time takes a thirtieth of a second.
const PATIENCE: NonZeroU64 = NonZeroU64::new(60).unwrap();

fn main() {
    println!("cargo::rerun-if-changed={DOCUMENT}");
    let text = fs::read(DOCUMENT).expect("the document");
    let document: Value = serde_json::from_slice(&text).expect("a document in JSON");
    let out = env::var("OUT_DIR").expect("set by cargo");
    let out = Path::new(&out);
    let packed = miniz_oxide::deflate::compress_to_vec(&text, 9);
    fs::write(out.join("openapi.deflated"), packed).expect("the packed document");
    fs::write(out.join("operations.rs"), operations(&document)).expect("the table");
    page(out);
}

/// The files of the page, each in the zlib format.
fn page(out: &Path) {
    println!("cargo::rerun-if-changed=page");
    let read = |name: &str| fs::read_to_string(Path::new("page").join(name)).expect("a file");
    let modules: Vec<String> = page_modules::MODULES.iter().map(|name| read(name)).collect();
    let script = page_modules::script(modules.iter().map(String::as_str));
    let script = format!("// Torc\n{script}");
    let style = page_modules::style(&read("style.css"));
    for (name, text) in [("page.js", script), ("style.css", style), ("icon.svg", read("icon.svg"))]
    {
        let mut packed = Vec::new();
        let patient = Options { iteration_count: PATIENCE, ..Options::default() };
        compress(patient, Format::Zlib, text.as_bytes(), &mut packed).expect("memory");
        fs::write(out.join(format!("{name}.deflated")), packed).expect("a packed file");
    }
}

/// One row for each operation: the method, the path, the id, and the roles of tokens or `None` where the document says nothing.
fn operations(document: &Value) -> String {
    let mut table = String::from("&[\n");
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods of a path") {
            let id = operation["operationId"].as_str().expect("an operation's id");
            let method = method.to_uppercase();
            let tokens = match operation["security"].as_array().map(Vec::as_slice) {
                None => "TokenNeed::Owner".to_owned(),
                Some([one]) if one["token"].is_array() => {
                    format!("TokenNeed::Also(&{})", one["token"])
                }
                Some([one]) if *one == Value::Object(serde_json::Map::new()) => {
                    "TokenNeed::None".into()
                }
                Some(other) => panic!("{id}: what does the security {other:?} mean?"),
            };
            writeln!(table, "({method:?}, {path:?}, {id:?}, {tokens}),").expect("a text");
        }
    }
    table + "]\n"
}
