//! What really happened: processes, as an independent observer on every host would have seen them.

use torc_model::ids::{AttemptId, JobId};
use torc_model::status::Cause;

/// A process.
#[derive(Clone, PartialEq, Debug)]
pub struct Process {
    /// The job it belongs to.
    pub job: JobId,
    /// The attempt it was started for.
    pub attempt: AttemptId,
    /// The place of the runner that started it.
    pub slot: usize,
    /// By which runner process.
    pub incarnation: u32,
    /// When it started.
    pub started: i64,
    /// Until when.
    pub ended: Option<i64>,
    /// It ended by itself, with success or for this cause.
    pub result: Option<Result<(), Cause>>,
    /// Events of its steps so far.
    pub steps: u64,
}

/// All processes there ever were.
#[derive(Clone, Default, Debug)]
pub struct Witness {
    /// In the order of their start.
    pub processes: Vec<Process>,
    live: Vec<usize>,
}

impl Witness {
    /// Processes that run now.
    pub fn live(&self) -> impl Iterator<Item = &Process> {
        self.live.iter().map(|i| &self.processes[*i])
    }

    /// A process of this attempt runs now.
    pub fn lives(&self, attempt: AttemptId) -> bool {
        self.live().any(|p| p.attempt == attempt)
    }

    /// The process of an attempt, if there was one.
    pub fn of(&self, attempt: AttemptId) -> Option<&Process> {
        self.processes.iter().rev().find(|p| p.attempt == attempt)
    }

    /// A step of an attempt's process did something. Answers with its number.
    pub fn step(&mut self, attempt: AttemptId) -> Option<u64> {
        let at = *self.live.iter().find(|i| self.processes[**i].attempt == attempt)?;
        let process = &mut self.processes[at];
        process.steps += 1;
        Some(process.steps - 1)
    }

    /// A process starts.
    pub fn start(&mut self, process: Process) {
        self.live.push(self.processes.len());
        self.processes.push(process);
    }

    /// The process of an attempt ends, by itself or killed.
    pub fn end(
        &mut self,
        attempt: AttemptId,
        slot: usize,
        incarnation: u32,
        now: i64,
        result: Option<Result<(), Cause>>,
    ) {
        let ours =
            |p: &Process| p.attempt == attempt && p.slot == slot && p.incarnation == incarnation;
        if let Some(at) = self.live.iter().position(|i| ours(&self.processes[*i])) {
            let process = &mut self.processes[self.live.swap_remove(at)];
            process.ended = Some(now);
            process.result = result;
        }
    }

    /// Everything that a runner process had started ends.
    pub fn end_all(&mut self, slot: usize, incarnation: u32, now: i64) {
        let processes = &mut self.processes;
        self.live.retain(|i| {
            let process = &mut processes[*i];
            let ours = process.slot == slot && process.incarnation == incarnation;
            if ours {
                process.ended = Some(now);
            }
            !ours
        });
    }
}
