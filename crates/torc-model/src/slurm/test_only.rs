//! What `sbatch --test-only` answers: when Slurm would start a job, without taking it.

/// When a job would start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Start {
    /// At this time of the machine that asked, on these nodes.
    At {
        /// As Slurm prints it.
        time: String,
        /// The nodes that Slurm has in mind.
        nodes: String,
    },
    /// Never: Slurm would not take it.
    Refused(String),
    /// Slurm could not be asked.
    Unknown(String),
}

/// Reads the answer, which Slurm writes to standard error.
pub fn read(exit_code: Option<i32>, stderr: &str) -> Start {
    let message = super::squeue::last_line(stderr).trim_start_matches("sbatch: error: ");
    let Some(code) = exit_code else {
        return Start::Unknown("sbatch did not answer in time".into());
    };
    let told = stderr.lines().find_map(|line| line.split_once(" to start at "));
    match told {
        Some((_, rest)) if code == 0 => {
            let word_after = |word: &str| {
                let mut words = rest.split_whitespace().skip_while(|w| *w != word).skip(1);
                words.next().unwrap_or_default().to_owned()
            };
            let time = rest.split_whitespace().next().unwrap_or_default().to_owned();
            Start::At { time, nodes: word_after("nodes") }
        }
        _ if stderr.contains("allocation failure") => {
            Start::Refused(message.trim_start_matches("allocation failure: ").to_owned())
        }
        _ => Start::Unknown(format!("sbatch ended with {code}: {message}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_22_05_are_read() {
        let at = "sbatch: Job 5 to start at 2026-11-18T01:02:23 using 8 processors on nodes n[1-2] in partition main\n";
        let want = Start::At { time: "2026-11-18T01:02:23".into(), nodes: "n[1-2]".into() };
        assert_eq!(read(Some(0), at), want);
        let never = "allocation failure: Requested node configuration is not available\n";
        assert_eq!(
            read(Some(1), never),
            Start::Refused("Requested node configuration is not available".into())
        );
        let nowhere = "sbatch: error: invalid partition specified: nowhere\nallocation failure: Invalid partition name specified\n";
        assert_eq!(
            read(Some(1), nowhere),
            Start::Refused("Invalid partition name specified".into())
        );
        let down = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)";
        assert!(matches!(read(Some(1), down), Start::Unknown(_)));
        assert!(matches!(read(None, ""), Start::Unknown(_)));
    }
}
