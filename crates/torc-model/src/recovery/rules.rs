//! What is known about failures, as data: the files under `rules/`, and rules that users add.
//!
//! A rule names where its words must stand: in the class of an exception, in the message of the
//! error that ended the program, or in the exit code of a program whose codes have a meaning. It
//! says what happened ([`Kind`]) and what helps ([`Nature`]), where that is written down, and
//! brings examples, which are tests.

use super::kind::Kind;
use super::nature::Nature;
use super::text::{Excerpt, Stream, terminal_error};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

/// A rule as `build.rs` writes it.
struct RuleText {
    id: &'static str,
    kind: &'static str,
    nature: &'static str,
    sure: f64,
    first: bool,
    generic: bool,
    source: &'static str,
    exits: &'static [i64],
    says: &'static [&'static str],
    codes: &'static [&'static str],
    classes: &'static [&'static str],
    programs: &'static [&'static str],
    examples: &'static [&'static str],
    unlike: &'static [&'static str],
}

static BUILT_IN: &[RuleText] = include!(concat!(env!("OUT_DIR"), "/rules.rs"));

/// A rule as people write it, in a file of a site or in a spec.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// Its name.
    pub rule: String,
    /// What happened.
    pub kind: Kind,
    /// What helps.
    pub nature: Nature,
    /// How sure that is, 0..1.
    #[serde(default = "default_sure")]
    pub sure: f64,
    /// It outranks every rule that does not say so, however long their phrases are.
    #[serde(default)]
    pub first: bool,
    /// The class says nothing by itself: the message decides.
    #[serde(default)]
    pub generic: bool,
    /// Phrases of the message. See `Phrase`.
    #[serde(default)]
    pub says: Vec<String>,
    /// What `@` stands for.
    #[serde(default)]
    pub codes: Vec<String>,
    /// Classes of exceptions.
    #[serde(default)]
    pub classes: Vec<String>,
    /// Programs whose exit codes are meant; none: every program's.
    #[serde(default)]
    pub programs: Vec<String>,
    /// Exit codes.
    #[serde(default)]
    pub exits: Vec<i64>,
    /// Where that is written down.
    #[serde(default)]
    pub source: String,
    /// Texts that this rule must decide.
    #[serde(default)]
    pub examples: Vec<String>,
    /// Texts that it must not decide.
    #[serde(default)]
    pub unlike: Vec<String>,
}

const fn default_sure() -> f64 {
    0.9
}

/// A rule, ready to be used.
#[derive(Clone, Debug)]
pub struct Rule {
    /// `file.name`.
    pub id: String,
    /// What happened.
    pub kind: Kind,
    /// What helps.
    pub nature: Nature,
    /// How sure that is.
    pub sure: f64,
    /// Where that is written down.
    pub source: String,
    /// Texts that this rule must decide.
    pub examples: Vec<String>,
    /// Texts that it must not decide.
    pub unlike: Vec<String>,
    first: bool,
    generic: bool,
    phrases: Vec<Phrase>,
    codes: Vec<String>,
    classes: Vec<String>,
    programs: Vec<String>,
    exits: Vec<i64>,
}

impl Rule {
    /// It outranks every rule that does not say so.
    pub fn is_first(&self) -> bool {
        self.first
    }

    /// The class lets the message decide.
    pub fn is_generic(&self) -> bool {
        self.generic
    }
}

/// All rules that are in force: some of their own, and those behind them.
#[derive(Clone, Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    by_class: HashMap<String, usize>,
    phrases: PhraseIndex,
    /// What decides where these do not speak.
    behind: Option<&'static Rules>,
}

/// Reads the rules of this site, when rules are first needed.
static SITE: OnceLock<fn() -> Vec<RuleSpec>> = OnceLock::new();

static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let rule = |text: &RuleText| {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        RuleSpec {
            rule: text.id.into(),
            kind: Kind::parse(text.kind).unwrap_or(Kind::Unknown),
            nature: Nature::parse(text.nature).unwrap_or(Nature::Unclear),
            sure: text.sure,
            first: text.first,
            generic: text.generic,
            says: owned(text.says),
            codes: owned(text.codes),
            classes: owned(text.classes),
            programs: owned(text.programs),
            exits: text.exits.to_vec(),
            source: text.source.into(),
            examples: owned(text.examples),
            unlike: owned(text.unlike),
        }
    };
    Rules::new(BUILT_IN.iter().map(rule).map(Rule::from).collect())
});

/// With the rules of the site before those that come with the program.
static IN_FORCE: LazyLock<Rules> = LazyLock::new(|| {
    let site = SITE.get().map(|read| read()).unwrap_or_default();
    Rules::before(site, "site", &RULES)
});

