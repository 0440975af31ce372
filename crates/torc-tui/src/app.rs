//! The loop: waits for keys, answers, frames of the pulse and moments, hands each to the reducer,
//! and draws when something has changed.
//!
//! ```text
//!  terminal ──keys──▶ ┌────────┐ ──effects──▶ tasks that ask the server ─┐
//!  tasks ───answers─▶ │ State  │                                         │
//!  pulse ────frames─▶ └────────┘ ──frames──▶ terminal, ten a second      │
//!     ▲                                       at most                    │
//!     └──────────────────────── one channel ◀────────────────────────────┘
//! ```

use crate::fetch::{fetch, log_query, problem};
use crate::message::{Effect, Event, LogOf};
use crate::state::{Settings, State};
use crate::terminal::Screen;
use crossterm::event::{Event as Input, EventStream};
use futures_util::StreamExt as _;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinHandle};
use torc_client::Client;
use torc_model::ids::WorkflowId;

/// Redraws that may follow each other at once: a key, the answer that it asked for, and the next key.
const BURST: f64 = 3.0;
/// One more redraw each time this has passed: with the burst at most ten in any second.
const REFILL: Duration = Duration::from_millis(143);
/// What a redraw leaves for the next key, which must not wait because a frame of the pulse was drawn.
const FOR_KEYS: f64 = 1.0;
/// Pauses between tries to hear the pulse again.
const PAUSES_MS: [u64; 4] = [200, 500, 1000, 2000];
/// Bytes of an output that are asked for at once for `$PAGER`.
const PAGER_PIECE: i64 = 1 << 20;

/// What to show, and how.
pub struct Options {
    /// Talks to the server.
    pub client: Client,
    /// The workflow to open; without, the list of all.
    pub workflow: Option<WorkflowId>,
    /// Colours, signs, time zone.
    pub settings: Settings,
    /// The mouse is for this program; without, the terminal's own selection works.
    pub has_mouse: bool,
    /// A line per redraw is appended here: ms, bytes, µs from the key to the screen.
    pub trace: Option<PathBuf>,
}

/// Shows the screens until the user leaves. `on_away` is called when no server answers; it may start
/// one in its place, and hands out a client if the server has another address now.
pub async fn run(
    options: Options,
    mut on_away: impl AsyncFnMut() -> Option<Client>,
) -> io::Result<()> {
    let Options { client, workflow, settings, has_mouse, trace } = options;
    let mut stop = Stop::listen()?;
    let mut screen = Screen::enter(has_mouse)?;
    let (sender, mut inbox) = unbounded_channel();
    let mut state = State::new(settings, workflow, screen.size()?);
    let mut app = EventLoop {
        client,
        sender,
        pulse: None,
        trace: trace.map(RedrawTrace::open).transpose()?,
        budget: Budget { tokens: BURST, at: Instant::now() },
        is_changed: true,
        key_at: None,
    };
    let mut keyboard = Keyboard::listen(&app.sender);
    let mut effects = state.begin(workflow, now_ms());
    loop {
        match app.perform(effects, &mut screen, &mut keyboard).await? {
            LoopFlow::GoOn => {}
            LoopFlow::Quit => return Ok(()),
        }
        app.draw(&mut state, &mut screen)?;
        let event = tokio::select! {
            biased;
            () = stop.asked() => return Ok(()),
            event = inbox.recv() => event,
            () = at_ms(state.wake_at()) => Some(Event::Tick),
            // Something waits to be drawn: nothing to take in, only the turn above.
            () = app.next_redraw() => None,
        };
        effects = Vec::new();
        let events = event.into_iter().chain(waiting(&mut inbox));
        for event in events {
            let away = match &event {
                Event::Away(id, _) => Some(*id),
                _ => None,
            };
            app.on_event(&event);
            effects.extend(state.on(event, now_ms()));
            if let Some(id) = away {
                app.draw(&mut state, &mut screen)?;
                if let Some(client) = on_away().await
                    && client.url() != app.client.url()
                {
                    app.client = client;
                    app.follow(id);
                }
            }
        }
    }
}

