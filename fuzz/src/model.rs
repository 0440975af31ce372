//! What must hold for text from outside that is no workflow file: filters that people type, what Slurm's
//! programs print, what runners send and keep on disk. The fuzz targets and a test of `torc-model`
//! ask it of each input.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::time::{Duration, Instant};
use torc_model::api;
use torc_model::filter::Filter;
use torc_model::kept;
use torc_model::log_search::{Wanted, search};
use torc_model::slurm;

/// A mistake is told in a few lines, however large the text around it.
const MAX_MESSAGE: usize = 8_000;

/// A filter is read the same each time, or refused with a message that can be read.
pub fn filter(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Filter::parse(text) {
        Ok(filter) => {
            let _ = filter.needs_attempt();
            assert_eq!(format!("{filter:?}"), format!("{:?}", Filter::parse(text).unwrap()));
        }
        Err(error) => {
            let told = error.to_string();
            assert!(!error.message.is_empty() && told.len() < MAX_MESSAGE, "{told}");
        }
    }
}

/// Whatever Slurm's programs print, it is read without a crash, and a program that failed has proved nothing.
pub fn slurm(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    for code in [Some(0), Some(1), None] {
        let _ = slurm::squeue::read(code, &text, "");
        let _ = slurm::squeue::read(code, "", &text);
        let _ = slurm::sacct::read(code, &text, "");
        let _ = slurm::sacct::read(code, "", &text);
        let _ = slurm::squeue::submitted(code, &text, "");
        let _ = slurm::squeue::submitted(code, "", &text);
    }
    let _ = (slurm::cluster::config(&text), slurm::cluster::nodes(&text));
    let _ = (slurm::cluster::partitions(&text), slurm::cluster::gpus(&text));
    let _ = (slurm::logs::scan(&text), slurm::logs::why_ended(&text));
    let _ = (slurm::state::verdict(&text, None), slurm::state::verdict("", Some(&text)));
    let _ = (slurm::state::never_starts(&text), slurm::parse_clock(&text));
}

/// What can be read can be written, and reads back as the same: a runner's word must not change on its way.
pub fn wire(bytes: &[u8]) {
    stable::<api::ClaimRequest>(bytes);
    stable::<api::CompletionReport>(bytes);
    stable::<api::CompletionBatch>(bytes);
    stable::<api::StartBatch>(bytes);
    stable::<api::Heartbeat>(bytes);
    stable::<api::RegisterRunner>(bytes);
    stable::<api::Goodbye>(bytes);
    stable::<api::ActionReport>(bytes);
    stable::<api::AttemptView>(bytes);
    stable::<api::CreateReservation>(bytes);
    stable::<api::SpawnJobs>(bytes);
}

fn stable<T: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) {
    let Ok(first) = serde_json::from_slice::<T>(bytes) else { return };
    let text = serde_json::to_string(&first).expect("what was read can be written");
    let again = serde_json::from_str::<T>(&text);
    let again = again.unwrap_or_else(|error| panic!("{error}: cannot be read back: {text}"));
    // Also for types that cannot be compared; a number that is not a number has no JSON.
    assert_eq!(format!("{again:?}"), format!("{first:?}"), "{text}");
}

/// The first line is what is looked for, the rest the output: what is found is there, where it is said to be.
pub fn search_log(bytes: &[u8]) {
    const LIMIT: usize = 20;
    let split = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (text, output) = (String::from_utf8_lossy(&bytes[..split]), &bytes[split..]);
    let lines = output.split_inclusive(|byte| *byte == b'\n').count() as i64;
    for (is_regex, has_case) in [(false, true), (false, false), (true, false)] {
        let Ok(wanted) = Wanted::text(&text, is_regex, has_case) else {
            assert!(is_regex || text.len() > 1000, "a plain text cannot be wrong, only large");
            continue;
        };
        let later = Instant::now() + Duration::from_secs(60);
        let view = search(output, &wanted, LIMIT, later).expect("memory can be read");
        assert_eq!((view.searched, view.lines), (output.len() as i64, lines));
        assert!(view.total <= lines && view.hits.len() == LIMIT.min(view.total as usize));
        for hit in &view.hits {
            let line = &output[hit.offset as usize..];
            assert!(
                hit.offset == 0 || output[hit.offset as usize - 1] == b'\n',
                "inside of a line"
            );
            let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let is_there = |text: &str| String::from_utf8_lossy(line).contains(text);
            assert!(is_regex || !has_case || is_there(&text), "{hit:?}");
        }
        let known: Vec<i64> = view.hits.iter().map(|hit| hit.line).collect();
        assert!(known.is_sorted_by(|one, next| one < next), "{known:?}");
    }
}

/// However a file of kept results ends, the results before that are read as they were written.
pub fn kept_results(bytes: &[u8]) {
    let _ = kept::owner::<serde_json::Value>(bytes);
    let whole = kept::reports(bytes);
    let texts: Vec<String> = whole.iter().map(|one| serde_json::to_string(one).unwrap()).collect();
    // What is written again reads back as the same, also when the last line is torn.
    let written = format!("{{}}\n{}\n", texts.join("\n"));
    let again = kept::reports(written.as_bytes());
    assert_eq!(format!("{again:?}"), format!("{whole:?}"));
    if let Some(last) = texts.last() {
        for torn in [1, last.len() / 2, last.len() - 1] {
            let end = written.len() - 1 - torn;
            let left = kept::reports(&written.as_bytes()[..end]);
            assert_eq!(format!("{left:?}"), format!("{:?}", &whole[..whole.len() - 1]));
        }
    }
}
