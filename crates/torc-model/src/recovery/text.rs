//! Reads the end of a program's standard error for the error that ended it.
//!
//! Only the *terminal* error counts: the last exception (the root of its chain), the last line that
//! reports a failure. A message further up that the program survived decides nothing.

use super::kind::Kind;
use regex::{Regex, RegexSet};
use std::ops::Range;
use std::sync::LazyLock;

/// The error that ended a program, as its own words tell it.
#[derive(Clone, PartialEq, Debug)]
pub struct Found {
    /// What it says happened.
    pub kind: Kind,
    /// How sure that is, 0..1.
    pub confidence: f64,
    /// The line.
    pub line: String,
    /// Where the line is in the text, in bytes.
    pub range: Range<usize>,
    /// The scheduler wrote it, not the program.
    pub by_scheduler: bool,
}

/// Messages by kind, the more telling ones first. They are matched against one line, never against
/// the whole text.
const MESSAGES: &[(Kind, f64, &str)] = &[
    (
        Kind::GpuOom,
        0.95,
        r"(?i)cuda(: | error: | )?out of memory|CUDA_ERROR_OUT_OF_MEMORY|hip(: | )?out of memory|hipErrorOutOfMemory|torch\.(cuda\.)?OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|RESOURCE_EXHAUSTED: .*(OOM|allocat)",
    ),
    (
        Kind::Oom,
        0.85,
        r"\bMemoryError\b|std::bad_alloc|OutOfMemoryError|(?i)\bout of memory\b|cannot allocate memory|cannot allocate vector of size|memory allocation of \d+ bytes failed|virtual memory exhausted",
    ),
    (Kind::DiskFull, 0.9, r"(?i)no space left on device|\bENOSPC\b|\bdisk (is )?full\b"),
    (Kind::Quota, 0.9, r"(?i)disk quota exceeded|\bEDQUOT\b|file size limit exceeded"),
    (
        Kind::License,
        0.8,
        r"(?i)licen[cs]e.{0,40}(check-?out|not available|unavailable|expired|denied|in use)|no (free |more )?licen[cs]es? (is |are )?available|flexnet licensing error|lm_checkout",
    ),
    (
        Kind::Network,
        0.85,
        r"(?i)connection (was )?(refused|reset|aborted|timed out)|ECONNREFUSED|ECONNRESET|ETIMEDOUT|network is unreachable|no route to host|could not resolve host|name or service not known|temporary failure in name resolution|\bConnectionError\b|failed to connect to|\b50[234] (bad gateway|service|gateway)",
    ),
    (
        Kind::FileSystem,
        0.85,
        r"(?i)stale (nfs )?file handle|input/output error|\bEIO\b|transport endpoint is not connected|read-only file system|remote I/O error",
    ),
    (
        Kind::ProcessLimit,
        0.85,
        r"(?i)too many open files|\bfork: |resource temporarily unavailable|can't start new thread|\bEMFILE\b",
    ),
    (
        Kind::MissingModule,
        0.9,
        r"ModuleNotFoundError|\bImportError\b|(?i)no module named|error while loading shared libraries|cannot open shared object|there is no package called|can't locate \S+ in @INC|cannot load such file|cannot find module",
    ),
    (
        Kind::CommandNotFound,
        0.85,
        r"(?i)command not found|: not found$|: executable file not found",
    ),
    (Kind::MissingFile, 0.8, r"FileNotFoundError|(?i)no such file or directory|\bENOENT\b"),
    (
        Kind::Permission,
        0.8,
        r"PermissionError|(?i)permission denied|\bEACCES\b|operation not permitted",
    ),
    (
        Kind::Killed,
        0.6,
        r"died with <Signals\.SIGKILL|(?i)(on|by|with) signal 9\b|: line \d+: +\d+ killed\b|returned non-zero exit status 137\b",
    ),
    (
        Kind::Crash,
        0.9,
        r"(?i)segmentation (fault|violation)|\bbus error\b|illegal instruction|floating point exception|stack smashing detected|double free or corruption|\bSIGSEGV\b|\bSIGABRT\b|has overflowed its stack|core dumped",
    ),
];

/// What Slurm itself writes into a job's output.
const SCHEDULER: &[(Kind, &str)] = &[
    (Kind::Timeout, r"^(slurmstepd|srun): .*\bDUE TO TIME LIMIT\b"),
    (Kind::Preempted, r"^(slurmstepd|srun): .*\bDUE TO PREEMPTION\b"),
    (Kind::NodeFail, r"^(slurmstepd|srun): .*\bDUE TO NODE FAILURE\b"),
    (
        Kind::Oom,
        r"^(slurmstepd|srun): .*(\boom[-_]kill event|[Oo]ut [Oo]f [Mm]emory|Exceeded (step|job) memory limit)",
    ),
];

