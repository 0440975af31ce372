//! `cargo xtask recovery`: what would be done about failures of real programs whose right action is
//! known, beside what simpler deciders would do, and without one source of evidence at a time.

use crate::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use torc_model::api::Evidence;
use torc_model::recovery::{
    Action, Caps, Case as Failure, Counts, Current, Excerpt, Facts, Fingerprint, Kind, Learned,
    Level, Observed, PastFailure, Policy, RetryOutcome, Rule, Rules, Stream, Tried, diagnose_with,
};
use torc_model::status::{Cause, EvidenceSource};

/// Decide failures whose right action is known, and print how often that was right
#[derive(clap::Args)]
pub struct Args {
    /// Also list every mistake
    #[arg(short, long)]
    verbose: bool,
    /// Decide recorded failures instead: a file with one JSON object a line
    #[arg(long, value_name = "FILE")]
    recorded: Option<std::path::PathBuf>,
}

const MIB: i64 = 1 << 20;

/// What is known of a failure that deciders are not told.
#[derive(serde::Deserialize)]
struct KnownTruth {
    family: String,
    name: String,
    /// The right action.
    #[serde(rename = "truth")]
    action: String,
    /// The kinds that are right.
    kinds: Vec<Kind>,
}

/// One failure.
struct Case {
    known: KnownTruth,
    cause: Cause,
    exit: Option<i64>,
    signal: Option<i64>,
    command: String,
    memory: Option<i64>,
    peak: Option<i64>,
    limit: Option<u64>,
    ran: f64,
    cpu: f64,
    observed: Observed,
    evidence: Vec<Evidence>,
    error: Option<String>,
    /// `limit` is a `runtime` that is enforced, not a `timeout`.
    by_runtime: bool,
}

/// A failure as it was recorded: what its attempt left, and what really helped.
#[derive(serde::Deserialize)]
struct Recorded {
    #[serde(flatten)]
    known: KnownTruth,
    cause: Cause,
    return_code: Option<i64>,
    signal: Option<i64>,
    error: Option<String>,
    #[serde(default)]
    evidence: Vec<Evidence>,
    exec_seconds: f64,
    cpu_seconds: Option<f64>,
    peak_memory_bytes: Option<i64>,
    memory_bytes: Option<i64>,
    timeout_seconds: Option<u64>,
    runtime_seconds: Option<u64>,
    command: String,
    observed: Observed,
}

fn recorded(file: &Path) -> Result<Vec<Case>> {
    let case = |line: &str| -> Result<Case> {
        let mut r: Recorded = serde_json::from_str(line)?;
        if r.known.action == "retry_same" {
            r.known.action = "again".into();
        }
        Ok(Case {
            known: r.known,
            cause: r.cause,
            exit: r.return_code,
            signal: r.signal,
            command: r.command,
            memory: r.memory_bytes,
            peak: r.peak_memory_bytes,
            limit: r.timeout_seconds.or(r.runtime_seconds),
            ran: r.exec_seconds,
            cpu: r.cpu_seconds.unwrap_or(0.0),
            observed: r.observed,
            evidence: r.evidence,
            error: r.error,
            by_runtime: r.timeout_seconds.is_none(),
        })
    };
    fs::read_to_string(file)?.lines().map(case).collect()
}

/// Which evidence a decider sees.
#[derive(Clone, Copy, PartialEq)]
enum Sees {
    All,
    NoText,
    NoMeasurement,
}

struct Answer {
    action: String,
    fingerprint: Option<Fingerprint>,
    kind: Option<Kind>,
    confidence: f64,
    rule: Option<String>,
    is_decided: bool,
}

/// As sure as a workflow asks for, unless it says otherwise.
const THRESHOLD: f64 = 0.8;

