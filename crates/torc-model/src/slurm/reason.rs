//! Why an allocation waits, in Slurm's word and in plain ones.

/// Slurm's reason with its meaning, where that is known: `Priority: others are before it in the
/// queue`.
pub fn text(reason: &str) -> String {
    // `(ReqNodeNotAvail, UnavailableNodes:n1)` says more than the word.
    let word = reason.trim_start_matches('(').split([',', ')']).next().unwrap_or(reason);
    match plain(word) {
        Some(plain) => format!("{reason}: {plain}"),
        None => reason.to_owned(),
    }
}

/// Slurm's reasons in plain words.
fn plain(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "Priority" => "others are before it in the queue",
        "Resources" => "no nodes are free yet",
        "QOSMaxCpuPerUserLimit" => "you use as many CPUs as your QOS allows",
        "AssocGrpCpuLimit" => "your account uses as many CPUs as it may",
        "AssocMaxJobsLimit" => "your account runs as many jobs as it may",
        "PartitionTimeLimit" => "it asks for more time than the partition allows",
        "PartitionNodeLimit" => "it asks for more nodes than the partition has",
        "ReqNodeNotAvail" => "nodes it needs are down or reserved",
        "BeginTime" => "it may not begin yet",
        "Dependency" => "it waits for another job",
        "QOSMaxJobsPerUserLimit" => "you run as many jobs as your QOS allows",
        "AssocGrpGRES" => "your account uses as many GPUs as it may",
        "JobHeldUser" => "you hold it",
        "JobHeldAdmin" => "an administrator holds it",
        "Licenses" => "no licence is free",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_in_plain_words_where_they_are_known() {
        assert_eq!(text("Priority"), "Priority: others are before it in the queue");
        let many = text("(ReqNodeNotAvail, UnavailableNodes:n1)");
        assert!(many.ends_with(": nodes it needs are down or reserved"), "{many}");
        assert_eq!(text("SomethingNew"), "SomethingNew");
    }
}