impl From<RuleSpec> for Rule {
    fn from(spec: RuleSpec) -> Self {
        let lower = |list: Vec<String>| list.iter().map(|c| c.to_ascii_lowercase()).collect();
        Self {
            id: spec.rule,
            kind: spec.kind,
            nature: spec.nature,
            sure: spec.sure.clamp(0.0, 1.0),
            source: spec.source,
            examples: spec.examples,
            unlike: spec.unlike,
            first: spec.first,
            generic: spec.generic,
            phrases: spec.says.iter().map(|text| Phrase::new(text)).collect(),
            codes: lower(spec.codes),
            classes: spec.classes,
            programs: lower(spec.programs),
            exits: spec.exits,
        }
    }
}

impl Rules {
    /// The rules that come with the program.
    pub fn built_in() -> &'static Self {
        &RULES
    }

    /// The rules that hold where a workflow has none of its own: those of the site, then those that
    /// come with the program.
    pub fn in_force() -> &'static Self {
        &IN_FORCE
    }

    /// Says how the rules of this site are read, before rules are first needed.
    pub fn read_site_with(read: fn() -> Vec<RuleSpec>) {
        // Who comes second finds the same file.
        let _ = SITE.set(read);
    }

    /// Rules of a workflow, before those of the site.
    pub fn of_workflow(own: Vec<RuleSpec>) -> Self {
        Self::before(own, "own", &IN_FORCE)
    }

    /// These rules before others. Their names begin with where they come from.
    fn before(own: Vec<RuleSpec>, from: &str, behind: &'static Self) -> Self {
        let named = |spec: RuleSpec| RuleSpec { rule: format!("{from}.{}", spec.rule), ..spec };
        let rules = own.into_iter().map(named).map(Rule::from).collect();
        Self { behind: Some(behind), ..Self::new(rules) }
    }

    /// These rules, earlier ones first where two name the same class.
    pub fn new(rules: Vec<Rule>) -> Self {
        let mut by_class = HashMap::new();
        for (at, rule) in rules.iter().enumerate() {
            for class in &rule.classes {
                by_class.entry(class.clone()).or_insert(at);
            }
        }
        Self { phrases: PhraseIndex::new(&rules), rules, by_class, behind: None }
    }

    /// Every rule but those behind them.
    pub fn all(&self) -> &[Rule] {
        &self.rules
    }

    /// Every rule, those that win first.
    pub fn everything(&self) -> Vec<&Rule> {
        let behind = self.behind.map(Self::everything).unwrap_or_default();
        self.rules.iter().chain(behind).collect()
    }

    /// What is wrong with rules by their own examples, one sentence each. Rules behind them are not
    /// looked at.
    pub fn problems(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let decided = |text: &str| {
            let excerpt = Excerpt { stream: Stream::Stderr, start: 0, text: text.into() };
            terminal_error(self, &[excerpt])
        };
        for rule in &self.rules {
            for example in &rule.examples {
                let found = decided(example);
                let is_this = found.as_ref().is_some_and(|f| {
                    f.rule.as_deref() == Some(rule.id.as_str())
                        || (f.kind, f.nature) == (rule.kind, rule.nature)
                });
                if !is_this {
                    let instead = match found.as_ref().map(|f| (f.rule.as_deref(), f.kind)) {
                        Some((Some(other), _)) => format!("`{other}` decides"),
                        Some((None, kind)) => format!("no rule decides; it is taken for `{kind}`"),
                        None => "nothing is taken for an error".into(),
                    };
                    wrong.push(format!("{}: `{example}`: {instead}", rule.id));
                }
            }
            for other in &rule.unlike {
                if decided(other).and_then(|f| f.rule).as_deref() == Some(rule.id.as_str()) {
                    wrong.push(format!("{}: decides `{other}`, which it must not", rule.id));
                }
            }
            if rule.phrases.is_empty() && rule.classes.is_empty() && rule.exits.is_empty() {
                wrong.push(format!("{}: it has neither `says` nor `classes` nor `exits`", rule.id));
            }
            if rule.examples.is_empty() && rule.exits.is_empty() {
                wrong.push(format!("{}: it has no `examples`, so nothing tests it", rule.id));
            }
        }
        wrong
    }

    /// The rule for a class of exceptions: by its full name, else by the last part of it.
    pub fn by_class(&self, class: &str) -> Option<&Rule> {
        let last = class.rsplit(['.', '$', '/']).next().unwrap_or(class);
        let name = last.rsplit("::").next().unwrap_or(last);
        let own = [class, last, name].iter().find_map(|n| self.by_class.get(*n));
        own.map(|at| &self.rules[*at]).or_else(|| self.behind?.by_class(class))
    }

    /// The rule whose phrase fits best. The more of the text it explains the better; those that
    /// come first outrank all others.
    pub fn by_message(&self, message: &str) -> Option<&Rule> {
        let text = normalized(message);
        let mut best: Option<(usize, At)> = None;
        self.phrases.visit(&text, |at, start| {
            let rule = &self.rules[at.0 as usize];
            let phrase = &rule.phrases[at.1 as usize];
            let Some(weight) = phrase.find(&text, start, &rule.codes) else { return };
            let weight = weight + if rule.first { 1000 } else { 0 };
            // Of two that explain as much, the earlier rule.
            if best.is_none_or(|(most, of)| weight > most || weight == most && at < of) {
                best = Some((weight, at));
            }
        });
        let best = best.map(|(_, at)| &self.rules[at.0 as usize]);
        best.or_else(|| self.behind?.by_message(message))
    }

    /// The rule for the exit code of a program.
    pub fn by_exit(&self, program: &str, code: i64) -> Option<&Rule> {
        let program = program.to_ascii_lowercase();
        let fits = |rule: &&Rule| rule.exits.contains(&code);
        let own = |rule: &&Rule| rule.programs.contains(&program);
        let of_program = self.rules.iter().filter(fits).find(own);
        let own =
            of_program.or_else(|| self.rules.iter().filter(fits).find(|r| r.programs.is_empty()));
        own.or_else(|| self.behind?.by_exit(&program, code))
    }
}

