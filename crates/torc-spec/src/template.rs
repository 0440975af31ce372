//! `{name}` and `{name:format}` in texts.
//!
//! A brace that follows `$` belongs to the shell (`${x}`), but placeholders inside it count, so
//! that `${files.input.part_{i}}` works. Braces around anything but a name (`{}`, `{print $1}`,
//! `{a,b}`) are plain text. `{{name}}` around a word that is no parameter stands for `{name}`
//! itself.

use serde_json::Value;
use std::ops::Range;

/// One placeholder in a text.
#[derive(Clone, PartialEq, Debug)]
struct TemplateToken<'a> {
    name: &'a str,
    format: Option<&'a str>,
    range: Range<usize>,
    /// There is one more brace on each side.
    doubled: bool,
}

/// Letters, digits and `_`, not beginning with a digit.
pub fn is_identifier(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The next placeholder at or after a byte.
fn next_token(text: &str, from: usize, regex: bool) -> Option<TemplateToken<'_>> {
    let bytes = text.as_bytes();
    let mut at = from;
    while let Some(found) = text[at..].find('{') {
        let start = at + found;
        at = start + 1;
        let before = start.checked_sub(1).map(|i| bytes[i]);
        if before == Some(b'$') || (regex && is_regex_escape(&bytes[..start])) {
            continue;
        }
        let length =
            bytes[at..].iter().take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
        let name = &text[at..at + length];
        if !is_identifier(name) {
            continue;
        }
        let end = at + length;
        let (format, close) = match bytes.get(end) {
            Some(b'}') => (None, end),
            Some(b':') => {
                let length = bytes[end + 1..]
                    .iter()
                    .take(12)
                    .take_while(|b| b.is_ascii_alphanumeric() || **b == b'.')
                    .count();
                if bytes.get(end + 1 + length) != Some(&b'}') {
                    continue;
                }
                (Some(&text[end + 1..end + 1 + length]), end + 1 + length)
            }
            _ => continue,
        };
        let doubled = before == Some(b'{') && bytes.get(close + 1) == Some(&b'}');
        return Some(TemplateToken { name, format, range: start..close + 1, doubled });
    }
    None
}

/// `\p{Greek}`, `\x{7F}` and their like are the regex's own braces.
fn is_regex_escape(before: &[u8]) -> bool {
    let [rest @ .., b'p' | b'P' | b'x' | b'u' | b'U'] = before else { return false };
    rest.iter().rev().take_while(|b| **b == b'\\').count() % 2 == 1
}

/// The names of all placeholders in a text.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let token = next_token(text, at, false)?;
        at = token.range.end;
        Some(token.name)
    })
}

/// The text with every placeholder replaced by a letter, to check the syntax around it.
pub fn blank(text: &str, regex: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(token) = next_token(text, at, regex) {
        out.push_str(&text[at..token.range.start]);
        out.push('x');
        at = token.range.end;
    }
    out.push_str(&text[at..]);
    out
}

/// What is wrong with a placeholder.
#[derive(Clone, PartialEq, Debug)]
pub struct TemplateError {
    /// The placeholder as written.
    pub token: String,
    /// What is wrong with it.
    pub message: String,
    /// The name in it is unknown.
    pub unknown: Option<String>,
}

/// How values are put in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quoting {
    /// As they are.
    Plain,
    /// So that a regular expression takes them literally.
    Regex,
}

/// A text, cut at its placeholders, ready to be filled in many times.
#[derive(Clone, Debug)]
pub struct Template {
    segments: Vec<Segment>,
    quoting: Quoting,
    length: usize,
}

#[derive(Clone, Debug)]
enum Segment {
    Text(String),
    Value(usize, Option<NumberFormat>),
}

