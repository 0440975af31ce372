//! Reads what a program wrote for the error that ended it.
//!
//! Only the *terminal* error counts: the last exception (the root of its chain), the last line that
//! reports a failure. What the program survived decides nothing, what a wrapper says about the end
//! of its child is no reason, and nothing that speaks for the kernel, the scheduler or Torc is
//! believed because it is written there: a job can write anything. What the error means is for the
//! [rules](super::rules) to say: by the class of an exception, else by the words of its message.

use super::kind::Kind;
use super::nature::Nature;
use super::rules::{Rule, Rules};
use regex::Regex;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::LazyLock;
use utoipa::ToSchema;

/// Which of a program's streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard error.
    #[default]
    Stderr,
    /// Standard output.
    Stdout,
}

/// A part of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Excerpt {
    /// Which stream.
    #[serde(default)]
    pub stream: Stream,
    /// Where it begins in the file, in bytes.
    pub start: i64,
    /// The words. A byte that is no text is one byte here too, so that places stay right.
    pub text: String,
}

/// The error that ended a program, as its own words tell it.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// What it says happened.
    pub kind: Kind,
    /// What would help.
    pub nature: Nature,
    /// How sure that is, 0..1.
    pub confidence: f64,
    /// The line without colours and other control codes.
    pub line: String,
    /// The longest part of it between such codes, to quote.
    pub quote: String,
    /// Which stream it is in.
    pub stream: Stream,
    /// Where that part is in the stream, in bytes.
    pub range: Range<usize>,
    /// The class of the exception.
    pub class: Option<String>,
    /// The rule that decided.
    pub rule: Option<String>,
    /// It speaks for the scheduler, which counts only if something else agrees.
    pub by_scheduler: bool,
    /// It is no more than the last line that was written.
    pub is_guess: bool,
}

/// Verdicts of Slurm that it writes into a job's output.
const SCHEDULER: &[(Kind, &str)] = &[
    (Kind::Timeout, r"^(slurmstepd|srun): .*\bDUE TO TIME LIMIT\b"),
    (Kind::Preempted, r"^(slurmstepd|srun): .*\bDUE TO PREEMPTION\b"),
    (Kind::NodeFail, r"^(slurmstepd|srun): .*(\bDUE TO NODE FAILURE\b|\b[Nn]ode failure on )"),
    (
        Kind::Oom,
        r"^(slurmstepd|srun): .*(\boom[-_]kill event|[Oo]ut [Oo]f [Mm]emory|Exceeded (step|job) memory limit)",
    ),
];

/// How programs name the exception that ended them.
struct ExceptionPatterns {
    /// At the start of a line.
    named: Regex,
    /// What the name of a class ends with.
    suffix: Regex,
    in_brackets: Regex,
    inside: Regex,
}