/// Rule and phrase.
type At = (u32, u32);

/// Finds the phrases that may stand in a text without trying all of them: by the first three bytes
/// of their words.
#[derive(Clone, Debug)]
struct PhraseIndex {
    by_start: HashMap<[u8; 3], Vec<At>>,
    /// Those that begin with something else, or with fewer bytes.
    others: Vec<At>,
}

impl PhraseIndex {
    fn new(rules: &[Rule]) -> Self {
        let mut index = Self { by_start: HashMap::new(), others: Vec::new() };
        for (rule, number) in rules.iter().zip(0u32..) {
            for (phrase, at) in rule.phrases.iter().zip(0u32..) {
                let start = match phrase.tokens.first() {
                    Some(Token::Words(words)) => words.as_bytes().first_chunk::<3>(),
                    _ => None,
                };
                match start {
                    Some(start) => index.by_start.entry(*start).or_default().push((number, at)),
                    None => index.others.push((number, at)),
                }
            }
        }
        index
    }

    /// Calls with every phrase that may fit, and where; without a place it may be anywhere.
    fn visit(&self, text: &str, mut may_fit: impl FnMut(At, Option<usize>)) {
        for (start, bytes) in text.as_bytes().windows(3).enumerate() {
            let key = [bytes[0], bytes[1], bytes[2]];
            for at in self.by_start.get(&key).into_iter().flatten() {
                may_fit(*at, Some(start));
            }
        }
        for at in &self.others {
            may_fit(*at, None);
        }
    }
}

/// Lower case, one blank between words.
fn normalized(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut blank = false;
    for c in text.chars() {
        if c.is_whitespace() {
            blank = true;
            continue;
        }
        if blank && !out.is_empty() {
            out.push(' ');
        }
        blank = false;
        out.push(c.to_ascii_lowercase());
    }
    if blank {
        out.push(' ');
    }
    out
}

#[derive(Clone, PartialEq, Debug)]
enum Token {
    Words(String),
    Anything,
    Number,
    Code,
}

/// Words that must stand in a message. Upper and lower case are the same, and so are one blank and
/// several. `*` stands for anything, `#` for a number, `@` for one of the rule's codes; `^` and `$`
/// are the beginning and the end of the message. Where a phrase begins or ends with a letter or a
/// digit, so does the word in the message.
#[derive(Clone, PartialEq, Debug)]
pub struct Phrase {
    tokens: Vec<Token>,
    at_start: bool,
    at_end: bool,
}

/// `*` bridges no more than this.
const LONGEST_GAP: usize = 160;

impl Phrase {
    /// Reads a phrase.
    pub fn new(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        let (at_start, text) = match text.strip_prefix('^') {
            Some(rest) => (true, rest.to_owned()),
            None => (false, text),
        };
        let (at_end, text) = match text.strip_suffix('$') {
            Some(rest) => (true, rest.to_owned()),
            None => (false, text),
        };
        let mut tokens = Vec::new();
        let mut words = String::new();
        for c in text.chars() {
            let token = match c {
                '*' => Token::Anything,
                '#' => Token::Number,
                '@' => Token::Code,
                _ => {
                    words.push(c);
                    continue;
                }
            };
            if !words.is_empty() {
                tokens.push(Token::Words(std::mem::take(&mut words)));
            }
            tokens.push(token);
        }
        if !words.is_empty() {
            tokens.push(Token::Words(words));
        }
        Self { tokens, at_start, at_end }
    }

