//! The files of the page: hand-written modules, compiled in, and what is sent of them.
//!
//! A browser gets all modules as one file: through an SSH tunnel each request costs a round trip, and
//! one file is packed to three quarters of what the modules are packed to one by one. The offline
//! report has the same script inside.

use super::page_squeeze::{Module, squeezed};
use axum::http::HeaderValue;
use sha2::{Digest, Sha256};
use std::sync::LazyLock;

/// The file that has all modules.
pub const BUNDLE: &str = "page.js";
/// Of zlib, 0 to 10. It is done once.
const PACKING: u8 = 10;

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// The files of the page as they are written; modules stand behind those they import.
        pub const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../page/", $name)))),*];
    };
}
files!(
    "index.html",
    "style.css",
    "icon.svg",
    "dom.js",
    "format.js",
    "api.js",
    "live.js",
    "table.js",
    "charts.js",
    "draw.js",
    "ansi.js",
    "act.js",
    "nodes.js",
    "workflows.js",
    "overview.js",
    "jobs.js",
    "log.js",
    "compare.js",
    "job.js",
    "failures.js",
    "bars.js",
    "whatif.js",
    "timeline.js",
    "graph.js",
    "resources.js",
    "events.js",
    "keys.js",
    "app.js",
);

/// What stands in for the server in an offline report; not served.
pub const REPORT_SCRIPT: &str = include_str!("../../page/report.js");

/// A file as it is sent.
#[derive(Debug)]
pub struct Asset {
    /// Below `/ui/`.
    pub name: &'static str,
    /// Its media type.
    pub kind: &'static str,
    /// As it is.
    pub text: String,
    /// The same in the zlib format.
    pub deflated: Vec<u8>,
    /// Changes with the text.
    pub tag: HeaderValue,
}

impl Asset {
    fn new(name: &'static str, kind: &'static str, text: String) -> Self {
        let deflated = miniz_oxide::deflate::compress_to_vec_zlib(text.as_bytes(), PACKING);
        let hash = crate::secret::hex(&Sha256::digest(&text)[..8]);
        // Hexadecimal digits are always a header.
        let tag = HeaderValue::try_from(format!("\"{hash}\""))
            .unwrap_or(HeaderValue::from_static("\"\""));
        Self { name, kind, text, deflated, tag }
    }
}

static ASSETS: LazyLock<[Asset; 3]> = LazyLock::new(|| {
    let script = format!("// Torc\n{}", modules());
    [
        Asset::new(BUNDLE, "text/javascript; charset=utf-8", script),
        Asset::new("style.css", "text/css; charset=utf-8", file("style.css").to_owned()),
        Asset::new("icon.svg", "image/svg+xml", file("icon.svg").to_owned()),
    ]
});

/// What is sent by this name.
pub fn asset(name: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.name == name)
}

/// A file as it is written.
pub fn file(name: &str) -> &'static str {
    FILES.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text)
}

/// The modules of the page in one script, in the order of their imports, in one scope.
pub fn modules() -> String {
    let modules = FILES.iter().filter(|(name, _)| name.ends_with(".js"));
    squeezed(&modules.map(|(_, text)| module(text)).collect::<Vec<_>>())
}

fn module(text: &str) -> Module {
    let mut made = Module::default();
    let mut is_comment = false;
    for line in text.lines() {
        if let Some(import) = line.strip_prefix("import ") {
            let (names, _) = import.split_once(" from ").unwrap_or((import, ""));
            let names = names.trim_matches(['{', '}', ' ']).split(", ");
            made.shared.extend(names.map(str::to_owned));
            continue;
        }
        let line = match line.strip_prefix("export ") {
            Some(line) => {
                let plain = line.strip_prefix("async ").unwrap_or(line);
                let declared = plain.split_once(' ').map_or("", |(_, rest)| rest);
                let end = declared.find(|c: char| !c.is_alphanumeric() && c != '_');
                made.shared.push(declared[..end.unwrap_or(declared.len())].to_owned());
                line
            }
            None => line,
        };
        let bare = without_types(line.trim_start());
        let bare = bare.trim_start();
        is_comment |= bare.starts_with("/**");
        if !is_comment && !bare.starts_with("//") && !bare.is_empty() {
            made.body += bare;
            made.body.push('\n');
        }
        is_comment &= !bare.ends_with("*/");
    }
    made
}

