//! Labels of jobs and runners: sets, each written as one text with commas between.

/// A runner with these labels may take a job with those: it has all of the job's, and one that has
/// labels takes only jobs that have some.
pub fn fit(job: Option<&str>, runner: Option<&str>) -> bool {
    match (job, runner) {
        (None, None) => true,
        (Some(job), Some(runner)) => {
            job == runner || each(job).all(|label| each(runner).any(|other| other == label))
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// As one text: sorted, each once. Nothing for no labels.
pub fn joined<'a>(labels: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut all: Vec<&str> = labels.into_iter().flat_map(each).collect();
    all.sort_unstable();
    all.dedup();
    (!all.is_empty()).then(|| all.join(","))
}

fn each(labels: &str) -> impl Iterator<Item = &str> {
    labels.split(',').map(str::trim).filter(|label| !label.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_needs_every_label_of_a_job_and_leaves_jobs_without_any() {
        assert!(fit(None, None));
        assert!(fit(Some("gpu"), Some("gpu")));
        assert!(fit(Some("gpu"), Some("gpu,windows")));
        assert!(fit(Some("windows,gpu"), Some("gpu,windows")), "the order does not matter");
        assert!(!fit(Some("gpu,windows"), Some("gpu")));
        assert!(!fit(Some("gpu"), Some("gpus")));
        assert!(!fit(None, Some("gpu")));
        assert!(!fit(Some("gpu"), None));
    }

    #[test]
    fn labels_are_written_once_in_order() {
        assert_eq!(joined(["windows", "gpu, windows"]).as_deref(), Some("gpu,windows"));
        assert_eq!(joined(["", " "]), None);
    }
}