impl Args {
    /// Runs the command.
    pub fn execute(self) -> Result<()> {
        let cases = match &self.recorded {
            Some(file) => recorded(file)?,
            None => read(&crate::root()?.join("crates/xtask/recovery"))?,
        };
        let families = cases
            .iter()
            .map(|c| c.known.family.as_str())
            .collect::<std::collections::BTreeSet<_>>();
        println!("{} failures of {} files\n", cases.len(), families.len());
        println!(
            "{:<34} {:>9} {:>9} {:>12} {:>13} {:>11}",
            "decider (all in %)",
            "accuracy",
            "macro-F1",
            "false_retry",
            "futile_rerun",
            "false_fail"
        );
        type Decider = fn(&Case) -> Answer;
        let deciders: [(&str, Decider); 8] = [
            ("torc", |c| torc(c, Sees::All)),
            ("torc without text", |c| torc(c, Sees::NoText)),
            ("torc without measurement", |c| torc(c, Sees::NoMeasurement)),
            ("never retry", |_| plain("fail")),
            ("retry x3 blind", |_| plain("again")),
            ("nf-core codes", |c| plain(if nf_core(c) { "again" } else { "fail" })),
            ("seed words, permanent first", |c| plain(seed_words(c))),
            ("oom/timeout only", |c| plain(resource(c))),
        ];
        let mut own = Vec::new();
        for (name, decider) in deciders {
            let answers: Vec<Answer> = cases.iter().map(decider).collect();
            println!("{}", row(name, &cases, &answers));
            if name == "torc" {
                own = answers;
            }
        }
        let blind = third_time(&cases, Sees::NoText);
        println!("{}", row("torc without text, third time", &cases, &blind));
        println!("{}", row("torc, third time", &cases, &third_time(&cases, Sees::All)));
        let with_kind: Vec<_> =
            cases.iter().zip(&own).filter(|(c, _)| !c.known.kinds.is_empty()).collect();
        let right =
            with_kind.iter().filter(|(c, a)| a.kind.is_some_and(|k| c.known.kinds.contains(&k)));
        println!("\nkind right {:.1}%", 100.0 * right.count() as f64 / with_kind.len() as f64);
        let right_action = |c: &Case, a: &Answer| a.action == c.known.action;
        let pairs: Vec<(f64, bool)> =
            cases.iter().zip(&own).map(|(c, a)| (a.confidence, right_action(c, a))).collect();
        println!("calibration error against the action {:.1}%", 100.0 * calibration(&pairs));
        let asked = own.iter().filter(|answer| !answer.is_decided).count();
        println!(
            "left to a person or an agent {:.1}% ({asked} of {})",
            100.0 * asked as f64 / cases.len().max(1) as f64,
            cases.len()
        );
        without_own_rules(&cases, self.verbose);
        if self.verbose {
            for (case, answer) in cases.iter().zip(&own) {
                let kind = answer.kind.map_or("-", Kind::as_str);
                if !answer.is_decided {
                    println!("asks   {}/{}: {kind}", case.known.family, case.known.name);
                }
                if answer.action != case.known.action {
                    println!(
                        "ACTION {}/{}: {} is said, {} is right ({kind}, {:.2})",
                        case.known.family,
                        case.known.name,
                        answer.action,
                        case.known.action,
                        answer.confidence
                    );
                } else if !case.known.kinds.is_empty()
                    && !answer.kind.is_some_and(|k| case.known.kinds.contains(&k))
                {
                    println!(
                        "kind   {}/{}: {kind} is said, {:?} are right",
                        case.known.family, case.known.name, case.known.kinds
                    );
                }
            }
        }
        Ok(())
    }
}

fn plain(action: &str) -> Answer {
    Answer {
        action: action.into(),
        fingerprint: None,
        kind: None,
        confidence: 0.0,
        rule: None,
        is_decided: false,
    }
}

fn torc(case: &Case, sees: Sees) -> Answer {
    decided(Rules::built_in(), case, sees, &Record::default())
}

/// How retries of failures ended, by what the failures have in common.
#[derive(Default)]
struct Record(BTreeMap<String, Counts>);

/// The circles of the record, and what two failures of one have in common.
fn circles(fingerprint: &Fingerprint) -> [(Level, String); 3] {
    [
        (Level::Site, format!("kind {}", fingerprint.kind)),
        (Level::Family, format!("family {}", fingerprint.family)),
        (Level::Same, format!("failure {}", fingerprint.id)),
    ]
}

impl Record {
    const TRIED: [Tried; 3] = [Tried::Again, Tried::MoreMemory, Tried::MoreTime];

    fn learned(&self, fingerprint: &Fingerprint) -> Learned {
        let mut learned = Learned::default();
        for (level, name) in circles(fingerprint) {
            for tried in Self::TRIED {
                if let Some(counts) = self.0.get(&format!("{tried} {name}")) {
                    learned.add(level, tried, counts, 0);
                }
            }
        }
        learned
    }

    fn add(&mut self, fingerprint: &Fingerprint, tried: Tried, outcome: RetryOutcome) {
        for (_, name) in circles(fingerprint) {
            self.0.entry(format!("{tried} {name}")).or_default().add(outcome);
        }
    }
}

