//! Events of an attempt's steps come with heartbeats, repeated until one was answered, and all of
//! them again with the report at the end. The server counts how many it has written: this says which
//! of those that were sent are new.

use super::change::Change;
use super::index::JobIx;
use super::workflow::Workflow;
use serde_json::Value;
use torc_model::ids::AttemptId;
use torc_model::steps::StepEvent;

/// The events that are not known yet, where `known` were written before and `sent` begins with
/// number `from`. Empty also after a gap: the report at the end has them all.
pub fn unwritten<T>(known: u64, from: u64, sent: &[T]) -> &[T] {
    let skip = known.checked_sub(from).and_then(|skip| usize::try_from(skip).ok());
    skip.and_then(|skip| sent.get(skip..)).unwrap_or_default()
}

impl Workflow {
    /// What the steps of an attempt did becomes events.
    pub(crate) fn tell_steps(&mut self, index: JobIx, events: &[StepEvent]) {
        let job = Some(self.job(index).id());
        for event in events.iter().filter(|event| event.kind.is_of_steps()) {
            let mut data = event.data.clone();
            data.insert("step".into(), event.path.as_str().into());
            data.insert("at_ms".into(), event.at_ms.into());
            self.record(Change::Event { kind: event.kind, job, data: Value::Object(data) });
        }
    }

    /// So many events of the steps of an attempt are written.
    pub(crate) fn count_steps(&mut self, attempt: AttemptId, written: u64) {
        self.record(Change::AttemptSteps(attempt, written));
    }
}

#[cfg(test)]
mod tests {
    use super::unwritten;

    #[test]
    fn each_event_is_written_once_however_often_it_is_sent() {
        assert_eq!(unwritten(0, 0, &[0, 1]), [0, 1]);
        assert_eq!(unwritten(1, 0, &[0, 1]), [1]);
        assert_eq!(unwritten(2, 0, &[0, 1]), [0; 0]);
        assert_eq!(unwritten(5, 0, &[0, 1]), [0; 0]);
        assert_eq!(unwritten(2, 2, &[2]), [2]);
        assert_eq!(unwritten(1, 2, &[2]), [0; 0], "event 1 is missing");
    }
}
