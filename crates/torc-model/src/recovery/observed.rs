//! What a runner saw of a failed attempt beside its end: parts of what it wrote, and whether it was
//! still at work.

use super::text::{Excerpt, Stream};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What was seen of a failed attempt.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct Observed {
    /// Parts of its streams: the beginning, the end, and lines between that look like errors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excerpts: Vec<Excerpt>,
    /// How long before its end it had last written to a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silent_seconds: Option<f64>,
    /// Bytes that its processes read and wrote in the last part of its time, files and sockets
    /// together; only where a limit ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent_io_bytes: Option<i64>,
    /// CPU time that they used in that part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent_cpu_seconds: Option<f64>,
    /// How often one of them waited for something and was woken in that part: what gets data from a
    /// socket now and then does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent_wakeups: Option<i64>,
    /// One of them would have gone on by itself at the end of it: it was ready to run and had no
    /// CPU, or it slept for a set time.
    pub would_go_on: bool,
    /// How long that part was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recent_seconds: Option<f64>,
    /// One of them waited for an answer over this network connection, whose other end was none of
    /// them: the address of that end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awaited_peer: Option<String>,
    /// Where its processes stood when its time was over, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stands: Vec<String>,
}

impl Observed {
    /// Of a row that holds no more than the end of standard error.
    pub fn of_tail(tail: &str, start: Option<i64>) -> Self {
        let excerpt =
            Excerpt { stream: Stream::Stderr, start: start.unwrap_or(0), text: tail.to_owned() };
        Self {
            excerpts: if tail.is_empty() { Vec::new() } else { vec![excerpt] },
            ..Self::default()
        }
    }
}
