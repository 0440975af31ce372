//! The terminal: taken over, drawn on, and given back as it was, also after a panic.

use crate::state::State;
use crate::view::{self, Frame};
use crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute, style};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use std::cell::Cell;
use std::io::{self, Stdout, Write};
use std::panic;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Standard output, with a count of what went through.
struct CountedOutput {
    out: Stdout,
    bytes: Rc<Cell<u64>>,
}

impl Write for CountedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.bytes.set(self.bytes.get() + written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The screen, as long as it is ours.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<CountedOutput>>,
    bytes: Rc<Cell<u64>>,
    has_mouse: bool,
}

impl Screen {
    /// Takes the terminal over. A panic of any thread gives it back before it is told.
    pub fn enter(has_mouse: bool) -> io::Result<Self> {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            restore();
            before(info);
        }));
        take_over(has_mouse)?;
        let bytes = Rc::new(Cell::new(0));
        Ok(Self { terminal: terminal(&bytes)?, bytes, has_mouse })
    }

    pub fn size(&self) -> io::Result<(u16, u16)> {
        self.terminal.size().map(|size| (size.width, size.height))
    }

    /// Draws what has changed.
    pub fn draw(&mut self, state: &State) -> io::Result<Frame> {
        let mut drawn = Frame::default();
        self.terminal.draw(|frame| {
            drawn = view::draw(state, frame.buffer_mut());
            if let Some(position) = drawn.cursor {
                frame.set_cursor_position(position);
            }
        })?;
        Ok(drawn)
    }

    /// Draws every cell again with the next frame. `Terminal::clear` would ask the terminal for the
    /// cursor, whose answer the keyboard's task reads: a new one has empty buffers as well.
    pub fn repaint(&mut self) -> io::Result<()> {
        execute!(io::stdout(), Clear(ClearType::All))?;
        self.terminal = terminal(&self.bytes)?;
        Ok(())
    }

    /// Hands a text to the terminal's clipboard, which may be on another computer (OSC 52).
    pub fn copy(&mut self, text: &str) -> io::Result<()> {
        use base64::Engine as _;
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        let mut out = io::stdout();
        write!(out, "\x1b]52;c;{encoded}\x07")?;
        out.flush()
    }

    /// Bytes that were written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Gives the terminal to another program for a while.
    pub fn lend(&mut self) {
        restore();
    }

    /// Takes it back.
    pub fn take_back(&mut self) -> io::Result<()> {
        take_over(self.has_mouse)?;
        self.repaint()
    }
}

fn terminal(bytes: &Rc<Cell<u64>>) -> io::Result<Terminal<CrosstermBackend<CountedOutput>>> {
    let out = CountedOutput { out: io::stdout(), bytes: bytes.clone() };
    Terminal::new(CrosstermBackend::new(out))
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
        // The hook of this screen has nothing more to give back. While a panic is under way the
        // hook may not be touched; it has done its work then.
        if !std::thread::panicking() {
            drop(panic::take_hook());
        }
    }
}

/// The terminal shows our screen. Leaving the alternate screen twice would put the cursor back to
/// where it was, over what was written since: the message of a panic.
static IS_OURS: AtomicBool = AtomicBool::new(false);

fn take_over(has_mouse: bool) -> io::Result<()> {
    IS_OURS.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    let mut out = io::stdout();
    execute!(out, EnterAlternateScreen, EnableBracketedPaste, cursor::Hide)?;
    if has_mouse {
        execute!(out, EnableMouseCapture)?;
    }
    Ok(())
}

/// Leaves the terminal as it was, once. What cannot be written to a terminal that is gone does not
/// matter any more.
fn restore() {
    if !IS_OURS.swap(false, Ordering::SeqCst) {
        return;
    }
    let mut out = io::stdout();
    let _ = execute!(
        out,
        DisableMouseCapture,
        DisableBracketedPaste,
        style::ResetColor,
        LeaveAlternateScreen,
        cursor::Show
    );
    let _ = disable_raw_mode();
}
