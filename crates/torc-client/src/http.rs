//! One request and its answer. Everything that knows a route is in `runner.rs` and `people.rs`.

use crate::Error;
use crate::inside::{AnswerBody, InProcess, boxed};
use crate::peer::PeerCheck;
use crate::single::{Single, in_origin_form};
use crate::successor::Successor;
use crate::tls::{self, Connector};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use torc_model::api::{BASE_PATH, ErrorBody, ErrorInfo, ServerFile};

/// Long enough for any ordinary call on a busy machine, short enough to notice a server that hangs.
const TIME_LIMIT: Duration = Duration::from_secs(30);
/// No answer of ours comes near this; whatever sends more is not a Torc server.
const MAX_ANSWER_BYTES: usize = 512 << 20;

/// Talks to one server. Cheap to clone; clones share their connections.
///
/// Connections are driven by the runtime they were first used on. A thread with a runtime of its
/// own needs a client of its own: see [`Client::detached`].
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
    time_limit: Duration,
    /// The server is in this very process.
    inside: Option<InProcess>,
    /// Who is asked when the server has ended.
    pub(crate) successor: Option<Successor>,
}

/// How requests travel.
enum Transport {
    /// Over as many connections as there are requests at once.
    Pool(Pool<Connector, Full<Bytes>>),
    /// Over one connection, one after the other.
    Single(Single),
    /// Over none: the calling thread does the server's work.
    InProcess(InProcess),
}

struct Inner {
    transport: Transport,
    connector: Connector,
    /// `http://host:port` or `https://host:port`, perhaps with a prefix; without the base path.
    origin: String,
    /// Certificates to trust instead of the system's.
    ca: Option<PathBuf>,
    token: String,
    authorization: HeaderValue,
}

impl Client {
    /// Makes a client; nothing is sent yet. `base_url` is `http://host:port` or `https://host:port`,
    /// with or without the base path. A prefix before the base path is the part of a proxy's
    /// address space that leads to the server.
    pub fn new(base_url: &str, token: &str) -> Result<Self, Error> {
        Self::with_ca(base_url, token, None)
    }

    /// The same, for an `https` server whose certificate was signed by an authority in the PEM file
    /// `ca`. Without it, the authorities that the system trusts are asked.
    pub fn with_ca(base_url: &str, token: &str, ca: Option<&Path>) -> Result<Self, Error> {
        Self::connecting(base_url, token, ca, PeerCheck::Anyone)
    }

    /// A client for the server of this user that a file of this user names. Sends nothing to a
    /// process of another user that listens at the address now.
    pub fn local(file: &ServerFile) -> Result<Self, Error> {
        Self::connecting(&file.url, &file.token, file.tls_ca.as_deref(), PeerCheck::Ours)
    }

