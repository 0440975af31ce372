//! What stands around every handler: host names, time limits, panics, and answers for routes that
//! do not exist.

use super::error::ApiError;
use super::openapi::Rules;
use super::{App, auth};
use crate::audit;
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use std::any::Any;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use torc_model::api::{BASE_PATH, ErrorCode};

/// Outside of the base path, where load balancers and Prometheus look.
pub(super) const METRICS: &str = "/metrics";
const LIVE: &str = "/health/live";
const READY: &str = "/health/ready";
/// Most requests are answered within milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// A claim may wait for work.
const CLAIM_TIME_LIMIT: Duration = Duration::from_secs(120);
/// Workflows of a million jobs are created, reset or deleted in one piece.
const LARGE_TIME_LIMIT: Duration = Duration::from_secs(600);

/// The names under which this server may be spoken to. A page in a browser that made its own name
/// point to our address (DNS rebinding) uses another one.
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
            return address.is_loopback()
                || address == self.address
                || self.address.is_unspecified();
        }
        host.eq_ignore_ascii_case("localhost")
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
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

/// Everything that stands around a handler. One step, not a layer each: a layer costs as much as
/// what it does.
pub async fn around(
    State((app, rules)): State<(App, Arc<Rules>)>,
    request: Request,
    next: Next,
) -> Response {
    let answer = AssertUnwindSafe(guarded(&app, &rules, request, next)).catch_unwind().await;
    answer.unwrap_or_else(|panic| Err(on_panic(&*panic))).into_response()
}

async fn guarded(
    app: &App,
    rules: &Rules,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let (mut head, body) = request.into_parts();
    check_host(&app.inner.hosts, &head)?;
    let caller = auth::identify(app, rules, &head).await?;
    let actor = app.actor(&caller, &head);
    if caller != auth::Caller::Anonymous {
        auth::Acquaintance::tell(&head);
    }
    head.extensions.insert(caller);
    limit_time(time_limit(&head), async {
        wait_until_open(app, &head).await?;
        let answer = next.run(Request::from_parts(head, body));
        Ok(audit::scope(actor, answer).await)
    })
    .await
}

/// Recovery takes milliseconds, seldom longer: so long a request rather waits than hears about it.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(5);

/// Lets requests wait while recovery runs: what they would see or change is not settled yet. Then
/// they are refused.
async fn wait_until_open(app: &App, head: &Parts) -> Result<(), ApiError> {
    if is_about_the_server(head.uri.path()) || *app.inner.is_open.borrow() {
        return Ok(());
    }
    let mut gate = app.inner.is_open.subscribe();
    // The sender is in `app`, so it cannot be gone: only the time can end this.
    match tokio::time::timeout(RECOVERY_PATIENCE, gate.wait_for(|is_open| *is_open)).await {
        Ok(_) => Ok(()),
        Err(_) => {
            let message =
                "the server is recovering what died before; nothing is served until it is done";
            Err(ApiError::new(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Recovering, message)
                .hint("try again; `GET /health` says `ok` when it is done"))
        }
    }
}

/// Asked by programs that watch the server: answered while it recovers too.
fn is_about_the_server(path: &str) -> bool {
    matches!(path, METRICS | LIVE | READY) || path.strip_prefix(BASE_PATH) == Some("/health")
}

/// Refuses requests under a foreign name.
pub(super) fn check_name(hosts: &Hosts, head: &Parts) -> Result<(), ApiError> {
    let known = authority(&head.headers, &head.uri).is_some_and(|authority| hosts.allow(authority));
    if !known {
        // RFC 9112, section 3.2: a request that names no host, or several, is malformed.
        let status = match head.headers.get_all(header::HOST).iter().count() {
            1 => StatusCode::MISDIRECTED_REQUEST,
            _ => StatusCode::BAD_REQUEST,
        };
        return Err(ApiError::new(status, ErrorCode::UnknownHost, "unknown host name").hint(
            "use the address in `server.json`, or start the server with `--allowed-host NAME`",
        ));
    }
    Ok(())
}

/// Refuses requests under a foreign name and requests that a foreign page made.
pub(super) fn check_host(hosts: &Hosts, head: &Parts) -> Result<(), ApiError> {
    check_name(hosts, head)?;
    if is_cross_site(&head.headers, hosts) {
        return Err(ApiError::forbidden("requests from other sites are not served"));
    }
    Ok(())
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
        Some(Ok(origin)) => {
            !origin.split_once("://").is_some_and(|(_, authority)| hosts.allow(authority))
        }
        Some(Err(_)) => true,
    }
}

/// Ends requests that take too long. A stream has begun when its handler is done, so it is not cut.
async fn limit_time<T>(
    limit: Duration,
    answer: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    tokio::time::timeout(limit, answer).await.unwrap_or_else(|_| {
        let message = format!("the request took longer than {} s", limit.as_secs());
        Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, ErrorCode::Timeout, message)
            .hint("send it again"))
    })
}

fn time_limit(head: &Parts) -> Duration {
    let path =
        head.extensions.get::<MatchedPath>().and_then(|path| path.as_str().strip_prefix(BASE_PATH));
    match (&head.method, path.unwrap_or_default()) {
        (_, "/workflows/{id}/claim") => CLAIM_TIME_LIMIT,
        (&Method::POST, "/workflows" | "/workflows/prune" | "/server/vacuum")
        | (&Method::GET, "/server/usage")
        | (&Method::DELETE, "/workflows/{id}")
        | (_, "/workflows/{id}/initialize")
        | (_, "/workflows/{id}/reinitialize")
        | (_, "/workflows/{id}/apply")
        | (_, "/workflows/{id}/reset_status")
        | (_, "/workflows/{id}/cancel") => LARGE_TIME_LIMIT,
        _ => TIME_LIMIT,
    }
}

/// The answer after a panic in a handler.
fn on_panic(panic: &(dyn Any + Send)) -> ApiError {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("(no text)"), "a handler panicked");
    ApiError::internal()
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
    ApiError::new(StatusCode::METHOD_NOT_ALLOWED, ErrorCode::MethodNotAllowed, message)
        .hint(format!("`{BASE_PATH}/openapi.json` lists what there is"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_names_are_allowed() {
        let loopback = Hosts::new("127.0.0.1".parse().unwrap(), ["tunnel.example".to_string()]);
        for good in [
            "127.0.0.1:80",
            "127.0.0.1",
            "localhost:1",
            "LOCALHOST",
            "[::1]:80",
            "::1",
            "tunnel.example:9",
        ] {
            assert!(loopback.allow(good), "{good}");
        }
        for bad in [
            "evil.example",
            "evil.example:80",
            "10.0.0.1:80",
            "",
            ":80",
            "127.0.0.1.evil.example",
            "localhost.",
        ] {
            assert!(!loopback.allow(bad), "{bad}");
        }
        let named = Hosts::new("10.0.0.1".parse().unwrap(), []);
        assert!(named.allow("10.0.0.1:80") && !named.allow("10.0.0.2:80"));
        let any = Hosts::new("0.0.0.0".parse().unwrap(), []);
        assert!(any.allow("10.0.0.2:80") && !any.allow("evil.example"));
    }
}
