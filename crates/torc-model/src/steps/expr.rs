//! The expression language of `when`, `expect` and `map.where`.
//!
//! ```text
//! or     = and { "||" and }            and  = not { "&&" not }          not = "!" not | compare
//! compare = value [ ("==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "matches" | "contains") value ]
//! value  = number | 'text' | "text" | true | false | null | [list] | path | defined(path) | "(" or ")"
//! ```
//!
//! A missing field is null, and null compares false with everything. Text that reads as a number
//! compares as one.

use super::data::{DataPath, lookup, show};
use regex::Regex;
use serde_json::Value;
use std::fmt;

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Expr {
    node: Node,
}

#[derive(Clone, Debug)]
enum Node {
    Literal(Value),
    Path(DataPath),
    List(Vec<Node>),
    Defined(DataPath),
    Not(Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    Compare(Operator, Box<Node>, Box<Node>),
    Matches(Box<Node>, Regex),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
    Contains,
}

/// What is wrong with an expression, or with a name in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExprError {
    /// What is wrong.
    pub message: String,
    /// Where in the text, in bytes; 0 while evaluating.
    pub at: usize,
}

impl fmt::Display for ExprError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// An expression deeper than this is refused before it could exhaust the stack.
const MAX_DEPTH: u32 = 64;

impl Expr {
    /// Reads an expression.
    pub fn parse(text: &str) -> Result<Self, ExprError> {
        let mut parser = Parser { text, at: 0, depth: 0 };
        let node = parser.or()?;
        parser.space();
        if parser.at < text.len() {
            return Err(parser.error(format!(
                "`{}` is left over",
                parser.rest().chars().take(20).collect::<String>()
            )));
        }
        Ok(Self { node })
    }

    /// The variables it uses; those only inside `defined()` are not among them.
    pub fn paths(&self) -> Vec<&DataPath> {
        let mut found = Vec::new();
        collect(&self.node, &mut found);
        found
    }

    /// Whether it holds. `root` gives the value of a variable, nothing if there is none of that
    /// name.
    pub fn holds<'a>(&self, root: &dyn Fn(&str) -> Option<&'a Value>) -> Result<bool, ExprError> {
        Ok(truth(&evaluate(&self.node, root)?))
    }

    /// Its value, for `map.key` and sorting.
    pub fn value<'a>(&self, root: &dyn Fn(&str) -> Option<&'a Value>) -> Result<Value, ExprError> {
        evaluate(&self.node, root)
    }
}

fn collect<'a>(node: &'a Node, found: &mut Vec<&'a DataPath>) {
    match node {
        Node::Literal(_) | Node::Defined(_) => {}
        Node::Path(path) => found.push(path),
        Node::List(items) => items.iter().for_each(|item| collect(item, found)),
        Node::Not(inner) | Node::Matches(inner, _) => collect(inner, found),
        Node::And(left, right) | Node::Or(left, right) | Node::Compare(_, left, right) => {
            collect(left, found);
            collect(right, found);
        }
    }
}

fn truth(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty() && text != "false",
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
    }
}

