//! The filter language for jobs: one for the page, the command line and the API.
//!
//! ```text
//! train status:failed,canceled cause:oom node:n12 attempt>1 time>1h mem>90% name~_7$ -family:prep
//! ```
//!
//! Terms are separated by blanks and must all hold; `-` in front turns one around. A word alone is a
//! part of the name. A value with blanks is written in double quotes.

use crate::status::{Cause, JobStatus};
use crate::units::{Memory, Runtime};

/// A filter that was read. The terms hold all together.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Filter {
    /// The terms, as written.
    pub terms: Vec<Term>,
}

/// One condition.
#[derive(Clone, PartialEq, Debug)]
pub struct Term {
    /// Jobs for which it does not hold are meant.
    pub is_negated: bool,
    /// What must hold.
    pub test: FilterTest,
}

/// What a term asks of a job, or of its newest attempt.
#[derive(Clone, PartialEq, Debug)]
pub enum FilterTest {
    /// A part of the name.
    Contains(String),
    /// Exactly one of these names.
    Name(Vec<String>),
    /// A regular expression finds something in the name.
    Matches(String),
    /// One of these ids.
    Id(Vec<i64>),
    /// In one of these statuses.
    Status(Vec<JobStatus>),
    /// Of one of these families.
    Family(Vec<String>),
    /// The newest attempt ended for one of these causes.
    Cause(Vec<Cause>),
    /// The newest attempt is or was on a host with one of these names.
    Node(Vec<String>),
    /// Held back, or not.
    Held(bool),
    /// A number of the job or its newest attempt.
    Number(Number, Comparison, f64),
}

/// What can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Number {
    /// Number of the newest attempt.
    Attempt,
    /// The priority of the job.
    Priority,
    /// Return code of the newest attempt.
    Exit,
    /// How long the newest attempt took, in seconds.
    Seconds,
    /// Highest memory use of the newest attempt, in bytes.
    Memory,
    /// The same as a share of what it was given, in percent.
    MemoryPercent,
}

/// How two numbers are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// `>`
    Greater,
    /// `>=`
    AtLeast,
    /// `<`
    Less,
    /// `<=`
    AtMost,
    /// `:` or `=`
    Equal,
}

impl Comparison {
    /// As SQL and people write it.
    pub const fn sign(self) -> &'static str {
        match self {
            Self::Greater => ">",
            Self::AtLeast => ">=",
            Self::Less => "<",
            Self::AtMost => "<=",
            Self::Equal => "=",
        }
    }
}

/// What is wrong with a filter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FilterError {
    /// The term.
    pub term: String,
    /// What is wrong with it, and what is known instead.
    pub message: String,
}

