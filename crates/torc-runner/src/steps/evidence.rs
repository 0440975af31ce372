//! What is kept of a try: captures, what was expected, its row, and the events and lines of the
//! journal.

use super::failure::{Failure, Place};
use super::journal::Line;
use super::outputs::{self, Ended};
use super::run::Run;
use crate::process::Sink;
use crate::time::now_ms;
use serde_json::{Map, Value};
use std::path::PathBuf;
use torc_model::event::EventKind;
use torc_model::steps::{Capture, ErrorKind, Outcome, Row, Step, StepEvent};

impl Run {
    /// Captures, then what was expected.
    pub(super) fn judge_rest(
        &mut self,
        step: &Step,
        failure: Option<Box<Failure>>,
        place: &Place,
    ) -> Result<(), Box<Failure>> {
        let captured = self.take_captures(&step.capture);
        let exit_code = failure.as_ref().map_or(0, |failure| failure.code);
        match (&step.expect, failure) {
            // Only a code of its own can be expected.
            (Some(expect), failure)
                if failure.as_ref().is_none_or(|failure| failure.kind == ErrorKind::Exit) =>
            {
                let mut result = self.expectation(expect, exit_code, place);
                if let (Err(new), Some(old)) = (&mut result, failure) {
                    new.exit = old.exit;
                    new.message = format!("{}\n{}", new.message, old.message);
                }
                result
            }
            (_, Some(failure)) => Err(failure),
            (_, None) => {
                captured.map_err(|message| self.failure(ErrorKind::Capture, 1, message, place))
            }
        }
    }

    /// Reads variables from the process that ended last.
    pub(super) fn take_captures(&mut self, capture: &Capture) -> Result<(), String> {
        if capture.is_empty() {
            return Ok(());
        }
        let Some(last) = &self.last else { return Err("there is nothing to capture from".into()) };
        let (exit_code, success) =
            self.judge(&last.exit).map_or((0, true), |(_, code, _)| (code, false));
        let ended = Ended {
            exit_code,
            success,
            seconds: last.exit.wall.as_secs_f64(),
            nth: last.nth,
            stdout: &last.stdout,
            stderr: &last.stderr,
            dir: &last.dir,
        };
        let mut found = Vec::new();
        let mut wrong = None;
        for (name, source) in capture {
            let source = match source {
                torc_model::steps::CaptureSource::File(path) => {
                    let path = self.scope.fill(path).map_err(|error| error.to_string())?;
                    &torc_model::steps::CaptureSource::File(path)
                }
                source => source,
            };
            match outputs::capture(source, &ended) {
                Ok(captured) => found.push((name, captured)),
                Err(message) => wrong = Some(format!("`{name}` cannot be captured: {message}")),
            }
        }
        for (name, captured) in found {
            self.scope.capture(name, captured);
        }
        wrong.map_or(Ok(()), Err)
    }

    /// Keeps the row of a try, and tells of it in the attempt's own log.
    pub(super) fn row(
        &mut self,
        step: &Step,
        place: &Place,
        nth: u32,
        result: &Result<(), Box<Failure>>,
    ) {
        let Some(last) = &self.last else { return };
        let failure = result.as_ref().err();
        let text =
            |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| path.display().to_string());
        let row = Row {
            path: place.path.clone(),
            name: step.name.clone(),
            kind: step.action.word().into(),
            nth,
            outcome: if failure.is_none() { Outcome::Ok } else { Outcome::Failed },
            exit_code: Some(failure.map_or(0, |failure| failure.code)),
            signal: failure.and_then(|failure| failure.signal),
            error_kind: failure.map(|failure| failure.kind),
            error: failure.map(|failure| failure.message.clone()),
            started_ms: last.exit.started_ms,
            ended_ms: last.exit.ended_ms,
            stdout_path: text(&last.stdout),
            stderr_path: text(&last.stderr),
        };
        if !self.is_light {
            let (stdout, stderr) = crate::attempt::sinks(&self.context, &self.packet);
            let stderr = if stderr == Sink::SameAsStdout { stdout.clone() } else { stderr };
            let how = match failure {
                None => "ok".to_owned(),
                Some(failure) => format!("{} ({})", failure.kind.as_str(), failure.code),
            };
            let line = format!("{} try {nth}: {how}", step.name.as_deref().unwrap_or(&place.path));
            let echo =
                |from: &PathBuf, to: &Sink| to.path().map_or(Ok(()), |to| outputs::echo(from, to));
            let told = echo(&last.stdout, &stdout)
                .and_then(|()| echo(&last.stderr, &stderr))
                .and_then(|()| stderr.path().map_or(Ok(()), |path| outputs::note(path, &line)));
            if let Err(error) = told {
                tracing::warn!(%error, "cannot write the attempt's log");
            }
        }
        self.record.report.rows.push(row);
        torc_failpoint::hit("steps.after_try");
    }

    /// Keeps the row of a try that failed before or without a process of its own.
    pub(super) fn row_without_process(
        &mut self,
        step: &Step,
        place: &Place,
        failure: &mut Failure,
    ) {
        let nth = self.tries.entry(place.path.clone()).or_insert(0);
        *nth += 1;
        failure.nth = *nth;
        let row = Row {
            path: place.path.clone(),
            name: step.name.clone(),
            kind: step.action.word().into(),
            nth: failure.nth,
            outcome: Outcome::Failed,
            exit_code: Some(failure.code),
            signal: None,
            error_kind: Some(failure.kind),
            error: Some(failure.message.clone()),
            started_ms: failure.at_ms,
            ended_ms: failure.at_ms,
            stdout_path: None,
            stderr_path: None,
        };
        let name = step.name.as_deref().unwrap_or(&place.path);
        self.note(&format!(
            "{name} try {}: {} ({}): {}",
            failure.nth,
            failure.kind.as_str(),
            failure.code,
            failure.message
        ));
        self.record.report.rows.push(row);
    }

    /// Keeps a sentence for people that is no failure by itself.
    pub(super) fn remark(&mut self, text: String) {
        self.note(&text);
        self.record.remarks.push(text);
    }

    /// Writes a line of ours into the attempt's own log.
    fn note(&self, line: &str) {
        if self.is_light {
            return;
        }
        let (stdout, stderr) = crate::attempt::sinks(&self.context, &self.packet);
        let log = if stderr == Sink::SameAsStdout { stdout } else { stderr };
        if let Some(Err(error)) = log.path().map(|path| outputs::note(path, line)) {
            tracing::warn!(%error, "cannot write the attempt's log");
        }
    }

    pub(super) fn event(&mut self, kind: EventKind, place: &Place, data: Value) {
        let data = if let Value::Object(data) = data { data } else { Map::new() };
        let event = StepEvent { kind, at_ms: now_ms(), path: place.path.clone(), data };
        // One step that succeeds at once is told with its end.
        if !self.is_light {
            self.context.live.push(self.packet.id, &self.packet.token, event.clone());
        }
        self.record.report.events.push(event);
    }

    pub(super) fn keep(&mut self, line: Line) {
        if !self.is_light
            && let Err(error) = self.record.journal.write(&line)
        {
            tracing::warn!(%error, "cannot keep what steps have done");
        }
    }
}
