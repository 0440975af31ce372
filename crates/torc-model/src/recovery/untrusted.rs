//! Makes what a job wrote safe to hand to a reader: bounded, without control
//! characters, without secrets.
//!
//! Nothing here makes the words true or harmless. A reader must not be able to do more
//! than give a verdict.

use regex::{Captures, Regex};
use std::borrow::Cow;
use std::sync::LazyLock;

/// An agent or a person sees at most this many last lines of an output.
pub const TAIL_LINES: usize = 50;
/// And at most this many bytes of it, so that one endless line costs no more.
pub const TAIL_BYTES: usize = 8 << 10;
/// What stands where a secret was.
pub const MASK: &str = "[masked]";

/// C0 and C1 controls, DEL, and the marks that reorder, hide or smuggle text.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// The last lines of an output, without secrets and control characters.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.trim_end_matches(['\n', '\r']).split('\n').collect();
    let last = lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n");
    let masked = mask_secrets(end_of(&last, TAIL_BYTES));
    // Escaping makes text longer; the bound holds for what is handed out.
    end_of(&escaped(&masked, |c| matches!(c, '\n' | '\t')), TAIL_BYTES).to_owned()
}

/// A text of several lines, all of it: without secrets and control characters.
pub fn block(text: &str) -> String {
    escaped(&mask_secrets(text), |c| matches!(c, '\n' | '\t')).into_owned()
}

/// A name, a command or a message on one line, at most `longest` characters of it.
pub fn line(text: &str, longest: usize) -> String {
    let masked = mask_secrets(start_of(text, longest * 8));
    let mut escaped = escaped(&masked, |_| false).into_owned();
    if let Some((at, _)) = escaped.char_indices().nth(longest) {
        escaped.truncate(at);
        escaped.push('…');
    }
    escaped
}

/// Replaces unsafe characters, but those to keep, by a visible form.
pub fn escaped(text: &str, keep: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(|c| is_unsafe(c) && !keep(c)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) && !keep(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

fn end_of(text: &str, bytes: usize) -> &str {
    let mut at = text.len().saturating_sub(bytes);
    while !text.is_char_boundary(at) {
        at += 1;
    }
    &text[at..]
}

fn start_of(text: &str, bytes: usize) -> &str {
    let mut at = text.len().min(bytes);
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    &text[..at]
}

struct Secrets {
    /// Each keeps its first group and loses the rest.
    known: Vec<Regex>,
    /// Long words without a meaning.
    opaque: Regex,
}

static SECRETS: LazyLock<Secrets> = LazyLock::new(|| {
    let regex = super::pattern::ascii;
    let known = [
        r"(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)",
        r"(?i)(\b(?:proxy-)?authorization[\x22']?\s*[=:]\s*[\x22']?(?:bearer|basic|token)?\s*)[^\s\x22',;]{4,}",
        r"(?i)(\b[\w.-]*(?:passw(?:or)?d|passphrase|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)[\w.-]*[\x22']?\s*[=:]\s*[\x22']?)[^\s\x22',;&]{6,}",
        r"(?i)(--?(?:password|passwd|token|secret|api-?key)(?:\s+|=))\S+",
        r"(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}",
        r"(?i)(\blogin\s+\S+\s+password\s+)\S+",
        r"(://[^\s/:@]+:)[^\s/@]+@",
        r"\b(gh[opusr]_|github_pat_|glpat-|sk-|hf_|xox[abprs]-)[A-Za-z0-9_-]{10,}",
        r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
        r"\b(eyJ)[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?",
    ];
    Secrets { known: known.map(regex).into(), opaque: regex(r"[A-Za-z0-9+_=-]{32,}") }
});

/// Replaces what looks like a password, a key or a token.
pub fn mask_secrets(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    for pattern in &SECRETS.known {
        if let Cow::Owned(masked) = pattern.replace_all(&text, |found: &Captures<'_>| {
            let at = if found[0].ends_with('@') { "@" } else { "" };
            format!("{}{MASK}{at}", &found[1])
        }) {
            text = Cow::Owned(masked);
        }
    }
    let opaque = SECRETS.opaque.replace_all(&text, |found: &Captures<'_>| {
        let word = &found[0];
        if is_opaque(word) { MASK.to_owned() } else { word.to_owned() }
    });
    if let Cow::Owned(masked) = opaque {
        text = Cow::Owned(masked);
    }
    text
}

/// Random characters: hexadecimal digits only, or capitals, small letters and digits all mixed.
fn is_opaque(word: &str) -> bool {
    let has = |class: fn(&char) -> bool| word.chars().any(|c| class(&c));
    let digits = has(char::is_ascii_digit);
    let is_hex = digits && word.chars().all(|c| c.is_ascii_hexdigit());
    is_hex || digits && has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_shown_and_it_is_bounded() {
        let many: String = (0..1000).map(|n| format!("line {n}\n")).collect();
        let shown = tail(&many);
        assert_eq!(shown.lines().count(), TAIL_LINES);
        assert!(shown.ends_with("line 999") && shown.starts_with("line 950"), "{shown}");
        let endless = "\u{7}é".repeat(100_000);
        assert!(tail(&endless).len() <= TAIL_BYTES);
        assert_eq!(tail(""), "");
    }

    #[test]
    fn control_characters_and_hidden_text_become_visible() {
        assert_eq!(tail("a\x1b[2Jb\r\x00"), "a\\u{1b}[2Jb\\r\\u{0}");
        assert_eq!(line("x\ny\u{202e}z\u{e0041}", 100), "x\\ny\\u{202e}z\\u{e0041}");
        assert_eq!(line("abcdef", 3), "abc…");
    }

    #[test]
    fn secrets_are_masked_and_words_are_not() {
        for (text, secret) in [
            ("PASSWORD=hunter2hunter2", "hunter2"),
            ("api_key: 'abcdef-123456'", "abcdef"),
            ("Authorization: Bearer abc.def.ghi", "abc.def"),
            ("curl --token s3cr3t!! x", "s3cr3t"),
            ("postgres://me:topsecret@db/x", "topsecret"),
            ("key AKIAIOSFODNN7EXAMPLE used", "IOSFODNN7"),
            ("ghp_0123456789abcdefABCDEF0123456789abcd", "0123456789"),
            ("machine h login me password pw", " pw"),
            ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc", "MIIE"),
            ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sig", "hbGci"),
            ("blob 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "9f86d0"),
            ("blob Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZg==", "Zm9v"),
        ] {
            let masked = mask_secrets(text);
            assert!(masked.contains(MASK) && !masked.contains(secret), "{text} -> {masked}");
        }
        for text in [
            "KeyError: 'token'",
            "SyntaxError: unexpected token: }",
            "/projects/abc/a_very_long_directory_name_without_any_digits/file.py",
            "numpy.core._exceptions._ArrayMemoryError: Unable to allocate 8.00 GiB",
        ] {
            assert_eq!(mask_secrets(text), text);
        }
    }
}