struct Patterns {
    scheduler: Vec<(Kind, Regex)>,
    escape: Regex,
    prefix: Regex,
    exception: ExceptionPatterns,
    failure: Regex,
    harmless: Regex,
    calm: Regex,
    labelled: Regex,
    trailer: Regex,
    note: Regex,
    forged: Regex,
    frame: Regex,
    own_port: Regex,
    stack: Regex,
    mpi: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let regex = super::pattern::ascii;
    Patterns {
        scheduler: SCHEDULER.iter().map(|(kind, text)| (*kind, regex(text))).collect(),
        escape: regex(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|[@-Z\\-_])"),
        // Time, level, thread and the like in front of a message.
        prefix: regex(
            r"^(\[?[0-9]{2,4}[-/:.][0-9:./T,Z+ -]{3,}[0-9Z]\]?|\[[\w .:/@-]{1,40}\]:?|<[\w .:/-]{1,30}>|[EFCW][0-9]{4} [0-9:.]+ +\d+ [\w./-]+:\d+\]|(?i:error|err|fatal|critical|crit|severe|emerg|alert|panic|failure|npm ERR!|npm error)\b ?[:|!-]?)[\s|:-]*",
        ),
        exception: ExceptionPatterns {
            named: regex(
                r"^(?:Caused by: |Exception in thread .{1,60}? |Uncaught (?:exception )?(?:\(in promise\) )?|Unhandled [Ee]xception[.:]? |(?:PHP )?Fatal error:\s+Uncaught |error: Uncaught (?:\(in promise\) )?|(?:nested task )?error: |ERROR: |LoadError: |\[ERROR\] |Fatal error: exception |\*\* \(EXIT\) |\*\* |Traceback: |[Ee]xception: )*\(?([A-Za-z_][\w]*(?:(?:\.|::|\$|/)[A-Za-z_]\w*)*)(\)|:| \(0x[0-9a-fA-F]+\):|\(| \{|\s*$)",
            ),
            suffix: regex(
                r"(Error|Exception|Fault|Interrupt|Failure|Timeout|Exit|Warning|Err)\d*$",
            ),
            // Ruby: `a.rb:3:in 'f': message (Net::ReadTimeout)`.
            in_brackets: regex(r"^\S+:\d+:in .*: .* \(([A-Z][\w]*(?:::[A-Z]\w*)*)\)$"),
            // A wrapper that names what it wraps: `RemoteException(a.StandbyException):`,
            // `An error occurred (SlowDown) when calling`, `RetryError[<Future raised ReadTimeout>]`.
            inside: regex(
                r"^(?:[\w.$]*[A-Z][\w.$]*(?:Error|Exception)\(((?:[\w]+[.$])*[A-Z]\w*(?:Error|Exception))\)|(?:.{0,120}: |.{0,120} )?An error occurred \((\w+)\) when calling|RetryError.{0,80}raised ((?:\w+\.)*[A-Z]\w*)>)",
            ),
        },
        failure: regex(
            r"(?i)\b(errors?|fatal|exceptions?|fail|failed|failure|cannot|can't|can not|could not|couldn't|unable to|denied|refused|aborted|aborting|abort|panic(ked)?|not found|no such|no space|exceeded|fault|timed out|timeout|unreachable|unavailable|invalid|assertion|undefined|unknown|unexpected|illegal|mismatch|missing|incorrect|unsupported|not supported|not allowed|not permitted|giving up|gave up|bug|violation|overflow|corrupt(ed)?|did not|does not|doesn't|is not|must|lost|locked|busy|what\(\):|fehler|erreur|erro|errore|virhe)|ошибка|错误|エラー|오류",
        ),
        // A message the program survived, or a count of nothing.
        harmless: regex(
            r"(?i)\b(warn|warning|retrying|will retry|retry in|ignored|ignoring|deprecated|0 errors|no errors?|0 failed|skipping|falling back|attempt \d+ (of|/) ?\d+|recovered|reconnect(ed|ing))\b",
        ),
        // A level in front of a message that says: no error.
        calm: regex(
            r"^(\S{1,30} ){0,3}?[\[<(]?(?i:trace|debug|info|notice|warn|warning)[\]>)]?[ :]",
        ),
        labelled: regex(
            r"(?i)(^|[\s\]>:(])(error|fatal|critical|panic|severe|err!|failure|\[e\]|\*\*\*)( ?\[?\w*\]?)?(:|!| -)|^(error|fatal|panic|ERROR|FATAL|FAIL(ED)?|Error in |E:)\b|^forrtl: severe|^Exception |^Unhandled |^(uncaught|unhandled) ",
        ),
        // Written by what ran the program, about its end, without a reason.
        trailer: regex(
            r"^(g?make(\[\d+\])?: (\*\*\* \[|\*\*\* Waiting|\*\*\* wait|Leaving|Entering|Target)|ninja: build stopped|srun: error: .*[Ee]xited with exit code|srun: Terminating|srun: Job step aborted|slurmstepd: error: \*\*\* (STEP|JOB) \S+ ON \S+ CANCELLED AT [\dT:-]+ \*\*\*|note: run with `RUST_BACKTRACE|stack backtrace:|-{5,}|={5,}|\*{5,}|_{5,}|\+ |npm (ERR!|error) (code (ELIFECYCLE|1)$|errno|path |command |workspace|location|A complete log|$)|error Command failed with exit code|\[INFO\]|BUILD FAILED|\* Try:|\* What went wrong|> Task |FAILURE: Build failed|Error termination\. Backtrace|Error in \S+ \(line \d+\)$|collect2: error|error Command failed)|^(exit status \d+|exit code:? \d+|Aborted( \(core dumped\))?|Exiting\b.*|Execution halted|Calls: .*|with errorcode -?\d+\.?|\d+\+\d+ records (in|out)|\d+ bytes .* copied, .*|Error: (Process completed with|Command failed with) exit code \d+\.?|Command exited with non-zero status \d+|.*[Pp]rocess (completed|exited|finished) with exit code \d+\.?|.*\b(failed|exited|finished|ended|returned|terminated) with (exit )?(status|code) -?\d+\)?\.?|.*\bexit(ed)?( with)? (status|code)[ :=]*-?\d+\)?\.?)$|returned (a )?non-zero (exit )?(status|code)|Primary job +terminated normally|a process has exited abnormally|mpirun detected that one or more processes|\bStopping\b.*due to|Exiting with failure status due to previous errors|Error is not recoverable: exiting now|[Ss]ee (the )?log( file)? (for|at)|complete log of this run|^CUDA kernel errors might be|^For debugging consider|^Compile with `TORCH|^    while executing|^    invoked from within|^For more information",
        ),
        note: regex(
            r"(?i)^(hint|note|help|tip|info|usage|see|try|caused by$|please (see|report|check|consult)|to see|at:? |in |from |during |while )\b|^\(|^\s*\^|^\s*[|~]",
        ),
        // The job does not write this: Torc, the kernel or the scheduler does. It is only passed over,
        // never believed, so that a job gains nothing by writing it.
        forged: regex(
            r"^\[torc\] |^(\[[ 0-9.]+\] ?)?(kernel|torc|systemd(\[\d+\])?|slurm(ctld)?|dmesg|journal|oom_reaper|Memory cgroup)\b ?:|\bOut of memory: Kill|\boom-kill:|^Killed$|^Terminated$|^\s*\{.*\}\s*$",
        ),
        frame: regex(
            r"^(\s+(at|from|in|File|\d+:|#\d+|\.\.\.|\[\d+\]|@)\b|\s|goroutine \d+|\S*\(0x|Stacktrace:|Backtrace:|stack traceback:|#\d+ |\.\.\. \d+ more|created by |\d+: |[\w./<>*()-]+\(\.\.\.\)$|[\w./*()-]+\(0x[0-9a-f, x]*\)$)|^[\w.:<>*/$-]+\(\)$",
        ),
        // An address of the program's own machine, with its port.
        own_port: regex(
            r#"(?:\b127\.0\.0\.1|\blocalhost|::1)[\])'"]*(?::|,? *\(?port[ =:]*)(\d{1,5})\b"#,
        ),
        stack: regex(r"^\s+(at|from|in|File|\d+:|#\d+|\.\.\.|\[\d+\]|@)\s"),
        mpi: regex(
            r"MPI_ABORT was invoked|application called MPI_Abort|^Abort\(\d+\) on node|mpirun noticed that process|MPI_Abort\(",
        ),
    }
});