struct Patterns {
    messages: RegexSet,
    scheduler: RegexSet,
    exception: Regex,
    failure: Regex,
    harmless: Regex,
    trailer: Regex,
    mpi: Regex,
}

static PATTERNS: LazyLock<Patterns> = LazyLock::new(|| {
    let regex = |text| Regex::new(text).expect("a constant pattern");
    Patterns {
        messages: RegexSet::new(MESSAGES.iter().map(|(_, _, p)| p)).expect("constant patterns"),
        scheduler: RegexSet::new(SCHEDULER.iter().map(|(_, p)| p)).expect("constant patterns"),
        // `KeyError: 'x'`, `numpy.linalg.LinAlgError: ...`, `java.lang.IllegalStateException: ...`
        exception: regex(
            r"^(Caused by: |Exception in thread \S+ )?[A-Za-z_][\w.$]*(Error|Exception|Exit|Interrupt)\b(:|$)",
        ),
        failure: regex(
            r"(?i)\b(errors?|fatal|exceptions?|failed|failure|cannot|can't|could not|unable to|denied|refused|killed|aborted|abort|panic(ked)?|not found|no such|no space|exceeded|out of memory|fault|timed out|unreachable|invalid|assertion|undefined|what\(\):)",
        ),
        // A message the program survived, or a count of nothing.
        harmless: regex(
            r"(?i)\b(warn|warning|info|debug|notice|retrying|will retry|retry in|ignored|deprecated|0 errors|no errors?)\b",
        ),
        // Written by what ran the program, about its end, without a reason.
        trailer: regex(
            r"^(make(\[\d+\])?: \*\*\* |npm ERR! |srun: error: .*[Ee]xited with exit code|srun: Terminating|note: run with `RUST_BACKTRACE|-{5,}|={5,}|\*{5,}|\+ )|^(exit status \d+|Aborted( \(core dumped\))?|Exiting\b.*|Execution halted|with errorcode -?\d+\.?|\d+\+\d+ records (in|out)|Error: (Process completed with|Command failed with) exit code \d+\.?)$|returned a non-zero exit code|Primary job +terminated normally",
        ),
        mpi: regex(
            r"MPI_ABORT was invoked|application called MPI_Abort|^Abort\(\d+\) on node|mpirun noticed that process|MPI_Abort\(",
        ),
    }
});

/// The error that ended the program, if its words tell one.
pub fn terminal_error(text: &str) -> Option<Found> {
    let lines = lines(text);
    let patterns = &*PATTERNS;
    if let Some(found) = lines.iter().rev().find_map(|(at, line)| by_scheduler(*at, line)) {
        return Some(found);
    }
    let mut terminal: Option<(usize, bool)> = None;
    let mut mpi = None;
    let mut meaningful = None;
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at].1;
        if line.starts_with("Traceback (most recent call last)") {
            let (root, last) = traceback(&lines, at);
            if let Some(root) = root {
                terminal = Some((root, true));
                meaningful = Some(root);
                at = last + 1;
                continue;
            }
        }
        if patterns.mpi.is_match(line) {
            mpi = mpi.or(Some(at));
        } else if line.contains("' panicked at ") || line.starts_with("panic: ") {
            // Rust puts the message on the next line, Go on the same.
            let message =
                if line.contains("' panicked at ") && at + 1 < lines.len() { at + 1 } else { at };
            terminal = Some((message, true));
            meaningful = Some(message);
            at = message;
        } else if !line.trim().is_empty() && !patterns.trailer.is_match(line) {
            // Stack frames are indented, except for the heads of Go's.
            let is_frame = line.starts_with([' ', '\t'])
                || line.starts_with("goroutine ")
                || line.ends_with("()");
            if is_failure(line) {
                terminal = Some((at, patterns.exception.is_match(line)));
            }
            if !is_frame {
                meaningful = Some(at);
            }
        }
        at += 1;
    }
    let Some((at, is_exception)) = terminal else {
        let at = mpi?;
        return Some(found(&lines, at, Kind::MpiAbort, 0.6));
    };
    let (kind, confidence) = match first_message(lines[at].1) {
        Some((kind, confidence)) => (kind, confidence),
        None => (Kind::ProgramError, if is_exception { 0.9 } else { 0.6 }),
    };
    // Something was written after it, so the program may have survived it.
    let is_last = meaningful.is_none_or(|last| last <= at);
    Some(found(&lines, at, kind, if is_last { confidence } else { confidence * 0.75 }))
}

fn found(lines: &[(usize, &str)], at: usize, kind: Kind, confidence: f64) -> Found {
    let (start, line) = lines[at];
    Found {
        kind,
        confidence,
        line: line.trim_end().into(),
        range: start..start + line.len(),
        by_scheduler: false,
    }
}

