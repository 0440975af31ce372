//! Text of jobs on a screen: it is hostile, it may be wide, and it must fit.
//!
//! Everything that is drawn goes through [`line`] or [`output`], so that no byte of a job reaches
//! the terminal as a command.

use std::borrow::Cow;
use torc_model::recovery::untrusted::escaped;
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::UnicodeWidthStr as _;

/// A grapheme of more bytes than this is a pile of combining marks; the first character stays.
const LONGEST_GRAPHEME: usize = 32;
const TAB: usize = 8;

/// One line that no terminal obeys: control characters and direction overrides become visible.
pub fn line(text: &str) -> Cow<'_, str> {
    let text = escaped(text, |_| false);
    if text.is_ascii() || text.graphemes(true).all(|g| g.len() <= LONGEST_GRAPHEME) {
        return text;
    }
    let short = |g: &str| match g.len() <= LONGEST_GRAPHEME {
        true => g.to_owned(),
        false => g.chars().take(1).collect(),
    };
    Cow::Owned(text.graphemes(true).map(short).collect())
}

/// A line of a job's output as a terminal would have left it: colours and other escape sequences
/// are dropped, a carriage return begins the line anew (progress bars), tabs become blanks. What is
/// left of control characters becomes visible.
pub fn output(raw: &str) -> String {
    let plain = without_escapes(raw.trim_end_matches(['\n', '\r']));
    let last = plain.rsplit('\r').find(|part| !part.is_empty()).unwrap_or("");
    let mut text = String::with_capacity(last.len());
    let mut column = 0;
    for piece in last.split_inclusive('\t') {
        let word = piece.strip_suffix('\t');
        let shown = word.unwrap_or(piece);
        text.push_str(shown);
        column += width(shown);
        if word.is_some() {
            let blanks = TAB - column % TAB;
            text.extend(std::iter::repeat_n(' ', blanks));
            column += blanks;
        }
    }
    line(&text).into_owned()
}

/// Drops CSI, OSC and the other escape sequences of ECMA-48, whole or cut off.
fn without_escapes(text: &str) -> Cow<'_, str> {
    if !text.contains(['\x1b', '\u{9b}', '\u{9d}']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let introducer = match c {
            '\x1b' => chars.next().unwrap_or('\0'),
            '\u{9b}' => '[',
            '\u{9d}' => ']',
            other => {
                out.push(other);
                continue;
            }
        };
        match introducer {
            // Control sequence: parameters and intermediates, then one final byte.
            '[' => while chars.next().is_some_and(|c| !('\x40'..='\x7e').contains(&c)) {},
            // Strings end with BEL or ST.
            ']' | 'P' | 'X' | '^' | '_' => {
                while let Some(c) = chars.next() {
                    match c {
                        '\x07' | '\u{9c}' => break,
                        '\x1b' => {
                            chars.next_if_eq(&'\\');
                            break;
                        }
                        _ => {}
                    }
                }
            }
            // An intermediate byte is followed by the final one.
            '\x20'..='\x2f' => {
                chars.next();
            }
            _ => {}
        }
    }
    Cow::Owned(out)
}

/// Columns of the screen that a text takes.
pub fn width(text: &str) -> usize {
    match text.is_ascii() {
        true => text.len(),
        false => text.graphemes(true).map(|g| g.width()).sum(),
    }
}

/// The beginning of a text that fits into so many columns; `sign` stands for what is left out.
pub fn fit<'a>(text: &'a str, columns: usize, sign: &str) -> Cow<'a, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let room = columns.saturating_sub(width(sign));
    let mut out = head(text, room).to_owned();
    if columns >= width(sign) {
        out.push_str(sign);
    }
    Cow::Owned(out)
}

/// Beginning and end of a text: names of one family differ at their end.
pub fn fit_middle<'a>(text: &'a str, columns: usize, sign: &str) -> Cow<'a, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let room = columns.saturating_sub(width(sign));
    if room < 6 {
        return fit(text, columns, sign);
    }
    let end = tail(text, room / 2);
    Cow::Owned(format!("{}{sign}{end}", head(text, room - room / 2)))
}

