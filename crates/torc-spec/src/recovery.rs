//! Who can recover what: for each step and each job, what follows a failure, from the inside out.

use serde::Serialize;
use std::fmt::Write as _;
use torc_model::plan::{Plan, Rule};
use torc_model::steps::{Action, Handler, Only, Retry, Step, Strategy, Tree};
use torc_model::words;

/// A command is named by so much of its text.
const SHOWN: usize = 40;

/// What follows a failure in one place.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Recovery {
    /// Name of the job's definition.
    pub job: String,
    /// Name of the step, or its path; absent for the job itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Who acts, in this order.
    pub by: Vec<String>,
    /// What the failure can come to.
    pub outcome: String,
}

/// Every place where a failure is not simply the end. `origins` names the definition of each job.
pub(crate) fn of_plan(plan: &Plan, origins: &[usize], names: &[&str]) -> Vec<Recovery> {
    let mut found = Vec::new();
    let mut last = None;
    for (job, origin) in plan.jobs.iter().zip(origins) {
        // Instances of one definition, and items of one map, are recovered alike.
        if last.replace(*origin) == Some(*origin)
            || (job.steps.is_none() && job.extra.map.is_some())
        {
            continue;
        }
        let name = names.get(*origin).copied().unwrap_or(&job.name);
        let mut add = |step: Option<String>, by: Vec<String>, outcome: String| {
            if !by.is_empty() {
                found.push(Recovery { job: name.to_owned(), step, by, outcome });
            }
        };
        let tree = job.steps.clone().and_then(|steps| Tree::from_value(steps).ok());
        if let Some(tree) = &tree {
            list(&tree.steps, "steps", "", &mut add);
            list(&tree.on_success, "on_success", "", &mut add);
            if let Some(handler) = &tree.on_failure {
                add(
                    Some("all steps".into()),
                    vec![handler_words(handler)],
                    outcome_of(Some(handler), false),
                );
                list(&handler.commands, "on_failure", "", &mut add);
            }
        }
        let own = job.failure_handler.or(plan.settings.default_failure_handler);
        let mut by = Vec::new();
        if let Some(handler) = own.and_then(|index| plan.failure_handlers.get(index)) {
            by.extend(
                handler.rules.iter().map(|rule| format!("`{}` {}", handler.name, rule_words(rule))),
            );
        }
        if plan.settings.use_pending_failed {
            by.push("a verdict, while it waits as pending_failed".into());
        }
        let lost = job.extra.max_lost();
        // The default of every job is no news.
        if lost > 0 && (!by.is_empty() || job.extra.settings.max_lost_retries.is_some()) {
            by.push(format!(
                "after the loss of its runner: up to {}",
                words::count(lost, "more attempt")
            ));
        }
        add(None, by, "a new attempt, else failed".into());
    }
    found
}

fn list(
    steps: &[Step],
    word: &str,
    above: &str,
    add: &mut impl FnMut(Option<String>, Vec<String>, String),
) {
    for (index, step) in steps.iter().enumerate() {
        let dot = if above.is_empty() { "" } else { "." };
        let path = format!("{above}{dot}{word}[{index}]");
        let mut by: Vec<String> = Vec::new();
        by.extend(step.retry.as_ref().filter(|retry| retry.attempts > 1).map(retry_words));
        by.extend(step.on_failure.as_ref().map(handler_words));
        if by.is_empty() && step.continue_on_error {
            by.push("no handler; the job continues".into());
        }
        let outcome = outcome_of(step.on_failure.as_ref(), step.continue_on_error);
        add(Some(step.name.clone().unwrap_or_else(|| path.clone())), by, outcome);
        for (word, steps) in step.parts() {
            list(steps, word, &path, add);
        }
    }
}

fn retry_words(retry: &Retry) -> String {
    let only: Vec<String> = retry.only.iter().map(only_words).collect();
    let after = if only.is_empty() { String::new() } else { format!(" after {}", only.join(", ")) };
    format!("retry{after}, up to {}", words::count(retry.attempts, "try"))
}

fn only_words(only: &Only) -> String {
    match only {
        Only::Kind(kind) => kind.as_str().to_owned(),
        Only::Code(code) => format!("exit {code}"),
        Only::Message(pattern) => format!("/{pattern}/"),
    }
}

fn handler_words(handler: &Handler) -> String {
    let mut commands = handler.commands.iter();
    let first = commands.next().map(action_words).unwrap_or_default();
    let more = match commands.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let proof = match (handler.strategy, handler.max_attempts) {
        (Strategy::Recovery, 1) => ", trusted".to_owned(),
        (Strategy::Recovery | Strategy::Custom, tries) if tries > 1 => {
            format!(", proved by running again, up to {tries} tries")
        }
        _ => String::new(),
    };
    let fatal = if handler.handler_failure_fatal { "; its failure is final" } else { "" };
    format!("{} by {first}{more}{proof}{fatal}", handler.strategy.as_str())
}

fn action_words(step: &Step) -> String {
    match &step.action {
        Action::Shell(text) => {
            let line = text.trim().lines().next().unwrap_or_default();
            let shown: String =
                line.chars().take(SHOWN).map(|c| if c.is_control() { ' ' } else { c }).collect();
            let dots = if shown.len() < text.trim().len() { "..." } else { "" };
            format!("`{shown}{dots}`")
        }
        Action::Claude(_) => "the agent".into(),
        Action::Validate(_) => "a check".into(),
        Action::Steps(_) => "a group".into(),
    }
}

/// What a failure that the retries did not mend can come to.
fn outcome_of(handler: Option<&Handler>, continue_on_error: bool) -> String {
    let end = if continue_on_error { "ignored" } else { "failed" };
    match handler.map(|handler| handler.strategy) {
        None | Some(Strategy::Cleanup) => end.into(),
        Some(Strategy::Recovery | Strategy::Fallback) => format!("recovered, else {end}"),
        Some(Strategy::Custom) => format!("what the handler says, else {end}"),
    }
}

fn rule_words(rule: &Rule) -> String {
    let mut what = Vec::new();
    if rule.match_all_exit_codes {
        what.push("any failure".to_owned());
    }
    if !rule.exit_codes.is_empty() {
        let codes: Vec<String> = rule.exit_codes.iter().map(i32::to_string).collect();
        what.push(format!("exit {}", codes.join(", ")));
    }
    what.extend(rule.signals.iter().cloned());
    what.extend(rule.causes.iter().map(|cause| cause.as_str().to_owned()));
    what.extend(rule.stderr_matches.iter().map(|pattern| format!("/{pattern}/")));
    let script = if rule.recovery_script.is_some() { ", after its script" } else { "" };
    format!(
        "after {}: up to {}{script}",
        what.join(", "),
        words::count(rule.max_retries, "attempt")
    )
}

/// As a table for people, grouped by job; empty when nothing recovers anything.
pub(crate) fn to_text(recoveries: &[Recovery]) -> String {
    let mut out = String::new();
    let mut job = None;
    for entry in recoveries {
        if out.is_empty() {
            out.push_str("\nwho recovers what\n");
        }
        if job.replace(&entry.job) != Some(&entry.job) {
            let _ = writeln!(out, "  {}", entry.job);
        }
        let step = entry.step.as_deref().unwrap_or("the whole job");
        for (number, by) in entry.by.iter().enumerate() {
            let who = if number == 0 { step } else { "" };
            let is_last = number + 1 == entry.by.len();
            let outcome = if is_last { format!(" -> {}", entry.outcome) } else { String::new() };
            let _ = writeln!(out, "    {who:<24} {by}{outcome}");
        }
    }
    out
}
