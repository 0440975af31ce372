//! File access with a deadline. A dead network mount blocks a system call for ever, and no signal
//! ends it: only the thread that made the call may wait for it.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How many threads hang at each place past their deadline. A further look at such a place would
/// hang as well.
static HANGING: LazyLock<Mutex<HashMap<PathBuf, usize>>> = LazyLock::new(Mutex::default);
/// Beyond this many places that hang no more threads are started.
const MAX_HANGING: usize = 256;

/// The file system did not answer in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hangs;

impl fmt::Display for Hangs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the file system does not answer")
    }
}

impl std::error::Error for Hangs {}

/// Does `work`, which looks at files in `place`, on a thread of its own, and waits for it at most
/// `patience`. While an earlier thread hangs at the same place past its deadline, answers at once.
pub fn within<T: Send + 'static>(
    place: &Path,
    patience: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Hangs> {
    {
        let hanging = lock();
        if hanging.contains_key(place) || hanging.len() >= MAX_HANGING {
            return Err(Hangs);
        }
    }
    let (done, answer) = mpsc::sync_channel(1);
    // Read and written under the lock of `HANGING`.
    let state = Arc::new(Mutex::new(State::Working));
    let (its_state, at) = (state.clone(), place.to_owned());
    let thread = std::thread::Builder::new().name("torc-files".into()).spawn(move || {
        // When the deadline has passed, the receiver is gone.
        let _ = done.send(work());
        let mut hanging = lock();
        let before = exchange(&its_state, State::Ended);
        if before == State::Overdue
            && let Some(count) = hanging.get_mut(&at)
        {
            *count -= 1;
            if *count == 0 {
                hanging.remove(&at);
            }
        }
    });
    thread.map_err(|_| Hangs)?;
    answer.recv_timeout(patience).map_err(|_| {
        let mut hanging = lock();
        match exchange(&state, State::Overdue) {
            State::Ended => {}
            State::Working | State::Overdue => {
                *hanging.entry(place.to_owned()).or_default() += 1;
            }
        }
        Hangs
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Working,
    Overdue,
    Ended,
}

fn exchange(state: &Mutex<State>, new: State) -> State {
    std::mem::replace(&mut state.lock().unwrap_or_else(PoisonError::into_inner), new)
}

fn lock() -> MutexGuard<'static, HashMap<PathBuf, usize>> {
    HANGING.lock().unwrap_or_else(PoisonError::into_inner)
}
