//! What the pages say about each other and about the program: links, the table of contents, and the list of variables. `scripts/site` makes a site of them and checks the spelling.

use crate::docs::{blocks, root};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files below a directory whose names end so, without what builds leave there.
fn files(directory: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                open.push(path);
            } else if ends.iter().any(|end| name.ends_with(end)) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Every page, of the documents and beside them.
pub fn pages() -> Vec<PathBuf> {
    let mut pages = files(&root().join("docs"), &[".md"]);
    for name in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"] {
        pages.push(root().join(name));
    }
    pages
}

/// A page without its blocks and without what is between backticks.
fn prose(text: &str) -> String {
    let mut prose = String::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            for (nth, part) in line.split('`').enumerate() {
                if nth % 2 == 0 {
                    prose.push_str(part);
                }
            }
            prose.push('\n');
        }
    }
    prose
}

/// What is between `](` and `)`.
fn links(text: &str) -> Vec<String> {
    let text = prose(text);
    let ends = text.match_indices("](").map(|(at, mark)| &text[at + mark.len()..]);
    ends.filter_map(|rest| rest.split_once(')')).map(|(link, _)| link.trim().to_owned()).collect()
}

/// The anchors of a page's headings, as the site and code hosts make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let heading = line.trim_start_matches('#');
        if !is_code && line.starts_with('#') && heading.starts_with(' ') {
            let kept = heading.trim().chars().filter_map(|c| match c {
                ' ' => Some('-'),
                '-' | '_' => Some(c),
                c => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
            });
            anchors.insert(kept.collect());
        }
    }
    anchors
}

#[test]
fn anchors_are_those_of_the_site() {
    let anchors =
        anchors("# Time to save a state\n\n```sh\n# no heading\n```\n\n## `torc recover`, once\n");
    assert_eq!(
        anchors.into_iter().collect::<Vec<_>>(),
        ["time-to-save-a-state", "torc-recover-once"]
    );
    assert_eq!(links("see [a](b.md#c), `[x](y)` and\n```\n[n](m)\n```\n"), ["b.md#c"]);
}

#[test]
fn every_link_leads_somewhere() {
    let mut wrong = Vec::new();
    for page in pages() {
        let text = std::fs::read_to_string(&page).expect("a page");
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = match file {
                "" => page.clone(),
                file => page.parent().expect("a directory").join(file),
            };
            let is_found = match anchor {
                "" => target.exists(),
                anchor => std::fs::read_to_string(&target)
                    .is_ok_and(|text| anchors(&text).contains(anchor)),
            };
            if !is_found {
                wrong.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

/// Names such as `TORC_DIR` in a text.
fn variables(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let words = text.split(|c: char| !is_part(c) && !c.is_ascii_lowercase());
    words
        .filter(|word| word.starts_with("TORC_") || word.starts_with("TORCFLOW_"))
        .filter(|word| word.chars().all(is_part))
        .map(|word| word.trim_end_matches('_').to_owned())
        .filter(|word| word.contains('_'))
        .collect()
}

/// Names that only stand in tests, or are the beginnings of others.
const NOT_VARIABLES: [&str; 3] = ["TORC_ATTEMPT", "TORC_ATTEMPT_TAGS", "TORC_CONFIG_DIR"];

#[test]
fn every_variable_has_its_line() {
    let page = root().join("docs/environment.md");
    let page = variables(&std::fs::read_to_string(page).expect("the page of variables"));
    let mut code = BTreeSet::new();
    let mut sources = files(&root().join("python/torcflow"), &[".py"]);
    for entry in std::fs::read_dir(root().join("crates")).expect("the crates") {
        sources.extend(files(&entry.expect("a crate").path().join("src"), &[".rs", ".json"]));
    }
    for source in sources.iter().filter(|path| !path.to_string_lossy().contains("/tests")) {
        code.extend(variables(&std::fs::read_to_string(source).expect("a source")));
    }
    let unknown = |name: &&String| !page.iter().any(|known| known.starts_with(*name));
    let missing: Vec<&String> = code
        .iter()
        .filter(|name| !NOT_VARIABLES.contains(&name.as_str()))
        .filter(unknown)
        .collect();
    assert!(missing.is_empty(), "docs/environment.md lacks {missing:?}");
    let gone: Vec<&String> = page
        .iter()
        .filter(|name| {
            !code.contains(*name)
                && !name.starts_with("TORC_USER_DATA_")
                && !name.starts_with("TORC_LIST_")
        })
        .collect();
    assert!(gone.is_empty(), "docs/environment.md has {gone:?}, which the program does not know");
}

/// mdBook makes no page of what the summary lacks; `scripts/site` puts pages that it does not name at its end.
#[test]
fn summary_names_pages_that_are_there() {
    let summary = std::fs::read_to_string(root().join("docs/SUMMARY.md")).expect("the summary");
    let named = links(&summary);
    for name in &named {
        assert!(root().join("docs").join(name).is_file(), "{name}");
    }
    assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len(), "a page stands twice");
    assert!(blocks(&summary).is_empty());
}
