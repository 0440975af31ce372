//! A workflow as the server would tell of it, and a state that has heard it.

use crate::message::{Answer, AskProblem, Effect, Event, Request};
use crate::state::{Settings, State};
use crate::theme::Theme;
use crate::timeline::{Bars, tests::answer};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use jiff::tz::TimeZone;
use serde_json::{Value, json};
use std::sync::Arc;
use torc_model::api::PulseView;
use torc_model::ids::WorkflowId;

/// 2026-03-01 14:05:09 UTC.
pub const NOW: i64 = 1_772_373_909_000;
pub const WORKFLOW: WorkflowId = WorkflowId(7);
/// Jobs of the workflow.
pub const TOTAL: i64 = 1_240;

/// A state, and what it asked for.
pub struct World {
    pub state: State,
    pub effects: Vec<Effect>,
    /// Everything that was asked for is answered.
    pub is_answering: bool,
}

impl World {
    /// The Overview of the workflow, with everything answered.
    pub fn new(size: (u16, u16)) -> Self {
        let mut world = Self::silent(size);
        world.is_answering = true;
        world.answer_all();
        world.on(Event::Pulse(WORKFLOW, pulse(false)));
        world
    }

    /// The same before the server has answered.
    pub fn silent(size: (u16, u16)) -> Self {
        let settings = Settings {
            theme: Theme { color: true, ascii: false },
            zone: TimeZone::UTC,
            author: "test".into(),
        };
        let mut state = State::new(settings, Some(WORKFLOW), size);
        let effects = state.begin(Some(WORKFLOW), NOW);
        Self { state, effects, is_answering: false }
    }

    pub fn on(&mut self, event: Event) -> &mut Self {
        let now = self.state.now_ms;
        let effects = self.state.on(event, now);
        self.effects.extend(effects);
        if self.is_answering {
            self.answer_all();
        }
        self
    }

    /// Keys as people write them: `j`, `Enter`, `Ctrl-U`; a longer word is typed.
    pub fn press(&mut self, keys: &str) -> &mut Self {
        for word in keys.split(' ') {
            let named = match word {
                "Enter" => Some(KeyCode::Enter),
                "Esc" => Some(KeyCode::Esc),
                "Tab" => Some(KeyCode::Tab),
                "Space" => Some(KeyCode::Char(' ')),
                "Up" => Some(KeyCode::Up),
                "Down" => Some(KeyCode::Down),
                "Left" => Some(KeyCode::Left),
                "Right" => Some(KeyCode::Right),
                "PgDn" => Some(KeyCode::PageDown),
                "Back" => Some(KeyCode::Backspace),
                _ => None,
            };
            if let Some(code) = named {
                self.on(Event::Key(KeyEvent::from(code)));
            } else if let Some(letter) = word.strip_prefix("Ctrl-") {
                let code = KeyCode::Char(letter.to_lowercase().chars().next().expect("a letter"));
                self.on(Event::Key(KeyEvent::new(code, KeyModifiers::CONTROL)));
            } else {
                for letter in word.chars() {
                    self.on(Event::Key(KeyEvent::from(KeyCode::Char(letter))));
                }
            }
        }
        self
    }

    /// Time passes.
    pub fn wait(&mut self, ms: i64) -> &mut Self {
        self.state.now_ms += ms;
        self.on(Event::Tick)
    }

    /// What was asked for and not answered, taken out.
    pub fn asked(&mut self) -> Vec<Request> {
        let taken = std::mem::take(&mut self.effects);
        let request = |effect| match effect {
            Effect::Fetch(request) => Some(request),
            _ => None,
        };
        taken.into_iter().filter_map(request).collect()
    }

    pub fn answer_all(&mut self) {
        while let Some(at) = self.effects.iter().position(|e| matches!(e, Effect::Fetch(_))) {
            let Effect::Fetch(request) = self.effects.remove(at) else { unreachable!() };
            let reply = reply(&request);
            let now = self.state.now_ms;
            let effects = self.state.on(Event::Answer(request, reply), now);
            self.effects.extend(effects);
        }
    }
}

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("a sample of the server's answer")
}