/// The line without the comments in it, which only say types.
fn without_types(line: &str) -> String {
    let mut rest = line;
    let mut bare = String::with_capacity(line.len());
    while let Some((before, after)) = rest.split_once("/** ")
        && let Some((_, behind)) = after.split_once("*/")
    {
        bare += before;
        rest = behind.strip_prefix(' ').unwrap_or(behind);
    }
    bare + rest
}

#[cfg(test)]
mod tests {
    use super::super::page_squeeze::undeclared;
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_module_loses_its_comments_and_tells_what_it_shares() {
        let text = "// About\nimport { a, b } from \"./x.js\";\nexport const C = 1;\n/** Long.\n * @param {x} y */\nexport async function d() {\n  /** @type {x} */ let e = a;\n}\n";
        let made = module(text);
        assert_eq!(made.body, "const C = 1;\nasync function d() {\nlet e = a;\n}\n");
        assert_eq!(made.shared, ["a", "b", "C", "d"]);
    }

    /// Lines lose their indentation, which would change a text over several lines.
    #[test]
    fn no_template_goes_over_several_lines() {
        for (name, text) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
            for (at, line) in text.lines().enumerate() {
                let line = line.replace("\\`", "");
                assert!(line.matches('`').count() % 2 == 0, "{name}:{}: {line}", at + 1);
            }
        }
    }

    /// All modules are one script, so what one imports stands before it, and no two export the same
    /// name.
    #[test]
    fn modules_stand_behind_those_they_import() {
        let mut seen = HashSet::new();
        let mut exported = HashSet::new();
        for (name, text) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let from = line.split_once("\"./").unwrap().1.trim_end_matches("\";");
                assert!(seen.contains(from), "{name} imports {from}, which stands behind it");
            }
            seen.insert(*name);
            // What `module` understands: plain names, no `as`, no patterns.
            let has_other_name = |line: &str| line.starts_with("import ") && line.contains(" as ");
            assert!(!text.lines().any(has_other_name), "{name} imports under another name");
            let names = module(text).shared;
            let imports = text.lines().filter(|line| line.starts_with("import "));
            let imported: usize = imports.map(|line| line.matches(',').count() + 1).sum();
            for export in &names[imported..] {
                assert!(!export.is_empty(), "{name} exports {names:?}");
                assert!(exported.insert(export.clone()), "{name} exports {export}, as another one");
            }
        }
        assert!(seen.contains("app.js"));
    }

    /// A global that is not known could get the short name of a variable of its module.
    #[test]
    fn modules_use_known_globals_only() {
        for (name, text) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
            let unknown = undeclared(&module(text));
            assert!(unknown.is_empty(), "{name} uses {unknown:?}: add them to the known globals");
        }
    }

    #[test]
    fn the_page_keeps_to_its_budget() {
        let shell = file("index.html").len();
        let bytes: usize = shell + ASSETS.iter().map(|asset| asset.text.len()).sum::<usize>();
        assert!(bytes <= 160 << 10, "the page has {bytes} bytes");
        let packed: usize = shell + ASSETS.iter().map(|asset| asset.deflated.len()).sum::<usize>();
        assert!(packed <= 45 << 10, "the page has {packed} bytes when it is packed");
        eprintln!("{bytes} bytes, {packed} packed");
        for (name, text) in FILES {
            let lines = text.lines().count();
            assert!(!name.ends_with(".js") || lines <= 400, "{name} has {lines} lines");
        }
    }

    #[test]
    fn what_is_packed_comes_back() {
        for asset in ASSETS.iter() {
            let text = miniz_oxide::inflate::decompress_to_vec_zlib(&asset.deflated).unwrap();
            assert_eq!(text, asset.text.as_bytes(), "{}", asset.name);
        }
    }

    /// Data reach the page as text nodes only, and nothing is loaded from elsewhere.
    #[test]
    fn no_module_turns_text_into_markup_or_asks_other_hosts() {
        for (name, text) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!text.contains(word), "{name} uses {word}");
            }
            let without = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!without.contains("http://") && !without.contains("https://"), "{name}");
        }
    }
}
