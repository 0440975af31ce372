//! Where a spec's text comes from and which format it has.

use crate::diagnostic::{Diagnostic, Diagnostics, suggest};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The formats a spec can be written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpecFormat {
    /// YAML 1.2.
    Yaml,
    /// JSON (RFC 8259).
    Json,
    /// JSON5: JSON with comments, trailing commas and bare keys.
    Json5,
    /// KDL 2.
    Kdl,
}

impl SpecFormat {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Yaml, Self::Json, Self::Json5, Self::Kdl];

    /// The usual file name extension.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Yaml => "yaml",
            Self::Json => "json",
            Self::Json5 => "json5",
            Self::Kdl => "kdl",
        }
    }

    /// By name or extension.
    pub fn parse(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            "json5" => Some(Self::Json5),
            "kdl" => Some(Self::Kdl),
            _ => None,
        }
    }

    /// By the extension of a path.
    pub fn from_path(path: &Path) -> Option<Self> {
        path.extension().and_then(|extension| extension.to_str()).and_then(Self::parse)
    }

    /// By the first characters that are neither space nor comment: a brace opens JSON5 (which
    /// includes JSON), a word followed by a colon, a dash or `#` is YAML, `/-` or a word followed
    /// by a value is KDL.
    pub fn detect(text: &str) -> Self {
        let mut rest = text.trim_start_matches('\u{FEFF}').trim_start();
        loop {
            if let Some(comment) = rest.strip_prefix("//") {
                rest = comment.split_once('\n').map_or("", |(_, after)| after).trim_start();
            } else if let Some(comment) = rest.strip_prefix("/*") {
                rest = comment.split_once("*/").map_or("", |(_, after)| after).trim_start();
            } else {
                break;
            }
        }
        if rest.starts_with(['{', '[']) {
            return Self::Json5;
        }
        if rest.starts_with("/-") {
            return Self::Kdl;
        }
        let word = |c: char| c.is_alphanumeric() || c == '_' || c == '-' || c == '.';
        let after = rest
            .strip_prefix('"')
            .and_then(|quoted| quoted.split_once('"'))
            .map_or_else(|| rest.trim_start_matches(word), |(_, after)| after);
        if after.len() == rest.len() || rest.starts_with("- ") || rest.starts_with("---") {
            return Self::Yaml;
        }
        match after.trim_start_matches([' ', '\t']).chars().next() {
            Some(':') | None | Some('\n' | '\r') => Self::Yaml,
            Some(_) => Self::Kdl,
        }
    }
}

impl std::fmt::Display for SpecFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.extension())
    }
}

/// The text of a spec.
#[derive(Clone, Debug)]
pub struct Source {
    /// File name for messages.
    pub name: String,
    /// The text, not yet known to be UTF-8.
    pub bytes: Vec<u8>,
    /// How to read it.
    pub format: SpecFormat,
    /// Directory that `parameters_file` is relative to; without one such files cannot be read.
    pub base_dir: Option<PathBuf>,
}

impl Source {
    /// Larger texts are refused. A spec with 100,000 jobs written one by one takes about 20 MB.
    pub const MAX_BYTES: usize = 64 << 20;

    /// A text that is already in memory.
    pub fn new(name: impl Into<String>, text: impl Into<Vec<u8>>, format: SpecFormat) -> Self {
        Self { name: name.into(), bytes: text.into(), format, base_dir: None }
    }

    /// Reads a file, or standard input for `-`. The extension decides the format, else the first
    /// characters.
    pub fn read(path: &Path) -> Result<Self, Diagnostics> {
        let fail = |error: std::io::Error| {
            let help =
                (error.kind() == std::io::ErrorKind::NotFound).then(|| others(path)).flatten();
            let diagnostic =
                Diagnostic::error(format!("cannot read `{}`: {error}", path.display()));
            Diagnostics::from(diagnostic.maybe_help(help))
        };
        let (name, bytes, base_dir) = if path == Path::new("-") {
            (
                "<stdin>".to_owned(),
                read_limited(&mut std::io::stdin().lock()).map_err(fail)?,
                PathBuf::from("."),
            )
        } else {
            if path.is_dir() {
                return Err(Diagnostic::error(format!(
                    "`{}` is a directory, not a workflow file",
                    path.display()
                ))
                .into());
            }
            let mut file = std::fs::File::open(path).map_err(fail)?;
            let base_dir = directory(path).to_owned();
            (path.display().to_string(), read_limited(&mut file).map_err(fail)?, base_dir)
        };
        let format = SpecFormat::from_path(path)
            .unwrap_or_else(|| SpecFormat::detect(&String::from_utf8_lossy(head(&bytes))));
        Ok(Self { name, bytes, format, base_dir: Some(base_dir) })
    }

    /// With a directory for `parameters_file`.
    pub fn in_dir(mut self, base_dir: impl Into<PathBuf>) -> Self {
        self.base_dir = Some(base_dir.into());
        self
    }
}

/// The directory that a file is in.
fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The workflow file that was probably meant, or the ones that stand where this one does not.
fn others(path: &Path) -> Option<String> {
    let entries = std::fs::read_dir(directory(path)).ok()?;
    let files = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|file| SpecFormat::from_path(file).is_some());
    let mut names: Vec<String> =
        files.filter_map(|file| Some(file.file_name()?.to_str()?.to_owned())).collect();
    names.sort();
    suggest(path.file_name()?.to_str()?, names.iter().map(String::as_str))
}

/// Enough to look past a licence header.
fn head(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(64 << 10)]
}

/// Reads at most one byte more than is allowed, so that the limit can be noticed without reading
/// everything.
pub(crate) fn read_limited(reader: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(Source::MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_not_there_is_answered_with_those_that_are() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shared");
        let help = |name: &str| Source::read(&here.join(name)).unwrap_err().0.remove(0).help;
        assert_eq!(
            help("task_and_map.yaml").as_deref(),
            Some("did you mean `tasks_and_map.yaml`?")
        );
        assert!(help("other").unwrap().starts_with("known: `"));
        assert_eq!(help("nowhere/other.yaml"), None);
    }

    #[test]
    fn the_first_words_tell_the_format() {
        for (text, format) in [
            ("name: x\njobs: []", SpecFormat::Yaml),
            ("# hi\nname: x", SpecFormat::Yaml),
            ("---\nname: x", SpecFormat::Yaml),
            ("- shell: x", SpecFormat::Yaml),
            ("\"name\": x", SpecFormat::Yaml),
            ("name:\n  x", SpecFormat::Yaml),
            ("", SpecFormat::Yaml),
            ("{\"name\": 1}", SpecFormat::Json5),
            ("// c\n{name: 1}", SpecFormat::Json5),
            ("/* c */ {}", SpecFormat::Json5),
            ("name \"x\"", SpecFormat::Kdl),
            ("// c\nname \"x\"\n", SpecFormat::Kdl),
            ("/- old \"x\"\nname \"x\"", SpecFormat::Kdl),
            ("\u{FEFF}job \"a\" { command \"true\" }", SpecFormat::Kdl),
        ] {
            assert_eq!(SpecFormat::detect(text), format, "{text:?}");
        }
    }
}