impl Template {
    /// Cuts a text at the placeholders of these parameters.
    pub fn parse(text: &str, parameters: &[&str], quoting: Quoting) -> Result<Self, TemplateError> {
        let mut segments = Vec::new();
        let mut literal = String::new();
        let mut at = 0;
        while let Some(token) = next_token(text, at, quoting == Quoting::Regex) {
            let written = &text[token.range.clone()];
            let Some(index) = parameters.iter().position(|name| *name == token.name) else {
                let format_like =
                    token.format.is_none_or(|format| NumberFormat::parse(format).is_some());
                if token.doubled {
                    // `{{name}}`: the outer pair is dropped, the inner one is text.
                    literal.push_str(&text[at..token.range.start - 1]);
                    literal.push_str(written);
                    at = token.range.end + 1;
                } else if format_like {
                    let message = format!("nothing is called `{}` here", token.name);
                    return Err(TemplateError {
                        token: written.into(),
                        message,
                        unknown: Some(token.name.into()),
                    });
                } else {
                    literal.push_str(&text[at..token.range.end]);
                    at = token.range.end;
                }
                continue;
            };
            let format = match token.format.map(|format| (format, NumberFormat::parse(format))) {
                None => None,
                Some((_, Some(format))) => Some(format),
                Some((format, None)) => {
                    let message = format!(
                        "`{format}` is not a number format; write it like `03d`, `.2f` or `.1e`"
                    );
                    return Err(TemplateError { token: written.into(), message, unknown: None });
                }
            };
            literal.push_str(&text[at..token.range.start]);
            if !literal.is_empty() {
                segments.push(Segment::Text(std::mem::take(&mut literal)));
            }
            segments.push(Segment::Value(index, format));
            at = token.range.end;
        }
        literal.push_str(&text[at..]);
        if !literal.is_empty() {
            segments.push(Segment::Text(literal));
        }
        Ok(Self { segments, quoting, length: text.len() })
    }

    /// Which parameters it uses.
    pub fn uses(&self) -> impl Iterator<Item = usize> + '_ {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Text(_) => None,
            Segment::Value(index, _) => Some(*index),
        })
    }

    /// It is the same for all values.
    pub fn is_constant(&self) -> bool {
        self.uses().next().is_none()
    }

    /// Fills in one set of values, by position.
    pub fn fill(&self, values: &[&Value]) -> Result<String, String> {
        let mut out = String::with_capacity(self.length);
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => out.push_str(text),
                Segment::Value(index, format) => {
                    let text = match format {
                        Some(format) => format.apply(values[*index])?,
                        None => display(values[*index]),
                    };
                    match self.quoting {
                        Quoting::Plain => out.push_str(&text),
                        Quoting::Regex => out.push_str(&regex::escape(&text)),
                    }
                }
            }
        }
        Ok(out)
    }
}

/// A value as it appears in names and commands.
pub fn display(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (None, Some(float)) if number.is_f64() => float.to_string(),
            _ => number.to_string(),
        },
        other => other.to_string(),
    }
}

/// `[0][width]d`, `[0][width][.precision]f` or `[.precision]e`.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NumberFormat {
    zero: bool,
    width: usize,
    precision: Option<usize>,
    kind: char,
}

impl NumberFormat {
    fn parse(text: &str) -> Option<Self> {
        let kind = text.chars().last().filter(|c| matches!(c, 'd' | 'f' | 'e'))?;
        let body = &text[..text.len() - 1];
        let (width, precision) = match body.split_once('.') {
            Some((width, precision)) => (width, Some(precision.parse().ok().filter(|p| *p <= 30)?)),
            None => (body, None),
        };
        let zero = width.starts_with('0');
        let width = if width.is_empty() { 0 } else { width.parse().ok().filter(|w| *w <= 100)? };
        (kind != 'd' || precision.is_none()).then_some(Self { zero, width, precision, kind })
    }

    fn apply(&self, value: &Value) -> Result<String, String> {
        let number = match value {
            Value::Number(number) => Some(number.clone()),
            Value::String(text) => {
                serde_json::from_str::<serde_json::Number>(text.trim_start_matches(['+', '0'])).ok()
            }
            _ => None,
        };
        let not_a_number =
            || format!("`{}` is not a number, so a number format does not fit it", display(value));
        let float = number.as_ref().and_then(serde_json::Number::as_f64);
        let float = float
            .or_else(|| value.as_str()?.parse().ok().filter(|f: &f64| f.is_finite()))
            .ok_or_else(not_a_number)?;
        let text = match self.kind {
            'd' => {
                let whole = number.as_ref().and_then(serde_json::Number::as_i64);
                let whole = whole.or_else(|| {
                    (float.fract() == 0.0 && float.abs() < 9e15).then_some(float as i64)
                });
                whole
                    .ok_or_else(|| {
                        format!(
                            "`{}` is not a whole number, so `d` does not fit it",
                            display(value)
                        )
                    })?
                    .to_string()
            }
            'f' => format!("{float:.*}", self.precision.unwrap_or(6)),
            _ => format!("{float:.*e}", self.precision.unwrap_or(6)),
        };
        Ok(self.pad(text))
    }

