//! What runs when a step has failed for good.

use super::failure::{Failure, Place, Stop};
use super::journal::Line;
use super::run::Run;
use super::run_report;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use torc_model::event::EventKind;
use torc_model::steps::{Handler, HandlerEnd, Strategy, Word};

impl Run {
    /// Runs a handler for a failure.
    pub(super) async fn handle(
        &mut self,
        handler: &Handler,
        failure: &Failure,
        place: &Place,
    ) -> Result<HandlerEnd, Stop> {
        let data = json!({"strategy": handler.strategy, "error_kind": failure.kind, "exit_code": failure.code});
        self.event(EventKind::HandlerStarted, place, data);
        let started = Line {
            path: place.path.clone(),
            event: Some("handler_started".into()),
            outcome: None,
            captures: Default::default(),
        };
        self.keep(started);
        torc_failpoint::hit("steps.before_handler");
        let file =
            |path: &Option<PathBuf>| json!(path.as_ref().map(|path| path.display().to_string()));
        let error = json!({
            "message": failure.message, "exit_code": failure.code, "step": failure.step,
            "timestamp": run_report::rfc3339(failure.at_ms), "kind": failure.kind, "signal": failure.signal,
            "attempt": failure.nth, "command": failure.command, "stdout_file": file(&failure.stdout),
            "stderr_file": file(&failure.stderr), "output_file": file(&failure.stdout),
        });
        let Value::Object(error) = error else { return Ok(HandlerEnd::Failed) };
        self.scope.push_error(error);
        let own = self.clock.deadlines.len();
        let limit = handler.timeout.map(|timeout| Duration::from_secs(timeout.0));
        self.clock.deadlines.extend(limit.map(|limit| Instant::now() + limit));
        let outcome_file =
            self.context.log_path(&self.packet, &format!("_s{}_outcome", place.file));
        if handler.strategy == Strategy::Custom {
            self.inherited
                .envs
                .push(vec![("OUTCOME_FILE".into(), outcome_file.display().to_string())]);
        }
        let went = self.list(&handler.commands, place, "on_failure").await;
        if handler.strategy == Strategy::Custom {
            self.inherited.envs.pop();
        }
        self.clock.deadlines.truncate(own);
        self.scope.pop_error();
        let went = went?;
        let is_good = went.failure.is_none() && went.succeeded > 0;
        if is_good {
            // What a handler's output is not does not undo what it did.
            let _ = self.take_captures(&handler.capture);
        }
        let word = match handler.strategy {
            Strategy::Custom if is_good => {
                // Written by the handler: one word, or something that is none.
                let said = torc_fs::read_text(&outcome_file, torc_fs::Trust::Regular, 4096);
                Word::parse(&said.unwrap_or_default())
            }
            Strategy::Custom | Strategy::Recovery | Strategy::Fallback | Strategy::Cleanup => {
                Ok(Word::Failed)
            }
        };
        if let Err(message) = &word {
            let what = if place.path.is_empty() { "the job" } else { failure.step.as_str() };
            self.remark(format!("the handler of {what}: {message}"));
        }
        let error = went.failure.map(|failure| failure.message).or_else(|| word.clone().err());
        let word = word.unwrap_or(Word::Failed);
        let end = if is_good { HandlerEnd::Succeeded(word) } else { HandlerEnd::Failed };
        self.event(
            EventKind::HandlerFinished,
            place,
            json!({"succeeded": is_good, "error": error}),
        );
        torc_failpoint::hit("steps.after_handler");
        Ok(end)
    }
}