/// How much a line looks like the error that ended the program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Strength {
    /// A line like any other.
    Plain,
    /// It has words of failure.
    Words,
    /// A rule knows its words.
    Known,
    /// An exception, or a line that says that it is an error.
    Labelled,
}

struct Line<'a> {
    stream: Stream,
    start: usize,
    raw: &'a str,
    clean: String,
}

/// The error that ended the program, if its words tell one.
pub fn terminal_error(rules: &Rules, excerpts: &[Excerpt]) -> Option<Found> {
    let own = lines(excerpts, Stream::Stderr);
    if let Some(found) = own.iter().rev().find_map(by_scheduler) {
        return Some(found);
    }
    let of_stderr = candidate(rules, &own);
    let other = lines(excerpts, Stream::Stdout);
    // Standard output is for results; only what is clearly an error counts there.
    let of_stdout = match &of_stderr {
        Some((_, strength, _)) if *strength >= Strength::Known => None,
        _ => candidate(rules, &other).filter(|(_, strength, _)| *strength >= Strength::Known),
    };
    let abort = own.iter().find(|line| PATTERNS.mpi.is_match(&line.clean));
    match (of_stderr, of_stdout) {
        (_, Some(found)) => Some(judge(rules, &other, found)),
        (Some((_, Strength::Plain, _)) | None, None) if let Some(line) = abort => {
            Some(quoted(line, Kind::MpiAbort, Nature::Permanent, 0.8))
        }
        (Some(found), None) => Some(judge(rules, &own, found)),
        (None, None) => last_words(rules, &own),
    }
}

/// The same for a text on standard error.
#[cfg(test)]
pub fn terminal_error_of(text: &str) -> Option<Found> {
    let excerpt = Excerpt { stream: Stream::Stderr, start: 0, text: text.into() };
    terminal_error(Rules::built_in(), &[excerpt])
}

/// The line may be about an error: worth keeping although much was written after it.
pub fn may_matter(line: &str) -> bool {
    let patterns = &*PATTERNS;
    patterns.failure.is_match(line) && !patterns.harmless.is_match(line)
}

