//! Server-sent events: a workflow's event stream, which goes on where it broke off, and its pulse.

use crate::http::refusal;
use crate::inside::AnswerBody;
use crate::{Client, Error, Query};
use bytes::Bytes;
use http::{HeaderValue, Method, header};
use http_body_util::BodyExt;
use std::time::Duration;
use torc_model::api::{EventView, PulseView};
use torc_model::ids::WorkflowId;
use torc_model::json::from_text;

/// The server sends a comment every few seconds; a stream that is silent for longer than this is
/// dead.
const SILENCE_LIMIT: Duration = Duration::from_secs(60);
/// A line longer than this is not ours.
const MAX_PENDING_BYTES: usize = 16 << 20;
/// Waits before each try to connect again; after the last one the error is handed out.
const PAUSES_MS: [u64; 8] = [50, 100, 250, 500, 1000, 2000, 4000, 8000];

/// The events of one workflow, one after the other, for ever.
pub struct EventStream {
    client: Client,
    workflow: WorkflowId,
    last_id: Option<i64>,
    body: Option<AnswerBody>,
    parser: Parser,
    failures: usize,
    pauses_ms: &'static [u64],
}

impl Client {
    /// Follows the events of a workflow: those after `after`, or all new ones. Nothing is sent
    /// before the first [`EventStream::next`].
    pub fn stream_events(&self, workflow: WorkflowId, after: Option<i64>) -> EventStream {
        EventStream {
            client: self.clone(),
            workflow,
            last_id: after,
            body: None,
            parser: Parser::default(),
            failures: 0,
            pauses_ms: &PAUSES_MS,
        }
    }
}

impl EventStream {
    /// Does not connect again: for those who know another way to what the server served.
    pub fn once(self) -> Self {
        Self { pauses_ms: &[], ..self }
    }

    /// The newest event that it has given, or else the one that it begins after.
    pub fn last_id(&self) -> Option<i64> {
        self.last_id
    }

    /// Waits for the next event. Connects again by itself, without a gap; an error means that this
    /// did not help. After an error the call may be repeated.
    pub async fn next(&mut self) -> Result<EventView, Error> {
        loop {
            if let Some(message) = self.parser.pop() {
                let event: EventView = from_text(&message).map_err(|e| {
                    self.client.protocol(format!("event of workflow {}: {e}", self.workflow))
                })?;
                self.last_id = Some(event.id);
                return Ok(event);
            }
            match self.read().await {
                Ok(Some(bytes)) => {
                    self.failures = 0;
                    self.parser.push(&bytes);
                    if self.parser.pending.len() > MAX_PENDING_BYTES {
                        self.body = None;
                        self.parser = Parser::default();
                        return Err(self.client.protocol("an event without an end".into()));
                    }
                }
                Ok(None) => self.disconnect(None).await?,
                Err(error) if error.is_temporary() => self.disconnect(Some(error)).await?,
                Err(error) => return Err(error),
            }
        }
    }

    async fn disconnect(&mut self, error: Option<Error>) -> Result<(), Error> {
        self.body = None;
        self.parser = Parser::default();
        let Some(pause) = self.pauses_ms.get(self.failures) else {
            self.failures = 0;
            return Err(
                error.unwrap_or_else(|| self.client.unreachable("the event stream keeps ending"))
            );
        };
        self.failures += 1;
        tokio::time::sleep(Duration::from_millis(*pause)).await;
        Ok(())
    }

    async fn read(&mut self) -> Result<Option<Bytes>, Error> {
        let silent = |client: &Client| {
            client.unreachable(format!("silent for {} s", SILENCE_LIMIT.as_secs()))
        };
        if self.body.is_none() {
            let connect = self.connect();
            let body = tokio::time::timeout(SILENCE_LIMIT, connect)
                .await
                .map_err(|_| silent(&self.client))??;
            self.body = Some(body);
        }
        let Some(body) = self.body.as_mut() else { return Ok(None) };
        let frame = tokio::time::timeout(SILENCE_LIMIT, body.frame())
            .await
            .map_err(|_| silent(&self.client))?;
        match frame {
            None => Ok(None),
            Some(Err(e)) => Err(self.client.unreachable(e)),
            Some(Ok(frame)) => Ok(Some(frame.into_data().unwrap_or_default())),
        }
    }

    async fn connect(&self) -> Result<AnswerBody, Error> {
        let query = Query::new().maybe("after", self.last_id);
        let path = format!("/workflows/{}/events/stream{query}", self.workflow);
        open(&self.client, &path, self.last_id).await
    }
}