/// Everything else that has happened already: many events, one redraw.
fn waiting(inbox: &mut UnboundedReceiver<Event>) -> Vec<Event> {
    /// Then a redraw comes first, so that a flood cannot freeze the screen.
    const MOST: usize = 256;
    std::iter::from_fn(|| inbox.try_recv().ok()).take(MOST).collect()
}

/// A task that reads the terminal. It stands in for the loop because a stream of events wakes only
/// the task that asked it first.
struct Keyboard {
    task: JoinHandle<()>,
}

impl Keyboard {
    fn listen(sender: &UnboundedSender<Event>) -> Self {
        let sender = sender.clone();
        let task = tokio::spawn(async move {
            let mut stream = EventStream::new();
            while let Some(Ok(event)) = stream.next().await {
                if let Some(event) = from_terminal(event)
                    && sender.send(event).is_err()
                {
                    return;
                }
            }
            // The loop may have ended; else it ends now.
            let _ = sender.send(Event::Closed);
        });
        Self { task }
    }

    /// Reads no more; returns when the terminal is free.
    async fn stop(&mut self) {
        self.task.abort();
        // Canceled is what was asked for.
        let _ = (&mut self.task).await;
    }
}

fn from_terminal(event: Input) -> Option<Event> {
    match event {
        Input::Key(key) => Some(Event::Key(key)),
        Input::Mouse(mouse) => Some(Event::Mouse(mouse)),
        Input::Paste(text) => Some(Event::Paste(text)),
        Input::Resize(columns, rows) => Some(Event::Resize(columns, rows)),
        Input::FocusGained | Input::FocusLost => None,
    }
}

enum LoopFlow {
    GoOn,
    Quit,
}

struct EventLoop {
    client: Client,
    sender: UnboundedSender<Event>,
    pulse: Option<AbortHandle>,
    trace: Option<RedrawTrace>,
    budget: Budget,
    is_changed: bool,
    /// The oldest key that is not on the screen yet.
    key_at: Option<Instant>,
}

impl EventLoop {
    fn on_event(&mut self, event: &Event) {
        self.is_changed = true;
        if let Event::Key(_) | Event::Mouse(_) = event {
            self.key_at.get_or_insert_with(Instant::now);
        }
        if let (Event::Key(key), Some(trace)) = (event, &mut self.trace) {
            trace.key = format!("{:?}", key.code);
        }
    }

    async fn perform(
        &mut self,
        effects: Vec<Effect>,
        screen: &mut Screen,
        keyboard: &mut Keyboard,
    ) -> io::Result<LoopFlow> {
        for effect in effects {
            match effect {
                Effect::Fetch(request) => {
                    let (client, sender) = (self.client.clone(), self.sender.clone());
                    tokio::spawn(async move {
                        let answer = fetch(&client, &request).await;
                        // The loop may have ended.
                        let _ = sender.send(Event::Answer(request, answer));
                    });
                }
                Effect::Follow(id) => self.follow(id),
                Effect::Copy(text) => screen.copy(&text)?,
                Effect::Repaint => {
                    // A test looks at what a panic leaves of the terminal.
                    #[cfg(debug_assertions)]
                    assert!(std::env::var_os("TORC_TUI_PANIC").is_none(), "asked for by a test");
                    screen.repaint()?;
                }
                Effect::Pager(of) => {
                    let file = match self.output_file(&of).await {
                        Ok(file) => file,
                        Err(message) => {
                            self.tell_log_problem(of, message);
                            continue;
                        }
                    };
                    self.lend(screen, keyboard, pager(), file.path().to_owned()).await?;
                }
                Effect::Editor(text) => {
                    let mut file = temporary("command", ".sh")?;
                    file.write_all(text.as_bytes())?;
                    self.lend(screen, keyboard, editor(), file.path().to_owned()).await?;
                }
                Effect::Suspend => {
                    keyboard.stop().await;
                    screen.lend();
                    suspend().await?;
                    self.take_back(screen, keyboard)?;
                }
                Effect::Quit => return Ok(LoopFlow::Quit),
            }
        }
        Ok(LoopFlow::GoOn)
    }

