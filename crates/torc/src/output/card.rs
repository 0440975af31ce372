//! Cards: a title and labelled lines about one thing.

use super::escape;
use std::fmt::Write;

/// A title with indented lines below it. Text from outside is escaped here.
#[derive(Default)]
pub struct Card {
    out: String,
}

/// Width of the labels, so that all cards of the program line up.
const LABEL: usize = 12;

impl Card {
    /// Starts a card.
    pub fn new(title: impl AsRef<str>) -> Self {
        let title = console::style(escape::line(title.as_ref()).into_owned()).bold();
        Self { out: format!("{title}\n") }
    }

    /// A labelled line.
    pub fn line(&mut self, label: &str, text: impl AsRef<str>) -> &mut Self {
        let _ = writeln!(self.out, "  {label:<LABEL$}{}", escape::line(text.as_ref()));
        self
    }

    /// A labelled line, unless there is nothing to say.
    pub fn optional(&mut self, label: &str, text: Option<impl AsRef<str>>) -> &mut Self {
        if let Some(text) = text {
            self.line(label, text);
        }
        self
    }

    /// A line without a label.
    pub fn plain(&mut self, text: impl AsRef<str>) -> &mut Self {
        let _ = writeln!(self.out, "  {}", escape::line(text.as_ref()));
        self
    }

    /// A line of our own making, which may hold colours.
    pub fn styled(&mut self, text: impl AsRef<str>) -> &mut Self {
        let _ = writeln!(self.out, "  {}", text.as_ref());
        self
    }

    /// A label, and below it a text of several lines.
    pub fn block(&mut self, label: &str, text: &str) -> &mut Self {
        let _ = writeln!(self.out, "  {label}");
        for line in escape::block(text).trim_end().lines() {
            let _ = writeln!(self.out, "    | {}", shortened(line));
        }
        self
    }

    /// The finished text.
    pub fn render(&self) -> String {
        self.out.clone()
    }
}

/// Longest line of a block: what a person still reads. Whole lines are in the files.
const LINE: usize = 1000;

/// A line of a program that never ends its lines, cut in the middle.
fn shortened(line: &str) -> std::borrow::Cow<'_, str> {
    let length = line.chars().count();
    if length <= LINE {
        return line.into();
    }
    let begin: String = line.chars().take(LINE / 2).collect();
    let end: String = line.chars().skip(length - LINE / 2).collect();
    format!("{begin} ... ({} characters) ... {end}", length - LINE).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_line_is_cut() {
        let cut = shortened(&"x".repeat(50_000)).into_owned();
        assert!(cut.len() < 1100 && cut.contains("(49000 characters)"), "{}", cut.len());
        assert_eq!(shortened("short"), "short");
    }

    #[test]
    fn a_card_lines_up_and_escapes() {
        console::set_colors_enabled(false);
        let mut card = Card::new("job `a\u{7}`");
        card.line("status", "failed")
            .optional("cause", None::<&str>)
            .block("stderr", "one\ntwo\x1b[0m\n");
        assert_eq!(
            card.render(),
            "job `a\\u{7}`\n  status      failed\n  stderr\n    | one\n    | two\\u{1b}[0m\n"
        );
    }
}
