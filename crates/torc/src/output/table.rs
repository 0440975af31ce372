//! Calm tables: a heading, aligned columns, no lines. Text from outside is escaped here, once.

use super::escape;
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, presets};
use torc_model::status::{AttemptState, JobStatus};

/// Rows under a heading.
pub struct Table {
    inner: comfy_table::Table,
}

/// One field of a row.
pub struct Field(Cell);

impl Table {
    /// An empty table with these headings.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        let mut inner = comfy_table::Table::new();
        inner.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        inner.set_header(headings.map(|h| Cell::new(h).add_attribute(Attribute::Bold)));
        for column in inner.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let width = inner.width();
        fit(&mut inner, width, console::colors_enabled());
        Self { inner }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, fields: [Field; N]) {
        self.inner.add_row(fields.map(|f| f.0));
    }

    /// The text, without trailing blanks.
    pub fn render(&self) -> String {
        let mut out = self.inner.trim_fmt();
        out.push('\n');
        out
    }
}

/// Fits a table to the terminal.
fn fit(table: &mut comfy_table::Table, width: Option<u16>, has_colors: bool) {
    match width {
        // A terminal that does not know how wide it is.
        Some(0) => _ = table.set_content_arrangement(ContentArrangement::Disabled),
        Some(width) => _ = table.set_width(width),
        None => {}
    }
    if !has_colors {
        // Not only colours: bold letters too.
        table.force_no_tty();
    }
}

impl Field {
    /// Text from anywhere.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self(Cell::new(escape::line(text.as_ref())))
    }

    /// A number, set to the right.
    pub fn number(number: i64) -> Self {
        Self(Cell::new(number).set_alignment(CellAlignment::Right))
    }

    /// Something that is set to the right, such as a duration.
    pub fn right(text: impl AsRef<str>) -> Self {
        Self(Cell::new(escape::line(text.as_ref())).set_alignment(CellAlignment::Right))
    }

    /// Text, or a dash for nothing.
    pub fn optional(text: Option<impl AsRef<str>>) -> Self {
        text.map_or_else(|| Self(Cell::new("-")), Self::text)
    }

    /// A number, or a dash for nothing.
    pub fn optional_number(number: Option<i64>) -> Self {
        number.map_or_else(|| Self::right("-"), Self::number)
    }

    /// A job's status in its colour.
    pub fn status(status: JobStatus) -> Self {
        let cell = Cell::new(status.as_str());
        Self(match status_color(status) {
            Some(color) => cell.fg(color),
            None => cell,
        })
    }

    /// Where a workflow stands, in its colour.
    pub fn workflow_state(state: WorkflowState) -> Self {
        let cell = Cell::new(state.as_str());
        Self(match state {
            WorkflowState::Complete => cell.fg(Color::Green),
            WorkflowState::EndedWithFailures => cell.fg(Color::Red),
            WorkflowState::Running => cell.fg(Color::Cyan),
            WorkflowState::Canceled | WorkflowState::NoRunner => cell.fg(Color::Yellow),
            WorkflowState::NotStarted | WorkflowState::Archived => cell,
        })
    }

    /// A number of failures, which stands out unless it is nothing.
    pub fn failures(count: i64) -> Self {
        let cell = Cell::new(count).set_alignment(CellAlignment::Right);
        Self(if count > 0 { cell.fg(Color::Red) } else { cell })
    }

    /// An attempt's state in its colour.
    pub fn attempt_state(state: AttemptState) -> Self {
        let cell = Cell::new(state.as_str());
        Self(match state {
            AttemptState::Queued | AttemptState::Claimed => cell,
            AttemptState::Running => cell.fg(Color::Cyan),
            AttemptState::Completed => cell.fg(Color::Green),
            AttemptState::Failed | AttemptState::Terminated => cell.fg(Color::Red),
            AttemptState::Canceled => cell.fg(Color::Yellow),
        })
    }
}

/// Where a workflow stands, as lists and cards say it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkflowState {
    NotStarted,
    Running,
    /// It is not complete, and no runner works on it.
    NoRunner,
    Complete,
    EndedWithFailures,
    Canceled,
    Archived,
}

impl WorkflowState {
    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotStarted => "not started",
            Self::Running => "running",
            Self::NoRunner => "no runner",
            Self::Complete => "complete",
            Self::EndedWithFailures => "ended with failures",
            Self::Canceled => "canceled",
            Self::Archived => "archived",
        }
    }
}

fn status_color(status: JobStatus) -> Option<Color> {
    match status {
        JobStatus::Uninitialized | JobStatus::Blocked | JobStatus::Ready | JobStatus::Disabled => {
            None
        }
        JobStatus::Pending | JobStatus::Running => Some(Color::Cyan),
        JobStatus::Completed => Some(Color::Green),
        JobStatus::Failed | JobStatus::Terminated => Some(Color::Red),
        JobStatus::Canceled | JobStatus::PendingFailed => Some(Color::Yellow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_of_unknown_width_wraps_nothing() {
        let lines = |width| {
            let mut table = Table::new(["name", "command"]);
            fit(&mut table.inner, Some(width), false);
            table.row([
                Field::status(JobStatus::Completed),
                Field::text("a long command ".repeat(20)),
            ]);
            table.render().lines().count()
        };
        assert_eq!(lines(0), 2);
        assert!(lines(60) > 2);
    }

    #[test]
    fn columns_align_and_hostile_text_is_shown_not_obeyed() {
        let mut table = Table::new(["id", "name", "status"]);
        table.row([Field::number(7), Field::text("short"), Field::status(JobStatus::Ready)]);
        table.row([Field::number(123), Field::text("bell\u{7}"), Field::status(JobStatus::Failed)]);
        assert_eq!(
            table.render(),
            "id   name       status\n  7  short      ready\n123  bell\\u{7}  failed\n"
        );
    }
}