fn lines<'a>(excerpts: &'a [Excerpt], stream: Stream) -> Vec<Line<'a>> {
    let mut all = Vec::new();
    for excerpt in excerpts.iter().filter(|e| e.stream == stream) {
        let mut start = usize::try_from(excerpt.start).unwrap_or(0);
        for raw in excerpt.text.split('\n') {
            let line = Line { stream, start, raw, clean: clean(raw) };
            start += raw.len() + 1;
            all.push(line);
        }
    }
    all
}

/// Without escape codes and other characters that are no text; of a line that was written over,
/// what stood there in the end.
fn clean(raw: &str) -> String {
    let raw = raw.strip_suffix('\r').unwrap_or(raw);
    let visible = raw.rsplit('\r').find(|part| !part.trim().is_empty()).unwrap_or(raw);
    let plain = match visible.contains('\x1b') {
        true => PATTERNS.escape.replace_all(visible, ""),
        false => visible.into(),
    };
    // Text of two bytes a character is read without the zeros between.
    let wide = plain.bytes().filter(|b| *b == 0).count() * 3 > plain.len();
    plain
        .chars()
        .filter(|c| !(wide && *c == '\0'))
        .map(|c| if c.is_control() && c != '\t' || c == '\u{fffd}' { ' ' } else { c })
        .collect::<String>()
        .trim_end()
        .to_owned()
}

/// A message without time, level and the like in front.
fn body(clean: &str) -> &str {
    let mut text = clean.trim_start();
    for _ in 0..6 {
        match PATTERNS.prefix.find(text) {
            Some(found) if found.end() > 0 && found.end() < text.len() => {
                text = &text[found.end()..];
            }
            _ => break,
        }
    }
    text
}

/// The class of an exception that a line tells, and where its message begins.
fn exception<'a>(rules: &Rules, text: &'a str) -> Option<(&'a str, usize)> {
    let patterns = &*PATTERNS;
    if let Some(found) = patterns.exception.in_brackets.captures(text) {
        return found.get(1).map(|class| (class.as_str(), 0));
    }
    if let Some(rest) = text.strip_prefix("terminate called after throwing an instance of '") {
        return rest.split('\'').next().map(|class| (class, text.len()));
    }
    if let Some(found) = patterns.exception.inside.captures(text) {
        let class = found.iter().skip(1).flatten().next()?;
        return Some((class.as_str(), found.get(0).map_or(0, |whole| whole.end())));
    }
    let found = patterns.exception.named.captures(text)?;
    let class = found.get(1)?.as_str();
    let is_class = match found.get(2)?.as_str() {
        // `error (...)`, `make(...)`: only a class that is known.
        "(" | " {" => rules.by_class(class).is_some() && class.contains(char::is_uppercase),
        _ => {
            patterns.exception.suffix.is_match(class) && class.contains(char::is_uppercase)
                || rules
                    .by_class(class)
                    .is_some_and(|_| class.contains(['.', ':']) || class.len() > 5)
        }
    };
    is_class.then(|| (class, found.get(2).map_or(text.len(), |m| m.end())))
}

fn by_scheduler(line: &Line<'_>) -> Option<Found> {
    let (kind, _) = PATTERNS.scheduler.iter().find(|(_, regex)| regex.is_match(&line.clean))?;
    let nature = match kind {
        Kind::Timeout => Nature::Time,
        Kind::Oom => Nature::Memory,
        _ => Nature::Transient,
    };
    Some(Found { by_scheduler: true, ..quoted(line, *kind, nature, 0.9) })
}

/// A line as proof: its longest part that is nothing but text.
fn quoted(line: &Line<'_>, kind: Kind, nature: Nature, confidence: f64) -> Found {
    let is_odd = |c: char| c.is_control() && c != '\t' || c == '\u{fffd}';
    let mut best = 0..0;
    let mut start = 0;
    let mut take = |range: Range<usize>| {
        if range.len() > best.len() || range.len() > 20 && range.start > best.start {
            best = range;
        }
    };
    let mut codes = PATTERNS.escape.find_iter(line.raw).map(|code| code.range()).peekable();
    for (at, c) in line.raw.char_indices().filter(|(_, c)| is_odd(*c)) {
        if at < start {
            continue;
        }
        take(start..at);
        while codes.next_if(|code| code.end <= at).is_some() {}
        start = match codes.peek() {
            Some(code) if code.start <= at => code.end,
            _ => at + c.len_utf8(),
        };
    }
    take(start..line.raw.len());
    let text = &line.raw[best.clone()];
    let from = best.start + (text.len() - text.trim_start().len());
    let text = text.trim();
    Found {
        kind,
        nature,
        confidence,
        line: line.clean.trim().to_owned(),
        quote: text.to_owned(),
        stream: line.stream,
        range: line.start + from..line.start + from + text.len(),
        class: None,
        rule: None,
        by_scheduler: false,
        is_guess: false,
    }
}