fn counts(is_done: bool) -> Vec<i64> {
    match is_done {
        true => vec![0, 0, 0, 0, 0, 1_202, 37, 1, 0, 0, 0],
        false => vec![0, 201, 300, 2, 14, 685, 35, 1, 0, 0, 2],
    }
}

/// A frame of the pulse.
pub fn pulse(is_done: bool) -> PulseView {
    of(json!({
        "at_ms": NOW, "run_id": 1, "is_complete": is_done, "is_canceled": false,
        "counts": counts(is_done),
        "families": [[0, [0, 0, 0, 0, 0, 1]], [1, [0, 0, 300, 2, 14, 684, 35, 0, 0, 0, 2]], [2, [0, 201, 0, 0, 0, 0, 0, 1]]],
        "busy_cpus": 14, "cpus": 16, "runners": 2, "ended_last_minute": 120,
    }))
}

/// A job of the table.
pub fn job(id: i64) -> Value {
    let (status, last) = match id % 5 {
        0 => (
            "failed",
            json!({"run_id": 1, "attempt_id": 2, "started_ms": NOW - 90_000, "ended_ms": NOW - 60_000, "exec_seconds": 30.2, "peak_memory_bytes": 8_589_934_592i64, "memory_bytes": 8_589_934_592i64, "hostname": "n12", "cause": "oom"}),
        ),
        1 => (
            "running",
            json!({"run_id": 1, "attempt_id": 1, "started_ms": NOW - 200_000, "ended_ms": null, "exec_seconds": null, "peak_memory_bytes": null, "memory_bytes": 8_589_934_592i64, "hostname": "n17", "cause": null}),
        ),
        2 => (
            "pending_failed",
            json!({"run_id": 1, "attempt_id": 1, "started_ms": NOW - 90_000_000, "ended_ms": NOW - 89_990_000, "exec_seconds": 10.0, "peak_memory_bytes": 104_857_600, "memory_bytes": null, "hostname": "n12", "cause": "exit"}),
        ),
        3 => (
            "completed",
            json!({"run_id": 1, "attempt_id": 1, "started_ms": NOW - 90_000, "ended_ms": NOW - 86_600, "exec_seconds": 3.4, "peak_memory_bytes": 104_857_600, "memory_bytes": 8_589_934_592i64, "hostname": "n17", "cause": null}),
        ),
        _ => ("blocked", Value::Null),
    };
    let name = match id % 7 {
        3 => format!("漢字_{id}"),
        5 => format!("train_with_a_very_long_name_that_does_not_fit_anywhere_lr_0.001_seed_{id}"),
        _ => format!("train_0.001_{id}"),
    };
    json!({
        "id": id, "workflow_id": 7, "name": name, "command": "python train.py --rate 0.001",
        "status": status, "attempt_id": if id % 5 == 0 { 2 } else { 1 }, "priority": 0,
        "resource_requirements": null, "num_cpus": 2, "num_gpus": 0, "num_nodes": 1, "memory": "8g",
        "runtime": "PT2H", "failure_handler": null, "scheduler": null,
        "cancel_on_blocking_job_failure": true, "held": id % 11 == 0, "status_reason": null,
        "return_code": if id % 5 == 2 { json!(3) } else { Value::Null }, "family": "train",
        "last": last,
    })
}

