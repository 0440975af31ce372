//! What in a site's configuration will hurt, from `scontrol show config` and its partitions.

use super::cluster::PartitionLimits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How much a finding matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingLevel {
    /// Good to know.
    Info,
    /// Will hurt some day.
    Warning,
}

/// Something about the site.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// How much it matters.
    pub level: FindingLevel,
    /// The setting, such as `KillWait=5 sec`.
    pub setting: String,
    /// What it means for workflows.
    pub meaning: String,
}

/// Reads the configuration.
pub fn examine(config: &BTreeMap<String, String>, partitions: &[PartitionLimits]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut add = |level, key: &str, value: &str, meaning: &str| {
        findings.push(Finding {
            level,
            setting: format!("{key}={value}"),
            meaning: meaning.to_owned(),
        });
    };
    let get = |key: &str| config.get(key).map_or("", String::as_str);
    let seconds =
        |key: &str| get(key).split_whitespace().next().and_then(|n| n.parse::<u64>().ok());
    use FindingLevel::{Info, Warning};

    if let Some(wait) = seconds("KillWait").filter(|w| *w < 15) {
        let meaning = "jobs get this many seconds between the request to end and the kill; Torc stops its own jobs earlier, but a preempted or canceled allocation has only this";
        add(Warning, "KillWait", &format!("{wait} s"), meaning);
    }
    if let Some(age) = seconds("MinJobAge").filter(|a| *a < 60) {
        let meaning = "ended allocations vanish from the queue after this many seconds; look at them sooner or the reason of their end is lost";
        add(Warning, "MinJobAge", &format!("{age} s"), meaning);
    }
    if get("AccountingStorageType").ends_with("none") || get("AccountingStorageType") == "(null)" {
        let meaning = "there is no accounting: `sacct` does not work, and why an allocation ended is known only while squeue still shows it";
        add(Warning, "AccountingStorageType", get("AccountingStorageType"), meaning);
    }
    if get("JobRequeue") == "1" {
        let meaning = "Slurm restarts interrupted jobs by itself; Torc submits with `--no-requeue` and asks for new nodes itself, unless `slurm_defaults` says `requeue: true`";
        add(Info, "JobRequeue", "1", meaning);
    }
    if get("EnforcePartLimits") == "NO" {
        let meaning = "requests that no node can satisfy are accepted and wait for ever; `torc slurm schedule-nodes` and `sync-status` name them";
        add(Warning, "EnforcePartLimits", "NO", meaning);
    }
    match get("SelectType") {
        "select/linear" => {
            add(
                Info,
                "SelectType",
                "select/linear",
                "every allocation gets whole nodes, whatever it asks for",
            );
        }
        _ => {
            let memory = get("SelectTypeParameters").contains("MEMORY");
            if !memory && !get("SelectTypeParameters").is_empty() {
                let meaning =
                    "memory is not handed out: allocations on one node can take it from each other";
                add(Warning, "SelectTypeParameters", get("SelectTypeParameters"), meaning);
            }
        }
    }
    if matches!(get("ProctrackType"), "proctrack/linuxproc" | "proctrack/pgid") {
        let meaning = "processes that leave their parent survive the end of an allocation";
        add(Warning, "ProctrackType", get("ProctrackType"), meaning);
    }
    if !get("TaskPlugin").is_empty() && !get("TaskPlugin").contains("cgroup") {
        let meaning =
            "Slurm does not limit memory: a job over its memory is not reported as out of memory";
        add(Warning, "TaskPlugin", get("TaskPlugin"), meaning);
    }
    if let Some(size) = seconds("MaxArraySize").filter(|n| *n < 100) {
        let meaning = "arrays are this small; many equal allocations are sent as several arrays";
        add(Info, "MaxArraySize", &size.to_string(), meaning);
    }
    if let Some(timeout) = seconds("SlurmdTimeout").filter(|t| *t > 600) {
        let meaning =
            "a dead node is noticed only after this long; until then its jobs count as running";
        add(Warning, "SlurmdTimeout", &format!("{timeout} s"), meaning);
    }
    if let Some(timeout) = seconds("MessageTimeout").filter(|t| *t > 60) {
        add(
            Warning,
            "MessageTimeout",
            &format!("{timeout} s"),
            "a hanging controller holds up every query for this long",
        );
    }
    for partition in partitions {
        if !matches!(partition.preempt_mode.as_str(), "" | "OFF") {
            let setting = format!("partition {}: PreemptMode", partition.name);
            let meaning = "jobs here may lose their nodes at any time; their attempts are retried without cost to the user's rules";
            add(Info, &setting, &partition.preempt_mode, meaning);
        }
        if partition.state != "UP" {
            add(
                Warning,
                &format!("partition {}: State", partition.name),
                &partition.state,
                "nothing starts here",
            );
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::cluster;
    use super::*;

    #[test]
    fn a_site_is_read() {
        let config = cluster::config(
            "Configuration data as of 2026-11-15T21:30:00\nAccountingStorageType   = accounting_storage/none\n\
             KillWait                = 5 sec\nMinJobAge               = 300 sec\nJobRequeue              = 1\n\
             EnforcePartLimits       = NO\nTaskPlugin              = task/cgroup\n",
        );
        let partitions = cluster::partitions(
            "PartitionName=scav PreemptMode=CANCEL State=UP MaxTime=UNLIMITED\n",
        );
        let found: Vec<_> = examine(&config, &partitions).into_iter().map(|f| f.setting).collect();
        assert_eq!(
            found,
            [
                "KillWait=5 s",
                "AccountingStorageType=accounting_storage/none",
                "JobRequeue=1",
                "EnforcePartLimits=NO",
                "partition scav: PreemptMode=CANCEL"
            ]
        );
    }
}