type PlaceCandidate = (usize, Strength, bool);

/// The line that ended the program, how much it looks like it, and whether it was the last word.
/// Indented lines belong to the one above them, unless there is none: Fortran begins every line
/// with a blank, and some programs draw a frame around their last words.
fn candidate(rules: &Rules, lines: &[Line<'_>]) -> Option<PlaceCandidate> {
    let found = candidate_in(rules, lines, false);
    match found {
        Some((_, strength, _)) if strength > Strength::Plain => found,
        _ => candidate_in(rules, lines, true)
            .filter(|(_, strength, _)| *strength > Strength::Plain)
            .or(found),
    }
}

fn candidate_in(rules: &Rules, lines: &[Line<'_>], is_indented: bool) -> Option<PlaceCandidate> {
    let patterns = &*PATTERNS;
    let mut best: Option<(usize, Strength)> = None;
    let mut wrapper = None;
    let mut went_on = false;
    let mut at = 0;
    while at < lines.len() {
        let line = &lines[at];
        let text = ungrouped(&line.clean);
        if text.starts_with("Traceback (most recent call last)") {
            let (root, last) = traceback(lines, at);
            if let Some(root) = root {
                let text = ungrouped(&lines[root].clean);
                match patterns.trailer.is_match(text) && known(rules, text).is_none() {
                    // What it called has said why, if anything has.
                    true => wrapper = Some(root),
                    false => {
                        best = Some((root, Strength::Labelled));
                        went_on = false;
                    }
                }
                at = last + 1;
                continue;
            }
        }
        // Node shows what an error was caused by below its frames; the last of these is the root.
        if text.trim_start().starts_with("[cause]: ") && best.is_some() {
            best = Some((at, Strength::Labelled));
            at += 1;
            continue;
        }
        // Rust puts the message on the next line.
        if text.contains(" panicked at ") && text.starts_with("thread '") {
            at = (at + 1).min(lines.len() - 1);
            best = Some((at, Strength::Labelled));
            went_on = false;
            at += 1;
            continue;
        }
        let (clean, text) = match is_indented {
            true => (unframed(text), unframed(text)),
            false => (line.clean.as_str(), text),
        };
        match strength(rules, clean, text) {
            None if is_word_of_a_wrapper(text) => wrapper = wrapper.or(Some(at)),
            None => {}
            Some(Strength::Plain) => went_on |= best.is_some(),
            Some(strength) => {
                let stands = best.is_some_and(|(_, had)| {
                    // What follows at once explains it; what comes later is another error.
                    strength < had && (!went_on || strength == Strength::Words)
                });
                if !stands {
                    best = Some((at, strength));
                    went_on = false;
                }
            }
        }
        at += 1;
    }
    // A cause and its continuation: `Caused by` further down is nearer to the root.
    if let Some((at, strength)) = best {
        return Some((at, strength, !went_on));
    }
    wrapper.map(|at| (at, Strength::Plain, true))
}

/// It tells of an end, and is neither a line across the page nor the trace of a shell.
fn is_word_of_a_wrapper(text: &str) -> bool {
    PATTERNS.trailer.is_match(text)
        && !text.starts_with("+ ")
        && text.chars().any(char::is_alphabetic)
}

/// Without the frame that Python draws around the parts of a group.
fn ungrouped(clean: &str) -> &str {
    let inner = clean.trim_start_matches([' ', '|', '+', '-']);
    let frame = clean.trim_start();
    match (frame.starts_with('|') || frame.starts_with("+-")) && !inner.is_empty() {
        true => inner.trim_start(),
        false => clean,
    }
}

/// Without the indentation and the frame around it, unless it is a frame of a stack.
fn unframed(text: &str) -> &str {
    match PATTERNS.frame.is_match(text.trim_start()) || PATTERNS.stack.is_match(text) {
        true => text,
        false => text.trim_matches([' ', '\t', '*', '|', '!', '=', '#']),
    }
}

/// How much a line looks like an error. `None`: it belongs to another line, or says nothing.
fn strength(rules: &Rules, clean: &str, text: &str) -> Option<Strength> {
    let patterns = &*PATTERNS;
    if text.trim().is_empty() || patterns.forged.is_match(text) {
        return None;
    }
    let is_what = text.trim_start().starts_with("what():");
    if !is_what && (patterns.frame.is_match(clean) && clean == text) {
        return None;
    }
    let body = body(text);
    if !is_what && exception(rules, body).is_some() && !patterns.calm.is_match(text) {
        let is_wrapper = patterns.trailer.is_match(text) && known(rules, body).is_none();
        return (!is_wrapper).then_some(Strength::Labelled);
    }
    if patterns.trailer.is_match(text) {
        return known(rules, body)
            .filter(|rule| rule.kind == Kind::Killed || rule.kind == Kind::Crash)
            .map(|_| Strength::Words);
    }
    let is_calm = patterns.calm.is_match(text);
    if is_what || !is_calm && patterns.labelled.is_match(text) && !patterns.harmless.is_match(text)
    {
        return Some(Strength::Labelled);
    }
    if is_calm || patterns.harmless.is_match(text) {
        return Some(Strength::Plain);
    }
    if known(rules, body).is_some() {
        return Some(Strength::Known);
    }
    if patterns.note.is_match(text) {
        return None;
    }
    Some(match patterns.failure.is_match(text) {
        true => Strength::Words,
        false => Strength::Plain,
    })
}

fn known<'a>(rules: &'a Rules, text: &str) -> Option<&'a Rule> {
    const LONGEST: usize = 2000;
    let end = text.char_indices().nth(LONGEST).map_or(text.len(), |(at, _)| at);
    rules.by_message(&text[..end])
}