/// The longest beginning of at most so many columns.
pub fn head(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, grapheme) in text.grapheme_indices(true) {
        used += grapheme.width();
        if used > columns {
            return &text[..at];
        }
    }
    text
}

/// The longest end of at most so many columns.
pub fn tail(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, grapheme) in text.grapheme_indices(true).rev() {
        used += grapheme.width();
        if used > columns {
            return &text[at + grapheme.len()..];
        }
    }
    text
}

/// Without the first columns: a line that was moved to the left.
pub fn skip(text: &str, columns: usize) -> &str {
    let mut used = 0;
    for (at, grapheme) in text.grapheme_indices(true) {
        if used >= columns {
            return &text[at..];
        }
        used += grapheme.width();
    }
    ""
}

/// Breaks a text at blanks into lines of at most so many columns; long words are cut.
pub fn wrap(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_whitespace() {
        let mut word = word;
        let gap = usize::from(used > 0);
        if used + gap + width(word) > columns && used > 0 {
            lines.push(String::new());
            used = 0;
        }
        while width(word) > columns {
            let part = head(word, columns);
            // A grapheme that is wider than a line would never fit.
            let part = if part.is_empty() { word } else { part };
            if let Some(last) = lines.last_mut() {
                last.push_str(part);
            }
            lines.push(String::new());
            word = &word[part.len()..];
        }
        if let Some(last) = lines.last_mut() {
            if used > 0 {
                last.push(' ');
                used += 1;
            }
            last.push_str(word);
            used += width(word);
        }
    }
    if lines.len() > 1 && lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// Cuts a line into pieces of at most so many columns, wherever that is.
pub fn chop(text: &str, columns: usize) -> Vec<&str> {
    let columns = columns.max(1);
    let mut pieces = Vec::new();
    let mut rest = text;
    while width(rest) > columns {
        let part = head(rest, columns);
        let part = if part.is_empty() { rest } else { part };
        pieces.push(part);
        rest = &rest[part.len()..];
    }
    if !rest.is_empty() || pieces.is_empty() {
        pieces.push(rest);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_drive_the_terminal() {
        assert_eq!(line("a\x1b[2Jb\u{202e}c\n"), "a\\u{1b}[2Jb\\u{202e}c\\n");
        let pile = format!("a{}b", "\u{301}".repeat(100));
        assert_eq!(line(&pile), "ab");
    }

    #[test]
    fn output_is_what_a_terminal_would_have_left() {
        assert_eq!(output("\x1b[31mred\x1b[0m text\n"), "red text");
        assert_eq!(output("10%\r50%\r100%\r\n"), "100%");
        assert_eq!(output("a\tb"), "a       b");
        assert_eq!(output("\x1b]0;title\x07shown"), "shown");
        assert_eq!(output("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"), "link");
        assert_eq!(output("cut \x1b[38;5"), "cut ");
        assert_eq!(output("bell\x07"), "bell\\u{7}");
        assert_eq!(output("\u{9b}31mC1"), "C1");
        assert_eq!(output("\x1b(Bx"), "x");
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(width("漢字"), 4);
        assert_eq!(fit("漢字漢字", 5, "…"), "漢字…");
        assert_eq!(fit("漢字", 1, "…"), "…");
        assert_eq!(fit("abc", 0, "…"), "");
        assert_eq!(fit_middle("train_0.001_seed_17", 12, "…"), "train_…ed_17");
        assert_eq!(skip("漢字ab", 3), "ab");
    }

    #[test]
    fn wrapped_text_keeps_every_character() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("漢", 1), ["漢"]);
        assert_eq!(wrap("", 10), [""]);
        assert_eq!(chop("abcdefg", 3), ["abc", "def", "g"]);
        assert_eq!(chop("", 3), [""]);
    }
}
