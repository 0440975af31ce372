//! What must hold for text from outside that is no workflow file: filters that people type, what Slurm's
//! programs print, what runners send and keep on disk. The fuzz targets and a test of `torc-model`
//! ask it of each input.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use torc_model::api;
use torc_model::filter::Filter;
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