    fn connecting(
        base_url: &str,
        token: &str,
        ca: Option<&Path>,
        peer: PeerCheck,
    ) -> Result<Self, Error> {
        let config = |message: String| Error::Config {
            message,
            hint: Some("write it as http://host:port or https://host:port".into()),
        };
        let trimmed = base_url.trim().trim_end_matches('/');
        let origin = trimmed.strip_suffix(BASE_PATH).unwrap_or(trimmed).trim_end_matches('/');
        let uri: Uri =
            origin.parse().map_err(|e| config(format!("`{base_url}` is not an address: {e}")))?;
        let is_secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(other) => {
                return Err(config(format!("`{other}` is not supported in `{base_url}`")));
            }
            None => return Err(config(format!("`{base_url}` has no scheme"))),
        };
        if uri.query().is_some() {
            return Err(config(format!("`{base_url}` has a query")));
        }
        let connector = tls::connector(is_secure, ca, peer)?;
        Self::with(connector, origin, token, ca.map(Into::into))
    }

    fn with(
        connector: Connector,
        origin: &str,
        token: &str,
        ca: Option<PathBuf>,
    ) -> Result<Self, Error> {
        let token = token.trim();
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| Error::Config {
                message: "the token contains characters that no token has".into(),
                hint: Some("check the token file".into()),
            })?;
        authorization.set_sensitive(true);
        let transport = Transport::Pool(pool(connector.clone()));
        let inner = Inner {
            transport,
            connector,
            origin: origin.into(),
            ca,
            token: token.into(),
            authorization,
        };
        Ok(Self { inner: Arc::new(inner), time_limit: TIME_LIMIT, inside: None, successor: None })
    }

    /// The same server and token over another transport.
    fn over(&self, transport: Transport) -> Self {
        let Inner { connector, origin, ca, token, authorization, .. } = &*self.inner;
        let inner = Inner {
            transport,
            connector: connector.clone(),
            origin: origin.clone(),
            ca: ca.clone(),
            token: token.clone(),
            authorization: authorization.clone(),
        };
        Self { inner: Arc::new(inner), time_limit: self.time_limit, inside: None, successor: None }
    }

    /// Tells it that the server is in this very process: see [`Client::single`].
    pub fn with_inside(self, inside: InProcess) -> Self {
        Self { inside: Some(inside), ..self }
    }

    /// The same server and token with connections of its own, for use on another runtime.
    pub fn detached(&self) -> Self {
        self.over(Transport::Pool(pool(self.inner.connector.clone())))
    }

    /// The same server and token over one connection of its own, for a thread that makes one
    /// request after the other on a runtime that stands still in between: no other task is needed
    /// to hand the connection back. A server in the same process needs no connection: the thread
    /// does the server's work itself, so that no other thread has to be woken.
    pub fn single(&self) -> Self {
        self.over(match &self.inside {
            Some(inside) => Transport::InProcess(inside.clone()),
            None => Transport::Single(Single::new(self.inner.connector.clone())),
        })
    }

    /// The same client with another time limit per call.
    pub fn with_time_limit(&self, time_limit: Duration) -> Self {
        Self { time_limit, ..self.clone() }
    }

    pub(crate) fn time_limit(&self) -> Duration {
        self.time_limit
    }

    /// The token that it sends, for a child process that is to speak to the same server.
    pub fn token(&self) -> &str {
        &self.inner.token
    }

    /// `http://host:port`, as jobs get it in `TORC_API_URL`.
    pub fn url(&self) -> &str {
        &self.inner.origin
    }

    /// The file of certificates that are trusted instead of the system's, as jobs get it in
    /// `TORC_TLS_CA`.
    pub fn ca(&self) -> Option<&Path> {
        self.inner.ca.as_deref()
    }

    /// `GET`.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let limit = self.time_limit;
        let answer = match self.ask(Method::GET, path, Bytes::new(), limit).await {
            // A kept connection may have been closed by the server the moment it was used; a read
            // is safe to repeat.
            Err(error) if error.is_broken() && self.successor.is_none() => {
                self.ask(Method::GET, path, Bytes::new(), limit).await
            }
            other => other,
        };
        self.read(path, &answer?)
    }

    /// `POST` with a JSON body.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + ?Sized),
    ) -> Result<T, Error> {
        self.call(Method::POST, path, to_json(body)?, self.time_limit).await
    }

    /// `PUT` with a JSON body.
    pub async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + ?Sized),
    ) -> Result<T, Error> {
        self.call(Method::PUT, path, to_json(body)?, self.time_limit).await
    }

    /// `PATCH` with a JSON body.
    pub async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + ?Sized),
    ) -> Result<T, Error> {
        self.call(Method::PATCH, path, to_json(body)?, self.time_limit).await
    }

    /// `DELETE`.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call(Method::DELETE, path, Bytes::new(), self.time_limit).await
    }

    /// `POST` with a time limit of its own, for calls that wait at the server.
    pub(crate) async fn post_within<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        limit: Duration,
    ) -> Result<T, Error> {
        self.call(Method::POST, path, to_json(body)?, limit).await
    }

    /// The answer of a `GET` as it is: text files such as logs.
    pub async fn get_bytes(&self, path: &str) -> Result<Bytes, Error> {
        self.ask(Method::GET, path, Bytes::new(), self.time_limit).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<T, Error> {
        self.read(path, &self.ask(method, path, body, limit).await?)
    }

    /// The body of the answer. Boxed, so that a command's future does not hold that of every request it makes.
    fn ask<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        body: Bytes,
        limit: Duration,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, Error>> + Send + 'a>> {
        Box::pin(self.exchange_with_any(method, path, body, limit))
    }

    async fn exchange_with_any(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        limit: Duration,
    ) -> Result<Bytes, Error> {
        let mut client = self.clone();
        let (status, body) = loop {
            let request = client.request(method.clone(), path, body.clone())?;
            let answer = tokio::time::timeout(limit, client.exchange(request)).await;
            let error = match answer.unwrap_or_else(|_| Err(client.too_slow(limit))) {
                Ok(answer) => break answer,
                Err(error) => error,
            };
            client = client.instead(&method, &error).await.ok_or(error)?;
        };
        if status.is_success() { Ok(body) } else { Err(refusal(status, &body)) }
    }

    fn read<T: DeserializeOwned>(&self, path: &str, body: &[u8]) -> Result<T, Error> {
        // `()` is the type for answers that are not read; some of them have no body at all.
        let text: &[u8] = if body.is_empty() { b"null" } else { body };
        serde_json::from_slice(text).map_err(|e| self.protocol(format!("answer to `{path}`: {e}")))
    }

    pub(crate) fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, Error> {
        let uri = format!("{}{BASE_PATH}{path}", self.inner.origin);
        let mut request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::AUTHORIZATION, self.inner.authorization.clone())
            .header(header::ACCEPT, HeaderValue::from_static("application/json"));
        if !body.is_empty() {
            request =
                request.header(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        request.body(Full::new(body)).map_err(|e| Error::Config {
            message: format!("`{path}` cannot be asked for: {e}"),
            hint: None,
        })
    }

    /// Sends a request and hands back the answer's head, its body still to be read.
    pub(crate) async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<http::Response<AnswerBody>, Error> {
        match &self.inner.transport {
            Transport::Pool(pool) => {
                pool.request(request).await.map(boxed).map_err(|e| self.unreachable(e))
            }
            Transport::Single(single) => {
                single.send(request).await.map(boxed).map_err(|e| self.unreachable(e))
            }
            Transport::InProcess(inside) => {
                let request = in_origin_form(request).map_err(|e| self.unreachable(e))?;
                inside(request).await.map_err(|e| self.unreachable(e))
            }
        }
    }

    pub(crate) async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, Bytes), Error> {
        let (head, body) = self.send(request).await?.into_parts();
        let body = Limited::new(body, MAX_ANSWER_BYTES)
            .collect()
            .await
            .map_err(|e| self.unreachable(e))?;
        Ok((head.status, body.to_bytes()))
    }

    pub(crate) fn unreachable(
        &self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Error {
        Error::Unreachable { url: self.inner.origin.clone(), source: source.into() }
    }

    pub(crate) fn protocol(&self, message: String) -> Error {
        Error::Protocol { url: self.inner.origin.clone(), message }
    }

    fn too_slow(&self, limit: Duration) -> Error {
        self.unreachable(format!("nothing came within {} s", limit.as_secs_f64()))
    }
}

