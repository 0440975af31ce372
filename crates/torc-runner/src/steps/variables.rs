//! The variables of an attempt at its beginning, and what an earlier attempt has left.

use super::expand;
use super::failure::{Failure, Place, Stop};
use super::journal::Journal;
use super::run::Run;
use serde_json::{Value, json};
use torc_model::api::AttemptPacket;
use torc_model::event::EventKind;
use torc_model::steps::{Action, ErrorKind, ItemSource, MapSettings, Outcome, Step, Tree};

impl Run {
    pub(super) fn set_variables(&mut self, tree: &Tree) -> Result<(), String> {
        let packet = &self.packet;
        let job =
            json!({"name": packet.job_name, "id": packet.job_id, "attempt": packet.attempt_id});
        self.scope.fix("job", job);
        let workflow = json!({"name": self.context.workflow_name, "id": self.context.workflow_id});
        self.scope.fix("workflow", workflow);
        let mut values = tree.values.clone();
        for (name, value) in &packet.env {
            // The server's word on user data is newer than what was known when the workflow was
            // created.
            if let Some(name) = name.strip_prefix("TORC_USER_DATA_")
                && let Ok(value) = serde_json::from_str::<Value>(value)
            {
                let all = values.entry("user_data").or_insert_with(|| json!({"input": {}}));
                all["input"][name] = value;
            }
        }
        for (name, value) in values {
            self.scope.fix(&name, value);
        }
        let mut names = Vec::new();
        tree.parts().for_each(|(_, steps)| captured_names(steps, &mut names));
        names.extend(tree.on_failure.iter().flat_map(|handler| handler.capture.keys().cloned()));
        names.iter().for_each(|name| self.scope.expect_capture(name));
        self.inherited.agent.clone_from(&tree.agent);
        if let Some(item) = &tree.item {
            if item.to_string().len() > torc_model::steps::EXPORT_MAX {
                let file = self.keep_file("_item.json", &item.to_string())?;
                self.scope.name_file("item.file", file);
            }
            self.scope.fix("item", item.clone());
        }
        if let Some(Value::Object(map)) = &tree.map {
            let rows = map.get("rows").and_then(Value::as_array).cloned().unwrap_or_default();
            let lines = |rows: &mut dyn Iterator<Item = &Value>| {
                rows.map(|row| format!("{row}\n")).collect::<String>()
            };
            let results = self.keep_file("_map_results.jsonl", &lines(&mut rows.iter()))?;
            let is_dead = |row: &&Value| row["outcome"] != "ok" && row["outcome"] != "recovered";
            let dead =
                self.keep_file("_map_dead.jsonl", &lines(&mut rows.iter().filter(is_dead)))?;
            self.scope.name_file("map.results.file", results);
            self.scope.name_file("map.dead.file", dead);
            let mut map = map.clone();
            let rows = map.remove("rows").unwrap_or(Value::Null);
            map.insert("results".into(), rows);
            self.scope.fix("map", Value::Object(map));
        }
        Ok(())
    }

    pub(super) fn keep_file(&mut self, ending: &str, text: &str) -> Result<String, String> {
        let path = self.context.log_path(&self.packet, ending);
        torc_fs::write_log(&path, text.as_bytes())
            .map_err(|error| format!("cannot write `{}`: {error}", path.display()))?;
        Ok(path.display().to_string())
    }

    pub(super) async fn find_items(
        &mut self,
        settings: &MapSettings,
    ) -> Result<Option<Box<Failure>>, Stop> {
        let place = Place { path: "map.items".into(), file: "items".into() };
        let mut printed = None;
        if let ItemSource::Command { command, .. } = &settings.items {
            let step = Step { action: Action::Shell(command.clone()), ..Step::default() };
            let (_, failure) = self.step(&step, &place).await?;
            if failure.is_some() {
                return Ok(failure);
            }
            printed = self.last.as_ref().map(|process| process.stdout.clone());
        }
        match expand::items(settings, &self.context.working_dir, printed.as_deref()) {
            Ok(items) => {
                self.event(EventKind::ItemsFound, &place, json!({"count": items.len()}));
                self.record.report.items = Some(items);
                Ok(None)
            }
            Err(message) => Ok(Some(self.failure(ErrorKind::Spawn, 1, message, &place))),
        }
    }

    /// How many of the first steps an earlier attempt of this run has done; their captures come
    /// back.
    pub(super) fn done_before(&mut self, tree: &Tree) -> usize {
        let own = self.packet.attempt_id;
        let earlier = (1..own).rev().find_map(|attempt| {
            let packet = AttemptPacket { attempt_id: attempt, ..self.packet.clone() };
            Journal::read(&self.context.log_path(&packet, "_steps.jsonl"))
        });
        let Some(lines) = earlier else { return 0 };
        let mut done = 0;
        for index in 0..tree.steps.len() {
            let place = Place::root().child("steps", index);
            let line =
                lines.iter().rev().find(|line| line.path == place.path && line.outcome.is_some());
            let Some(line) =
                line.filter(|line| matches!(line.outcome, Some(Outcome::Ok | Outcome::Recovered)))
            else {
                break;
            };
            for (name, captured) in &line.captures {
                self.scope.capture(name, captured.clone());
            }
            self.event(EventKind::StepResumed, &place, json!({"outcome": line.outcome}));
            self.keep(line.clone());
            done = index + 1;
        }
        done
    }
}

fn captured_names(steps: &[Step], names: &mut Vec<String>) {
    for step in steps {
        names.extend(step.capture.keys().cloned());
        names.extend(step.on_failure.iter().flat_map(|handler| handler.capture.keys().cloned()));
        step.parts().for_each(|(_, steps)| captured_names(steps, names));
    }
}
