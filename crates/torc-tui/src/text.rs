//! Text of jobs on a screen: it is hostile, it may be wide, and it must fit.
//!
//! Everything that is drawn goes through [`line`] or [`output`], so that no byte of a job reaches
//! the terminal as a command.

use ratatui::style::Color;
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

/// A line of a job's output as a terminal would have left it, without colours: see [`colored`].
pub fn output(raw: &str) -> String {
    colored(raw).0
}

/// How a part of a line looks: one of the terminal's sixteen colours, and bold. A job gets no other
/// attribute: with backgrounds, concealed text or blinking it could hide what it wrote.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Look {
    pub color: Option<Color>,
    pub is_bold: bool,
}

/// From this byte of the line on it looks like this.
pub type Paint = (usize, Look);

/// A line of a job's output as a terminal would have left it, and where its looks change. SGR gives
/// the colours, every other escape sequence is dropped; a carriage return starts the line over
/// (progress bars), tabs become blanks. What is left of control characters becomes visible.
pub fn colored(raw: &str) -> (String, Vec<Paint>) {
    let mut out = String::with_capacity(raw.len());
    let mut paints: Vec<Paint> = Vec::new();
    let mut column = 0;
    let mut starts_over = false;
    for piece in pieces(raw.trim_end_matches(['\n', '\r'])) {
        let part = match piece {
            Piece::Look(look) => {
                paints.push((out.len(), look));
                continue;
            }
            Piece::Text(part) => part,
        };
        for part in part.split_inclusive(['\t', '\r']) {
            let shown = part.strip_suffix(['\t', '\r']).unwrap_or(part);
            if starts_over && !part.starts_with('\r') {
                // Only the look that holds now survives what is written over.
                let look = paints.last().map_or_else(Look::default, |(_, look)| *look);
                (paints, column) = (vec![(0, look)], 0);
                out.clear();
                starts_over = false;
            }
            let safe = line(shown);
            out.push_str(&safe);
            column += width(&safe);
            if part.ends_with('\t') {
                let blanks = TAB - column % TAB;
                out.extend(std::iter::repeat_n(' ', blanks));
                column += blanks;
            }
            starts_over |= part.ends_with('\r');
        }
    }
    // Only what changes something, so that a line without colours costs nothing.
    let mut look = Look::default();
    paints.retain(|(_, next)| std::mem::replace(&mut look, *next) != *next);
    (out, paints)
}

/// A part of a line between escape sequences, or what SGR says of the text behind it.
enum Piece<'a> {
    Text(&'a str),
    Look(Look),
}

/// Cuts CSI, OSC and the other escape sequences of ECMA-48 out, whole or cut off. Only SGR says
/// something here.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut out = Vec::new();
    let mut look = Look::default();
    let mut rest = text;
    while let Some(at) = rest.find(['\x1b', '\u{9b}', '\u{9d}']) {
        out.push(Piece::Text(&rest[..at]));
        let mut chars = rest[at..].chars();
        let introducer = match chars.next() {
            Some('\x1b') => chars.next().unwrap_or('\0'),
            Some('\u{9b}') => '[',
            _ => ']',
        };
        match introducer {
            // Control sequence: parameters and intermediates, then one final byte.
            '[' => {
                let sequence = chars.as_str();
                let last = chars.find(|c| ('\x40'..='\x7e').contains(c));
                if last == Some('m') {
                    let length = sequence.len() - chars.as_str().len() - 1;
                    look = select(look, &sequence[..length]);
                    out.push(Piece::Look(look));
                }
            }
            // Strings end with BEL or ST.
            ']' | 'P' | 'X' | '^' | '_' => {
                let end = chars.find(|c| matches!(c, '\x07' | '\u{9c}' | '\x1b'));
                if end == Some('\x1b') && chars.as_str().starts_with('\\') {
                    chars.next();
                }
            }
            // An intermediate byte is followed by the final one.
            '\x20'..='\x2f' => {
                chars.next();
            }
            _ => {}
        }
        rest = chars.as_str();
    }
    out.push(Piece::Text(rest));
    out
}