/// What a line means.
fn judge(rules: &Rules, lines: &[Line<'_>], (at, strength, is_last): PlaceCandidate) -> Found {
    let line = &lines[at];
    let text = body(ungrouped(&line.clean));
    // The message of C++ stands on the line after its class.
    let what = match text.starts_with("terminate called after") {
        true => lines.get(at + 1).map(|l| l.clean.trim().trim_start_matches("what():").trim()),
        false => None,
    };
    let class = exception(rules, text);
    let message = what.unwrap_or_else(|| match class {
        Some((_, start)) => text[start..].trim(),
        None => text,
    });
    let rule = class.and_then(|(class, _)| rules.by_class(class));
    let by_words = || {
        let own = known(rules, message).or_else(|| known(rules, text));
        own.or_else(|| continuation(rules, lines, at)).or_else(|| beside(rules, lines, at))
    };
    let (rule, penalty) = match (class, rule) {
        (Some(_), Some(rule)) if !rule.is_generic() => (Some(rule), 0.0),
        (Some(_), Some(generic)) => (by_words().or(Some(generic)), 0.0),
        // A class that is not known speaks by its name, else its message does.
        (Some((class, _)), None) => match by_name(rules, class) {
            Some(rule) => (Some(rule), 0.03),
            None => (by_words(), 0.03),
        },
        (None, _) => (by_words(), 0.0),
    };
    let rule = match rule {
        Some(passing) if passing.nature == Nature::Transient => {
            taken_back(rules, lines, at, passing).or(rule)
        }
        Some(absent) if matches!(absent.kind, Kind::MissingModule | Kind::MissingFile) => {
            retried_in_vain(rules, &lines[..at]).or(rule)
        }
        _ => rule,
    };
    let (kind, nature, mut sure) = match (rule, strength) {
        (Some(rule), _) => (rule.kind, rule.nature, rule.sure - penalty),
        (None, Strength::Labelled) => (Kind::ProgramError, Nature::Permanent, 0.9),
        (None, _) => (Kind::ProgramError, Nature::Permanent, 0.8),
    };
    let passes = kind == Kind::Network && nature == Nature::Transient;
    let nature = match passes && is_refused_at_system_port(text) {
        true => Nature::Permanent,
        false => nature,
    };
    if !is_last {
        // Something was written after it, so the program may have survived it.
        sure *= 0.85;
    }
    Found {
        class: class.map(|(class, _)| class.to_owned()),
        rule: rule.map(|rule| rule.id.clone()),
        ..quoted(line, kind, nature, sure)
    }
}

/// Refused at a port below 1024 of the program's own machine. Only services of the system listen
/// there, from boot on, so that no other job will come up at this address: it is a wrong setting.
fn is_refused_at_system_port(text: &str) -> bool {
    const FIRST_OF_USERS: u32 = 1024;
    let refused = text.contains("refused") || text.contains("ECONNREFUSED");
    refused
        && PATTERNS
            .own_port
            .captures_iter(text)
            .filter_map(|found| found.get(1)?.as_str().parse::<u32>().ok())
            .any(|port| (1..FIRST_OF_USERS).contains(&port))
}

/// What stands below an error and belongs to it: what it was caused by, and the last of that is the
/// root.
fn continuation<'a>(rules: &'a Rules, lines: &[Line<'_>], at: usize) -> Option<&'a Rule> {
    const FOLLOWING: usize = 16;
    const LEADS_ON: [&str; 7] =
        ["Caused by", "In addition:", "In ", "Warning message", "DETAIL:", "Reason:", "---> "];
    // What a test shows below its name is what it expected.
    if lines[at].clean.trim_start().starts_with("FAIL") {
        return None;
    }
    lines[at + 1..]
        .iter()
        .take(FOLLOWING)
        .map(|line| line.clean.as_str())
        .take_while(|text| {
            text.starts_with([' ', '\t', '}'])
                || text.is_empty()
                || LEADS_ON.iter().any(|words| text.starts_with(words))
        })
        .filter(|text| !text.trim_start().starts_with("at ") && !text.contains(" | "))
        .filter_map(|text| known(rules, text.trim()))
        .last()
}

/// What the lines beside an error say that no rule knows: a program often tells what happened in
/// one line and what it does about it in the next. Only lines without a gap count, and before it
/// only what is called an error as well.
fn beside<'a>(rules: &'a Rules, lines: &[Line<'_>], at: usize) -> Option<&'a Rule> {
    const NEAR: usize = 4;
    let patterns = &*PATTERNS;
    if lines[at].clean.trim_start().starts_with("FAIL") {
        return None;
    }
    let strength_of = |line: &Line<'_>| strength(rules, &line.clean, ungrouped(&line.clean));
    let below = lines[at + 1..]
        .iter()
        .take(NEAR)
        .take_while(|line| {
            !line.clean.trim().is_empty()
                && !patterns.calm.is_match(&line.clean)
                && !patterns.harmless.is_match(&line.clean)
        })
        .filter(|line| strength_of(line).is_some_and(|s| s >= Strength::Known))
        .find_map(|line| meaning(rules, body(ungrouped(&line.clean))));
    below.or_else(|| {
        lines[..at]
            .iter()
            .rev()
            .filter(|line| !is_detail(&line.clean))
            .take(NEAR)
            .take_while(|line| strength_of(line).is_some_and(|s| s >= Strength::Known))
            .filter(|line| strength_of(line) == Some(Strength::Labelled))
            .find_map(|line| meaning(rules, body(ungrouped(&line.clean))))
    })
}

/// `Feature: solver`, `Host: n1`: a detail of the error above it.
fn is_detail(text: &str) -> bool {
    text.split_once(": ").is_some_and(|(name, value)| {
        name.len() < 20
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && !name.contains(' ')
            && !value.contains(' ')
    })
}

/// What a line means by the class that it names, else by its message.
fn meaning<'a>(rules: &'a Rules, text: &str) -> Option<&'a Rule> {
    let Some((class, start)) = exception(rules, text) else { return known(rules, text) };
    match rules.by_class(class) {
        Some(rule) if !rule.is_generic() => Some(rule),
        _ => known(rules, text[start..].trim()).or_else(|| by_name(rules, class)),
    }
}

/// An index that could not be reached looks empty: what was not found after the program had tried
/// several times to reach it may well be there.
fn retried_in_vain<'a>(rules: &'a Rules, before: &[Line<'_>]) -> Option<&'a Rule> {
    const NEAR: usize = 12;
    let mut tries = before.iter().rev().take(NEAR).filter_map(|line| {
        let text = line.clean.as_str();
        let says_so = text.contains("etrying") || text.contains("etry(");
        says_so
            .then(|| known(rules, text))
            .flatten()
            .filter(|rule| rule.kind == Kind::Network && rule.nature == Nature::Transient)
    });
    tries.next().and(tries.next())
}

/// What follows a passing trouble and takes it back: a lock that is held, which the next line says
/// to remove by hand.
fn taken_back<'a>(
    rules: &'a Rules,
    lines: &[Line<'_>],
    at: usize,
    rule: &Rule,
) -> Option<&'a Rule> {
    const NEAR: usize = 6;
    lines[at + 1..].iter().take(NEAR).find_map(|line| {
        known(rules, line.clean.trim()).filter(|other| {
            other.is_first() && other.kind == rule.kind && other.nature == Nature::Permanent
        })
    })
}

/// What the name of a class tells that no rule lists.
fn by_name<'a>(rules: &'a Rules, class: &str) -> Option<&'a Rule> {
    let name = class.rsplit(['.', ':', '$']).next().unwrap_or(class).to_ascii_lowercase();
    let like = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let class = if like(&["outofmemory", "memoryerror", "memorylimit"]) {
        "MemoryError"
    } else if like(&[
        "unauthorized",
        "forbidden",
        "permission",
        "accessdenied",
        "authentication",
        "credential",
    ]) {
        "PermissionError"
    } else if like(&["notfound", "nosuch"]) {
        "FileNotFoundError"
    } else if like(&["invalid", "config", "argument", "parse", "syntax", "unsupported"]) {
        "ValueError"
    } else if like(&[
        "timeout",
        "timedout",
        "connection",
        "network",
        "unavailable",
        "throttl",
        "ratelimit",
        "toomanyrequest",
        "toomanyconnection",
        "throughputexceeded",
        "concurrentrunsexceeded",
        "insufficientinstancecapacity",
        "standby",
        "notserving",
        "notprimary",
        "notleader",
        "busy",
        "tryagain",
        "temporar",
        "unexpectedclose",
        "connect",
        "deadlock",
        "socket",
        "unreachable",
        "disconnect",
        "transient",
        "retryable",
    ]) {
        "ConnectionError"
    } else if like(&["assert", "validation", "schema", "type", "index"]) {
        "ValueError"
    } else {
        return None;
    };
    rules.by_class(class)
}

