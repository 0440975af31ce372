//! Failure handlers: which rule matches a failure, and whether it still has a retry to give.

use regex::{Regex, RegexBuilder};
use std::fmt;
use torc_model::plan::{Backoff, Rule};
use torc_model::recovery::Diagnosis;
use torc_model::signal;
use torc_model::status::Cause;

/// What is known about a failed attempt.
#[derive(Clone, PartialEq, Debug)]
pub struct Failure<'a> {
    /// Return code.
    pub return_code: i64,
    /// Signal that ended it.
    pub signal: Option<i64>,
    /// Cause.
    pub cause: Cause,
    /// What happened, where a rule asks for that.
    pub diagnosis: Option<&'a Diagnosis>,
    /// End of standard error.
    pub stderr_tail: &'a str,
    /// It was the recovery script that failed; the command did not run.
    pub is_script: bool,
}

/// A handler with its regexes compiled and its signals as numbers.
#[derive(Clone, Debug)]
pub struct CompiledHandler {
    /// Its name.
    pub name: String,
    rules: Vec<CompiledRule>,
}

#[derive(Clone, Debug)]
struct CompiledRule {
    rule: Rule,
    signals: Vec<i64>,
    stderr: Vec<Regex>,
}

/// Why a rule cannot be accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleError {
    /// Number of the rule, from 0.
    pub rule: usize,
    /// The field that is wrong.
    pub field: &'static str,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}: `{}`: {}", self.rule + 1, self.field, self.message)
    }
}

/// What a handler says about a failure.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Verdict<'a> {
    /// Nothing.
    NoMatchingRule,
    /// This rule applies.
    Rule(usize, &'a Rule),
}

/// The compiled size of one regex is bounded: specs come from other people.
const REGEX_LIMIT: usize = 1 << 20;

impl CompiledHandler {
    /// Checks and compiles a list of rules.
    pub fn new(name: &str, rules: &[Rule]) -> Result<Self, RuleError> {
        if rules.is_empty() {
            return Err(RuleError {
                rule: 0,
                field: "rules",
                message: "a failure handler needs at least one rule".into(),
            });
        }
        let rules =
            rules.iter().enumerate().map(|(i, rule)| compile(i, rule)).collect::<Result<_, _>>()?;
        Ok(Self { name: name.to_owned(), rules })
    }

    /// One of its rules names failures by what the diagnosis calls them.
    pub fn needs_diagnosis(&self) -> bool {
        self.rules.iter().flat_map(|r| &r.rule.causes).any(|name| name.needs_diagnosis())
    }

