//! A line at the bottom of a terminal that is drawn over itself, by a thread of its own.
//!
//! The cursor rests at the beginning of the line. A terminal that becomes narrower breaks the line
//! into several rows and moves the cursor with its first character; "erase below" from there clears
//! all of them, in terminals that do not break lines anew, too. A terminal that becomes narrower
//! between the question for its width and the line would wrap the line and leave the cursor on the
//! last of its rows: so the line is written with wrapping off, and its end is cut instead.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The elapsed time moves on although nothing happens.
const TICK: Duration = Duration::from_millis(200);
/// To the beginning of the line, and nothing is left from there to the end of the screen.
const CLEAR: &str = "\r\x1b[J";
/// Wrapping at the right margin (DECAWM) off and on again.
const NO_WRAP: &str = "\x1b[?7l";
const WRAP: &str = "\x1b[?7h";
const SPINNER: [&str; 8] = ["⠁", "⠂", "⠄", "⡀", "⢀", "⠠", "⠐", "⠈"];

/// A line is on the screen, which other writers to standard error have to clear first.
static IS_SHOWN: AtomicBool = AtomicBool::new(false);

/// The line, until [`LiveLine::end`].
pub struct LiveLine {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Says what the line says, for the time since it began and so many columns.
type LineText = Box<dyn Fn(Duration, usize) -> String + Send>;

struct Shared {
    /// Held while something is written, so that the line and other text never mix.
    state: Mutex<State>,
    ended: Condvar,
}

struct State {
    text: LineText,
    begin: Instant,
    is_over: bool,
}

impl LiveLine {
    /// Shows the line now and five times a second.
    pub fn begin(text: impl Fn(Duration, usize) -> String + Send + 'static) -> Self {
        let state = State { text: Box::new(text), begin: Instant::now(), is_over: false };
        let shared = Arc::new(Shared { state: Mutex::new(state), ended: Condvar::new() });
        let drawn = shared.clone();
        let thread = std::thread::Builder::new().name("live line".into()).spawn(move || {
            let mut state = drawn.lock();
            while !state.is_over {
                state.draw();
                let waited = drawn.ended.wait_timeout(state, TICK);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        });
        // Without a thread there is no line, and everything else is printed as usual.
        Self { shared, thread: Mutex::new(thread.ok()) }
    }

    /// Takes the line away while something else is written.
    pub fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        let state = self.shared.lock();
        if state.is_over {
            return write();
        }
        clear();
        let written = write();
        state.draw();
        written
    }

    /// Takes the line away for good.
    pub fn end(&self) {
        let mut state = self.shared.lock();
        if !std::mem::replace(&mut state.is_over, true) {
            clear();
        }
        drop(state);
        self.shared.ended.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of that thread has been told already.
            let _ = thread.join();
        }
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn draw(&self) {
        let elapsed = self.begin.elapsed();
        let width = usize::from(console::Term::stderr().size().1);
        let step = (elapsed.as_millis() / TICK.as_millis()) as usize;
        let text = (self.text)(elapsed, width.saturating_sub(2));
        let line = match width {
            0..=2 => text,
            _ => format!("{} {text}", SPINNER[step % SPINNER.len()]),
        };
        // A standard error that is gone must not stop the work.
        let drawn = format!("{CLEAR}{NO_WRAP}{line}\r{WRAP}");
        let _ = io::stderr().lock().write_all(drawn.as_bytes());
        IS_SHOWN.store(true, Ordering::Relaxed);
    }
}

fn clear() {
    IS_SHOWN.store(false, Ordering::Relaxed);
    let _ = io::stderr().lock().write_all(CLEAR.as_bytes());
}

/// Clears the line for a writer that does not know it; it is drawn again with its next tick.
pub fn make_room() {
    if IS_SHOWN.load(Ordering::Relaxed) {
        clear();
    }
}