/// The progress of a workflow as it happens: the frames of one connection.
pub struct PulseStream {
    client: Client,
    workflow: WorkflowId,
    body: Option<AnswerBody>,
    parser: Parser,
}

impl Client {
    /// Follows the progress of a workflow. Nothing is sent before the first
    /// [`PulseStream::next`].
    pub fn stream_pulse(&self, workflow: WorkflowId) -> PulseStream {
        PulseStream { client: self.clone(), workflow, body: None, parser: Parser::default() }
    }
}

impl PulseStream {
    /// Waits for the next frame. Does not connect again by itself: after an error the connection is
    /// gone, and the next call makes another.
    pub async fn next(&mut self) -> Result<PulseView, Error> {
        let result = self.next_frame().await;
        if result.is_err() {
            self.body = None;
            self.parser = Parser::default();
        }
        result
    }

    async fn next_frame(&mut self) -> Result<PulseView, Error> {
        loop {
            if let Some(message) = self.parser.pop() {
                return from_text(&message).map_err(|e| {
                    self.client.protocol(format!("pulse of workflow {}: {e}", self.workflow))
                });
            }
            let bytes =
                tokio::time::timeout(SILENCE_LIMIT, self.read()).await.map_err(|_| {
                    self.client.unreachable(format!("silent for {} s", SILENCE_LIMIT.as_secs()))
                })??;
            self.parser.push(&bytes);
            if self.parser.pending.len() > MAX_PENDING_BYTES {
                return Err(self.client.protocol("a frame without an end".into()));
            }
        }
    }

    async fn read(&mut self) -> Result<Bytes, Error> {
        let body = match &mut self.body {
            Some(body) => body,
            None => {
                let path = format!("/workflows/{}/pulse", self.workflow);
                self.body.insert(open(&self.client, &path, None).await?)
            }
        };
        match body.frame().await {
            None => Err(self.client.unreachable("the pulse has ended")),
            Some(Err(e)) => Err(self.client.unreachable(e)),
            Some(Ok(frame)) => Ok(frame.into_data().unwrap_or_default()),
        }
    }
}

/// Asks for a stream of server-sent events; its body is still to be read.
async fn open(client: &Client, path: &str, last_id: Option<i64>) -> Result<AnswerBody, Error> {
    let mut request = client.request(Method::GET, path, Bytes::new())?;
    request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
    if let Some(id) = last_id {
        request.headers_mut().insert("last-event-id", HeaderValue::from(id));
    }
    let (head, body) = client.send(request).await?.into_parts();
    if head.status.is_success() {
        return Ok(body);
    }
    let body = body.collect().await.map_err(|e| client.unreachable(e))?.to_bytes();
    Err(refusal(head.status, &body))
}

/// Cuts a stream of bytes into the `data` of complete messages. Comments, names and retry hints are
/// passed over: ids and kinds are inside the data.
#[derive(Default)]
struct Parser {
    pending: Vec<u8>,
    data: String,
    complete: std::collections::VecDeque<String>,
}

impl Parser {
    fn push(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        let mut start = 0;
        while let Some(length) = self.pending[start..].iter().position(|b| *b == b'\n') {
            let line = self.pending[start..start + length].strip_suffix(b"\r");
            let line = line.unwrap_or(&self.pending[start..start + length]);
            if line.is_empty() {
                if !self.data.is_empty() {
                    self.complete.push_back(std::mem::take(&mut self.data));
                }
            } else if let Some(data) = line.strip_prefix(b"data:") {
                if !self.data.is_empty() {
                    self.data.push('\n');
                }
                self.data
                    .push_str(&String::from_utf8_lossy(data.strip_prefix(b" ").unwrap_or(data)));
            }
            start += length + 1;
        }
        self.pending.drain(..start);
    }

    fn pop(&mut self) -> Option<String> {
        self.complete.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_however_the_bytes_are_cut() {
        let text = b": hello\n\nid: 1\nevent: job_started\ndata: {\"a\":\r\ndata:1}\r\n\r\nretry: 5\n\ndata: two\n\ndata: half";
        for size in 1..=text.len() {
            let mut parser = Parser::default();
            for piece in text.chunks(size) {
                parser.push(piece);
            }
            assert_eq!(parser.pop().as_deref(), Some("{\"a\":\n1}"), "pieces of {size}");
            assert_eq!(parser.pop().as_deref(), Some("two"));
            assert_eq!(parser.pop(), None);
        }
    }
}