/// What SGR (select graphic rendition) makes of a look. Unknown numbers change nothing.
fn select(mut look: Look, parameters: &str) -> Look {
    // Colons separate the parts of one colour in newer programs: `38:5:208`.
    let mut numbers = parameters.split([';', ':']).map(|text| match text {
        "" => Some(0),
        text => text.parse::<u8>().ok(),
    });
    while let Some(number) = numbers.next() {
        match number {
            Some(0) => look = Look::default(),
            Some(1) => look.is_bold = true,
            Some(22) => look.is_bold = false,
            Some(number @ 30..=37) => look.color = Some(named(number - 30)),
            Some(number @ 90..=97) => look.color = Some(named(number - 90 + 8)),
            Some(39) => look.color = None,
            // The background takes the same parameters and is not shown.
            Some(kind @ (38 | 48)) => {
                let color = match numbers.next().flatten() {
                    Some(5) => numbers.next().flatten().map(indexed),
                    Some(2) => {
                        let [r, g, b] = [(); 3].map(|()| numbers.next().flatten().unwrap_or(0));
                        Some(nearest(r, g, b))
                    }
                    _ => None,
                };
                if kind == 38 && color.is_some() {
                    look.color = color;
                }
            }
            _ => {}
        }
    }
    look
}

/// A colour by its number among the terminal's sixteen. Black would not be seen on a dark terminal.
fn named(number: u8) -> Color {
    match number {
        1 => Color::Red,
        2 => Color::Green,
        3 => Color::Yellow,
        4 => Color::Blue,
        5 => Color::Magenta,
        6 => Color::Cyan,
        7 => Color::Gray,
        9 => Color::LightRed,
        10 => Color::LightGreen,
        11 => Color::LightYellow,
        12 => Color::LightBlue,
        13 => Color::LightMagenta,
        14 => Color::LightCyan,
        15 => Color::White,
        _ => Color::DarkGray,
    }
}

/// A colour of the 256: sixteen, a cube of six levels, and greys.
fn indexed(number: u8) -> Color {
    match number {
        0..=15 => named(number),
        16..=231 => {
            let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
            let cube = number - 16;
            nearest(level(cube / 36), level(cube / 6 % 6), level(cube % 6))
        }
        232.. => {
            let grey = 8 + (number - 232) * 10;
            nearest(grey, grey, grey)
        }
    }
}

/// The one of the sixteen that has the same strong channels.
fn nearest(r: u8, g: u8, b: u8) -> Color {
    let strongest = r.max(g).max(b);
    let bit = |channel: u8, value: u8| u8::from(channel > strongest / 2) * value;
    let hue = bit(r, 1) + bit(g, 2) + bit(b, 4);
    named(if strongest > 191 { hue + 8 } else { hue })
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
    fn colours_of_a_job_are_the_terminals_sixteen_and_nothing_else_of_it_is_obeyed() {
        let look = |color, is_bold| Look { color: Some(color), is_bold };
        let none = Look::default();
        let (text, paints) = colored("\x1b[1;31merror\x1b[0m: \x1b[92mok\x1b[39m.");
        assert_eq!(text, "error: ok.");
        let expected = [
            (0, look(Color::Red, true)),
            (5, none),
            (7, look(Color::LightGreen, false)),
            (9, none),
        ];
        assert_eq!(paints, expected);
        // 256 colours and 24 bits come down to the sixteen; a background takes its numbers along.
        for (code, color) in [
            ("38;5;9", Color::LightRed),
            ("38;5;208", Color::LightYellow),
            ("38;5;22", Color::Green),
            ("38;2;0;0;250", Color::LightBlue),
            ("38:5:4", Color::Blue),
            ("48;5;31;35", Color::Magenta),
            ("30", Color::DarkGray),
            ("38;5;16", Color::DarkGray),
        ] {
            let (text, paints) = colored(&format!("\x1b[{code}mx"));
            assert_eq!((text.as_str(), paints), ("x", vec![(0, look(color, false))]), "{code}");
        }
        // Conceal, reverse, blink, background, a cursor that moves, numbers that are none.
        for code in ["8m", "7m", "5m", "41m", "2J", "10;10H", "999m", "31", "38;5m", "38m", "1;0m"]
        {
            let (_, paints) = colored(&format!("\x1b[{code}x"));
            assert_eq!(paints, [], "{code}");
        }
        let (text, paints) = colored("\x1b[32m10%\r\x1b[32m55%\x1b[0m done\r");
        assert_eq!(text, "55% done");
        assert_eq!(paints, [(0, look(Color::Green, false)), (3, none)]);
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