    /// How much of a normalized text it explains when it begins at a place, or anywhere; `None`
    /// when it does not fit.
    fn find(&self, text: &str, at: Option<usize>, codes: &[String]) -> Option<usize> {
        let fits = |start: usize| {
            (start == 0 || !self.at_start)
                && starts_word(text, start, self.tokens.first())
                && rest(&self.tokens, text, start, codes)
                    .filter(|end| ends_word(text, *end, self.tokens.last()))
                    .is_some_and(|end| !self.at_end || text[end..].trim_end().is_empty())
        };
        let found = match (at, self.tokens.first()) {
            (Some(start), _) => fits(start),
            (None, _) if self.at_start => fits(0),
            (None, Some(Token::Words(words))) => {
                text.match_indices(words.as_str()).any(|(start, _)| fits(start))
            }
            (None, _) => {
                let starts = text.char_indices().filter(|(_, c)| c.is_ascii_alphanumeric());
                starts.into_iter().any(|(start, _)| fits(start))
            }
        };
        found.then(|| {
            let weight = |token: &Token| match token {
                Token::Words(words) => words.len(),
                Token::Code => 6,
                Token::Number => 1,
                Token::Anything => 0,
            };
            self.tokens.iter().map(weight).sum::<usize>()
        })
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn starts_word(text: &str, at: usize, first: Option<&Token>) -> bool {
    let begins = match first {
        Some(Token::Words(words)) => words.bytes().next().is_some_and(is_word),
        Some(Token::Code | Token::Number) => true,
        Some(Token::Anything) | None => false,
    };
    !begins || at == 0 || !is_word(text.as_bytes()[at - 1])
}

fn ends_word(text: &str, at: usize, last: Option<&Token>) -> bool {
    let ends = match last {
        Some(Token::Words(words)) => words.bytes().last().is_some_and(is_word),
        Some(Token::Code | Token::Number) => true,
        Some(Token::Anything) | None => false,
    };
    !ends || at >= text.len() || !is_word(text.as_bytes()[at])
}

/// Where the match of these tokens ends that begins here.
fn rest(tokens: &[Token], text: &str, at: usize, codes: &[String]) -> Option<usize> {
    let Some((token, more)) = tokens.split_first() else { return Some(at) };
    match token {
        Token::Words(words) => {
            text[at..].starts_with(words.as_str()).then_some(())?;
            rest(more, text, at + words.len(), codes)
        }
        Token::Number => {
            let digits = text[at..].bytes().take_while(u8::is_ascii_digit).count();
            (digits > 0).then_some(())?;
            rest(more, text, at + digits, codes)
        }
        Token::Code => {
            let length = text[at..].bytes().take_while(|b| is_word(*b)).count();
            codes.iter().any(|code| *code == text[at..at + length]).then_some(())?;
            rest(more, text, at + length, codes)
        }
        Token::Anything => {
            let gap = text[at..].char_indices().map(|(i, _)| i).chain([text.len() - at]);
            gap.take_while(|i| *i <= LONGEST_GAP).find_map(|i| rest(more, text, at + i, codes))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(phrase: &str, text: &str, codes: &[&str]) -> bool {
        let codes: Vec<String> = codes.iter().map(|c| (*c).to_owned()).collect();
        Phrase::new(phrase).find(&normalized(text), None, &codes).is_some()
    }

    #[test]
    fn a_phrase_stands_as_whole_words() {
        assert!(fits(
            "connection  refused".replace("  ", " ").as_str(),
            "Connection   Refused.",
            &[]
        ));
        assert!(!fits("oom", "the room is full", &[]));
        assert!(!fits("timeout", "option timeout_ms ignored", &[]));
        assert!(fits("not found$", "sh: 1: foo: not found", &[]));
        assert!(!fits("not found$", "not found in cache, computing", &[]));
        assert!(fits("^421 ", "421 Service not available", &[]));
        assert!(!fits("^421 ", "line 421 is odd", &[]));
    }

    #[test]
    fn gaps_numbers_and_codes_are_understood() {
        assert!(fits("relation * does not exist", "ERROR:  relation \"a\" does not exist", &[]));
        assert!(fits("retry after # s", "retry after 30 s", &[]));
        assert!(fits("status code @", "status code 503", &["503"]));
        assert!(!fits("status code @", "status code 5031", &["503"]));
        assert!(fits("@ server error", "got a 503 Server Error", &["503"]));
        assert!(!fits("@ server error", "got a 404 Server Error", &["503"]));
    }

    #[test]
    fn every_rule_names_known_words_and_its_source() {
        for text in BUILT_IN {
            assert!(Kind::parse(text.kind).is_some(), "{}: kind `{}`", text.id, text.kind);
            assert!(Nature::parse(text.nature).is_some(), "{}: nature `{}`", text.id, text.nature);
            assert!(!text.source.is_empty(), "{}", text.id);
            let tests = text.examples.len() + text.exits.len();
            assert!(tests > 0 || text.generic, "{}: neither examples nor exit codes", text.id);
        }
    }
}
