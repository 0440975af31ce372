//! What `squeue` is asked and what it answers.

use super::state::{self, Verdict};

/// The columns asked for. Name, reason and script come last because they may contain anything.
pub const FORMAT: &str = "%i|%T|%N|%V|%e|%S|%j|%r|%o";

/// The arguments of the one query that answers for every allocation of a user, ended ones included.
pub fn arguments(user: &str) -> Vec<String> {
    vec![
        "-h".into(),
        "-r".into(),
        "--states=all".into(),
        format!("--user={user}"),
        "-o".into(),
        FORMAT.into(),
    ]
}

/// One line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// `123`, or `123_4` for a task of an array.
    pub id: String,
    /// Slurm's state word.
    pub state: String,
    /// Its nodes.
    pub nodes: String,
    /// When it was submitted, as Slurm prints it.
    pub submitted: String,
    /// Expected or actual end, as Slurm prints it.
    pub end: String,
    /// Expected or actual start, as Slurm prints it; `N/A` while Slurm has not planned it.
    pub start: String,
    /// Its name.
    pub name: String,
    /// Why it waits.
    pub reason: String,
    /// Its script, without the directory and `.sh`; empty where Slurm does not tell.
    pub script: String,
}

impl Row {
    /// It is the allocation of this name. Links of a chain share their name in Slurm; the script
    /// of each has its own.
    pub fn is_of(&self, allocation: &str) -> bool {
        self.name == allocation
            || super::is_name_of(&self.name, allocation) && self.script == allocation
    }

    /// What its state means.
    pub fn verdict(&self) -> Verdict {
        state::verdict(&self.state, Some(&self.reason))
    }
}

/// What a query told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Slurm answered; jobs that are not here are not in its queue.
    Rows(Vec<Row>),
    /// Slurm could not be asked.
    Unreachable(String),
}

/// Reads the outcome of the query. Any failure but "no such job" is "unknown", never "gone".
pub fn read(exit_code: Option<i32>, stdout: &str, stderr: &str) -> Answer {
    match exit_code {
        Some(0) => {}
        Some(_) if stderr.contains("Invalid job id specified") => return Answer::Rows(Vec::new()),
        Some(code) => {
            return Answer::Unreachable(format!("squeue ended with {code}: {}", last_line(stderr)));
        }
        None => return Answer::Unreachable("squeue did not answer in time".into()),
    }
    let mut rows = Vec::new();
    for line in stdout.lines().filter(|l| !l.trim().is_empty()) {
        match row(line) {
            Some(row) => rows.push(row),
            None => {
                return Answer::Unreachable(format!(
                    "squeue printed a line that we cannot read: `{line}`"
                ));
            }
        }
    }
    Answer::Rows(rows)
}

fn row(line: &str) -> Option<Row> {
    // A path begins with a slash; its last part is a name that Torc made.
    let (line, script) = line.rsplit_once("|/").unwrap_or((line, ""));
    let script = script.rsplit('/').next().unwrap_or_default().trim();
    let script = script.strip_suffix(".sh").unwrap_or(script).to_owned();
    let mut fields = line.splitn(8, '|').map(str::to_owned);
    Some(Row {
        id: fields.next().filter(|id| id.starts_with(|c: char| c.is_ascii_digit()))?,
        state: fields.next()?,
        nodes: fields.next()?,
        submitted: fields.next()?,
        end: fields.next()?,
        start: fields.next()?,
        name: fields.next()?,
        reason: fields.next()?,
        script,
    })
}

/// The line of an error text that says most: Slurm prints the final verdict last.
pub fn last_line(text: &str) -> &str {
    text.lines().rev().map(str::trim).find(|l| !l.is_empty()).unwrap_or("no message")
}

/// What `sbatch --parsable` told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Submitted {
    /// The job's id.
    Id(String),
    /// Slurm refused it; nothing was submitted.
    Refused(String),
    /// Slurm refused it for now: there are too many already.
    Later(String),
    /// It may or may not have been submitted: look for its name before sending it again.
    Ambiguous(String),
}