fn evaluate<'a>(node: &Node, root: &dyn Fn(&str) -> Option<&'a Value>) -> Result<Value, ExprError> {
    Ok(match node {
        Node::Literal(value) => value.clone(),
        Node::Path(path) => {
            let Some(value) = root(&path.root) else {
                return Err(ExprError {
                    message: format!("nothing is called `{}` here", path.root),
                    at: 0,
                });
            };
            lookup(value, &path.pieces).cloned().unwrap_or(Value::Null)
        }
        Node::Defined(path) => {
            let value = root(&path.root).and_then(|value| lookup(value, &path.pieces));
            Value::Bool(value.is_some_and(|value| !value.is_null()))
        }
        Node::List(items) => {
            Value::Array(items.iter().map(|item| evaluate(item, root)).collect::<Result<_, _>>()?)
        }
        Node::Not(inner) => Value::Bool(!truth(&evaluate(inner, root)?)),
        Node::And(left, right) => {
            Value::Bool(truth(&evaluate(left, root)?) && truth(&evaluate(right, root)?))
        }
        Node::Or(left, right) => {
            Value::Bool(truth(&evaluate(left, root)?) || truth(&evaluate(right, root)?))
        }
        Node::Matches(inner, regex) => {
            let value = evaluate(inner, root)?;
            Value::Bool(!value.is_null() && regex.is_match(&show(&value)))
        }
        Node::Compare(operator, left, right) => {
            Value::Bool(compare(*operator, &evaluate(left, root)?, &evaluate(right, root)?))
        }
    })
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn compare(operator: Operator, left: &Value, right: &Value) -> bool {
    use std::cmp::Ordering;
    if left.is_null() || right.is_null() {
        return false;
    }
    match operator {
        Operator::In => match right {
            Value::Array(items) => items.iter().any(|item| compare(Operator::Equal, left, item)),
            Value::Object(map) => map.contains_key(&show(left)),
            other => show(other).contains(&show(left)),
        },
        Operator::Contains => compare(Operator::In, right, left),
        Operator::Equal
        | Operator::NotEqual
        | Operator::Less
        | Operator::LessEqual
        | Operator::Greater
        | Operator::GreaterEqual => {
            let order = match (number(left), number(right)) {
                (Some(left), Some(right)) => left.partial_cmp(&right),
                _ => Some(show(left).cmp(&show(right))),
            };
            match (operator, order) {
                (_, None) => false,
                (Operator::Equal, Some(order)) => order == Ordering::Equal,
                (Operator::NotEqual, Some(order)) => order != Ordering::Equal,
                (Operator::Less, Some(order)) => order == Ordering::Less,
                (Operator::LessEqual, Some(order)) => order != Ordering::Greater,
                (Operator::Greater, Some(order)) => order == Ordering::Greater,
                (Operator::GreaterEqual | Operator::In | Operator::Contains, Some(order)) => {
                    order != Ordering::Less
                }
            }
        }
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    depth: u32,
}

impl Parser<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn error(&self, message: impl Into<String>) -> ExprError {
        ExprError { message: message.into(), at: self.at }
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    /// A word that is not the beginning of a longer one.
    fn take_word(&mut self, word: &str) -> bool {
        self.space();
        let after = self.rest().strip_prefix(word);
        let found = after.is_some_and(|a| {
            !a.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '['))
        }) || after.is_some_and(|a| matches!(word, "in") && a.starts_with('['));
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn deeper(&mut self) -> Result<(), ExprError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("the expression is nested too deeply"));
        }
        Ok(())
    }

    fn or(&mut self) -> Result<Node, ExprError> {
        let mut left = self.and()?;
        while self.take("||") || self.take_word("or") {
            left = Node::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Node, ExprError> {
        let mut left = self.not()?;
        while self.take("&&") || self.take_word("and") {
            left = Node::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Node, ExprError> {
        self.space();
        if (self.rest().starts_with('!') && !self.rest().starts_with("!="))
            || self.rest().starts_with("not ")
        {
            self.at += if self.rest().starts_with('!') { 1 } else { 4 };
            self.deeper()?;
            let inner = self.not()?;
            self.depth -= 1;
            return Ok(Node::Not(Box::new(inner)));
        }
        self.compare()
    }

    fn compare(&mut self) -> Result<Node, ExprError> {
        let left = self.value()?;
        self.space();
        // Longer operators first.
        const SIGNS: [(&str, Operator); 6] = [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessEqual),
            (">=", Operator::GreaterEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        for (sign, operator) in SIGNS {
            if self.take(sign) {
                return Ok(Node::Compare(operator, Box::new(left), Box::new(self.value()?)));
            }
        }
        if self.take_word("in") {
            return Ok(Node::Compare(Operator::In, Box::new(left), Box::new(self.value()?)));
        }
        if self.take_word("contains") {
            return Ok(Node::Compare(Operator::Contains, Box::new(left), Box::new(self.value()?)));
        }
        if self.take_word("matches") {
            let at = self.at;
            let Node::Literal(Value::String(pattern)) = self.value()? else {
                return Err(ExprError {
                    message: "`matches` needs an expression in quotes".into(),
                    at,
                });
            };
            let regex = Regex::new(&pattern).map_err(|_| ExprError {
                message: format!("`{pattern}` is not a regular expression"),
                at,
            })?;
            return Ok(Node::Matches(Box::new(left), regex));
        }
        if self.rest().starts_with('=') {
            return Err(self.error("`=` compares nothing; write `==`"));
        }
        Ok(left)
    }

    fn value(&mut self) -> Result<Node, ExprError> {
        self.space();
        let Some(first) = self.rest().chars().next() else {
            return Err(self.error("something is missing at the end"));
        };
        match first {
            '(' => {
                self.deeper()?;
                self.at += 1;
                let inner = self.or()?;
                if !self.take(")") {
                    return Err(self.error("`)` is missing"));
                }
                self.depth -= 1;
                Ok(inner)
            }
            '[' => self.list(),
            '\'' | '"' => self.quoted(first),
            '0'..='9' | '-' | '.' => self.number(),
            _ => self.name(),
        }
    }

    fn list(&mut self) -> Result<Node, ExprError> {
        self.deeper()?;
        self.at += 1;
        let mut items = Vec::new();
        while !self.take("]") {
            if !items.is_empty() && !self.take(",") {
                return Err(self.error("`,` or `]` is missing"));
            }
            items.push(self.value()?);
        }
        self.depth -= 1;
        Ok(Node::List(items))
    }

    fn quoted(&mut self, quote: char) -> Result<Node, ExprError> {
        let mut text = String::new();
        let mut characters = self.text[self.at + 1..].char_indices();
        let start = self.at + 1;
        while let Some((offset, c)) = characters.next() {
            match c {
                '\\' => match characters.next() {
                    // Only the quote and the backslash itself: `\d` in an expression must stay as
                    // it is.
                    Some((_, next)) if next == quote || next == '\\' => text.push(next),
                    Some((_, next)) => text.extend(['\\', next]),
                    None => break,
                },
                c if c == quote => {
                    self.at = start + offset + c.len_utf8();
                    return Ok(Node::Literal(Value::String(text)));
                }
                c => text.push(c),
            }
        }
        Err(self.error("this text does not end"))
    }

    fn number(&mut self) -> Result<Node, ExprError> {
        let rest = self.rest();
        let length = rest
            .char_indices()
            .take_while(|(i, c)| {
                c.is_ascii_digit()
                    || matches!(c, '.' | 'e' | 'E')
                    || (matches!(c, '-' | '+') && (*i == 0 || rest[..*i].ends_with(['e', 'E'])))
            })
            .count();
        let text = &rest[..length];
        let number = text.parse::<i64>().ok().map(Value::from).or_else(|| {
            text.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::Number)
        });
        let number = number.ok_or_else(|| self.error(format!("`{text}` is not a number")))?;
        self.at += length;
        Ok(Node::Literal(number))
    }

    fn name(&mut self) -> Result<Node, ExprError> {
        for (word, value) in
            [("true", Value::Bool(true)), ("false", Value::Bool(false)), ("null", Value::Null)]
        {
            if self.take_word(word) {
                return Ok(Node::Literal(value));
            }
        }
        // `${x}` is what people write out of habit.
        let braced = self.take("${");
        if self.take("defined(") || self.take("defined (") {
            self.space();
            let Some((path, length)) = DataPath::read(self.rest()) else {
                return Err(self.error("`defined` needs the name of a variable"));
            };
            self.at += length;
            if !self.take(")") {
                return Err(self.error("`)` is missing"));
            }
            return Ok(Node::Defined(path));
        }
        let Some((path, length)) = DataPath::read(self.rest()) else {
            let shown: String = self.rest().chars().take(12).collect();
            return Err(self.error(format!("`{shown}` is neither a value nor a name")));
        };
        self.at += length;
        if braced && !self.take("}") {
            return Err(self.error("`}` is missing"));
        }
        Ok(Node::Path(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn holds(text: &str) -> Result<bool, ExprError> {
        let item =
            json!({"score": 7, "path": "src/migrations/a.py", "tags": ["x", "y"], "none": null});
        let (version, count, ok) = (json!("v1"), json!("12"), json!(true));
        Expr::parse(text)?.holds(&|root| match root {
            "item" => Some(&item),
            "version" => Some(&version),
            "count" => Some(&count),
            "ok" => Some(&ok),
            _ => None,
        })
    }

    #[test]
    fn expressions_mean_what_they_say() {
        for text in [
            "item.score >= 5",
            "version != '' && count > 9",
            "!(item.path matches '\\.rs$')",
            "item.path matches '/migrations/' and not ok == false",
            "version in ['v0', 'v1'] || false",
            "'x' in item.tags && item.tags contains \"y\"",
            "item.tags[1] == 'y'",
            "defined(item.score) && !defined(item.missing) && !defined(nothing)",
            "count == 12.0",
            "ok",
            "1e-7 < 1e-6",
            "-1 < 0",
            "${count} == 12",
            "item.path contains 'migrations'",
        ] {
            assert_eq!(holds(text), Ok(true), "{text}");
        }
        for text in [
            "item.missing == 0",
            "item.missing != 0",
            "item.none == null",
            "item.score < 5",
            "'' || 0",
            "version == 'V1'",
        ] {
            assert_eq!(holds(text), Ok(false), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, message) in [
            ("item.score = 5", "`=` compares nothing; write `==`"),
            ("nothing == 1", "nothing is called `nothing` here"),
            ("(a", "`)` is missing"),
            ("a b", "`b` is left over"),
            ("'x", "this text does not end"),
            ("a matches '('", "`(` is not a regular expression"),
            ("", "something is missing at the end"),
            ("a &&", "something is missing at the end"),
        ] {
            assert_eq!(holds(text).unwrap_err().message, message, "{text}");
        }
        assert!(Expr::parse(&"(".repeat(10_000)).is_err());
        assert!(Expr::parse(&"!".repeat(10_000)).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in ".{0,50}") {
            if let Ok(expr) = Expr::parse(&text) {
                let _ = expr.holds(&|_| None);
            }
        }
    }
}
