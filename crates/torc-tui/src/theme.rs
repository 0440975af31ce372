//! Colours and signs: sixteen colours, none, or plain ASCII.

use ratatui::style::{Color, Modifier, Style};
use torc_model::status::JobStatus;

/// How things are drawn; decided once at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Theme {
    /// The terminal's own sixteen colours, so that its theme holds; without: bold, dim, reverse.
    pub color: bool,
    /// No character outside ASCII, but those of the jobs themselves.
    pub ascii: bool,
}

/// What a piece of text is, not how it looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tone {
    Plain,
    Quiet,
    Strong,
    Head,
    Good,
    Live,
    Wait,
    Warn,
    Bad,
    /// The row under the cursor.
    Picked,
    /// The server is away.
    Alarm,
    /// The name of a key.
    Key,
}

impl Theme {
    pub(crate) fn style(self, tone: Tone) -> Style {
        let plain = Style::new();
        let colored = |color: Color| if self.color { plain.fg(color) } else { plain };
        match tone {
            Tone::Plain => plain,
            Tone::Quiet => plain.add_modifier(Modifier::DIM),
            Tone::Strong => plain.add_modifier(Modifier::BOLD),
            Tone::Head => plain.add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            Tone::Good => colored(Color::Green),
            Tone::Live => colored(Color::Cyan),
            Tone::Wait => colored(Color::Blue),
            Tone::Warn => colored(Color::Yellow).add_modifier(Modifier::BOLD),
            Tone::Bad => colored(Color::Red).add_modifier(Modifier::BOLD),
            Tone::Picked => plain.add_modifier(Modifier::REVERSED),
            Tone::Alarm => colored(Color::Red).add_modifier(Modifier::REVERSED | Modifier::BOLD),
            Tone::Key => colored(Color::Cyan).add_modifier(Modifier::BOLD),
        }
    }

    pub(crate) fn of(self, status: JobStatus) -> Style {
        self.style(tone(status))
    }

    /// What a job made of a part of its output.
    pub(crate) fn job(self, look: crate::text::Look) -> Style {
        let style = match look.color.filter(|_| self.color) {
            Some(color) => Style::new().fg(color),
            None => Style::new(),
        };
        if look.is_bold { style.add_modifier(Modifier::BOLD) } else { style }
    }

    /// The page's sign of a status.
    pub(crate) fn sign(self, status: JobStatus) -> &'static str {
        let (sign, ascii) = match status {
            JobStatus::Uninitialized => ("·", "."),
            JobStatus::Blocked => ("⋯", ":"),
            JobStatus::Ready => ("○", "o"),
            JobStatus::Pending => ("◔", "~"),
            JobStatus::Running => ("▶", ">"),
            JobStatus::Completed => ("✓", "+"),
            JobStatus::Failed => ("✕", "x"),
            JobStatus::Canceled => ("⊘", "/"),
            JobStatus::Terminated => ("■", "#"),
            JobStatus::Disabled => ("–", "-"),
            JobStatus::PendingFailed => ("?", "?"),
        };
        if self.ascii { ascii } else { sign }
    }

    /// A cell of a bar. Without colours the shape alone tells the statuses apart.
    pub(crate) fn bar(self, status: JobStatus) -> &'static str {
        if self.color && !self.ascii {
            return match status {
                JobStatus::Blocked | JobStatus::Uninitialized => "░",
                JobStatus::Ready | JobStatus::Disabled => "▒",
                _ => "█",
            };
        }
        match status {
            JobStatus::Completed => "=",
            JobStatus::Disabled => "-",
            JobStatus::Running | JobStatus::Pending => ">",
            JobStatus::Ready => "o",
            JobStatus::Blocked | JobStatus::Uninitialized => ".",
            JobStatus::Canceled => "/",
            JobStatus::Terminated | JobStatus::Failed => "x",
            JobStatus::PendingFailed => "?",
        }
    }

    /// Heights of a sparkline, the empty one first.
    pub(crate) fn levels(self) -> [&'static str; 9] {
        match self.ascii {
            true => [" ", ".", ".", ":", "-", "=", "+", "*", "#"],
            false => [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
        }
    }

    /// Stands for what does not fit.
    pub(crate) fn more(self) -> &'static str {
        if self.ascii { "~" } else { "…" }
    }

    /// A line between parts.
    pub(crate) fn rule(self) -> &'static str {
        if self.ascii { "-" } else { "─" }
    }

    /// Between facts on one line.
    pub(crate) fn dot(self) -> &'static str {
        if self.ascii { " | " } else { " · " }
    }

    /// Nothing is known.
    pub(crate) fn dash(self) -> &'static str {
        if self.ascii { "-" } else { "–" }
    }

    pub(crate) fn warning(self) -> &'static str {
        if self.ascii { "!" } else { "⚠" }
    }

    pub(crate) fn times(self) -> &'static str {
        if self.ascii { "x" } else { "×" }
    }

    pub(crate) fn about(self) -> &'static str {
        if self.ascii { "~ " } else { "≈ " }
    }

    /// The sign beside the head of the column that is sorted by.
    pub(crate) fn sorted(self, is_reverse: bool) -> &'static str {
        match (self.ascii, is_reverse) {
            (true, false) => "^",
            (true, true) => "v",
            (false, false) => "▴",
            (false, true) => "▾",
        }
    }

    /// Colour of a family in the timeline.
    pub(crate) fn family(self, number: usize) -> Style {
        const COLORS: [Color; 6] =
            [Color::Green, Color::Blue, Color::Magenta, Color::Cyan, Color::Yellow, Color::White];
        match self.color {
            true => Style::new().fg(COLORS[number % COLORS.len()]),
            false => Style::new(),
        }
    }
}

const fn tone(status: JobStatus) -> Tone {
    match status {
        JobStatus::Completed => Tone::Good,
        JobStatus::Running | JobStatus::Pending => Tone::Live,
        JobStatus::Ready => Tone::Wait,
        JobStatus::Blocked | JobStatus::Uninitialized | JobStatus::Disabled => Tone::Quiet,
        JobStatus::Canceled | JobStatus::PendingFailed => Tone::Warn,
        JobStatus::Failed | JobStatus::Terminated => Tone::Bad,
    }
}
