//! The only place that prints. Standard output is data, standard error is talk.

pub mod card;
pub mod chart;
pub mod csv;
pub mod escape;
pub mod human;
pub mod live;
pub mod live_line;
mod pager;
pub mod progress;
pub mod raw;
pub mod table;

use crate::error::{Error, Result};
use serde::Serialize;
use serde_json::{Value, json};
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
pub use table::{Field, Table};

/// How data is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// Lists for spreadsheets: a heading, then one row per line; values as in JSON.
    Csv,
    /// Graphviz; only `torc check`.
    #[value(hide = true)]
    Dot,
    /// Mermaid; only `torc check`.
    #[value(hide = true)]
    Mermaid,
    /// A drawing; only `torc check`.
    #[value(hide = true)]
    Svg,
}

/// Where a command's words go.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    /// For people or for programs.
    pub format: Format,
    /// Only failures, errors and data.
    pub quiet: bool,
    /// How often `-v` was given: 1 tells starts and ends of jobs.
    pub verbose: u8,
    /// Long lists go through a pager when standard output is a terminal.
    pub has_pager: bool,
}

impl Output {
    /// Programs read the output.
    pub fn is_json(self) -> bool {
        self.format == Format::Json
    }

    /// Prints one value as JSON.
    pub fn json(self, value: &impl Serialize) -> Result<()> {
        self.pretty(&plain(value))
    }

    fn pretty(self, value: &Value) -> Result<()> {
        self.data(&format!("{value:#}\n"))
    }

    /// Prints a list as `{"<name>": [...], "items": [...], "total_count": N}` or as a table. Scripts for
    /// Torc 1.0.0 read `items`.
    pub fn list<T: Serialize>(
        self,
        name: &str,
        items: &[T],
        total_count: i64,
        table: impl FnOnce() -> Table,
    ) -> Result<()> {
        match self.format {
            Format::Json => {
                let items = plain(items);
                self.pretty(&json!({ name: items, "items": items, "total_count": total_count }))
            }
            Format::Csv => self.data(&csv::render(plain(items))),
            _ if items.is_empty() => {
                self.talk(format_args!("no {}", name.replace('_', " ")));
                Ok(())
            }
            _ => self.table(&table(), items.len() as i64, total_count),
        }
    }

    fn table(self, table: &Table, shown: i64, total_count: i64) -> Result<()> {
        self.long(&table.render())?;
        if total_count > shown {
            self.talk(format_args!(
                "{} of {} shown; `--limit` and `--offset` show others",
                human::grouped(shown),
                human::grouped(total_count)
            ));
        }
        Ok(())
    }

    /// Prints a value as JSON, or what `text` makes of it.
    pub fn value<T: Serialize>(self, value: &T, text: impl FnOnce(&T) -> String) -> Result<()> {
        match self.format {
            Format::Json => self.json(value),
            Format::Csv => self.data(&csv::render(plain(value))),
            _ => self.data(&text(value)),
        }
    }

    /// Prints a text that may be longer than the screen.
    pub fn long(self, text: &str) -> Result<()> {
        match self.has_pager && pager::show(text) {
            true => Ok(()),
            false => self.data(text),
        }
    }

    /// Prints text that is data.
    pub fn data(self, text: &str) -> Result<()> {
        write_data(text.as_bytes())
    }

    /// Prints a line of talk, unless the user wants quiet.
    pub fn talk(self, line: impl std::fmt::Display) {
        if !self.quiet {
            say(line);
        }
    }

    /// Prints a failure: a line that also a user who wants quiet sees.
    pub fn alert(self, line: impl std::fmt::Display) {
        say(line);
    }

    /// Prints a line of talk that the user must see.
    pub fn warn(self, line: impl std::fmt::Display) {
        say(format_args!("{} {line}", console::style("warning:").for_stderr().yellow().bold()));
    }
}

/// A value as JSON has it.
pub fn plain(value: &(impl Serialize + ?Sized)) -> Value {
    torc_model::json::plain(value).unwrap_or_else(|error| unreachable!("our own types: {error}"))
}

/// Prints bytes that are data.
pub fn write_data(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Error::OutputClosed,
        _ => Error::io("write", "standard output")(error),
    })
}

/// Passes on what a job wrote to standard error: raw into a pipe, escaped onto a terminal. A closed
/// standard error must not stop the work.
pub fn write_talk(bytes: &[u8]) {
    let mut err = io::stderr().lock();
    let _ = match io::stderr().is_terminal() {
        true => err.write_all(escape::block(&String::from_utf8_lossy(bytes)).as_bytes()),
        false => err.write_all(bytes),
    };
}

/// Shows an error with its hint.
pub fn error(error: &Error) {
    match error {
        Error::OutputClosed => return,
        // Diagnostics bring their own `error:` lines.
        Error::Spec { .. } => say(error),
        Error::Usage { .. }
        | Error::Io { .. }
        | Error::Refused { .. }
        | Error::Unreachable { .. }
        | Error::Untold { .. }
        | Error::Embedded { .. } => {
            say(format_args!("{} {error}", console::style("error:").for_stderr().red().bold()))
        }
    }
    if let Some(hint) = error.hint() {
        say(format_args!("{} {hint}", console::style("hint:").for_stderr().cyan()));
    }
}

/// Standard output is a terminal: escape what jobs wrote.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// A closed standard error must not stop the work, so failures are ignored here on purpose.
fn say(line: impl std::fmt::Display) {
    let _ = match GIVEN.get() {
        Some(_) => writeln!(io::stderr().lock(), "{}", as_called(&line.to_string())),
        None => writeln!(io::stderr().lock(), "{line}"),
    };
}

/// Options of this call that say which server it is about; calls in hints need them, too.
static GIVEN: OnceLock<String> = OnceLock::new();

/// Commands that work without a server, or on this machine only.
const LOCAL: [&str; 6] = ["check ", "completions ", "import ", "new ", "server ", "steps "];

/// Remembers the options with which this call named its server.
pub fn set_given(options: &[String]) {
    if !options.is_empty() {
        let quoted: Vec<String> = options.iter().map(|option| quoted(option)).collect();
        // Set once, by `main`'s only call.
        let _ = GIVEN.set(format!("{} ", quoted.join(" ")));
    }
}

/// A text whose `torc ...` calls name the server as this call did.
pub fn as_called(text: &str) -> String {
    const CALL: &str = "`torc ";
    let Some(given) = GIVEN.get() else { return text.to_owned() };
    let mut pieces = text.split(CALL);
    let mut whole = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let names_server = LOCAL.iter().any(|word| piece.starts_with(word))
            || ["--url", "--dir"].iter().any(|option| piece.starts_with(option));
        whole += CALL;
        whole += if names_server { "" } else { given };
        whole += piece;
    }
    whole
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}
