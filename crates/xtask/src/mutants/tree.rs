//! A copy of the repository whose engine holds every change, and the programs that are built of it.

use super::sites::{MutationSite, find};
use super::weave::{Woven, weave};
use crate::Result;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the changed sources are, below the root.
const SOURCES: &str = "crates/torc-engine/src";

/// The module that switches.
const SWITCH: &str = include_str!("switch.txt");

/// Optimized like a release, because each change costs a run of the tests, with the checks that tests
/// have.
const PROFILE: &str = "
[profile.mutants]
inherits = \"release\"
opt-level = 1
lto = \"off\"
codegen-units = 16
strip = \"none\"
debug-assertions = true
overflow-checks = true

[profile.mutants.package]
torc-engine = { opt-level = 2 }
torc-sim = { opt-level = 2 }
torc-server = { opt-level = 1 }
torc-client = { opt-level = 1 }
torc-runner = { opt-level = 1 }
torc-spec = { opt-level = 1 }
";

/// A source file of the engine.
pub struct File {
    /// Its name.
    pub name: String,
    /// The text without changes.
    source: String,
    /// Places that can be changed.
    pub sites: Vec<MutationSite>,
    /// Number of its first change.
    pub first: u32,
}

impl File {
    /// What the changes of a file depend on: where they are and what they are.
    pub fn digest(&self) -> String {
        let mut digest = Sha256::new();
        for site in &self.sites {
            digest.update(format!("{:?} {}\n", site, &self.source[site.range.clone()]));
        }
        digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// One change of the engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutant {
    /// Its number, from 1.
    pub id: u32,
    /// The file.
    pub file: String,
    /// What is done to it and where.
    pub what: String,
    /// Line and column.
    pub place: (usize, usize),
}

impl Mutant {
    /// Stays the same while the text before it does.
    pub fn key(&self) -> String {
        format!("{}:{}:{} {}", self.file, self.place.0, self.place.1, self.what)
    }
}

/// The copy.
pub struct SourceTree {
    /// Its root.
    root: PathBuf,
    /// Where programs are built.
    target: PathBuf,
    /// The engine's files.
    pub files: Vec<File>,
    /// Changes that do not compile.
    pub unviable: HashSet<u32>,
}

impl SourceTree {
    /// Copies the tracked files and finds the changes.
    pub fn copy(repository: &Path, work: &Path) -> Result<Self> {
        let root = work.join("tree");
        let listed = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(repository)
            .output()?;
        if !listed.status.success() {
            return Err("git does not list the files of the repository".into());
        }
        let listed = String::from_utf8(listed.stdout)?;
        let mut files: Vec<File> = Vec::new();
        let mut test_modules = Vec::new();
        for name in listed.split_terminator('\0') {
            let from = repository.join(name);
            // Deleted and not committed, or a link to something else.
            if !from.symlink_metadata().is_ok_and(|entry| entry.is_file()) {
                continue;
            }
            let to = root.join(name);
            match name.strip_prefix(SOURCES).map(|file| file.trim_start_matches('/')) {
                Some(file) if file.ends_with(".rs") => {
                    let source = fs::read_to_string(&from)?;
                    let found = find(&source).map_err(|e| format!("{name}: {e}"))?;
                    let folder = folder_of_modules(file);
                    let named = found.test_modules.iter().map(|name| format!("{folder}{name}"));
                    test_modules.extend(named);
                    let (name, sites) = (file.to_owned(), found.sites);
                    files.push(File { name, source, sites, first: 0 });
                }
                _ if name == "Cargo.toml" => {
                    write(&to, (fs::read_to_string(&from)? + PROFILE).as_bytes())?;
                }
                _ => write(&to, &fs::read(&from)?)?,
            }
        }
        if files.is_empty() {
            return Err(format!("{SOURCES} has no sources").into());
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        let mut next = 1;
        for file in &mut files {
            if test_modules.iter().any(|module| is_of(&file.name, module)) {
                file.sites.clear();
            }
            file.first = next;
            next += file.sites.iter().map(|site| site.alternatives.len() as u32).sum::<u32>();
        }
        let target = work.join("build");
        Ok(Self { root, target, files, unviable: HashSet::new() })
    }

    /// All changes, in the order of files and lines.
    pub fn mutants(&self) -> Vec<Mutant> {
        let of = |file: &File| {
            let sites = file.sites.iter();
            let changes = sites.flat_map(|site| site.alternatives.iter().map(move |a| (site, a)));
            let numbered = changes.zip(file.first..).map(|((site, alternative), id)| Mutant {
                id,
                file: file.name.clone(),
                what: format!("{}: {}", site.function, alternative.what),
                place: site.place,
            });
            numbered.collect::<Vec<_>>()
        };
        self.files.iter().flat_map(of).collect()
    }

    /// Writes the engine with its changes, and leaves those out that the compiler refuses.
    pub fn weave(&mut self) -> Result<()> {
        let sources = self.root.join(SOURCES);
        let count = self.mutants().len() + 1;
        write(
            &sources.join("mutant.rs"),
            format!("{SWITCH}\nconst COUNT: usize = {count};\n").as_bytes(),
        )?;
        for _ in 0..40 {
            let mut woven: BTreeMap<String, Woven> = BTreeMap::new();
            for file in &self.files {
                let mut text = weave(&file.source, &file.sites, file.first, &self.unviable);
                if file.name == "lib.rs" {
                    text.text.push_str("\n#[doc(hidden)]\npub mod mutant;\n");
                }
                write(&sources.join(&file.name), text.text.as_bytes())?;
                woven.insert(format!("{SOURCES}/{}", file.name), text);
            }
            let output = self
                .cargo(&["check", "--package", "torc-engine", "--message-format=json"])
                .stderr(Stdio::null())
                .output()?;
            if output.status.success() {
                return Ok(());
            }
            let before = self.unviable.len();
            for complaint in complaints(&output.stdout) {
                let blamed = complaint.spans.iter().find_map(|(file, at)| {
                    let ids = woven.get(file)?.blamed(at.clone());
                    (!ids.is_empty()).then_some(ids)
                });
                match blamed {
                    Some(ids) => self.unviable.extend(ids),
                    None if complaint.spans.is_empty() => {}
                    None => {
                        return Err(
                            format!("no change is to blame for:\n{}", complaint.text).into()
                        );
                    }
                }
            }
            if self.unviable.len() == before {
                return Err("the engine does not compile, and no change is to blame".into());
            }
            eprintln!("mutants: {} changes do not compile", self.unviable.len());
        }
        Err("the engine does not compile after many tries".into())
    }

    /// Builds a program or the tests of a package, and tells where it is.
    pub fn build(&self, args: &[&str]) -> Result<PathBuf> {
        let output = self
            .cargo(args)
            .arg("--message-format=json-render-diagnostics")
            .stderr(Stdio::inherit())
            .output()?;
        if !output.status.success() {
            return Err(format!("cargo {} fails", args.join(" ")).into());
        }
        crate::executable(&output.stdout)
    }

    /// The directory of a package.
    pub fn package(&self, name: &str) -> PathBuf {
        self.root.join("crates").join(name)
    }

    fn cargo(&self, args: &[&str]) -> Command {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command
            .args(args)
            .args(["--locked", "--quiet", "--profile", "mutants"])
            .current_dir(&self.root)
            .env("CARGO_TARGET_DIR", &self.target)
            // What is switched off by hand looks unused or superfluous.
            .env("RUSTFLAGS", "--cap-lints=allow")
            .env_remove("CARGO_INCREMENTAL");
        command
    }
}

/// Where the modules stand that a file names.
fn folder_of_modules(file: &str) -> String {
    match file.strip_suffix(".rs").unwrap_or(file) {
        "lib" => String::new(),
        path => path.strip_suffix("mod").map_or_else(|| format!("{path}/"), str::to_owned),
    }
}

/// A file holds this module, or a part of it.
fn is_of(file: &str, module: &str) -> bool {
    file.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
}

/// Writes a file unless it says so already: cargo looks at times.
fn write(file: &Path, text: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|now| now == text) {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(fs::write(file, text)?)
}

/// An error of the compiler.
struct Complaint {
    /// Where, what it is about first.
    spans: Vec<(String, std::ops::Range<usize>)>,
    text: String,
}

fn complaints(messages: &[u8]) -> Vec<Complaint> {
    let lines = String::from_utf8_lossy(messages);
    let messages = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let errors = messages.filter_map(|mut message| {
        let message = message.get_mut("message")?.take();
        (message["level"] == "error").then_some(message)
    });
    let complaint = |message: Value| {
        let mut spans: Vec<&Value> = message["spans"].as_array().into_iter().flatten().collect();
        spans.sort_by_key(|span| span["is_primary"] != true);
        let place = |span: &Value| {
            let at = |key: &str| Some(span[key].as_u64()? as usize);
            Some((span["file_name"].as_str()?.to_owned(), at("byte_start")?..at("byte_end")?))
        };
        let spans = spans.into_iter().filter_map(place).collect();
        Complaint { spans, text: message["rendered"].as_str().unwrap_or_default().to_owned() }
    };
    errors.map(complaint).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_a_file_or_a_folder() {
        assert!(is_of("tests.rs", "tests") && is_of("tests/maps.rs", "tests"));
        assert!(!is_of("tests_of.rs", "tests") && !is_of("maps/tests.rs", "tests"));
        let test_of = |file: &str| folder_of_modules(file) + "tests";
        assert_eq!(
            ["lib.rs", "maps.rs", "commands/mod.rs"].map(test_of),
            ["tests", "maps/tests", "commands/tests"]
        );
    }

    #[test]
    fn an_error_of_the_compiler_is_about_its_primary_place_first() {
        let message = r#"{"message": {"level": "error", "rendered": "no", "spans": [
            {"file_name": "a.rs", "byte_start": 1, "byte_end": 2, "is_primary": false},
            {"file_name": "b.rs", "byte_start": 3, "byte_end": 4, "is_primary": true}]}}"#;
        let warning = r#"{"message": {"level": "warning", "spans": []}}"#;
        let text = format!("{}\n{warning}\nno json\n", message.replace('\n', " "));
        let complaints = complaints(text.as_bytes());
        let places: Vec<_> = complaints.iter().map(|complaint| &complaint.spans[..]).collect();
        assert_eq!(places, [[("b.rs".to_owned(), 3..4), ("a.rs".to_owned(), 1..2)]]);
        assert_eq!(complaints[0].text, "no");
    }
}
