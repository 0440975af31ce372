//! Failpoints: named places where a test can kill the process, as a crash would, or hold it.
//!
//! `TORC_FAILPOINT=store.before_commit:3` kills the process with SIGKILL the third time it comes to
//! that place. `TORC_FAILPOINT=recovery.looking@FIFO` holds the first thread that comes there until
//! a test writes into the named pipe. Builds without debug assertions have no failpoints: the
//! call is empty.

/// Every place there is; a test goes through all of them.
pub const ALL: &[&str] = &[
    "boot.opened",
    "recovery.looking",
    "boot.recovered",
    "file.before_rename",
    "file.after_rename",
    "store.before_commit",
    "store.after_commit",
    "spawn.inserted",
    "spawn.committed",
    "courier.before_post",
    "courier.after_post",
    "runner.before_register",
    "runner.after_register",
    "runner.after_announce",
    "runner.before_claim",
    "runner.after_answer",
    "runner.before_spawn",
    "runner.after_spawn",
    "runner.after_exit",
    "steps.after_try",
    "steps.before_handler",
    "steps.after_handler",
    "steps.after_step",
    "steps.before_report",
    "runner.before_heartbeat",
    "runner.after_heartbeat",
    "runner.before_action_report",
    "runner.after_action_report",
    "runner.before_goodbye",
    "runner.after_goodbye",
    "spool.before_write",
    "spool.after_sync",
    "spool.before_clear",
];

/// Dies or waits here if the environment says so.
#[inline]
pub fn hit(name: &str) {
    #[cfg(debug_assertions)]
    armed::hit(name);
    #[cfg(not(debug_assertions))]
    let _ = name;
}

#[cfg(debug_assertions)]
mod armed {
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Armed {
        name: String,
        left: AtomicU64,
        /// Waits for a word from here instead of dying.
        gate: Option<PathBuf>,
    }

    static ARMED: OnceLock<Option<Armed>> = OnceLock::new();

    pub fn hit(name: &str) {
        let armed = ARMED.get_or_init(|| {
            let text = std::env::var("TORC_FAILPOINT").ok()?;
            let (place, gate) = text
                .split_once('@')
                .map_or((&*text, None), |(place, gate)| (place, Some(gate.into())));
            let (name, nth) = place.split_once(':').unwrap_or((place, "1"));
            Some(Armed {
                name: name.to_owned(),
                left: AtomicU64::new(nth.parse().unwrap_or(1)),
                gate,
            })
        });
        if let Some(armed) = armed
            && armed.name == name
            && armed.left.fetch_sub(1, Ordering::SeqCst) == 1
        {
            if let Some(gate) = &armed.gate {
                // Opening a named pipe waits for its writer. One that is gone holds
                // no thread.
                let _ = std::fs::read(gate);
                return;
            }
            // As a power cut would: no destructor runs, nothing is flushed.
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            );
        }
    }
}