fn attempt(number: i64) -> Value {
    let is_running = number == 3;
    json!({
        "id": 100 + number, "workflow_id": 7, "job_id": 40, "job_name": "train_0.001_40", "run_id": 1,
        "attempt_id": number, "state": if is_running { "running" } else { "failed" },
        "origin": "initial", "retry_of": null, "not_before_ms": null, "created_ms": NOW - 100_000,
        "claimed_ms": NOW - 91_000, "started_ms": NOW - 90_000 + number, "ended_ms": if is_running { Value::Null } else { json!(NOW - 60_000) },
        "compute_node_id": 1, "hostname": "n12", "pid": 4711, "return_code": 137, "signal": 9,
        "ended_by": null, "cause": "oom", "detail": null, "error": null, "evidence": [],
        "exec_seconds": 30.2, "cpu_seconds": 28.0, "peak_memory_bytes": 8_589_934_592i64,
        "peak_cpu_percent": null, "memory_bytes": 8_589_934_592i64, "time_limit_seconds": null,
        "stdout_path": null, "stderr_path": null, "stderr_tail": null, "stderr_tail_start": null,
        "outcome": null, "decision": null, "rule": null, "recovery": null, "script": null, "steps": null,
    })
}

fn group(jobs: i64, kind: &str, family: &str) -> Value {
    json!({
        "family": family, "cause": "oom", "return_code": 137, "signal": 9, "kind": kind, "confidence": 0.97,
        "summary": "it used more memory than it asked for: 8.0 GiB of 8.0 GiB",
        "proof": [
            {"rank": 2, "source": "kernel", "text": "memory.events: oom_kill 1"},
            {"rank": 5, "source": "text", "text": "MemoryError: cannot allocate", "start": 2_000, "end": 2_028},
        ],
        "jobs": jobs, "waiting": 2, "blocked": 1, "sample": 40, "sample_name": "train_0.001_40",
        "sample_attempt": 2, "sample_run": 1,
        "tail": "epoch 3 of 10\n\u{1b}[31mMemoryError: cannot allocate\u{1b}[0m\n",
        "nodes": [["n12", jobs - 1], ["n17", 1]], "first_ms": NOW - 600_000, "last_ms": NOW - 60_000,
        "action": "more_memory", "changes": if kind == "oom" { json!([{"field": "memory", "from": 8_589_934_592i64, "to": 12_884_901_888i64}]) } else { json!([]) },
        "why": "more memory helped 9 of 10 such failures", "chance": 0.9, "where": "family:train cause:oom",
    })
}

