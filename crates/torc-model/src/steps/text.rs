//! Which `${...}` of a text are ours.
//!
//! In shell text a value is never put in: `${item.path}` is renamed to `${item__path}`, and the
//! value is exported under that name, so that the shell treats it as what it is, data. Everything
//! that is not ours (`${x:-0}`, `${a[@]}`, `$$`, `awk '{print $1}'`) stays the shell's. Texts that
//! no shell reads (prompts, environment values, directories) are filled in.

use super::data::{DataPath, Piece};
use std::fmt;
use std::ops::Range;

/// A variable of ours that a text uses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextReference {
    /// The value that it names.
    pub path: DataPath,
    /// The text says what to do without it (`:-`).
    pub optional: bool,
    /// Where in the text, braces included.
    pub at: Range<usize>,
}

/// A shell text after renaming.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepShell {
    /// What the shell gets.
    pub text: String,
    /// What of ours it uses.
    pub references: Vec<TextReference>,
}

/// What is wrong with a `${...}`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TextError {
    /// Nothing has this name.
    Unknown {
        /// As written.
        path: DataPath,
        /// The bytes of the text that it is about.
        at: Range<usize>,
    },
    /// It has no value, and the text does not say what to do then.
    Missing(DataPath),
    /// It does not end, or something strange follows the name.
    Malformed {
        /// As written.
        text: String,
        /// The bytes of the text that it is about.
        at: Range<usize>,
    },
    /// The value cannot be used here.
    Unusable {
        /// The value that was named.
        path: DataPath,
        /// Why it cannot be used, in words.
        why: String,
    },
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { path, .. } => write!(f, "nothing is called `{path}` here"),
            Self::Missing(path) => write!(f, "`{path}` has no value"),
            Self::Malformed { text, .. } => write!(f, "`{text}` is not a variable"),
            Self::Unusable { path, why } => write!(f, "`{path}` cannot be used here: {why}"),
        }
    }
}

/// The environment variable of a path: dots and brackets become `__`.
pub fn env_name(path: &DataPath) -> String {
    let mut name = path.root.clone();
    for piece in &path.pieces {
        name.push_str("__");
        match piece {
            Piece::Key(key) => name.push_str(key),
            Piece::Index(index) => name.push_str(&index.to_string()),
        }
    }
    name
}

/// Renames our variables in a shell text. `ours` knows the roots.
pub fn shell(text: &str, ours: impl Fn(&str) -> bool) -> Result<StepShell, TextError> {
    let mut out = String::with_capacity(text.len() + 16);
    let mut references = Vec::new();
    let mut rest = 0;
    while let Some(found) = text[rest..].find('$') {
        let at = rest + found;
        out.push_str(&text[rest..at]);
        let from = &text[at..];
        if from.starts_with("$${") {
            out.push_str("${");
            rest = at + 3;
            continue;
        }
        let escaped = text[..at].bytes().rev().take_while(|b| *b == b'\\').count() % 2 == 1;
        if escaped {
            out.push('$');
            rest = at + 1;
            continue;
        }
        let Some(inner) = from.strip_prefix("${") else {
            if let Some((path, length)) = DataPath::read(&from[1..])
                && ours(&path.root)
            {
                // Without braces the shell takes only the first word.
                let path = DataPath { root: path.root, pieces: Vec::new() };
                let length = length.min(path.root.len());
                references.push(TextReference { path, optional: false, at: at..at + 1 + length });
            }
            out.push('$');
            rest = at + 1;
            continue;
        };
        let sigil = inner.bytes().next().filter(|b| matches!(b, b'#' | b'!')).map_or(0, |_| 1);
        let Some((path, length)) = DataPath::read(&inner[sigil..]) else {
            out.push_str("${");
            rest = at + 2;
            continue;
        };
        let after = &inner[sigil + length..];
        let end = at + 2 + sigil + length;
        let is_dotted = path.pieces.iter().any(|piece| matches!(piece, Piece::Key(_)));
        if !ours(&path.root) {
            if is_dotted {
                return Err(TextError::Unknown { path, at: at..end });
            }
            out.push_str("${");
            rest = at + 2;
            continue;
        }
        // `${item[@]}`: an array that the script itself made of our name.
        if path.pieces.is_empty() && after.starts_with('[') {
            out.push_str("${");
            rest = at + 2;
            continue;
        }
        if !after.starts_with(['}', ':', '-', '=', '?', '+', '%', '#', '/', '^', ',', '@']) {
            let close = after.find('}').map_or(end, |close| end + close + 1);
            return Err(TextError::Malformed { text: text[at..close].into(), at: at..close });
        }
        let optional =
            [":-", "-", ":+", "+", ":=", "="].iter().any(|operator| after.starts_with(operator));
        out.push_str("${");
        out.push_str(&inner[..sigil]);
        out.push_str(&env_name(&path));
        references.push(TextReference { path, optional, at: at..end });
        rest = end;
    }
    out.push_str(&text[rest..]);
    Ok(StepShell { text: out, references })
}

/// The variables in a text that no shell reads.
pub fn references(text: &str) -> Result<Vec<TextReference>, TextError> {
    let mut found = Vec::new();
    walk(text, &mut String::new(), &mut |reference| {
        found.push(reference.clone());
        Ok(String::new())
    })?;
    Ok(found)
}

