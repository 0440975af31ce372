//! Says that the runner lives, from a thread and a runtime of its own: no load of jobs and no busy
//! lane can hold it up. It also keeps the time that matters when no server answers.

use crate::dispatcher::Event;
use crate::guard::GuardClock;
use crate::held::HeldList;
use crate::lanes::Line;
use crate::steps::Live;
use crate::sys;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use torc_model::api::{Heartbeat, HeartbeatAnswer};

/// After a failure the next try comes soon: a server that restarts must not think us gone.
const RETRY: Duration = Duration::from_secs(2);

/// News of steps wait this long for more of them: one request for all.
const GATHER: Duration = Duration::from_millis(500);

/// Ends the heartbeat when dropped.
pub struct Pulse {
    _stop: oneshot::Sender<()>,
}

/// How often, and how long silence may last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rhythm {
    /// Between two heartbeats.
    pub interval: Duration,
    /// After this long without an answer the runner ends its own jobs; None: never.
    pub fence: Option<Duration>,
    /// After this long its guard does, in case the runner stands still.
    pub guard: Option<Duration>,
}

impl Rhythm {
    /// From what the server asks for. The fence leaves time to end the jobs before the server gives
    /// them away.
    pub fn new(lease_seconds: i64, disown_seconds: Option<i64>) -> Self {
        let seconds = |n: i64| Duration::from_secs(u64::try_from(n).unwrap_or(0));
        let disown = disown_seconds.map(seconds);
        let before =
            |disown: Duration, part: u32| disown - (Duration::from_secs(60).min(disown / 3) / part);
        Self {
            interval: (seconds(lease_seconds) / 3).max(Duration::from_millis(100)),
            fence: disown.map(|disown| before(disown, 1)),
            guard: disown.map(|disown| before(disown, 2)),
        }
    }
}

/// Starts the heartbeat.
pub fn start(
    line: &Line,
    held: Arc<HeldList>,
    live: Arc<Live>,
    rhythm: Rhythm,
    guard: Option<GuardClock>,
) -> io::Result<Pulse> {
    let (stop, stopped) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Its own connections: those of another runtime stand still when that runtime is busy.
    let client = line.client.detached();
    let line = Line { client, ..line.clone() };
    std::thread::Builder::new().name("torc-heartbeat".into()).stack_size(512 << 10).spawn(
        move || {
            runtime.block_on(async {
                tokio::select! {
                    () = beat(line, held, live, rhythm, guard) => {}
                    _ = stopped => {}
                }
            });
        },
    )?;
    Ok(Pulse { _stop: stop })
}

async fn beat(
    line: Line,
    held: Arc<HeldList>,
    live: Arc<Live>,
    rhythm: Rhythm,
    guard: Option<GuardClock>,
) {
    let tell_guard = |since: Duration| {
        if let (Some(guard), Some(time)) = (&guard, rhythm.guard) {
            guard.set(since + time);
        }
    };
    tell_guard(sys::boottime());
    let client = line.client.with_time_limit(rhythm.interval.max(Duration::from_secs(5)));
    let mut is_fenced = false;
    let mut pause = rhythm.interval;
    loop {
        // Not longer than until the fence, whatever the rhythm.
        let to_fence = rhythm.fence.map_or(pause, |fence| {
            fence.saturating_sub(line.contact.silence()).max(Duration::from_millis(100))
        });
        let due = tokio::time::Instant::now() + pause.min(to_fence);
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            // What steps do is told at once, but not each of it by itself. While no server answers
            // the rhythm holds.
            () = live.news(), if pause == rhythm.interval => {
                tokio::time::sleep_until(due.min(tokio::time::Instant::now() + GATHER)).await;
            }
        }
        let body = Heartbeat {
            runner_id: line.runner_id,
            held: held.refs(),
            gone: held.untold(),
            step_events: live.untold(),
        };
        torc_failpoint::hit("runner.before_heartbeat");
        let asked = sys::boottime();
        let answer = line.contact.track(client.heartbeat(&body)).await;
        torc_failpoint::hit("runner.after_heartbeat");
        match answer {
            Ok(answer) => {
                tell_guard(asked);
                held.told(&body.gone);
                live.told(&body.step_events);
                pause = rhythm.interval;
                if answer != HeartbeatAnswer::default() {
                    line.events.send(Event::Heartbeat(answer));
                }
            }
            Err(error) if error.is_temporary() => {
                pause = RETRY.min(rhythm.interval);
                line.events.send(Event::ServerLost(error.to_string(), error.code()));
            }
            Err(error) => {
                line.events.send(Event::Refused(error.to_string()));
                return;
            }
        }
        if !is_fenced && rhythm.fence.is_some_and(|fence| line.contact.silence() >= fence) {
            is_fenced = true;
            line.events.send(Event::OutOfContact);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fence_comes_before_the_server_gives_up() {
        let rhythm = |interval, fence, guard| Rhythm {
            interval: Duration::from_secs(interval),
            fence: Some(Duration::from_secs(fence)),
            guard: Some(Duration::from_secs(guard)),
        };
        assert_eq!(Rhythm::new(60, Some(2400)), rhythm(20, 2340, 2370));
        assert_eq!(Rhythm::new(3, Some(30)), rhythm(1, 20, 25));
        assert_eq!(Rhythm::new(0, Some(0)).interval, Duration::from_millis(100));
        assert_eq!(Rhythm::new(60, None).fence, None, "seen by the server: no deadline");
    }
}
