//! The page: a static shell without data, which loads without a token, and the headers around it.
//!
//! Files are compiled in. Every other path below `/ui/` gets the shell, which finds out by itself
//! what to show. The page works below any path prefix that a proxy puts in front.

use super::{App, guard};
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::LazyLock;
use torc_model::api::BASE_PATH;

/// Also answered as `/health`, where load balancers look.
const HEALTH: &str = "/torc-service/v1/health";
/// Where the page is.
pub const PAGE_PATH: &str = "/ui/";

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        /// The files of the page, by name; modules stand behind those they import.
        pub const FILES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../page/", $name)))),*];
    };
}
files!(
    "index.html",
    "style.css",
    "icon.svg",
    "dom.js",
    "format.js",
    "api.js",
    "live.js",
    "table.js",
    "charts.js",
    "ansi.js",
    "act.js",
    "workflows.js",
    "overview.js",
    "jobs.js",
    "log.js",
    "compare.js",
    "job.js",
    "failures.js",
    "timeline.js",
    "graph.js",
    "resources.js",
    "nodes.js",
    "events.js",
    "keys.js",
    "app.js",
);

/// What stands in for the server in an offline report; not served.
pub const REPORT_SCRIPT: &str = include_str!("../../page/report.js");

/// Scripts and styles only from here, nothing from text, nothing to elsewhere, in no other page's
/// frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
                      require-trusted-types-for 'script'; trusted-types 'none'";

/// A short hash of each file, for `ETag`.
static TAGS: LazyLock<HashMap<&str, String>> = LazyLock::new(|| {
    let tag = |text: &str| crate::secret::hex(&Sha256::digest(text)[..8]);
    FILES.iter().map(|(name, text)| (*name, tag(text))).collect()
});

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
    let file = FILES.iter().find(|(name, _)| *name == place && *name != "index.html");
    match file {
        Some((name, text)) => Some(file_answer(head, name, text)),
        // A module that is gone must not be answered by the shell.
        None if place.contains('.') && !place.contains('/') => None,
        None => Some(shell(place)),
    }
}

fn file_answer(head: &Parts, name: &str, text: &'static str) -> Response {
    let tag = format!("\"{}\"", TAGS.get(name).map_or("", String::as_str));
    let known = head.headers.get(header::IF_NONE_MATCH).is_some_and(|known| known == tag.as_str());
    let kind = match name.rsplit('.').next() {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        _ => "image/svg+xml",
    };
    let mut answer = match known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => Response::new(Body::from(text)),
    };
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    page_headers(answer)
}

/// The shell, with links that lead to its files from however deep an address.
fn shell(place: &str) -> Response {
    let up = "../".repeat(place.matches('/').count());
    let text = FILES[0].1.replace("%UP%", &up);
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

/// The headers that every answer to a browser has.
pub fn guarded(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
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
    fn the_page_keeps_to_its_budget() {
        let bytes: usize = FILES.iter().map(|(_, text)| text.len()).sum();
        assert!(bytes <= 160 << 10, "the page has {bytes} bytes");
        for (name, text) in FILES {
            let lines = text.lines().count();
            assert!(!name.ends_with(".js") || lines <= 400, "{name} has {lines} lines");
        }
    }

    /// Data reach the page as text nodes only, and nothing is loaded from elsewhere.
    #[test]
    fn no_module_turns_text_into_markup_or_asks_other_hosts() {
        for (name, text) in FILES.iter().filter(|(name, _)| name.ends_with(".js")) {
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!text.contains(word), "{name} uses {word}");
            }
            let without = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!without.contains("http://") && !without.contains("https://"), "{name}");
        }
    }
}