    /// The rule that matches this failure. One that names it precisely wins over a catch-all,
    /// whatever the order; among equals the first.
    pub fn verdict(&self, failure: &Failure<'_>) -> Verdict<'_> {
        let precise = self.rules.iter().position(|r| r.is_precise() && r.matches(failure));
        let catch_all =
            || self.rules.iter().position(|r| r.rule.match_all_exit_codes && r.matches(failure));
        match precise.or_else(catch_all) {
            Some(i) => Verdict::Rule(i, &self.rules[i].rule),
            None => Verdict::NoMatchingRule,
        }
    }

    /// The rule that names this failure precisely.
    pub fn precise_verdict(&self, failure: &Failure<'_>) -> Verdict<'_> {
        match self.rules.iter().position(|r| r.is_precise() && r.matches(failure)) {
            Some(i) => Verdict::Rule(i, &self.rules[i].rule),
            None => Verdict::NoMatchingRule,
        }
    }
}

impl CompiledRule {
    /// Names codes, signals or causes (a text alone narrows a catch-all, which makes it precise
    /// too).
    fn is_precise(&self) -> bool {
        self.names_failure() || !self.stderr.is_empty()
    }

    fn names_failure(&self) -> bool {
        !self.rule.exit_codes.is_empty() || !self.signals.is_empty() || !self.rule.causes.is_empty()
    }

    /// Any of its codes, signals or causes, and any of its texts if it has some.
    fn matches(&self, failure: &Failure<'_>) -> bool {
        let named = self.rule.exit_codes.iter().any(|c| i64::from(*c) == failure.return_code)
            || failure.signal.is_some_and(|s| self.signals.contains(&s))
            || self.rule.causes.iter().any(|name| name.fits(failure.cause, failure.diagnosis));
        let by_name = named || self.rule.match_all_exit_codes || !self.names_failure();
        by_name
            && (self.stderr.is_empty()
                || self.stderr.iter().any(|r| r.is_match(failure.stderr_tail)))
    }
}

fn compile(index: usize, rule: &Rule) -> Result<CompiledRule, RuleError> {
    let error = |field, message: String| RuleError { rule: index, field, message };
    let empty = rule.exit_codes.is_empty()
        && rule.signals.is_empty()
        && rule.causes.is_empty()
        && rule.stderr_matches.is_empty()
        && !rule.match_all_exit_codes;
    if empty {
        let message = "the rule matches nothing; give it `exit_codes`, `signals`, `causes`, `stderr_matches` or \
                       `match_all_exit_codes`";
        return Err(error("exit_codes", message.into()));
    }
    let signals = rule
        .signals
        .iter()
        .map(|s| {
            signal::number(s).ok_or_else(|| error("signals", format!("`{s}` is not a signal")))
        })
        .collect::<Result<_, _>>()?;
    let stderr = rule
        .stderr_matches
        .iter()
        .map(|text| {
            let built = RegexBuilder::new(text).multi_line(true).size_limit(REGEX_LIMIT).build();
            built.map_err(|e| {
                error("stderr_matches", format!("`{text}` is not a regular expression: {e}"))
            })
        })
        .collect::<Result<_, _>>()?;
    if let Some(backoff) = &rule.backoff {
        check_backoff(backoff).map_err(|message| error("backoff", message))?;
    }
    Ok(CompiledRule { rule: rule.clone(), signals, stderr })
}

fn check_backoff(backoff: &Backoff) -> Result<(), String> {
    let sane = |v: f64| v.is_finite() && v >= 0.0;
    if !sane(backoff.delay_seconds) || backoff.max_seconds.is_some_and(|m| !sane(m)) {
        return Err("a delay must be a number of seconds that is not negative".into());
    }
    if !(1.0..=100.0).contains(&backoff.factor) {
        return Err("`factor` must be between 1 and 100".into());
    }
    if !(0.0..=1.0).contains(&backoff.jitter) {
        return Err("`jitter` must be between 0 and 1".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: i64, signal: Option<i64>, cause: Cause, tail: &str) -> Failure<'_> {
        Failure {
            return_code: code,
            signal,
            cause,
            diagnosis: None,
            stderr_tail: tail,
            is_script: false,
        }
    }

    fn handler(json: &str) -> Result<CompiledHandler, RuleError> {
        let rules: Vec<Rule> = serde_json::from_str(json).expect("test rules parse");
        CompiledHandler::new("h", &rules)
    }

    fn picks(handler: &CompiledHandler, failure: &Failure<'_>) -> Option<usize> {
        match handler.verdict(failure) {
            Verdict::Rule(i, _) => Some(i),
            Verdict::NoMatchingRule => None,
        }
    }

    #[test]
    fn precise_rules_win_over_catch_all_whatever_the_order() {
        let h = handler(
            r#"[{"match_all_exit_codes": true}, {"exit_codes": [10, 11]}, {"exit_codes": [11]},
                {"signals": ["SIGSEGV"]}, {"causes": ["oom"]}, {"stderr_matches": ["(?i)connection refused"]}]"#,
        )
        .expect("valid");
        assert_eq!(picks(&h, &failure(10, None, Cause::Exit, "")), Some(1));
        assert_eq!(
            picks(&h, &failure(11, None, Cause::Exit, "")),
            Some(1),
            "first of two precise rules"
        );
        assert_eq!(picks(&h, &failure(139, Some(11), Cause::Signal, "")), Some(3));
        assert_eq!(picks(&h, &failure(137, Some(9), Cause::Oom, "")), Some(4));
        assert_eq!(picks(&h, &failure(1, None, Cause::Exit, "x\nConnection refused\n")), Some(5));
        assert_eq!(picks(&h, &failure(1, None, Cause::Exit, "")), Some(0));
    }

    #[test]
    fn a_text_narrows_a_catch_all() {
        let h = handler(r#"[{"match_all_exit_codes": true, "stderr_matches": ["busy"]}]"#);
        let h = h.expect("valid");
        assert_eq!(picks(&h, &failure(1, None, Cause::Exit, "device busy")), Some(0));
        assert_eq!(picks(&h, &failure(1, None, Cause::Exit, "no such file")), None);
    }

    #[test]
    fn a_text_narrows_the_codes_beside_it() {
        let h = handler(r#"[{"exit_codes": [1], "stderr_matches": ["busy"]}]"#).expect("valid");
        assert_eq!(picks(&h, &failure(1, None, Cause::Exit, "device busy")), Some(0));
        assert_eq!(picks(&h, &failure(1, None, Cause::Exit, "no such file")), None);
        assert_eq!(picks(&h, &failure(2, None, Cause::Exit, "device busy")), None);
    }

    #[test]
    fn bad_rules_are_refused_with_their_place() {
        let cases = [
            ("[]", "rules"),
            ("[{}]", "exit_codes"),
            (r#"[{"signals":["SIGNOPE"]}]"#, "signals"),
            (r#"[{"stderr_matches":["("]}]"#, "stderr_matches"),
            (r#"[{"exit_codes":[1],"backoff":{"delay_seconds":-1}}]"#, "backoff"),
            (r#"[{"exit_codes":[1],"backoff":{"delay_seconds":1,"jitter":2}}]"#, "backoff"),
        ];
        for (json, field) in cases {
            assert_eq!(handler(json).expect_err(json).field, field, "{json}");
        }
    }

    #[test]
    fn backoff_grows_and_is_bounded() {
        let b = Backoff { delay_seconds: 1.0, factor: 2.0, max_seconds: Some(5.0), jitter: 0.0 };
        assert_eq!([1, 2, 3, 4, 90].map(|n| b.wait_ms(n, 0.3)), [1000, 2000, 4000, 5000, 5000]);
        let spread = Backoff { jitter: 0.5, ..b };
        assert_eq!((spread.wait_ms(1, 0.0), spread.wait_ms(1, 1.0)), (500, 1500));
    }

    #[test]
    fn only_a_precise_rule_speaks_of_a_loss_and_a_text_alone_is_precise() {
        let h = handler(
            r#"[{"match_all_exit_codes": true}, {"causes": ["lost"]}, {"stderr_matches": ["gone"]}]"#,
        )
        .expect("valid");
        let precise = |failure: &Failure<'_>| match h.precise_verdict(failure) {
            Verdict::Rule(i, rule) => Some((i, rule.causes.len())),
            Verdict::NoMatchingRule => None,
        };
        assert_eq!(precise(&failure(1, None, Cause::Lost, "")), Some((1, 1)));
        assert_eq!(precise(&failure(1, None, Cause::NodeFail, "")), None);
        assert_eq!(precise(&failure(1, None, Cause::NodeFail, "gone")), Some((2, 0)));
        assert_eq!(picks(&h, &failure(1, None, Cause::NodeFail, "")), Some(0));
        assert_eq!(picks(&h, &failure(1, None, Cause::Lost, "gone")), Some(1));
        let codes = handler(r#"[{"exit_codes": [1]}]"#).expect("valid");
        assert!(h.needs_diagnosis() && !codes.needs_diagnosis());
    }

    #[test]
    fn the_bounds_of_a_backoff_are_allowed_and_what_is_beyond_is_not() {
        let backoff = |json: &str| handler(&format!(r#"[{{"exit_codes":[1],"backoff":{json}}}]"#));
        for fine in [
            r#"{"delay_seconds":0,"factor":1,"jitter":0,"max_seconds":0}"#,
            r#"{"delay_seconds":1,"factor":100,"jitter":1}"#,
        ] {
            assert!(backoff(fine).is_ok(), "{fine}");
        }
        for wrong in [
            r#"{"delay_seconds":1,"max_seconds":-1}"#,
            r#"{"delay_seconds":1,"factor":0.9}"#,
            r#"{"delay_seconds":1,"factor":101}"#,
            r#"{"delay_seconds":1,"jitter":-0.1}"#,
        ] {
            assert_eq!(backoff(wrong).expect_err(wrong).field, "backoff", "{wrong}");
        }
        let error =
            handler(r#"[{"exit_codes":[1]},{"signals":["SIGNOPE"]}]"#).expect_err("no signal");
        assert_eq!(error.to_string(), "rule 2: `signals`: `SIGNOPE` is not a signal");
        for alone in [
            r#"{"exit_codes":[1]}"#,
            r#"{"signals":["SIGTERM"]}"#,
            r#"{"causes":["oom"]}"#,
            r#"{"stderr_matches":["a"]}"#,
            r#"{"match_all_exit_codes":true}"#,
        ] {
            assert!(handler(&format!("[{alone}]")).is_ok(), "{alone}");
        }
    }

    #[test]
    fn a_text_is_looked_for_in_every_line() {
        let h = handler(r#"[{"stderr_matches": ["^busy$"]}]"#).expect("valid");
        assert_eq!(picks(&h, &failure(9, None, Cause::Exit, "a\nbusy\nb")), Some(0));
        assert_eq!(picks(&h, &failure(9, None, Cause::Exit, "too busy")), None);
    }
}
