//! Which request a line of the log belongs to.
//!
//! A request brings an id (`x-request-id`, from a proxy or a client) or gets one. It is kept beside
//! the task that answers, not in a tracing span: a span would be made for every request, the id is
//! only written out when there is something to log.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where proxies put it and where answers have it.
pub const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Longer ids are not taken over.
const LONGEST: usize = 64;

tokio::task_local! {
    static CURRENT: RequestId;
}

/// The id of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestId {
    /// The caller's: short, and only letters, digits, `.`, `_` and `-`.
    Given(HeaderValue),
    /// Ours: the number of the request since the start.
    Made(u64),
}

/// Differs between two starts, so that numbers of one are not taken for those of another.
static START: LazyLock<u32> = LazyLock::new(|| getrandom::u32().unwrap_or_default());
static NEXT: AtomicU64 = AtomicU64::new(1);

impl RequestId {
    /// The id that a request brings, or a new one.
    pub fn of(headers: &HeaderMap) -> Self {
        let is_plain = |value: &&HeaderValue| {
            let bytes = value.as_bytes();
            let is_known = |b: &u8| b.is_ascii_alphanumeric() || b"._-".contains(b);
            (1..=LONGEST).contains(&bytes.len()) && bytes.iter().all(is_known)
        };
        match headers.get(&HEADER).filter(is_plain) {
            Some(given) => Self::Given(given.clone()),
            None => Self::Made(NEXT.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// For the answer.
    pub fn to_header(&self) -> Option<HeaderValue> {
        match self {
            Self::Given(value) => Some(value.clone()),
            Self::Made(_) => HeaderValue::from_str(&self.to_string()).ok(),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(value) => f.write_str(value.to_str().unwrap_or_default()),
            Self::Made(number) => write!(f, "{:08x}-{number}", *START),
        }
    }
}

/// Answers a request under its id.
pub async fn scope<T>(id: RequestId, answer: impl Future<Output = T>) -> T {
    CURRENT.scope(id, answer).await
}

/// The id of the request that this task answers.
pub fn current() -> Option<RequestId> {
    CURRENT.try_with(Clone::clone).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: &str) -> RequestId {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_str(value).unwrap());
        RequestId::of(&headers)
    }

    #[test]
    fn only_plain_ids_are_taken_over_and_ours_differ() {
        assert_eq!(of("a.B_3-x").to_string(), "a.B_3-x");
        for odd in ["", "a b", "a\"b", "größe", &"x".repeat(65)] {
            assert!(matches!(of(odd), RequestId::Made(_)), "{odd}");
        }
        let (a, b) = (RequestId::of(&HeaderMap::new()), RequestId::of(&HeaderMap::new()));
        assert_ne!(a.to_string(), b.to_string());
    }

    #[tokio::test]
    async fn the_id_is_known_while_its_request_is_answered() {
        assert_eq!(current(), None);
        let seen = scope(of("mine"), async { current() }).await;
        assert_eq!(seen.unwrap().to_string(), "mine");
    }
}
