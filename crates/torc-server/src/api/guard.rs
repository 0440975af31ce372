//! What stands around every handler: host names, time limits, panics, and answers for routes that do not exist.

use super::App;
use super::error::ApiError;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::any::Any;
use std::net::IpAddr;
use std::time::Duration;
use torc_model::api::BASE_PATH;

/// Most requests are answered within milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// A claim may wait for work.
const CLAIM_TIME_LIMIT: Duration = Duration::from_secs(120);
/// Workflows of a million jobs are created, reset or deleted in one piece.
const LARGE_TIME_LIMIT: Duration = Duration::from_secs(600);

/// The names under which this server may be spoken to. A page in a browser that made its own name point to our
/// address (DNS rebinding) uses another one.
#[derive(Clone, Debug)]
pub struct Hosts {
    address: IpAddr,
    names: Vec<String>,
}

impl Hosts {
    /// The address the server listens on, and further names.
    pub fn new(address: IpAddr, names: impl IntoIterator<Item = String>) -> Self {
        Self { address, names: names.into_iter().collect() }
    }

    fn allow(&self, authority: &str) -> bool {
        let host = host_of(authority);
        if let Ok(address) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return address.is_loopback() || address == self.address || self.address.is_unspecified();
        }
        host.eq_ignore_ascii_case("localhost") || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

/// Without the port, which a tunnel may change.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            // A bare IPv6 address without brackets has no port.
            if host.contains(':') && !host.starts_with('[') { authority } else { host }
        }
        _ => authority,
    }
}

/// Recovery takes milliseconds, seldom longer: so long a request rather waits than hears about it.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(5);

/// Lets requests wait while recovery runs: what they would see or change is not settled yet. Then they are refused.
pub async fn wait_until_open(State(app): State<App>, request: Request, next: Next) -> Result<Response, ApiError> {
    let is_health = request.uri().path().strip_prefix(BASE_PATH) == Some("/health");
    if !is_health && !*app.inner.is_open.borrow() {
        let mut gate = app.inner.is_open.subscribe();
        // The sender is in `app`, so it can not be gone: only the time can end this.
        if tokio::time::timeout(RECOVERY_PATIENCE, gate.wait_for(|is_open| *is_open)).await.is_err() {
            let message = "the server is recovering what died before; nothing is served until it is done";
            return Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "recovering", message)
                .hint("try again; `GET /health` says `ok` when it is done"));
        }
    }
    Ok(next.run(request).await)
}

/// Refuses requests under a foreign name and requests that a foreign page made.
pub async fn check_host(State(app): State<App>, request: Request, next: Next) -> Result<Response, ApiError> {
    let hosts = &app.inner.hosts;
    let known = authority(request.headers(), request.uri()).is_some_and(|authority| hosts.allow(authority));
    if !known {
        return Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, "unknown_host", "this server has another name")
            .hint("use the address in `server.json`, or start the server with `--allowed-host NAME`"));
    }
    if is_cross_site(request.headers(), hosts) {
        return Err(ApiError::forbidden("requests from other sites are not served"));
    }
    Ok(next.run(request).await)
}

/// The one name the request gives, if it gives exactly one.
fn authority<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Option<&'a str> {
    let mut values = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (values.next(), values.next()) else {
        return None;
    };
    let host = host.to_str().ok()?;
    match uri.authority() {
        Some(authority) if authority.as_str() != host => None,
        _ => Some(host),
    }
}

fn is_cross_site(headers: &HeaderMap, hosts: &Hosts) -> bool {
    if let Some(site) = headers.get("sec-fetch-site")
        && site != "same-origin"
        && site != "none"
    {
        return true;
    }
    match headers.get(header::ORIGIN).map(HeaderValue::to_str) {
        None => false,
        Some(Ok(origin)) => !origin.split_once("://").is_some_and(|(_, authority)| hosts.allow(authority)),
        Some(Err(_)) => true,
    }
}

/// Ends requests that take too long. A stream has begun when its handler is done, so it is not cut.
pub async fn limit_time(request: Request, next: Next) -> Result<Response, ApiError> {
    let path = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_string()).unwrap_or_default();
    let limit = time_limit(request.method(), path.strip_prefix(BASE_PATH).unwrap_or_default());
    tokio::time::timeout(limit, next.run(request)).await.map_err(|_| {
        let message = format!("the request took longer than {} s", limit.as_secs());
        ApiError::new(StatusCode::REQUEST_TIMEOUT, "timeout", message).hint("send it again")
    })
}

fn time_limit(method: &Method, path: &str) -> Duration {
    match (method, path) {
        (_, "/workflows/{id}/claim") => CLAIM_TIME_LIMIT,
        (&Method::POST, "/workflows")
        | (&Method::DELETE, "/workflows/{id}")
        | (_, "/workflows/{id}/initialize")
        | (_, "/workflows/{id}/reinitialize")
        | (_, "/workflows/{id}/reset_status")
        | (_, "/workflows/{id}/cancel") => LARGE_TIME_LIMIT,
        _ => TIME_LIMIT,
    }
}

/// The answer after a panic in a handler.
pub fn on_panic(panic: Box<dyn Any + Send>) -> Response {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("(no text)"), "a handler panicked");
    ApiError::internal().into_response()
}

/// The answer for a path that is not in the table.
pub async fn no_route(method: Method, uri: Uri) -> ApiError {
    let refusal = ApiError::not_found(format!("there is no `{method} {}`", uri.path()));
    match uri.path().starts_with(BASE_PATH) {
        true => refusal.hint(format!("`{BASE_PATH}/openapi.json` lists what there is")),
        false => refusal.hint(format!("every path begins with `{BASE_PATH}`")),
    }
}

/// The answer for a path that is there, with another method.
pub async fn no_method(method: Method, uri: Uri) -> ApiError {
    let message = format!("`{}` does not take `{method}`", uri.path());
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", message)
        .hint(format!("`{BASE_PATH}/openapi.json` lists what there is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_are_allowed() {
        let loopback = Hosts::new("127.0.0.1".parse().unwrap(), ["tunnel.example".to_string()]);
        for good in ["127.0.0.1:80", "127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:80", "::1", "tunnel.example:9"] {
            assert!(loopback.allow(good), "{good}");
        }
        for bad in ["evil.example", "evil.example:80", "10.0.0.1:80", "", ":80", "127.0.0.1.evil.example", "localhost."]
        {
            assert!(!loopback.allow(bad), "{bad}");
        }
        let named = Hosts::new("10.0.0.1".parse().unwrap(), []);
        assert!(named.allow("10.0.0.1:80") && !named.allow("10.0.0.2:80"));
        let any = Hosts::new("0.0.0.0".parse().unwrap(), []);
        assert!(any.allow("10.0.0.2:80") && !any.allow("evil.example"));
    }
}
