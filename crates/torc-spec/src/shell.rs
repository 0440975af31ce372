//! Where in a shell text a position lies: between quotes or not. Just enough of the shell's grammar
//! to judge what the shell would do with a value at that place.

/// What surrounds a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quotes {
    /// Nothing: words are split, everything is special.
    None,
    /// Double quotes, or an unquoted here-document: `$`, backtick and backslash are special.
    Double,
    /// Single quotes, or a quoted here-document: nothing is special.
    Single,
}

/// Walks through a shell text piece by piece.
#[derive(Clone, Debug, Default)]
pub struct Scanner {
    stack: Vec<ShellFrame>,
    escaped: bool,
    previous: Option<char>,
    /// Here-documents whose body begins after this line.
    announced: Vec<Heredoc>,
    /// Text of the operator that is being read.
    operator: Option<String>,
    body: Option<(Heredoc, String)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ShellFrame {
    Single,
    Double,
    Parens,
    Backtick,
    Comment,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Heredoc {
    end: String,
    quoted: bool,
    tabs: bool,
}

impl Scanner {
    /// What surrounds the current position.
    pub fn quotes(&self) -> Quotes {
        if let Some((heredoc, _)) = &self.body {
            return if heredoc.quoted { Quotes::Single } else { Quotes::Double };
        }
        match self.stack.last() {
            Some(ShellFrame::Single | ShellFrame::Comment) => Quotes::Single,
            Some(ShellFrame::Double) => Quotes::Double,
            Some(ShellFrame::Parens | ShellFrame::Backtick) | None => Quotes::None,
        }
    }

    /// Moves over a piece of text.
    pub fn advance(&mut self, text: &str) {
        text.chars().for_each(|c| self.step(c));
    }

    fn step(&mut self, c: char) {
        if self.body.is_some() {
            self.heredoc_char(c);
            return;
        }
        let previous = self.previous.replace(c);
        if std::mem::take(&mut self.escaped) {
            return;
        }
        if self.operator.is_some() && self.operator_char(c) {
            return;
        }
        match (self.stack.last().copied(), c) {
            (Some(ShellFrame::Single), '\'')
            | (Some(ShellFrame::Double), '"')
            | (Some(ShellFrame::Backtick), '`') => {
                self.stack.pop();
            }
            (Some(ShellFrame::Comment), '\n') => {
                self.stack.pop();
                self.line_end();
            }
            (Some(ShellFrame::Single | ShellFrame::Comment), _) => {}
            (_, '\\') => self.escaped = true,
            (_, '`') => self.stack.push(ShellFrame::Backtick),
            (_, '(') if previous == Some('$') => self.stack.push(ShellFrame::Parens),
            (Some(ShellFrame::Double), _) => {}
            (Some(ShellFrame::Parens), ')') => {
                self.stack.pop();
            }
            (Some(ShellFrame::Parens), '(') => self.stack.push(ShellFrame::Parens),
            (_, '\'') => self.stack.push(ShellFrame::Single),
            (_, '"') => self.stack.push(ShellFrame::Double),
            (_, '#') if previous.is_none_or(|p| p.is_whitespace() || p == ';') => {
                self.stack.push(ShellFrame::Comment)
            }
            (_, '<') if previous == Some('<') => self.operator = Some(String::new()),
            (_, '\n') => self.line_end(),
            _ => {}
        }
    }

    /// Reads the word after `<<`; false when it is over.
    fn operator_char(&mut self, c: char) -> bool {
        let Some(word) = &mut self.operator else { return false };
        let blank = c == ' ' || c == '\t';
        if (word.is_empty() && c == '<') || (blank && matches!(word.as_str(), "" | "-")) {
            if c == '<' {
                self.operator = None; // a here-string
            }
            return true;
        }
        if blank || matches!(c, '\n' | ';' | '|' | '&' | '>' | '<' | ')') {
            let word = self.operator.take().unwrap_or_default();
            let (tabs, word) =
                word.strip_prefix('-').map_or((false, word.as_str()), |rest| (true, rest));
            let end: String = word.chars().filter(|c| !matches!(c, '\'' | '"' | '\\')).collect();
            // Otherwise it is arithmetic: `$((1 << 4))`, `((x <<= 1))`.
            if word.starts_with(|c: char| c.is_alphabetic() || matches!(c, '_' | '\'' | '"' | '\\'))
            {
                self.announced.push(Heredoc { quoted: end != word, end, tabs });
            }
            return false;
        }
        word.push(c);
        true
    }

    fn line_end(&mut self) {
        if !self.announced.is_empty() {
            self.body = Some((self.announced.remove(0), String::new()));
        }
    }

    fn heredoc_char(&mut self, c: char) {
        let Some((heredoc, line)) = &mut self.body else { return };
        if c != '\n' {
            line.push(c);
            return;
        }
        let text = if heredoc.tabs { line.trim_start_matches('\t') } else { line.as_str() };
        if text == heredoc.end {
            self.body = None;
            self.previous = Some('\n');
            self.line_end();
        } else {
            line.clear();
        }
    }
}

/// The first character of a value that the shell would not take literally at such a place.
pub fn special(value: &str, quotes: Quotes) -> Option<char> {
    value.chars().find(|c| match quotes {
        Quotes::Single => *c == '\'',
        Quotes::Double => matches!(c, '"' | '$' | '`' | '\\'),
        Quotes::None => {
            !(c.is_alphanumeric()
                || matches!(c, '_' | '.' | '/' | '-' | ':' | '@' | '%' | '+' | '=' | ',' | '^'))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The surroundings of each `@`.
    fn at(text: &str) -> Vec<Quotes> {
        let mut scanner = Scanner::default();
        let mut found = Vec::new();
        for c in text.chars() {
            if c == '@' {
                found.push(scanner.quotes());
            }
            scanner.step(c);
        }
        found
    }

    #[test]
    fn quotes_are_told_apart() {
        use Quotes::{Double, None, Single};
        assert_eq!(
            at("@ '@' \"@\" \"'@'\" \\'@ \"\\\"@\""),
            [None, Single, Double, Double, None, Double]
        );
        assert_eq!(at("\"$(@ '@')@\" `@`"), [None, Single, Double, None]);
        assert_eq!(at("x # it's @\n@"), [Single, None]);
        assert_eq!(at("a#b'@'"), [Single]);
        assert_eq!(at("cat <<EOF\n@ 'x@\nEOF\n@"), [Double, Double, None]);
        assert_eq!(at("cat <<-'EOF' | x\n@ \"x\n\tEOF\n@"), [Single, None]);
        assert_eq!(at("cat <<<\"@\"\n@"), [Double, None]);
        assert_eq!(at("cat <<- 'EOF'\n@\nEOF\n@"), [Single, None]);
        assert_eq!(at("n=$((1<<4))\n@ '@'\n((n<<=1))\n# @"), [None, Single, Single]);
    }
}