fn pool(connector: Connector) -> Pool<Connector, Full<Bytes>> {
    Pool::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(60))
        .build(connector)
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the token.
        f.debug_struct("Client").field("url", &self.inner.origin).finish_non_exhaustive()
    }
}

fn to_json(body: &(impl Serialize + ?Sized)) -> Result<Bytes, Error> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|e| Error::Config {
        message: format!("the request cannot be written as JSON: {e}"),
        hint: None,
    })
}

pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> Error {
    let info = match serde_json::from_slice::<ErrorBody>(body) {
        Ok(body) => body.error,
        Err(_) => {
            let text: String =
                String::from_utf8_lossy(&body[..body.len().min(400)]).trim().to_string();
            // Pages are for browsers: a Torc server answers refusals in JSON.
            let message = match text.is_empty() || text.starts_with('<') {
                true => format!(
                    "the server answered {status}, not as a Torc server does; is the address right?"
                ),
                false => text,
            };
            ErrorInfo { code: format!("http_{}", status.as_u16()), message, ..ErrorInfo::default() }
        }
    };
    Error::Refused { status: status.as_u16(), info }
}

/// Builds the part of a path after `?`, escaping the values.
#[derive(Clone, Debug, Default)]
pub struct Query {
    text: String,
}

impl Query {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one pair.
    pub fn add(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.text.push(if self.text.is_empty() { '?' } else { '&' });
        self.text.push_str(name);
        self.text.push('=');
        escape(&value.to_string(), &mut self.text);
        self
    }

    /// Adds one pair if there is a value.
    pub fn maybe(self, name: &str, value: Option<impl std::fmt::Display>) -> Self {
        match value {
            Some(value) => self.add(name, value),
            None => self,
        }
    }
}

impl std::fmt::Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

/// A name as one segment of a path, whatever it is made of.
pub fn segment(name: &str) -> String {
    let mut text = String::new();
    // The whole segment would be taken for a direction.
    match name {
        "." => text.push_str("%2E"),
        ".." => text.push_str("%2E%2E"),
        name => escape(name, &mut text),
    }
    text
}

fn escape(value: &str, out: &mut String) {
    for byte in value.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(byte as char)
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_url_is_accepted_with_and_without_the_base_path() {
        for text in [
            "http://127.0.0.1:8080",
            "http://127.0.0.1:8080/",
            "http://127.0.0.1:8080/torc-service/v1/",
        ] {
            assert_eq!(Client::new(text, "t").unwrap().url(), "http://127.0.0.1:8080");
        }
    }

    #[test]
    fn bad_addresses_are_refused_with_a_hint() {
        for text in ["", "localhost:8080", "ftp://h:1", "http://h:1/?x=1", "http://h h"] {
            let error = Client::new(text, "t").unwrap_err();
            assert!(matches!(error, Error::Config { hint: Some(_), .. }), "{text}: {error}");
        }
        assert!(matches!(Client::new("http://h:1", "a\nb"), Err(Error::Config { .. })));
    }

    #[test]
    fn query_values_are_escaped() {
        let query =
            Query::new().add("name", "a b&c=ü").maybe("x", None::<i64>).maybe("limit", Some(3));
        assert_eq!(query.to_string(), "?name=a%20b%26c%3D%C3%BC&limit=3");
    }

    #[test]
    fn a_refusal_that_is_not_ours_keeps_its_text() {
        let error = refusal(StatusCode::BAD_GATEWAY, b"upstream gone");
        assert_eq!(error.to_string(), "upstream gone");
        assert!(error.is_temporary());
        assert_eq!((error.status(), error.code()), (Some(502), None));
    }
}