/// Fills in a text that no shell reads. `value` gives the text of a path, nothing if it has no
/// value.
pub fn fill(
    text: &str,
    value: impl Fn(&DataPath) -> Result<Option<String>, TextError>,
) -> Result<String, TextError> {
    let mut out = String::with_capacity(text.len());
    walk(text, &mut out, &mut |reference| match value(&reference.path) {
        Ok(Some(text)) => Ok(text),
        Ok(None) | Err(TextError::Unknown { .. } | TextError::Missing(_)) if reference.optional => {
            Ok(String::new())
        }
        Ok(None) => Err(TextError::Missing(reference.path.clone())),
        Err(error) => Err(error),
    })?;
    Ok(out)
}

type Put<'a> = &'a mut dyn FnMut(&TextReference) -> Result<String, TextError>;

fn walk(text: &str, out: &mut String, put: Put<'_>) -> Result<(), TextError> {
    let mut rest = 0;
    while let Some(found) = text[rest..].find('$') {
        let at = rest + found;
        out.push_str(&text[rest..at]);
        let from = &text[at..];
        if from.starts_with("$${") {
            out.push_str("${");
            rest = at + 3;
            continue;
        }
        let Some(inner) = from.strip_prefix("${") else {
            out.push('$');
            rest = at + 1;
            continue;
        };
        let close = inner.find('}').map_or(text.len(), |close| at + 2 + close + 1);
        let malformed = || TextError::Malformed { text: text[at..close].into(), at: at..close };
        let (path, length) = DataPath::read(inner).ok_or_else(malformed)?;
        let (default, end) = if inner[length..].starts_with('}') {
            (None, at + 2 + length + 1)
        } else if let Some(default) = inner[length..].strip_prefix(":-") {
            let length_of_default = default.find('}').ok_or_else(malformed)?;
            (Some(&default[..length_of_default]), close)
        } else {
            return Err(malformed());
        };
        let reference = TextReference { path, optional: default.is_some(), at: at..end };
        let value = put(&reference)?;
        out.push_str(if value.is_empty() { default.unwrap_or_default() } else { &value });
        rest = end;
    }
    out.push_str(&text[rest..]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours(root: &str) -> bool {
        matches!(root, "item" | "error" | "version")
    }

    fn renamed(text: &str) -> String {
        shell(text, ours).unwrap().text
    }

    #[test]
    fn only_dotted_names_of_ours_are_renamed() {
        assert_eq!(
            renamed("mypy \"${item.path}\" ${item.tags[0]%.js}.ts"),
            "mypy \"${item__path}\" ${item__tags__0%.js}.ts"
        );
        assert_eq!(
            renamed("echo ${#item.name} ${item.x:-${error.message}}"),
            "echo ${#item__name} ${item__x:-${error__message}}"
        );
        assert_eq!(renamed("bash -c 'echo ${item.path}'"), "bash -c 'echo ${item__path}'");
        assert_eq!(
            renamed("echo $${item.path} \\${item.path}"),
            "echo ${item.path} \\${item.path}"
        );
    }

    #[test]
    fn what_is_the_shells_stays_the_shells() {
        for text in [
            "awk '{print $1}'",
            "echo ${x:-0} ${a[@]} ${#a[*]} $$ $! $? $@ ${1} ${10:-x} ${!ref} $((1+2)) $(ls) ${HOME}",
            "for f in *; do echo \"$f\" ${f%.js}; done",
            "${item[@]}",
            "echo $",
            "cat <<EOF\n$x ${y}\nEOF",
        ] {
            assert_eq!(renamed(text), text);
        }
    }

    #[test]
    fn references_are_found_and_mistakes_named() {
        let found = shell("echo ${item} $version ${item.a.b:-x} ${PATH}", ours).unwrap().references;
        let names: Vec<String> = found
            .iter()
            .map(|r| format!("{}{}", r.path, if r.optional { "?" } else { "" }))
            .collect();
        assert_eq!(names, ["item", "version", "item.a.b?"]);
        assert!(
            matches!(shell("${itm.path}", ours), Err(TextError::Unknown { path, .. }) if path.root == "itm")
        );
        assert!(matches!(shell("${item.a b}", ours), Err(TextError::Malformed { .. })));
    }

    #[test]
    fn other_texts_are_filled_in_once() {
        let value = |path: &DataPath| match path.to_string().as_str() {
            "item" => Ok(Some("${error.message}".to_owned())),
            "none" => Ok(None),
            _ => Err(TextError::Unknown { path: path.clone(), at: 0..0 }),
        };
        assert_eq!(
            fill("a ${item} $${item} $5 ${none:-d}", value).unwrap(),
            "a ${error.message} ${item} $5 d"
        );
        assert_eq!(
            fill("${none}", value),
            Err(TextError::Missing(DataPath::parse("none").unwrap()))
        );
        assert!(matches!(fill("${nothing}", value), Err(TextError::Unknown { .. })));
        assert!(matches!(fill("${item", value), Err(TextError::Malformed { .. })));
        assert!(matches!(fill("${a b}", value), Err(TextError::Malformed { .. })));
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = shell(&text, ours);
            let _ = fill(&text, |_| Ok(Some("x".into())));
        }

        #[test]
        fn text_without_a_dollar_is_left_alone(text in "[^$]{0,60}") {
            proptest::prop_assert_eq!(renamed(&text), text);
        }
    }
}
