//! Events of a workflow as lines.

use crate::cli::drive::Described;
use crate::output::escape;
use torc_model::api::EventView;
use torc_model::event::EventKind;

/// What is told of an event; none: nothing.
pub fn line(event: &EventView, about: &Described) -> Option<String> {
    let text = |key: &str| {
        event.data.get(key).and_then(|v| v.as_str()).map(|s| escape::line(s).into_owned())
    };
    let reason = || text("reason").map(|reason| format!(": {reason}")).unwrap_or_default();
    let word = match event.kind {
        EventKind::JobFailed => "failed",
        EventKind::JobTerminated => "stopped at its time limit",
        EventKind::JobPendingFailed => "failed, needs a verdict",
        EventKind::JobRetried => "retrying",
        EventKind::JobAdjusted => "changed",
        EventKind::JobClassified => "judged",
        EventKind::ClassificationHeld => "a verdict waits for a person",
        EventKind::RunnerQuarantined => {
            let (host, why) = (text("hostname").unwrap_or_default(), text("why"));
            let why = why.unwrap_or_default();
            return Some(format!("runner on {host} gets no work for a while: {why}"));
        }
        EventKind::RecoveryPaused | EventKind::RecoveryResumed => {
            return Some(text("why").unwrap_or_default());
        }
        EventKind::RunnerEnded => return Some(format!("runner ended{}", reason())),
        EventKind::WorkflowRecovered | EventKind::WorkflowCanceled => {
            return Some(format!("{}{}", event.kind.as_str().replace('_', " "), reason()));
        }
        _ => return about.begin_or_end(event),
    };
    let job = event.job_id?;
    let mut line = format!("{word}: {} (job {job})", escape::line(about.name()));
    if let Some(cause) = text("cause") {
        line += &format!(", {cause}");
    }
    if let Some(code) = event.data.get("return_code").and_then(serde_json::Value::as_i64) {
        line += &format!(", code {code}");
    }
    if let (Some(field), Some(to)) = (text("field"), text("to")) {
        line += &format!(", {field} {} -> {to}", text("from").unwrap_or_else(|| "no limit".into()));
    }
    if let Some(reason) = text("decision").or_else(|| text("why")) {
        line += &format!(": {reason}");
    }
    if let Described::Failure { failure, .. } = about
        && let Some(last) = &failure.last_line
    {
        line += &format!("\n  | {}", escape::line(last));
    }
    Some(line)
}
