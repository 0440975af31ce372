//! What a session of the page may call. Closed unless it stands here.

use super::error::ApiError;
use axum::http::Method;
use torc_model::api::{BASE_PATH, PageScope};

/// Reads that give secrets away or are none of the page's business.
const HIDDEN: [&str; 7] = [
    "/notifications",
    "/webhooks",
    "/reservations",
    "/ui_sessions",
    "/ui_codes",
    "/server",
    "/tokens",
];
/// A session may look at itself and end itself.
const OWN: &str = "/ui_sessions/current";
/// What a session that may act may change.
const CHANGES: [(Method, &str); 9] = [
    (Method::POST, "/jobs/act"),
    (Method::POST, "/workflows/{id}/recover"),
    (Method::POST, "/workflows/{id}/cancel"),
    (Method::POST, "/workflows/{id}/quarantine"),
    (Method::POST, "/classifications/{id}/accept"),
    (Method::POST, "/classifications/{id}/reject"),
    (Method::POST, "/workflows/{id}/classify"),
    (Method::POST, "/scheduled_compute_nodes"),
    (Method::POST, "/scheduled_compute_nodes/{id}/cancel"),
];

/// Whether a session may make this request; `path` is that of the route.
pub fn page_may(scope: PageScope, method: &Method, path: &str) -> Result<(), ApiError> {
    let route = path.strip_prefix(BASE_PATH).unwrap_or_default();
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    if is_read && path == super::guard::METRICS {
        return Ok(());
    }
    let is_hidden = HIDDEN.iter().any(|hidden| route.starts_with(hidden));
    let is_change = CHANGES.iter().any(|(of, change)| of == method && *change == route);
    if route == OWN || (is_read && !is_hidden && !route.is_empty()) {
        return Ok(());
    }
    match (scope, is_change) {
        (PageScope::Act, true) => Ok(()),
        (PageScope::Read, true) => Err(ApiError::forbidden("this page may only look")
            .hint("open one that may act with `torc ui`")),
        (_, false) => Err(ApiError::forbidden("the page does not do this")
            .hint("use the command line, or the token of the server's owner")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may(scope: PageScope, method: Method, route: &str) -> bool {
        page_may(scope, &method, &format!("{BASE_PATH}{route}")).is_ok()
    }

    #[test]
    fn a_session_reads_what_is_no_secret_and_changes_only_what_is_listed() {
        use PageScope::{Act, Read};
        for scope in [Read, Act] {
            assert!(may(scope, Method::GET, "/jobs"));
            assert!(may(scope, Method::DELETE, "/ui_sessions/current"));
            for hidden in ["/webhooks", "/webhooks/{id}", "/reservations", "/ui_sessions"] {
                assert!(!may(scope, Method::GET, hidden), "{hidden}");
            }
            for closed in [
                "/workflows",
                "/workflows/{id}/claim",
                "/ui_codes",
                "/attempts/complete",
                "/scheduled_compute_nodes/begin",
            ] {
                assert!(!may(scope, Method::POST, closed), "{closed}");
            }
            assert!(!may(scope, Method::DELETE, "/workflows/{id}"));
        }
        assert!(may(Act, Method::POST, "/jobs/act") && !may(Read, Method::POST, "/jobs/act"));
    }
}