    fn pad(&self, text: String) -> String {
        let missing = self.width.saturating_sub(text.chars().count());
        if missing == 0 {
            return text;
        }
        match (self.zero, text.strip_prefix('-')) {
            (true, Some(digits)) => format!("-{}{digits}", "0".repeat(missing)),
            (true, None) => format!("{}{text}", "0".repeat(missing)),
            (false, _) => format!("{}{text}", " ".repeat(missing)),
        }
    }
}

/// Puts constants into a text; every other brace stays as it is.
pub fn substitute(text: &str, constants: &[(&str, &str)]) -> Result<String, TemplateError> {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    let mut from = 0;
    while let Some(token) = next_token(text, from, false) {
        from = token.range.end;
        let Some((_, value)) = constants.iter().find(|(name, _)| *name == token.name) else {
            continue;
        };
        out.push_str(&text[at..token.range.start]);
        at = token.range.end;
        match token.format {
            None => out.push_str(value),
            Some(format) => {
                let fail = |message: String| TemplateError {
                    token: text[token.range.clone()].into(),
                    message,
                    unknown: None,
                };
                let parsed = NumberFormat::parse(format).ok_or_else(|| {
                    fail(format!(
                        "`{format}` is not a number format; write it like `03d`, `.2f` or `.1e`"
                    ))
                })?;
                out.push_str(&parsed.apply(&Value::from(*value)).map_err(fail)?);
            }
        }
    }
    out.push_str(&text[at..]);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fill(text: &str, parameters: &[(&str, Value)]) -> String {
        let names: Vec<&str> = parameters.iter().map(|(name, _)| *name).collect();
        let values: Vec<&Value> = parameters.iter().map(|(_, value)| value).collect();
        Template::parse(text, &names, Quoting::Plain).unwrap().fill(&values).unwrap()
    }

    #[test]
    fn several_formats_of_one_parameter_in_one_text() {
        assert_eq!(fill("job_{i:03d} --n {i} {i:.1f}", &[("i", json!(7))]), "job_007 --n 7 7.0");
        assert_eq!(fill("{x:.2f} {x} {x:.1e}", &[("x", json!(0.25))]), "0.25 0.25 2.5e-1");
        assert_eq!(fill("{x}", &[("x", json!(1.0))]), "1");
        assert_eq!(fill("{x:03d}", &[("x", json!("007"))]), "007");
        assert_eq!(fill("{x:04d}", &[("x", json!(-7))]), "-007");
    }

    #[test]
    fn other_braces_are_text() {
        let text =
            "awk '{print $1}' {} ${x} ${x:-1} {a,b} {1..3} '{\"k\": 1}' {{.Name}} {{word}} {k:v}";
        assert_eq!(fill(text, &[]), text.replace("{{word}}", "{word}"));
        assert_eq!(
            fill("${files.input.part_{i}} {{i}}", &[("i", json!(2))]),
            "${files.input.part_2} {2}"
        );
        let error = Template::parse("echo {oops}", &["i"], Quoting::Plain).unwrap_err();
        assert_eq!((error.token.as_str(), error.unknown.as_deref()), ("{oops}", Some("oops")));
    }

    #[test]
    fn values_in_a_regex_are_literal() {
        let template = Template::parse(r"^t_{k}\p{L}{2}$", &["k"], Quoting::Regex).unwrap();
        assert_eq!(template.fill(&[&json!("a.b")]).unwrap(), r"^t_a\.b\p{L}{2}$");
    }

    #[test]
    fn formats_refuse_what_does_not_fit() {
        let template = Template::parse("{k:03d}", &["k"], Quoting::Plain).unwrap();
        assert!(template.fill(&[&json!("a")]).is_err());
        assert!(template.fill(&[&json!(1.5)]).is_err());
        assert!(Template::parse("{k:zz}", &["k"], Quoting::Plain).is_err());
    }
}