/// Reads the outcome of `sbatch --parsable`. Only texts that Slurm prints after it judged the
/// request are a refusal.
pub fn submitted(exit_code: Option<i32>, stdout: &str, stderr: &str) -> Submitted {
    let message = last_line(stderr).trim_start_matches("sbatch: error: ").to_owned();
    match exit_code {
        Some(0) => {
            // `id` or `id;cluster`, possibly after lines of a site's submit plugin.
            let id = stdout.lines().rev().map(str::trim).find(|l| !l.is_empty()).unwrap_or("");
            let id = id.split(';').next().unwrap_or("");
            if !id.is_empty() && id.bytes().all(|b| b.is_ascii_digit()) {
                Submitted::Id(id.to_owned())
            } else {
                Submitted::Ambiguous(format!(
                    "sbatch succeeded but printed no job id: `{}`",
                    stdout.trim()
                ))
            }
        }
        None => Submitted::Ambiguous("sbatch did not answer in time".into()),
        Some(_) if AMBIGUOUS.iter().any(|text| stderr.contains(text)) => {
            Submitted::Ambiguous(message)
        }
        Some(_) if LATER.iter().any(|text| message.contains(text)) => Submitted::Later(message),
        Some(_)
            if stderr.contains("Batch job submission failed")
                || stderr.contains("sbatch: error") =>
        {
            Submitted::Refused(message)
        }
        Some(code) => Submitted::Ambiguous(format!("sbatch ended with {code}: {message}")),
    }
}

/// Limits that other jobs use up now.
const LATER: [&str; 4] =
    ["SubmitJobLimit", "MaxSubmitJob", "job submit limit", "temporarily unable to accept job"];

/// The request may have reached the controller although the answer did not reach us.
const AMBIGUOUS: [&str; 7] = [
    "Socket timed out",
    "Unable to contact slurm controller",
    "Connection reset",
    "Connection refused",
    "Zero Bytes were transmitted",
    "Transport endpoint",
    "Protocol authentication error",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_submissions_are_told_from_refusals() {
        assert_eq!(submitted(Some(0), "123\n", ""), Submitted::Id("123".into()));
        assert_eq!(
            submitted(Some(0), "note of the site\n123;cluster\n", ""),
            Submitted::Id("123".into())
        );
        let timed_out =
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation\n";
        assert!(matches!(submitted(Some(1), "", timed_out), Submitted::Ambiguous(_)));
        let refused = "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: \
                       Invalid partition name specified\n";
        assert_eq!(
            submitted(Some(1), "", refused),
            Submitted::Refused(
                "Batch job submission failed: Invalid partition name specified".into()
            )
        );
        assert!(matches!(submitted(None, "", ""), Submitted::Ambiguous(_)));
        assert!(matches!(submitted(Some(0), "ok\n", ""), Submitted::Ambiguous(_)));
        assert!(matches!(submitted(Some(137), "", ""), Submitted::Ambiguous(_)));
    }

    #[test]
    fn reasons_and_names_may_contain_anything() {
        let text = "52|PENDING||2026-11-15T18:34:51|N/A|N/A|a|ReqNodeNotAvail, UnavailableNodes:n[1-3]|x\n";
        let Answer::Rows(rows) = read(Some(0), text, "") else { panic!("readable") };
        assert_eq!(rows[0].reason, "ReqNodeNotAvail, UnavailableNodes:n[1-3]|x");
        let text = "1_0|PENDING||x|y|N/A|torc-wf1-s1-0a|Dependency|/a dir|/out/slurm/torc-wf1-s1-0a-0b.sh\n";
        let Answer::Rows(rows) = read(Some(0), text, "") else { panic!("readable") };
        assert_eq!(rows[0].script, "torc-wf1-s1-0a-0b");
        assert!(rows[0].is_of("torc-wf1-s1-0a-0b") && !rows[0].is_of("torc-wf1-s1-0a-0c"));
        assert!(matches!(read(Some(0), "garbage", ""), Answer::Unreachable(_)));
        assert!(matches!(read(None, "", ""), Answer::Unreachable(_)));
        let down = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
        assert!(matches!(read(Some(1), "", down), Answer::Unreachable(_)));
        assert_eq!(
            read(Some(1), "", "slurm_load_jobs error: Invalid job id specified"),
            Answer::Rows(vec![])
        );
    }
}