/// No line is an error. What a program wrote last before it gave up is the best guess.
fn last_words(rules: &Rules, lines: &[Line<'_>]) -> Option<Found> {
    let patterns = &*PATTERNS;
    let is_word = |line: &&Line<'_>| {
        let text = line.clean.trim();
        text.chars().any(char::is_alphabetic)
            && !patterns.frame.is_match(&line.clean)
            && !patterns.trailer.is_match(text)
            && !patterns.forged.is_match(text)
    };
    let mut words = lines.iter().rev().filter(is_word);
    let last = words.next()?;
    let is_harmless =
        patterns.calm.is_match(&last.clean) || patterns.harmless.is_match(&last.clean);
    // A warning may be all that a program says about why it gives up.
    if let Some(rule) = known(rules, body(&last.clean))
        && (!is_harmless || rule.nature == Nature::Permanent)
    {
        let found = quoted(last, rule.kind, rule.nature, rule.sure.min(0.85));
        return Some(Found { rule: Some(rule.id.clone()), is_guess: true, ..found });
    }
    // Lines that differ in numbers only count something; they are no reason.
    let shape = |line: &Line<'_>| line.clean.replace(|c: char| c.is_ascii_digit(), "");
    if is_harmless || words.next().is_some_and(|before| shape(before) == shape(last)) {
        return None;
    }
    let found = quoted(last, Kind::ProgramError, Nature::Unclear, 0.8);
    (!found.line.is_empty()).then_some(Found { is_guess: true, ..found })
}