/// Every failure happens three times. What is retried succeeds where that is the right action; what
/// is given up is retried by a person where that would have helped. The answers of the third time
/// know how the retries of the first two ended.
fn third_time(cases: &[Case], sees: Sees) -> Vec<Answer> {
    let mut record = Record::default();
    let all = |record: &Record| -> Vec<Answer> {
        cases.iter().map(|case| decided(Rules::built_in(), case, sees, record)).collect()
    };
    for _ in 0..2 {
        let answers = all(&record);
        for (case, answer) in cases.iter().zip(&answers) {
            let Some(fingerprint) = &answer.fingerprint else { continue };
            let (tried, outcome) = match Tried::parse(&answer.action) {
                Some(tried) if answer.action == case.known.action => {
                    (tried, RetryOutcome::Succeeded)
                }
                Some(tried) => (tried, RetryOutcome::FailedSame),
                None => match Tried::parse(&case.known.action) {
                    Some(by_person) => (by_person, RetryOutcome::Succeeded),
                    None => continue,
                },
            };
            record.add(fingerprint, tried, outcome);
        }
    }
    all(&record)
}

/// Leave one family out: decides each family without the rules that decide cases of no other
/// family, which might have been written for its programs alone.
fn without_own_rules(cases: &[Case], is_told: bool) {
    let answers: Vec<Answer> = cases.iter().map(|case| torc(case, Sees::All)).collect();
    let mut users: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (case, answer) in cases.iter().zip(&answers) {
        if let Some(rule) = &answer.rule {
            users.entry(rule).or_default().insert(&case.known.family);
        }
    }
    let families: BTreeSet<&str> = cases.iter().map(|case| case.known.family.as_str()).collect();
    let (mut right, mut false_retry, mut permanent) = (0, 0, 0);
    for family in &families {
        let is_own = |rule: &Rule| {
            users.get(rule.id.as_str()).is_some_and(|of| of.len() == 1 && of.contains(family))
        };
        let all = Rules::built_in().all();
        let rest = Rules::new(all.iter().filter(|rule| !is_own(rule)).cloned().collect());
        let of_family: Vec<&Case> =
            cases.iter().filter(|case| case.known.family == *family).collect();
        let hits = |rules: &Rules| {
            let is_right = |case: &&&Case| {
                decided(rules, case, Sees::All, &Record::default()).action == case.known.action
            };
            of_family.iter().filter(is_right).count()
        };
        let without = hits(&rest);
        right += without;
        permanent += of_family.iter().filter(|case| case.known.action == "fail").count();
        false_retry += of_family
            .iter()
            .filter(|case| {
                let answer = decided(&rest, case, Sees::All, &Record::default());
                case.known.action == "fail" && answer.action == "again"
            })
            .count();
        if is_told {
            let own: Vec<&str> =
                all.iter().filter(|rule| is_own(rule)).map(|rule| rule.id.as_str()).collect();
            println!(
                "family {family}: {} of {} right, {without} without {}",
                hits(Rules::built_in()),
                of_family.len(),
                if own.is_empty() { "-".into() } else { own.join(", ") }
            );
        }
    }
    println!(
        "leave one family out: accuracy {:.1}%, false_retry {:.1}%",
        100.0 * right as f64 / cases.len().max(1) as f64,
        100.0 * false_retry as f64 / permanent.max(1) as f64
    );
}

fn decided(rules: &Rules, case: &Case, sees: Sees, record: &Record) -> Answer {
    let blank = Observed::default();
    let observed = match sees {
        Sees::NoText => Observed { excerpts: Vec::new(), ..case.observed.clone() },
        Sees::NoMeasurement => Observed { excerpts: case.observed.excerpts.clone(), ..blank },
        Sees::All => case.observed.clone(),
    };
    let measured = sees != Sees::NoMeasurement;
    let kernel = [Evidence {
        source: EvidenceSource::Kernel,
        text: "the kernel killed 1 of its processes".into(),
    }];
    let facts = Facts {
        cause: Some(case.cause),
        return_code: case.exit,
        signal: case.signal,
        evidence: match (&case.evidence[..], case.cause) {
            ([], Cause::Oom) => &kernel,
            (own, _) => own,
        },
        error: case.error.as_deref(),
        exec_seconds: Some(case.ran),
        cpu_seconds: Some(case.cpu).filter(|_| measured),
        peak_memory_bytes: case.peak.filter(|_| measured),
        memory_bytes: case.memory,
        command: &case.command,
        observed: Some(&observed),
        ..Facts::default()
    };
    let unsigned = |v: Option<i64>| v.and_then(|v| u64::try_from(v).ok());
    let current = Current {
        memory_bytes: unsigned(case.memory),
        timeout_seconds: case.limit.filter(|_| !case.by_runtime),
        runtime_seconds: case.limit.filter(|_| case.by_runtime),
        enforces_runtime: true,
        peak_memory_bytes: unsigned(case.peak.filter(|_| measured)),
        ..Current::default()
    };
    let Some(diagnosis) = diagnose_with(rules, &facts) else { return plain("fail") };
    // Most cases of the repository are texts without a command; each is of another program.
    let program = if case.command.is_empty() { &case.known.name } else { &case.command };
    let fingerprint = Fingerprint::new(program, &facts, Some(&diagnosis));
    let last = PastFailure {
        fingerprint: fingerprint.id.clone(),
        kind: diagnosis.kind,
        memory_bytes: case.memory,
        exec_seconds: Some(case.ran),
        host: None,
    };
    let card = Failure {
        diagnosis: &diagnosis,
        last: &last,
        earlier: &[],
        current: &current,
        caps: &Caps::default(),
        policy: &Policy::default(),
        learned: &record.learned(&fingerprint),
    }
    .decide();
    let action = match card.action {
        Action::Again => "again",
        Action::MoreMemory => "more_memory",
        Action::MoreTime => "more_time",
        Action::Skip | Action::Impossible => "fail",
    };
    Answer {
        action: action.into(),
        fingerprint: Some(fingerprint),
        kind: Some(diagnosis.kind),
        confidence: diagnosis.confidence,
        is_decided: diagnosis.is_decided(THRESHOLD),
        rule: diagnosis.rule,
    }
}

