//! The modules of the page in one script. Runs when the program is built (`build.rs`), and in tests.
//!
//! A browser gets all modules as one file: through an SSH tunnel each request costs a round trip, and
//! one file is packed to three quarters of what the modules are packed to one by one.

use super::page_squeeze::{Module, squeezed};

/// The modules in the directory `page`, each behind those it imports.
pub const MODULES: &[&str] = &[
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
];

/// The modules in one script, in one scope.
pub fn script<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    squeezed(&texts.map(module).collect::<Vec<_>>())
}

/// The styles as they are sent: rules follow each other without line ends.
pub fn style(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with("/*")).collect()
}

pub fn module(text: &str) -> Module {
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

/// The modules as they are written, by name.
#[cfg(test)]
pub fn read() -> Vec<(&'static str, String)> {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let text = |name: &str| std::fs::read_to_string(page.join(name)).expect("a module");
    MODULES.iter().map(|name| (*name, text(name))).collect()
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

    /// A line end would be a blank between two selectors.
    #[test]
    fn each_line_of_the_styles_is_whole() {
        let text = include_str!("../../page/style.css");
        for (at, line) in text.lines().enumerate() {
            let is_whole = line.ends_with(['{', '}', ';']) || line.starts_with("/*");
            assert!(is_whole, "style.css:{}: {line}", at + 1);
        }
        let rules = "a{b:c}\n/* Why. */\n@media d{\ne{f:g}}\n";
        assert_eq!(style(rules), "a{b:c}@media d{e{f:g}}");
    }

    /// Lines lose their indentation, which would change a text over several lines.
    #[test]
    fn no_template_goes_over_several_lines() {
        for (name, text) in &read() {
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
        for (name, text) in &read() {
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
        for (name, text) in &read() {
            let unknown = undeclared(&module(text));
            assert!(unknown.is_empty(), "{name} uses {unknown:?}: add them to the known globals");
        }
    }

    /// Data reach the page as text nodes only, and nothing is loaded from elsewhere.
    #[test]
    fn no_module_turns_text_into_markup_or_asks_other_hosts() {
        for (name, text) in &read() {
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!text.contains(word), "{name} uses {word}");
            }
            let without = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!without.contains("http://") && !without.contains("https://"), "{name}");
        }
    }

    /// Of what is served and of what stands in for the server in a report.
    #[test]
    fn every_module_is_in_the_script_and_short() {
        let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
        for entry in std::fs::read_dir(page).expect("the page") {
            let path = entry.expect("a file").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !name.ends_with(".js") {
                continue;
            }
            assert!(name == "report.js" || MODULES.contains(&name.as_str()), "{name} is left out");
            let lines = std::fs::read_to_string(&path).expect("a module").lines().count();
            assert!(lines <= 400, "{name} has {lines} lines");
        }
    }
}
