//! Names and numbers that come in by the API: the same rules as in a spec.

use super::refusal::Refusal;
use super::writer::Failed;

/// Longest text on one line: who asks, where a runner is, and the like.
const MAX_LINE: usize = 1024;
/// As in a spec, which could not be exported otherwise.
const PRIORITIES: std::ops::RangeInclusive<i64> = torc_spec::PRIORITIES;

/// A name as a spec may give it.
pub fn check_name(field: &str, name: &str) -> Result<(), Failed> {
    torc_spec::check_name(name).map_err(|message| Refusal::invalid(field, message).into())
}

/// Text for people that belongs on one line; may be empty.
pub fn check_line(field: &str, text: &str) -> Result<(), Failed> {
    if text.len() > MAX_LINE {
        let message = format!("`{field}` is longer than {MAX_LINE} bytes");
        return Err(Refusal::invalid(field, message).into());
    }
    match text.chars().any(char::is_control) {
        true => {
            let message = format!("`{field}` is one line without control characters");
            Err(Refusal::invalid(field, message).into())
        }
        false => Ok(()),
    }
}

/// A job's priority.
pub fn check_priority(priority: i64) -> Result<(), Failed> {
    if PRIORITIES.contains(&priority) {
        return Ok(());
    }
    let (least, most) = PRIORITIES.into_inner();
    let message = format!("`priority` is {priority}; it goes from {least} to {most}");
    Err(Refusal::invalid("priority", message).into())
}