fn by_scheduler(start: usize, line: &str) -> Option<Found> {
    let first = PATTERNS.scheduler.matches(line).iter().next()?;
    let range = start..start + line.len();
    Some(Found {
        kind: SCHEDULER[first].0,
        confidence: 0.9,
        line: line.trim_end().into(),
        range,
        by_scheduler: true,
    })
}

fn first_message(line: &str) -> Option<(Kind, f64)> {
    let first = PATTERNS.messages.matches(line).iter().next()?;
    Some((MESSAGES[first].0, MESSAGES[first].1))
}

/// The line reports a failure, not a warning about one.
fn is_failure(line: &str) -> bool {
    let patterns = &*PATTERNS;
    if patterns.harmless.is_match(line) {
        return false;
    }
    patterns.exception.is_match(line)
        || patterns.failure.is_match(line)
        || patterns.messages.is_match(line)
}

fn lines(text: &str) -> Vec<(usize, &str)> {
    let mut start = 0;
    text.split('\n')
        .map(|line| {
            let at = start;
            start += line.len() + 1;
            (at, line.strip_suffix('\r').unwrap_or(line))
        })
        .collect()
}

/// The exception of a Python traceback that begins here, and the last line that belongs to it. Of
/// exceptions that were raised *from* others the first is the root; of those raised while handling
/// others, the last.
fn traceback(lines: &[(usize, &str)], start: usize) -> (Option<usize>, usize) {
    let exception_of = |start: usize| {
        let inside = |line: &str| line.starts_with([' ', '\t']) || line.is_empty();
        (start + 1..lines.len()).find(|i| !inside(lines[*i].1))
    };
    let Some(mut root) = exception_of(start) else { return (None, start) };
    let mut last = root;
    let mut follows_root = true;
    loop {
        let next = (last + 1..lines.len())
            .find(|i| lines[*i].1.starts_with("Traceback (most recent call last)"));
        let Some(next) = next else { break };
        let between = &lines[last + 1..next];
        let is_caused =
            between.iter().any(|(_, l)| l.starts_with("The above exception was the direct cause"));
        let is_during =
            between.iter().any(|(_, l)| l.starts_with("During handling of the above exception"));
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
mod tests {
    use super::*;

    fn kind(text: &str) -> Option<Kind> {
        terminal_error(text).map(|f| f.kind)
    }

    #[test]
    fn the_last_exception_decides_not_an_earlier_message() {
        let text = "urllib3: connection refused\nTraceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    \
                    x['k']\nKeyError: 'k'\n";
        let found = terminal_error(text).expect("an error");
        assert_eq!((found.kind, found.line.as_str()), (Kind::ProgramError, "KeyError: 'k'"));
        assert_eq!(&text[found.range], "KeyError: 'k'");
    }

    #[test]
    fn the_root_of_a_chain_decides() {
        let chain = "Traceback (most recent call last):\n  File \"a\", line 1, in f\nConnectionRefusedError: [Errno 111] \
                     Connection refused\n\nThe above exception was the direct cause of the following exception:\n\n\
                     Traceback (most recent call last):\n  File \"a\", line 2, in g\nRuntimeError: no data\n";
        assert_eq!(kind(chain), Some(Kind::Network));
        let handling = chain.replace(
            "The above exception was the direct cause of the following",
            "During handling of the above exception, another",
        );
        assert_eq!(kind(&handling), Some(Kind::ProgramError));
        let java = "Exception in thread \"main\" java.lang.RuntimeException: load\n\tat A.main(A.java:3)\nCaused by: java.io.IOException: No space left on device\n\tat B.write(B.java:1)\n";
        assert_eq!(kind(java), Some(Kind::DiskFull));
    }

    #[test]
    fn warnings_and_trailers_are_no_errors() {
        assert_eq!(kind("WARNING: connection refused, retrying in 5 s\ndone\n"), None);
        assert_eq!(kind("Killed\n").map(|k| k == Kind::Oom), Some(false));
        assert_eq!(
            kind("cp: write error: No space left on device\nmake: *** [all] Error 1\n"),
            Some(Kind::DiskFull)
        );
        assert_eq!(kind(""), None);
    }

    #[test]
    fn an_error_that_was_survived_is_less_sure() {
        let last = terminal_error("cat: x: No space left on device\n").expect("found").confidence;
        let survived =
            terminal_error("cat: x: No space left on device\nwriting elsewhere\nstep 4\n")
                .expect("found");
        assert!(survived.confidence < 0.7 && last > 0.7, "{survived:?}");
    }

    #[test]
    fn any_text_is_read_without_a_panic() {
        for text in [
            "Traceback (most recent call last):",
            "Traceback (most recent call last):\n  x",
            "\u{fffd}\n\0\r\n'",
            "thread 'x' panicked at a:1:1:",
        ] {
            let _ = terminal_error(text);
        }
    }
}
