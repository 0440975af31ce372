//! Makes hostile text safe to show: a job's output or name must not be able to drive the terminal.

use std::borrow::Cow;
use torc_model::recovery::untrusted::escaped;

/// Replaces what a terminal would obey or hide (control characters, direction overrides) by a
/// visible form. Line breaks and tabs stay: use it for blocks of text.
pub fn block(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c == '\n' || c == '\t')
}

/// Like [`block`], but nothing leaves the line: use it for names and cells.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_commands_become_text() {
        assert_eq!(block("a\x1b[31mred\x07"), "a\\u{1b}[31mred\\u{7}");
        assert_eq!(block("C1 \u{9b}31m"), "C1 \\u{9b}31m");
        assert_eq!(line("evil\u{202e}txt"), "evil\\u{202e}txt");
    }

    #[test]
    fn line_breaks_stay_in_blocks_only() {
        assert_eq!(block("a\n\tb"), "a\n\tb");
        assert_eq!(line("a\n\tb\r"), "a\\n\\tb\\r");
        assert_eq!(block("over\rwritten"), "over\\rwritten");
    }

    #[test]
    fn plain_text_is_not_copied() {
        assert!(matches!(block("grüße 🚀"), Cow::Borrowed(_)));
    }
}