    fn tell_log_problem(&self, of: LogOf, message: String) {
        let request = crate::message::Request::Log {
            of,
            offset: 0,
            limit: 1,
            piece: crate::message::Piece::Before,
        };
        let problem = crate::message::AskProblem { message, is_away: false };
        // The loop that reads it is this very one.
        let _ = self.sender.send(Event::Answer(request, Err(problem)));
    }

    /// Reads the pulse of another workflow.
    fn follow(&mut self, id: WorkflowId) {
        if let Some(task) = self.pulse.take() {
            task.abort();
        }
        let (client, sender) = (self.client.clone(), self.sender.clone());
        let task = tokio::spawn(async move {
            let mut failures = 0;
            loop {
                let mut stream = client.stream_pulse(id);
                let error = loop {
                    match stream.next().await {
                        Ok(frame) => {
                            failures = 0;
                            if sender.send(Event::Pulse(id, frame)).is_err() {
                                return;
                            }
                        }
                        Err(error) => break error,
                    }
                };
                let message = problem(&error).message;
                if !error.is_temporary() {
                    // The loop may have ended.
                    let _ = sender.send(Event::Refused(id, message));
                    return;
                }
                if sender.send(Event::Away(id, message)).is_err() {
                    return;
                }
                let pause = PAUSES_MS[failures.min(PAUSES_MS.len() - 1)];
                failures += 1;
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
        });
        self.pulse = Some(task.abort_handle());
    }

    /// A whole output as a file of this machine, for `$PAGER`.
    async fn output_file(&self, of: &LogOf) -> Result<tempfile::NamedTempFile, String> {
        let mut file = temporary(&format!("job_{}_a{}", of.job, of.attempt), ".log")
            .map_err(|e| e.to_string())?;
        let mut offset = 0;
        loop {
            let query = log_query(of).add("offset", offset).add("limit", PAGER_PIECE);
            let piece = self.client.job_log(of.job, &query).await.map_err(|e| e.to_string())?;
            file.write_all(piece.text.as_bytes()).map_err(|e| e.to_string())?;
            if piece.next_offset >= piece.size || piece.next_offset <= offset {
                return Ok(file);
            }
            offset = piece.next_offset;
        }
    }

    /// Runs another program on the terminal. The file's name is an argument and never shell text.
    async fn lend(
        &self,
        screen: &mut Screen,
        keyboard: &mut Keyboard,
        program: String,
        file: PathBuf,
    ) -> io::Result<()> {
        // It would read what is typed for the other program.
        keyboard.stop().await;
        screen.lend();
        let run = tokio::task::spawn_blocking(move || {
            let text = format!("{program} \"$1\"");
            Command::new("sh").arg("-c").arg(text).arg("sh").arg(file).status()
        });
        // Whether it ended well is between it and the user, who saw it.
        let _ = run.await;
        self.take_back(screen, keyboard)
    }

    /// The terminal is ours again. Its size may be another by now, which no signal told us.
    fn take_back(&self, screen: &mut Screen, keyboard: &mut Keyboard) -> io::Result<()> {
        screen.take_back()?;
        *keyboard = Keyboard::listen(&self.sender);
        let (columns, rows) = screen.size()?;
        // The loop that reads it is this very one.
        let _ = self.sender.send(Event::Resize(columns, rows));
        Ok(())
    }

    /// Draws if there is something to draw, and not more often than the budget allows.
    fn draw(&mut self, state: &mut State, screen: &mut Screen) -> io::Result<()> {
        if !self.is_changed || !self.budget.take(self.reserve()) {
            return Ok(());
        }
        self.is_changed = false;
        let (begun, bytes) = (Instant::now(), screen.bytes());
        let frame = screen.draw(state)?;
        state.frame.hits = frame.hits;
        if let Some(trace) = &mut self.trace {
            let from_key = self.key_at.map(|at| at.elapsed().as_micros());
            trace.line(screen.bytes() - bytes, begun.elapsed(), from_key)?;
        }
        self.key_at = None;
        Ok(())
    }

    fn reserve(&self) -> f64 {
        if self.key_at.is_some() { 0.0 } else { FOR_KEYS }
    }

    async fn next_redraw(&self) {
        match self.is_changed {
            true => tokio::time::sleep(self.budget.wait(self.reserve())).await,
            false => std::future::pending().await,
        }
    }
}

/// How often may be drawn: a token bucket.
struct Budget {
    tokens: f64,
    at: Instant,
}

impl Budget {
    fn refilled(&self) -> f64 {
        (self.tokens + self.at.elapsed().as_secs_f64() / REFILL.as_secs_f64()).min(BURST)
    }

