//! The page: a static shell without data, which loads without a token, and the headers around it.
//!
//! Files are compiled in (see `page_files`). Every other path below `/ui/` gets the shell, which
//! finds out by itself what to show. The page works below any path prefix that a proxy puts in
//! front.

use super::page_files::{Asset, SHELL, asset};
use super::{App, guard};
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use torc_model::api::BASE_PATH;

/// Also answered as `/health`, where load balancers look.
const HEALTH: &str = "/torc-service/v1/health";
/// Where the page is.
pub const PAGE_PATH: &str = "/ui/";

/// Scripts and styles only from here, nothing from text, nothing to elsewhere, in no other page's
/// frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// Whether a browser asks: for others the headers below are work for nothing.
pub fn is_browser(head: &Parts) -> bool {
    let agent = head.headers.get(header::USER_AGENT);
    head.headers.contains_key("sec-fetch-mode")
        || agent.is_some_and(|agent| agent.as_bytes().starts_with(b"Mozilla/"))
}

/// Takes away what a proxy put in front of our paths (`/node/HOST/PORT`, `/proxy/PORT`).
pub fn strip_prefix(head: &mut Parts) {
    let path = head.uri.path();
    if path.starts_with(BASE_PATH) || path.starts_with(PAGE_PATH) {
        return;
    }
    if path == "/health" {
        head.uri = Uri::from_static(HEALTH);
        return;
    }
    let at = [format!("{BASE_PATH}/"), PAGE_PATH.to_owned()]
        .iter()
        .filter_map(|ours| path.find(ours.as_str()))
        .min();
    let Some(at) = at.filter(|at| is_plain(&path[..*at])) else { return };
    let rest = head.uri.path_and_query().map_or("/", |all| &all.as_str()[at..]);
    let mut parts = head.uri.clone().into_parts();
    if let Ok(path) = PathAndQuery::try_from(rest) {
        parts.path_and_query = Some(path);
        if let Ok(uri) = Uri::from_parts(parts) {
            head.uri = uri;
        }
    }
}

fn is_plain(prefix: &str) -> bool {
    prefix.len() <= 200
        && prefix.bytes().all(|b| b.is_ascii_alphanumeric() || b"/._~-".contains(&b))
}

/// The answer, if a file of the page or the shell is asked for.
pub fn answer(app: &App, head: &Parts) -> Option<Response> {
    let path = head.uri.path();
    if path == "/" || path == "/ui" {
        let to = HeaderValue::from_static("ui/");
        return Some((StatusCode::SEE_OTHER, [(header::LOCATION, to)]).into_response());
    }
    let place = path.strip_prefix(PAGE_PATH)?;
    if !matches!(head.method, Method::GET | Method::HEAD) {
        return None;
    }
    // A link in a message leads here from another site, so only the name is checked: there are no
    // data in the shell.
    if let Err(refusal) = guard::check_name(&app.inner.hosts, head) {
        return Some(refusal.into_response());
    }
    match asset(place) {
        Some(asset) => Some(file_answer(head, asset)),
        // A module that is gone must not be answered by the shell.
        None if place.contains('.') && !place.contains('/') => None,
        None => Some(shell(place)),
    }
}

fn file_answer(head: &Parts, asset: &'static Asset) -> Response {
    let known = head.headers.get(header::IF_NONE_MATCH);
    let is_known = known.is_some_and(|known| *known == asset.tag);
    let is_small = accepts_deflate(head);
    let mut answer = match (is_known, is_small) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, true) => Response::new(Body::from(asset.deflated)),
        (false, false) => Response::new(Body::from(asset.text())),
    };
    let headers = answer.headers_mut();
    if is_small && !is_known {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("deflate"));
    }
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::ETAG, asset.tag.clone());
    page_headers(answer)
}

/// `deflate` is the zlib format (RFC 9110, 8.4.1.2), which every browser reads.
fn accepts_deflate(head: &Parts) -> bool {
    let all = head.headers.get_all(header::ACCEPT_ENCODING).iter();
    let mut codings = all.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    codings.any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let weight = weight.trim().trim_start_matches("q=");
        name.trim().eq_ignore_ascii_case("deflate") && weight.parse().is_ok_and(|q: f32| q > 0.0)
    })
}

/// The shell, with links that lead to its files from however deep an address.
fn shell(place: &str) -> Response {
    let up = "../".repeat(place.matches('/').count());
    let text = SHELL.replace("%UP%", &up);
    let mut answer = Response::new(Body::from(text));
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    page_headers(answer)
}

fn page_headers(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    answer
}

/// A week: browsers hold it for every port of the host, and other services of a shared host may
/// come back to plain HTTP.
const HTTPS_ONLY: &str = "max-age=604800";

/// The headers that every answer to a browser has.
pub fn guarded(mut answer: Response, is_https_only: bool) -> Response {
    let headers = answer.headers_mut();
    if is_https_only {
        let week = HeaderValue::from_static(HTTPS_ONLY);
        headers.insert(header::STRICT_TRANSPORT_SECURITY, week);
    }
    let fixed = [
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        let nothing = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
        headers.insert(header::CONTENT_SECURITY_POLICY, nothing);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stripped(uri: &str) -> String {
        let (mut head, ()) = axum::http::Request::get(uri).body(()).unwrap().into_parts();
        strip_prefix(&mut head);
        head.uri.to_string()
    }

    #[test]
    fn what_a_proxy_puts_in_front_is_taken_away() {
        assert_eq!(stripped("/node/h1/40123/ui/w/3?x=1"), "/ui/w/3?x=1");
        assert_eq!(stripped("/proxy/8/torc-service/v1/jobs"), "/torc-service/v1/jobs");
        assert_eq!(stripped("/ui/ui/"), "/ui/ui/");
        assert_eq!(stripped("/torc-service/v1/ui/x"), "/torc-service/v1/ui/x");
        assert_eq!(stripped("/a%2fb/ui/"), "/a%2fb/ui/");
        assert_eq!(stripped("/other"), "/other");
        assert_eq!(stripped("/health"), format!("{BASE_PATH}/health"));
        assert_eq!(stripped("/health/live"), "/health/live");
    }

    #[test]
    fn what_a_browser_reads_is_packed_only_when_it_says_so() {
        let asks = |value: &str| {
            let request = axum::http::Request::get("/ui/page.js").header("accept-encoding", value);
            accepts_deflate(&request.body(()).unwrap().into_parts().0)
        };
        assert!(asks("gzip, deflate, br, zstd") && asks("deflate;q=0.5"));
        assert!(!asks("gzip, br") && !asks("deflate;q=0") && !asks("identity"));
    }
}