fn resource(case: &Case) -> &'static str {
    match case.cause {
        Cause::Oom => "more_memory",
        Cause::Timeout => "more_time",
        _ => "fail",
    }
}

/// nf-core's default: exit codes 130 to 145 and 104 are tried again.
fn nf_core(case: &Case) -> bool {
    let code = case.exit.or(case.signal.map(|s| 128 + s)).unwrap_or(match case.cause {
        Cause::Oom => 137,
        Cause::Timeout => 143,
        _ => 1,
    });
    (130..=145).contains(&code) || code == 104
}

fn seed_words(case: &Case) -> &'static str {
    const TRANSIENT: [&str; 9] = [
        "Connection refused",
        "Connection timed out",
        "Network is unreachable",
        "Service Unavailable",
        "NCCL timeout",
        "Input/output error",
        "PREEMPTED",
        "NODE_FAIL",
        "TIMEOUT",
    ];
    const PERMANENT: [&str; 9] = [
        "SyntaxError",
        "ModuleNotFoundError",
        "ImportError",
        "NameError",
        "TypeError",
        "ValueError",
        "FileNotFoundError",
        "IndexError",
        "KeyError",
    ];
    let text: String = case.observed.excerpts.iter().map(|e| e.text.as_str()).collect();
    let has = |words: &[&str]| words.iter().any(|w| text.contains(w));
    if has(&TRANSIENT) && !has(&PERMANENT) { "again" } else { "fail" }
}

fn row(name: &str, cases: &[Case], answers: &[Answer]) -> String {
    let share = |of: usize, all: usize| 100.0 * of as f64 / all.max(1) as f64;
    let pairs: Vec<(&Case, &Answer)> = cases.iter().zip(answers).collect();
    let right = pairs.iter().filter(|(c, a)| a.action == c.known.action).count();
    let permanent: Vec<_> = pairs.iter().filter(|(c, _)| c.known.action == "fail").collect();
    let recoverable: Vec<_> = pairs.iter().filter(|(c, _)| c.known.action != "fail").collect();
    let f1: f64 = ["again", "more_memory", "more_time", "fail"]
        .iter()
        .map(|action| {
            let hit = pairs
                .iter()
                .filter(|(c, a)| c.known.action == **action && a.action == **action)
                .count();
            let said = pairs.iter().filter(|(_, a)| a.action == **action).count();
            let meant = pairs.iter().filter(|(c, _)| c.known.action == **action).count();
            if said + meant == 0 { 0.0 } else { 2.0 * hit as f64 / (said + meant) as f64 }
        })
        .sum::<f64>()
        / 4.0;
    format!(
        "{name:<34} {:>9.1} {:>9.1} {:>12.1} {:>13.1} {:>11.1}",
        share(right, pairs.len()),
        100.0 * f1,
        share(permanent.iter().filter(|(_, a)| a.action == "again").count(), permanent.len()),
        share(permanent.iter().filter(|(_, a)| a.action != "fail").count(), permanent.len()),
        share(recoverable.iter().filter(|(_, a)| a.action == "fail").count(), recoverable.len()),
    )
}