    /// Takes one token, if so many are left then.
    fn take(&mut self, reserve: f64) -> bool {
        (self.tokens, self.at) = (self.refilled(), Instant::now());
        if self.tokens < 1.0 + reserve {
            return false;
        }
        self.tokens -= 1.0;
        true
    }

    fn wait(&self, reserve: f64) -> Duration {
        REFILL.mul_f64((1.0 + reserve - self.refilled()).max(0.0)) + Duration::from_millis(1)
    }
}

/// One line per redraw, for measurements.
struct RedrawTrace {
    file: std::fs::File,
    begun: Instant,
    /// The last key.
    key: String,
}

impl RedrawTrace {
    fn open(path: PathBuf) -> io::Result<Self> {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, begun: Instant::now(), key: String::new() })
    }

    fn line(&mut self, bytes: u64, draw: Duration, from_key: Option<u128>) -> io::Result<()> {
        let key = from_key.map_or_else(|| "-".to_owned(), |us| us.to_string());
        let at = self.begun.elapsed().as_millis();
        let draw = draw.as_micros();
        writeln!(self.file, "{at} ms {bytes} bytes {draw} us draw {key} us key {}", self.key)
    }
}

/// SIGTERM, SIGHUP and a SIGINT from outside; Ctrl-C is a key here.
struct Stop {
    signals: [tokio::signal::unix::Signal; 3],
}

impl Stop {
    fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = [
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::interrupt())?,
        ];
        Ok(Self { signals })
    }

    async fn asked(&mut self) {
        let [term, hup, int] = &mut self.signals;
        tokio::select! {
            _ = term.recv() => {}
            _ = hup.recv() => {}
            _ = int.recv() => {}
        }
    }
}

/// Stops the process group with SIGTSTP, as the terminal driver does for Ctrl-Z outside of raw mode,
/// and returns when the shell has continued it.
async fn suspend() -> io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    /// The kernel discards SIGTSTP in an orphaned process group, where no shell could continue it:
    /// then SIGCONT never comes. Another thread may take SIGTSTP, so this one can run on for a
    /// moment; stopping takes far less than this.
    const STOPS_WITHIN: Duration = Duration::from_millis(500);
    let mut continued = signal(SignalKind::from_raw(rustix::process::Signal::CONT.as_raw()))?;
    rustix::process::kill_current_process_group(rustix::process::Signal::TSTP)?;
    // Elapsed means that the process was not stopped, or that it is continued and the timer is over.
    let _ = tokio::time::timeout(STOPS_WITHIN, continued.recv()).await;
    Ok(())
}

/// Waits until this moment of the wall clock; for ever without one.
async fn at_ms(ms: Option<i64>) {
    match ms {
        Some(ms) => {
            let wait = u64::try_from(ms - now_ms()).unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(wait)).await;
        }
        None => std::future::pending().await,
    }
}

fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

fn temporary(name: &str, suffix: &str) -> io::Result<tempfile::NamedTempFile> {
    tempfile::Builder::new().prefix(&format!("torc_{name}_")).suffix(suffix).tempfile()
}

/// What a user's variable says, as shells read it: a program, perhaps with options.
fn pager() -> String {
    std::env::var("PAGER").ok().filter(|s| !s.trim().is_empty()).unwrap_or_else(|| "less".into())
}

fn editor() -> String {
    let named = |key| std::env::var(key).ok().filter(|s| !s.trim().is_empty());
    named("VISUAL").or_else(|| named("EDITOR")).unwrap_or_else(|| "vi".into())
}