impl std::fmt::Display for FilterError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`: {}", self.term, self.message)
    }
}

impl std::error::Error for FilterError {}

/// The fields, with how they are used, as help texts list them.
pub const FIELDS: [(&str, &str); 11] = [
    ("status", "status:failed,running; also `bad`, `open` and `live` for groups of them"),
    ("family", "family:train"),
    ("cause", "cause:oom"),
    ("node", "node:n12"),
    ("name", "name:train_7 exactly, name~_7$ by regular expression"),
    ("id", "id:17,18"),
    ("held", "held:yes"),
    ("attempt", "attempt>1"),
    ("exit", "exit:137"),
    ("time", "time>1h"),
    ("mem", "mem>90% of what it asked for, or mem>8g"),
];

/// Longest filter that is read.
const MAX_LENGTH: usize = 4096;

impl Filter {
    /// Reads a filter; empty text lets everything through.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        if text.len() > MAX_LENGTH {
            let message = format!("a filter may have {MAX_LENGTH} characters at most");
            return Err(FilterError { term: "...".into(), message });
        }
        let terms = split(text)?.iter().map(|term| Term::parse(term)).collect::<Result<_, _>>()?;
        Ok(Self { terms })
    }

    /// The statuses that its terms leave; all of them where no term names one.
    pub fn statuses(&self) -> Vec<JobStatus> {
        let leaves = |status: &JobStatus| {
            self.terms.iter().all(|term| match &term.test {
                FilterTest::Status(named) => named.contains(status) != term.is_negated,
                _ => true,
            })
        };
        JobStatus::ALL.iter().copied().filter(leaves).collect()
    }

    /// Whether the status decides alone which jobs it finds.
    pub fn is_by_status(&self) -> bool {
        self.terms.iter().all(|term| matches!(term.test, FilterTest::Status(_)))
    }

    /// Whether status and family decide alone which jobs it finds, so that counts of these are enough.
    pub fn is_by_family(&self) -> bool {
        let plain =
            |test: &FilterTest| matches!(test, FilterTest::Status(_) | FilterTest::Family(_));
        self.terms.iter().all(|term| plain(&term.test))
    }

    /// Whether its terms leave jobs of this family.
    pub fn leaves_family(&self, name: &str) -> bool {
        self.terms.iter().all(|term| match &term.test {
            FilterTest::Family(named) => named.iter().any(|one| one == name) != term.is_negated,
            _ => true,
        })
    }

    /// Whether the newest attempt of a job must be looked at.
    pub fn needs_attempt(&self) -> bool {
        self.terms.iter().any(|term| match &term.test {
            FilterTest::Cause(_) | FilterTest::Node(_) => true,
            FilterTest::Number(number, ..) => !matches!(number, Number::Attempt | Number::Priority),
            _ => false,
        })
    }
}

/// The terms as text; quotes may stand anywhere in a term.
fn split(text: &str) -> Result<Vec<String>, FilterError> {
    let (mut terms, mut term, mut is_quoted, mut is_open) =
        (Vec::new(), String::new(), false, false);
    for c in text.chars() {
        match c {
            '"' => {
                is_quoted = !is_quoted;
                is_open = true;
            }
            c if c.is_whitespace() && !is_quoted => {
                if is_open {
                    terms.push(std::mem::take(&mut term));
                }
                is_open = false;
            }
            c => {
                term.push(c);
                is_open = true;
            }
        }
    }
    if is_quoted {
        return Err(FilterError { term, message: "a quote is not closed".into() });
    }
    if is_open {
        terms.push(term);
    }
    Ok(terms)
}

impl Term {
    fn parse(text: &str) -> Result<Self, FilterError> {
        let (is_negated, rest) = match text.strip_prefix('-') {
            Some(rest) if !rest.is_empty() => (true, rest),
            _ => (false, text),
        };
        let fail = |message: String| FilterError { term: text.to_owned(), message };
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
        let (field, tail) = rest.split_at(end);
        let operators = [">=", "<=", ">", "<", ":", "=", "~"];
        let operator = operators.iter().find(|sign| tail.starts_with(**sign));
        let test = match operator {
            None => FilterTest::Contains(rest.to_owned()),
            Some(sign) => test(field, sign, &tail[sign.len()..]).map_err(fail)?,
        };
        Ok(Self { is_negated, test })
    }
}

fn test(field: &str, sign: &str, value: &str) -> Result<FilterTest, String> {
    let list = || value.split(',').map(str::trim).filter(|one| !one.is_empty());
    let words = || list().map(str::to_owned).collect::<Vec<_>>();
    let is_list = matches!(sign, ":" | "=");
    if value.is_empty() {
        return Err("there is no value behind it".into());
    }
    match (field, is_list) {
        ("name", true) => Ok(FilterTest::Name(words())),
        ("name", false) if sign == "~" => match regex::Regex::new(value) {
            Ok(_) => Ok(FilterTest::Matches(value.to_owned())),
            Err(error) => {
                let last = error.to_string();
                Err(last.lines().last().unwrap_or("not a regular expression").trim().to_owned())
            }
        },
        ("id", true) => {
            let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is not an id"));
            Ok(FilterTest::Id(list().map(number).collect::<Result<_, _>>()?))
        }
        ("status", true) => Ok(FilterTest::Status(statuses(list())?)),
        ("family", true) => Ok(FilterTest::Family(words())),
        ("cause", true) => {
            let cause = |text: &str| {
                Cause::parse(text).ok_or_else(|| {
                    let known: Vec<_> = Cause::ALL.iter().map(|cause| cause.as_str()).collect();
                    format!("unknown cause `{text}` (known: {})", known.join(", "))
                })
            };
            Ok(FilterTest::Cause(list().map(cause).collect::<Result<_, _>>()?))
        }
        ("node", true) => Ok(FilterTest::Node(words())),
        ("held", true) => match value {
            "yes" | "true" => Ok(FilterTest::Held(true)),
            "no" | "false" => Ok(FilterTest::Held(false)),
            _ => Err("it is `yes` or `no`".into()),
        },
        ("attempt" | "priority" | "exit" | "time" | "mem", _) if sign != "~" => {
            number(field, comparison(sign), value)
        }
        (known, _) if FIELDS.iter().any(|(name, _)| *name == known) => {
            let (_, usage) = FIELDS.iter().find(|(name, _)| *name == known).unwrap_or(&FIELDS[0]);
            Err(format!("`{known}` does not take `{sign}`; write {usage}"))
        }
        _ => {
            let known: Vec<_> = FIELDS.iter().map(|(name, _)| *name).collect();
            Err(format!("unknown field `{field}` (known: {}, priority)", known.join(", ")))
        }
    }
}

fn statuses<'a>(list: impl Iterator<Item = &'a str>) -> Result<Vec<JobStatus>, String> {
    let mut found = Vec::new();
    for text in list {
        match text {
            "bad" => found.extend([
                JobStatus::Failed,
                JobStatus::Terminated,
                JobStatus::PendingFailed,
                JobStatus::Canceled,
            ]),
            "open" => found.extend(JobStatus::ALL.iter().filter(|status| !status.is_final())),
            "live" => found.extend([JobStatus::Pending, JobStatus::Running]),
            _ => found.push(JobStatus::parse(text).ok_or_else(|| {
                let known: Vec<_> = JobStatus::ALL.iter().map(|status| status.as_str()).collect();
                format!("unknown status `{text}` (known: {}, bad, open, live)", known.join(", "))
            })?),
        }
    }
    Ok(found)
}

fn comparison(sign: &str) -> Comparison {
    match sign {
        ">" => Comparison::Greater,
        ">=" => Comparison::AtLeast,
        "<" => Comparison::Less,
        "<=" => Comparison::AtMost,
        _ => Comparison::Equal,
    }
}

fn number(field: &str, comparison: Comparison, value: &str) -> Result<FilterTest, String> {
    let plain = || value.parse::<i64>().map_err(|_| format!("`{value}` is not a whole number"));
    let (number, value) = match field {
        "attempt" => (Number::Attempt, plain()? as f64),
        "priority" => (Number::Priority, plain()? as f64),
        "exit" => (Number::Exit, plain()? as f64),
        "time" => {
            let seconds = match value.parse::<f64>() {
                Ok(seconds) if seconds.is_finite() => seconds,
                _ => Runtime::parse(value).map_err(|e| e.to_string())?.0 as f64,
            };
            (Number::Seconds, seconds)
        }
        _ => match value.strip_suffix('%') {
            Some(share) => {
                let share: f64 =
                    share.parse().map_err(|_| format!("`{share}` is not a number of percent"))?;
                (Number::MemoryPercent, share)
            }
            None => (Number::Memory, Memory::parse(value).map_err(|e| e.to_string())?.0 as f64),
        },
    };
    Ok(FilterTest::Number(number, comparison, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tests(text: &str) -> Vec<FilterTest> {
        Filter::parse(text).unwrap().terms.into_iter().map(|term| term.test).collect()
    }

    #[test]
    fn every_kind_of_term_is_read() {
        let text = r#"train status:failed,canceled cause:oom node:n12 attempt>1 time>1h mem>90% mem<=8g exit:137 name~_7$ name:"a b" id:3,4 held:no"#;
        assert_eq!(
            tests(text),
            [
                FilterTest::Contains("train".into()),
                FilterTest::Status(vec![JobStatus::Failed, JobStatus::Canceled]),
                FilterTest::Cause(vec![Cause::Oom]),
                FilterTest::Node(vec!["n12".into()]),
                FilterTest::Number(Number::Attempt, Comparison::Greater, 1.0),
                FilterTest::Number(Number::Seconds, Comparison::Greater, 3600.0),
                FilterTest::Number(Number::MemoryPercent, Comparison::Greater, 90.0),
                FilterTest::Number(Number::Memory, Comparison::AtMost, f64::from(1u32 << 30) * 8.0),
                FilterTest::Number(Number::Exit, Comparison::Equal, 137.0),
                FilterTest::Matches("_7$".into()),
                FilterTest::Name(vec!["a b".into()]),
                FilterTest::Id(vec![3, 4]),
                FilterTest::Held(false),
            ]
        );
    }

    #[test]
    fn a_dash_turns_a_term_around_and_blanks_mean_nothing() {
        let filter = Filter::parse("  -family:prep   -x ").unwrap();
        assert!(filter.terms.iter().all(|term| term.is_negated));
        assert_eq!(filter.terms[1].test, FilterTest::Contains("x".into()));
        assert_eq!(Filter::parse(" ").unwrap(), Filter::default());
        assert!(!filter.needs_attempt());
        assert!(Filter::parse("mem>1%").unwrap().needs_attempt());
    }

    #[test]
    fn what_status_and_family_decide_is_known_without_the_jobs() {
        let filter = Filter::parse("-status:completed status:bad,ready -family:prep").unwrap();
        assert_eq!(
            filter.statuses(),
            [
                JobStatus::Ready,
                JobStatus::Failed,
                JobStatus::Canceled,
                JobStatus::Terminated,
                JobStatus::PendingFailed
            ]
        );
        assert!(filter.is_by_family() && filter.leaves_family("train"));
        assert!(!filter.is_by_status() && Filter::parse("-status:bad").unwrap().is_by_status());
        assert!(!filter.leaves_family("prep"));
        assert!(Filter::parse("status:ready status:failed").unwrap().statuses().is_empty());
        assert!(!Filter::parse("status:failed train").unwrap().is_by_family());
        assert_eq!(Filter::default().statuses(), JobStatus::ALL);
    }

    #[test]
    fn names_with_signs_in_them_can_be_looked_for() {
        assert_eq!(
            tests("map/a-b.c 7:x"),
            [FilterTest::Contains("map/a-b.c".into()), FilterTest::Contains("7:x".into())]
        );
    }

    #[test]
    fn mistakes_are_told_with_what_is_known() {
        let say = |text: &str| Filter::parse(text).unwrap_err().to_string();
        assert!(
            say("status:faild")
                .starts_with("`status:faild`: unknown status `faild` (known: uninit")
        );
        assert!(say("stauts:failed").contains("unknown field `stauts` (known: status, family,"));
        assert!(say("name~(").contains("unclosed group"));
        assert!(say("mem>lots").contains("lots"));
        assert!(say("status>failed").contains("does not take `>`"));
        assert!(say("cause:").contains("no value"));
        assert!(say("\"abc").contains("not closed"));
    }
}