/// Mean distance between confidence and being right, over ten bins.
fn calibration(pairs: &[(f64, bool)]) -> f64 {
    let mut bins: BTreeMap<usize, Vec<(f64, bool)>> = BTreeMap::new();
    for pair in pairs {
        bins.entry(((pair.0 * 10.0) as usize).min(9)).or_default().push(*pair);
    }
    let distance = |bin: &Vec<(f64, bool)>| {
        let n = bin.len() as f64;
        let sure = bin.iter().map(|p| p.0).sum::<f64>() / n;
        let right = bin.iter().filter(|p| p.1).count() as f64 / n;
        n * (sure - right).abs()
    };
    bins.values().map(distance).sum::<f64>() / pairs.len().max(1) as f64
}

/// Every case of a directory; the format is explained there.
fn read(dir: &Path) -> Result<Vec<Case>> {
    let mut files: Vec<_> = fs::read_dir(dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "txt"))
        .collect();
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let family =
            file.file_stem().map_or_else(String::new, |s| s.to_string_lossy().into_owned());
        let text = fs::read_to_string(&file)?;
        for block in text.split("\n=== ").flat_map(|b| b.strip_prefix("=== ").or(Some(b))) {
            let (head, body) = block.split_once('\n').unwrap_or((block, ""));
            cases.push(
                one(&family, head, body).map_err(|why| format!("{family}: `{head}`: {why}"))?,
            );
        }
    }
    Ok(cases)
}

fn one(family: &str, head: &str, body: &str) -> Result<Case> {
    let mut parts = head.split(" | ");
    let mut next = |what: &str| parts.next().map(str::trim).ok_or(format!("`{what}` is missing"));
    let (name, truth, kinds) = (next("name")?, next("action")?, next("kinds")?);
    if !["again", "more_memory", "more_time", "fail"].contains(&truth) {
        return Err(format!("unknown action `{truth}`").into());
    }
    let kinds: Option<Vec<Kind>> = kinds.split(',').map(|kind| Kind::parse(kind.trim())).collect();
    let (stderr, stdout) = body.split_once("--- stdout\n").unwrap_or((body, ""));
    let excerpt = |stream, text: &str| Excerpt { stream, start: 0, text: text.to_owned() };
    let mut excerpts = vec![excerpt(Stream::Stderr, stderr)];
    excerpts.push(excerpt(Stream::Stdout, stdout));
    excerpts.retain(|e| !e.text.trim().is_empty());
    let mut case = Case {
        known: KnownTruth {
            family: family.into(),
            name: name.into(),
            action: truth.into(),
            kinds: kinds.ok_or("unknown kind")?,
        },
        cause: Cause::Exit,
        exit: None,
        signal: None,
        command: String::new(),
        memory: None,
        peak: None,
        limit: None,
        ran: 1.0,
        cpu: 0.5,
        observed: Observed { excerpts, ..Observed::default() },
        evidence: Vec::new(),
        error: None,
        by_runtime: false,
    };
    for fact in parts {
        let (key, value) = fact.trim().split_once(' ').ok_or("a fact without a value")?;
        match key {
            "exit" => case.exit = Some(value.parse()?),
            "signal" => {
                case.signal = Some(value.parse()?);
                case.cause = Cause::Signal;
            }
            "cause" => case.cause = Cause::parse(value).ok_or("unknown cause")?,
            "command" => case.command = value.into(),
            "memory" => case.memory = Some(value.parse::<i64>()? * MIB),
            "peak" => case.peak = Some(value.parse::<i64>()? * MIB),
            "limit" => case.limit = Some(value.parse()?),
            "ran" => case.ran = value.parse()?,
            "cpu" => case.cpu = value.parse()?,
            "silent" => case.observed.silent_seconds = Some(value.parse()?),
            "io" => case.observed.recent_io_bytes = Some(value.parse()?),
            other => return Err(format!("unknown fact `{other}`").into()),
        }
    }
    if case.cause == Cause::Timeout {
        case.observed.recent_wakeups = Some(0);
        case.observed.recent_seconds = Some(case.ran / 2.0);
        case.observed.recent_cpu_seconds = Some(case.cpu / 2.0);
    }
    Ok(case)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_failures_get_the_right_action() {
        let cases = read(&crate::root().unwrap().join("crates/xtask/recovery")).unwrap();
        assert!(cases.len() >= 150, "{}", cases.len());
        let right = cases.iter().filter(|c| torc(c, Sees::All).action == c.known.action).count();
        let bugs: Vec<_> = cases.iter().filter(|c| c.known.action == "fail").collect();
        let again = bugs.iter().filter(|c| torc(c, Sees::All).action == "again").count();
        assert!(right as f64 >= cases.len() as f64 * 0.95, "{right} of {}", cases.len());
        assert!(again as f64 <= bugs.len() as f64 * 0.02, "{again} of {} bugs", bugs.len());
    }
}
