//! What makes two failures the same: the program, what happened, the exception and the shape of its
//! message.

use super::diagnosis::{Diagnosis, Facts};
use super::kind::Kind;
use super::text::Stream;
use super::untrusted;
use regex::Regex;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::sync::LazyLock;
use utoipa::ToSchema;

/// Longer messages are told apart by their beginning.
const LONGEST_TEMPLATE: usize = 240;

/// Tells failures apart. Numbers, paths and addresses in a message do not matter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Fingerprint {
    /// Equal for the same failure.
    pub id: String,
    /// Equal for near failures: the same program, kind and exception with another message.
    pub family: String,
    /// What happened.
    pub kind: Kind,
    /// The program, without numbers.
    pub program: String,
    /// The exception's type, when the output names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// The message with numbers, paths and addresses masked, and the innermost frame of the stack
    /// where the output shows one, without its line number.
    pub template: String,
}

struct FingerprintPatterns {
    exception: Regex,
    python: Regex,
    at: Regex,
    masks: [(Regex, &'static str); 6],
}

static PATTERNS: LazyLock<FingerprintPatterns> = LazyLock::new(|| {
    let regex = super::pattern::ascii;
    FingerprintPatterns {
        exception: regex(
            r"^(?:Caused by: |Exception in thread \S+ )?([A-Za-z_][\w.$]*(?:Error|Exception|Exit|Interrupt))\b",
        ),
        python: regex(r#"^\s*File "([^"]+)", line \d+, in (\S+)"#),
        at: regex(r"^\s+at ([\w.$<>]+) ?\("),
        masks: [
            (regex(r"\b[a-z][a-z0-9+.-]*://\S+"), "<url>"),
            (
                regex(
                    r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b",
                ),
                "<id>",
            ),
            (regex(r"(?:~|\.{1,2})?(?:/[\w.@%+=-]+){2,}/?"), "<path>"),
            (regex(r"\b0x[0-9a-fA-F]+\b"), "<n>"),
            (regex(r"\b[0-9a-f]{12,}\b"), "<id>"),
            (regex(r"[0-9]+(?:[.:,][0-9]+)*"), "<n>"),
        ],
    }
});

impl Fingerprint {
    /// Of a failure.
    pub fn new(command: &str, facts: &Facts<'_>, diagnosis: Option<&Diagnosis>) -> Self {
        let kind = diagnosis.map_or(Kind::Unknown, |d| d.kind);
        let words = diagnosis.and_then(Diagnosis::words).or_else(|| last_line(facts.stderr_tail));
        // Only the shape of the message is kept: a secret in it would be masked here, and hidden
        // text made visible.
        let message = untrusted::line(words.unwrap_or_default(), LONGEST_TEMPLATE);
        let exception = PATTERNS.exception.captures(&message).map(|found| found[1].to_owned());
        let mut template = masked(&message);
        if template.is_empty() {
            // Without words the exit code is all that tells two failures apart.
            template = match (facts.signal, facts.return_code) {
                (Some(signal), _) => format!("signal {signal}"),
                (None, Some(code)) => format!("exit {code}"),
                (None, None) => String::new(),
            };
        }
        let program = program(command);
        let cause = facts.cause.map_or("", crate::status::Cause::as_str);
        let family = digest(&[kind.as_str(), &program, exception.as_deref().unwrap_or("")]);
        if let Some(frame) = diagnosis.and_then(|diagnosis| frame(facts, diagnosis)) {
            template += &format!(" (in {frame})");
        }
        let id = digest(&[&family, cause, &template]);
        Self { id, family, kind, program, exception, template }
    }
}

/// Where the error was raised: the last frame of a Python traceback above the quoted words, or the
/// first frame below them (JVM, Node, .NET). The name of the function and of its file.
fn frame(facts: &Facts<'_>, diagnosis: &Diagnosis) -> Option<String> {
    const NEAR: usize = 40;
    let quoted = diagnosis.proof.iter().find_map(|proof| proof.start)?;
    let excerpts = facts.excerpts();
    let (text, at) = excerpts.iter().filter(|e| e.stream == Stream::Stderr).find_map(|e| {
        let at = usize::try_from(quoted.checked_sub(e.start)?).ok()?;
        e.text.is_char_boundary(at).then_some((e.text.as_str(), at)).filter(|_| at < e.text.len())
    })?;
    let above = text[..at].lines().rev().take(NEAR).find_map(|line| {
        let found = PATTERNS.python.captures(line)?;
        Some(format!("{} of {}", &found[2], base(&found[1])))
    });
    let below = || {
        text[at..]
            .lines()
            .skip(1)
            .take(2)
            .find_map(|line| PATTERNS.at.captures(line).map(|found| found[1].to_owned()))
    };
    above.or_else(below).map(|frame| masked(&untrusted::line(&frame, 120)))
}

/// Replaces what differs between two failures of the same kind.
fn masked(text: &str) -> String {
    let mut text = text.trim().to_owned();
    for (pattern, with) in &PATTERNS.masks {
        if let std::borrow::Cow::Owned(new) = pattern.replace_all(&text, *with) {
            text = new;
        }
    }
    text
}

fn last_line(text: &str) -> Option<&str> {
    // Torc writes what became of steps into the same log.
    let is_own = |line: &str| line.starts_with("[torc] ");
    text.lines().rev().map(str::trim).find(|line| !line.is_empty() && !is_own(line))
}

fn digest(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The program that a command line runs: its name, and the script of an interpreter.
pub(super) fn program(command: &str) -> String {
    const STARTERS: [&str; 12] = [
        "env", "exec", "time", "nice", "nohup", "srun", "mpirun", "mpiexec", "stdbuf", "timeout",
        "command", "sudo",
    ];
    const INTERPRETERS: [&str; 9] =
        ["python", "bash", "sh", "Rscript", "perl", "ruby", "node", "julia", "java"];
    let last = command.rsplit("&&").find(|part| !part.trim().is_empty()).unwrap_or(command);
    let is_setting =
        |word: &str| word.split_once('=').is_some_and(|(name, _)| !name.contains(['/', '-']));
    let mut words = last
        .split_whitespace()
        .skip_while(|word| {
            STARTERS.contains(&base(word))
                || is_setting(word)
                || word.starts_with('-')
                || word.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 's' | 'm' | 'h'))
        })
        .map(base);
    let first = words.next().unwrap_or_default();
    let is_interpreter = INTERPRETERS.iter().any(|i| {
        first
            .strip_prefix(i)
            .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'))
    });
    let name = match is_interpreter.then(|| words.find(|word| !word.starts_with('-'))).flatten() {
        Some(script) => format!("{first} {script}"),
        None => first.to_owned(),
    };
    masked(&untrusted::line(&name, 80))
}

fn base(word: &str) -> &str {
    word.trim_matches(['"', '\'']).rsplit('/').next().unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::super::diagnose;
    use super::*;
    use crate::status::Cause;

    fn of(command: &str, stderr: &str, code: i64) -> Fingerprint {
        let facts = Facts {
            cause: Some(Cause::Exit),
            return_code: Some(code),
            stderr_tail: stderr,
            ..Facts::default()
        };
        Fingerprint::new(command, &facts, diagnose(&facts).as_ref())
    }

    #[test]
    fn numbers_paths_and_addresses_do_not_matter() {
        let one = of(
            "srun -n 4 python3 /home/a/train.py --seed 1",
            "ConnectionError: could not reach https://store.example:443/x after 31.5 s (id 0x7f3a)\n",
            1,
        );
        let two = of(
            "python3 ./train.py --seed 77",
            "noise\nConnectionError: could not reach https://other.example/y after 8 s (id 0x11)\n",
            1,
        );
        assert_eq!(one.id, two.id, "{one:?}\n{two:?}");
        assert_eq!(one.exception.as_deref(), Some("ConnectionError"));
        assert_eq!(one.program, "python<n> train.py");
    }

    #[test]
    fn another_message_is_near_and_another_exception_is_not() {
        let key = of("python a.py", "KeyError: 'x'\n", 1);
        let other = of("python a.py", "KeyError: 'some other thing'\n", 1);
        let value = of("python a.py", "ValueError: bad\n", 1);
        assert!(key.id != other.id && key.family == other.family, "{key:?}\n{other:?}");
        assert_ne!(key.family, value.family);
        assert_ne!(key.id, of("python b.py", "KeyError: 'x'\n", 1).id);
    }

    #[test]
    fn where_it_was_raised_tells_failures_apart_and_the_line_does_not() {
        let raised = |function: &str, line: i64| {
            let text = format!(
                "Traceback (most recent call last):\n  File \"/w/a.py\", line {line}, in {function}\n    \
                 x[k]\nKeyError: 'x'\n"
            );
            of("python a.py", &text, 1)
        };
        let (load, later, save) = (raised("load", 3), raised("load", 88), raised("save", 3));
        assert_eq!(load.template, "KeyError: 'x' (in load of a.py)");
        assert_eq!(load.id, later.id);
        assert!(load.id != save.id && load.family == save.family);
        let java = of(
            "java App",
            "Exception in thread \"main\" java.lang.IllegalStateException: odd\n\tat app.Main.step(Main.java:7)\n",
            1,
        );
        assert!(java.template.ends_with("odd (in app.Main.step)"), "{}", java.template);
    }

    #[test]
    fn without_words_the_exit_code_counts() {
        assert_ne!(of("x", "", 3).id, of("x", "", 4).id);
        assert_eq!(of("x", "", 3).template, "exit 3");
    }

    #[test]
    fn starters_and_settings_are_no_program() {
        assert_eq!(program("cd /x && OMP_NUM_THREADS=4 time ./solve_12 in.txt"), "solve_<n>");
        assert_eq!(program("bash -e run.sh 3"), "bash run.sh");
        assert_eq!(program(""), "");
    }
}