/// What the server would say.
pub fn reply(request: &Request) -> Result<Answer, AskProblem> {
    Ok(match request {
        Request::Workflows => Answer::Workflows(of(json!({
            "items": [workflow(7, "sweep"), workflow(6, "an_old_one_with_a_long_name_from_last_week")],
            "offset": 0, "total_count": 12, "has_more": true,
        }))),
        Request::Row(_) | Request::Families(_) => Answer::Families(Box::new(of(families()))),
        Request::Resources(_) => {
            Answer::Resources(of(json!([resources(0, "prep", 3.4), resources(1, "train", 31.0),])))
        }
        Request::Failures(_) => Answer::Failures(of(json!([
            group(35, "oom", "train"),
            group(2, "missing_file", "report")
        ]))),
        Request::Runners(_) => Answer::Runners(of(json!([
            runner(1, "n12", "active", Value::Null),
            runner(2, "n17", "lost_contact", json!("3 jobs in a row failed here")),
            runner(3, "login3", "ended", Value::Null),
        ]))),
        Request::Allocations(_) => Answer::Allocations(of(json!([allocation()]))),
        Request::Timeline(_) => {
            let bars: Vec<_> = (0..60u32)
                .map(|i| {
                    (
                        i + 1,
                        i * 1_000,
                        if i == 59 { u32::MAX } else { 4_000 },
                        i % 2,
                        i % 3,
                        if i % 9 == 0 { 4 } else { 3 },
                    )
                })
                .collect();
            let mut read = Bars::read(&answer(&bars, &["n12", "n17"])).expect("our own bytes");
            read.base_ms = NOW - 60_000;
            Answer::Timeline(Arc::new(read))
        }
        Request::CriticalPath(_) => Answer::CriticalPath(of(json!({
            "workflow_id": 7, "jobs": [], "length": 3, "seconds": 64.4, "work_cpu_seconds": 4_000.0,
            "lost_seconds": 1_050.0, "waited_seconds": 12.0, "elapsed_seconds": 600.0,
        }))),
        Request::Events(_, after) => Answer::Events(match after {
            Some(_) => Vec::new(),
            None => of(json!((1..=40).map(event).collect::<Vec<_>>())),
        }),
        Request::Jobs(asked) => {
            let first = asked.window * 100;
            let total = if asked.filter.contains("nothing") { 0 } else { TOTAL };
            let last = (first + 100).min(total);
            let items: Vec<Value> = (first..last.max(first)).map(|at| job(at + 1)).collect();
            let known = if asked.after.is_some() { total - first } else { total };
            Answer::Jobs(of(
                json!({"items": items, "offset": first, "total_count": known, "has_more": false}),
            ))
        }
        Request::Why(id) => {
            let mut one = job(id.0);
            one["status"] = json!("failed");
            one["name"] = json!("train_0.001_40");
            Answer::Why(Box::new(of(json!({
                "job": one, "summary": "it used more memory than it asked for: 8.0 GiB of 8.0 GiB",
                "details": ["attempt 2 of run 1 failed on n12", "the job has no failure handler"],
                "attempt": attempt(2), "hints": ["`torc recover 7` gives it 12 GiB"],
                "diagnosis": {"kind": "oom", "nature": "memory", "confidence": 0.97, "summary": "out of memory",
                    "proof": [{"rank": 2, "source": "kernel", "text": "memory.events: oom_kill 1"}], "doubts": []},
            }))))
        }
        Request::Attempts(_) => Answer::Attempts(of(json!([attempt(1), attempt(2)]))),
        Request::Log { offset, .. } => Answer::Log(log(*offset, of_log(request))),
        Request::Peek(..) => Answer::Log(log(-400, 2)),
        Request::Compared(of) => Answer::Log(log(-400, of.attempt)),
        Request::Search { .. } => Answer::Search(of(json!({
            "total": 1_922, "lines": 5_000, "size": 5_000, "searched": 5_000,
            "hits": [{"line": 12, "offset": 300, "text": "needle"}, {"line": 40, "offset": 1_200, "text": "needle"}],
        }))),
        Request::Act(asked, _) => Answer::Act(of(json!({
            "dry_run": asked.dry_run, "matched": 40, "done": 35, "skipped": [["completed", 5]], "others": 1,
            "notes": ["35 jobs: memory 8 GiB -> 12 GiB", "1 more job waits for them again"],
            "names": ["train_0.001_40", "train_0.001_45"],
            "command": "torc jobs act recover 7 --where 'family:train cause:oom'",
        }))),
        Request::Find(..) => {
            Answer::Find { workflows: vec![of(workflow(6, "older"))], jobs: vec![of(job(40))] }
        }
    })
}

fn of_log(request: &Request) -> i64 {
    match request {
        Request::Log { of, .. } => of.attempt,
        _ => 1,
    }
}

/// A piece of a file of 5,000 bytes: 200 lines of 25.
fn log(offset: i64, attempt: i64) -> torc_model::api::LogView {
    let size = 5_000;
    let begin = if offset < 0 { (size + offset).max(0) } else { offset.min(size) };
    let line = |n: i64| match (n, attempt) {
        (199, 2) => "MemoryError: no memory!!\n".to_owned(),
        (n, _) => format!("\u{1b}[1mepoch\u{1b}[0m{n:011}\n"),
    };
    let text: String = (0..200).map(line).collect();
    let text = String::from_utf8_lossy(&text.as_bytes()[begin as usize..]).into_owned();
    of(json!({
        "job_id": 40, "run_id": 1, "attempt_id": attempt, "stream": "stderr", "path": "/tmp/x.e",
        "offset": begin, "next_offset": size, "size": size, "text": text,
    }))
}