/// The exception of a Python traceback that begins here, and the last line that belongs to it. Of
/// exceptions that were raised *from* others the first is the root; of those raised while handling
/// others, the last.
fn traceback(lines: &[Line<'_>], start: usize) -> (Option<usize>, usize) {
    let text = |at: usize| ungrouped(&lines[at].clean);
    let exception_of = |start: usize| {
        let inside = |line: &str| line.starts_with([' ', '\t']) || line.is_empty();
        (start + 1..lines.len()).find(|i| !inside(text(*i)))
    };
    let Some(mut root) = exception_of(start) else { return (None, start) };
    let mut last = root;
    let mut follows_root = true;
    loop {
        let next = (last + 1..lines.len())
            .find(|i| text(*i).starts_with("Traceback (most recent call last)"));
        let Some(next) = next else { break };
        let says = |words: &str| (last + 1..next).any(|i| text(i).starts_with(words));
        let is_caused = says("The above exception was the direct cause");
        let is_during = says("During handling of the above exception");
        if !is_caused && !is_during {
            break;
        }
        let Some(exception) = exception_of(next) else { break };
        if is_during {
            follows_root = false;
        }
        if !is_caused || !follows_root {
            root = exception;
            follows_root = true;
        }
        last = exception;
    }
    (Some(root), last)
}

#[cfg(test)]
mod tests;
