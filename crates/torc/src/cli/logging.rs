//! What the parts of the program tell about their own work, on standard error.

use serde_json::{Map, Value};
use std::io::{self, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Standard error is the terminal, and the terminal shows screens.
static IS_SILENT: AtomicBool = AtomicBool::new(false);

/// How a line of the log looks.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line, for programs that collect logs.
    Json,
}

/// Drops what is logged, for as long as it would be written over a screen.
pub fn silence(is_silent: bool) {
    IS_SILENT.store(is_silent && io::stderr().is_terminal(), Ordering::Relaxed);
}

fn writer() -> Box<dyn Write> {
    if IS_SILENT.load(Ordering::Relaxed) {
        return Box::new(io::sink());
    }
    crate::output::live_line::make_room();
    Box::new(io::stderr())
}

/// Errors only with `-q`, warnings by default and with `-v`, which is about jobs; the inside of the
/// program with `-vv` and more. What collects a log in JSON also wants to know who changed what.
/// `RUST_LOG` wins.
pub fn start(quiet: bool, verbose: u8, format: LogFormat) {
    let level = match (quiet, verbose, format) {
        (true, ..) => LevelFilter::ERROR,
        (false, 0 | 1, LogFormat::Text) => LevelFilter::WARN,
        (false, 0 | 1, LogFormat::Json) => LevelFilter::INFO,
        (false, 2, _) => LevelFilter::DEBUG,
        (false, ..) => LevelFilter::TRACE,
    };
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match format {
        // Colors are for people, not for files.
        LogFormat::Text => log.with_ansi(io::stderr().is_terminal()).compact().init(),
        LogFormat::Json => log.event_format(JsonLines).init(),
    }
}

/// One JSON object per line: `timestamp`, `level`, `target`, `message`, the event's own fields, and
/// `request_id` of what a server says while it answers.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        let mut line = Line::default();
        let (metadata, now) = (event.metadata(), jiff::Timestamp::now());
        line.add("timestamp", format!("{now:.3}"));
        line.add("level", metadata.level().as_str());
        line.add("target", metadata.target());
        event.record(&mut line);
        if !line.0.contains_key(REQUEST_ID)
            && let Some(id) = torc_server::request_id::current()
        {
            line.add(REQUEST_ID, id.to_string());
        }
        writeln!(writer, "{}", Value::Object(line.0))
    }
}

const REQUEST_ID: &str = "request_id";

#[derive(Default)]
struct Line(Map<String, Value>);

impl Line {
    fn add(&mut self, name: &str, value: impl Into<Value>) {
        self.0.insert(name.into(), value.into());
    }
}

impl Visit for Line {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field.name(), value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.add(field.name(), format!("{value:?}"));
    }
}