fn event(id: i64) -> Value {
    json!({
        "id": id, "workflow_id": 7, "timestamp_ms": NOW - 100_000 + id * 1_000,
        "kind": if id % 3 == 0 { "job_failed" } else { "job_completed" },
        "job_id": id, "job_name": format!("train_0.001_{id}"),
        "data": {"attempt_id": 1, "run_id": 1, "return_code": if id % 3 == 0 { 137 } else { 0 }},
    })
}

fn workflow(id: i64, name: &str) -> Value {
    json!({
        "id": id, "name": name, "user": "ann", "description": null, "project": null, "metadata": null,
        "directory": "/work", "created_ms": NOW - 700_000, "run_id": 1, "is_canceled": false,
        "is_archived": false, "use_pending_failed": true, "job_count": TOTAL,
    })
}

fn families() -> Value {
    json!({
        "workflow_id": 7, "name": "sweep", "run_id": 1, "at_ms": NOW, "started_ms": NOW - 600_000,
        "last_end_ms": NOW - 1_000, "is_complete": false, "is_canceled": false,
        "counts": {"blocked": 201, "ready": 300, "pending": 2, "running": 14, "completed": 685, "failed": 35, "canceled": 1, "pending_failed": 2},
        "total": TOTAL,
        "families": [
            {"number": 0, "name": "prep", "total": 1, "counts": {"completed": 1}},
            {"number": 1, "name": "train", "total": 1_037, "counts": {"ready": 300, "pending": 2, "running": 14, "completed": 684, "failed": 35, "pending_failed": 2}},
            {"number": 2, "name": "report", "total": 202, "counts": {"blocked": 201, "canceled": 1}},
        ],
        "busy_cpus": 14, "cpus": 16, "runners": 2, "lost_contact_runners": 1,
        "pace": {"begin_ms": NOW - 600_000, "slot_ms": 10_000,
            "ended": (0..60).map(|i| i % 13 * 2).collect::<Vec<i64>>(), "failed": (0..60).map(|i| i64::from(i % 20 == 0)).collect::<Vec<i64>>()},
    })
}

fn resources(number: i64, name: &str, median: f64) -> Value {
    json!({
        "number": number, "name": name, "attempts": 10, "seconds_median": median, "seconds_max": median * 2.0,
        "seconds_sum": median * 10.0, "seconds_asked": 7_200, "cpus_asked": 2, "cpus_used": 1.9,
        "memory_asked": 8_589_934_592i64, "memory_median": 4_000_000_000i64, "memory_max": 7_500_000_000i64,
        "wasted_cpu_hours": 0.1, "wasted_gib_hours": 0.2, "memory_proposed": null, "dots": [],
    })
}

fn runner(id: i64, host: &str, state: &str, quarantine: Value) -> Value {
    json!({
        "id": id, "workflow_id": 7, "hostname": host, "pid": 17, "kind": "local",
        "capacity": {"num_cpus": 8, "memory_bytes": 34_359_738_368i64, "num_gpus": 0, "num_nodes": 1},
        "state": state, "started_ms": NOW - 600_000, "last_seen_ms": NOW - 3_000,
        "ended_ms": if state == "ended" { json!(NOW - 100_000) } else { Value::Null },
        "end_reason": null, "scheduler": null, "held": 7, "quarantine": quarantine,
    })
}

fn allocation() -> Value {
    json!({
        "id": 1, "workflow_id": 7, "run_id": 1, "scheduler_id": 1, "scheduler": "gpu", "name": "torc_7",
        "array_task": null, "status": "pending", "slurm_job_id": "481516", "state": "PENDING",
        "ended_as": null, "reason": "Priority", "cause": null, "action_id": null,
        "start_one_worker_per_node": false, "max_parallel_jobs": null, "created_ms": NOW - 400_000,
        "submitted_ms": NOW - 390_000, "started_ms": null, "ended_ms": null, "missing_since_ms": null,
        "unneeded_since_ms": null, "was_too_short": false, "runners": 0,
    })
}
