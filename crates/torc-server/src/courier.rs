//! The courier: takes deliveries out of the outbox and posts them, at least once each.
//!
//! Signed as Standard Webhooks say. It follows no redirects, connects only to the address it has
//! checked, and refuses loopback and private addresses unless the endpoint allows them: a URL is
//! input from outside.

use crate::blocking::blocking;
use crate::mail::Mail;
use crate::notify::{self, NotificationText};
use crate::outgoing_tls;
use crate::store::{DueDelivery, Store};
use axum::http::{Request, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use sha2::Sha256;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;
use torc_model::api::NotifyKind;

/// One try, from the name look-up to the answer's status.
const TRY: Duration = Duration::from_secs(10);
/// Deliveries under way at once.
const AT_ONCE: i64 = 16;
/// An answer's body is not read further than this.
const ANSWER: usize = 64 * 1024;

/// What was not tried yet when the server ends gets so long.
const LAST: Duration = Duration::from_secs(10);

/// Delivers until the server ends. `base` is its address, for links in messages to people.
pub async fn run(store: Store, base: String, stop: CancellationToken) {
    let outbox = store.outbox();
    loop {
        let news = outbox.notified();
        let wait = match round(&store, &base, false).await {
            Ok(wait) => wait,
            Err(error) => {
                tracing::error!(%error, "the outbox could not be read");
                Duration::from_secs(5)
            }
        };
        tokio::select! {
            () = stop.cancelled() => break,
            () = news => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
    // A workflow that has just ended is a reason to end: its message must not wait for the next start.
    match tokio::time::timeout(LAST, round(&store, &base, true)).await {
        Ok(Ok(_)) | Err(_) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the last deliveries were not made"),
    }
}

/// Tries everything that is due, or only what was never tried. Answers how long nothing will be.
async fn round(
    store: &Store,
    base: &str,
    only_new: bool,
) -> Result<Duration, crate::store::Refusal> {
    loop {
        let (mut due, next) = store.due_deliveries(AT_ONCE).await?;
        due.retain(|delivery| !only_new || delivery.tries == 0);
        if due.is_empty() {
            let wait =
                next.map_or(3_600_000, |t| (t - crate::clock::now_ms()).clamp(10, 3_600_000));
            return Ok(Duration::from_millis(wait as u64));
        }
        let tries = due.into_iter().map(|delivery| async move {
            torc_failpoint::hit("courier.before_post");
            let outcome = match tokio::time::timeout(TRY, deliver(&delivery, base)).await {
                Ok(outcome) => outcome,
                Err(_) => Err(format!("no answer within {} s", TRY.as_secs())),
            };
            torc_failpoint::hit("courier.after_post");
            store.metrics().deliveries[usize::from(outcome.is_err())].add(1);
            store.delivery_tried(delivery.id, outcome).await
        });
        for noted in futures_util::future::join_all(tries).await {
            noted?;
        }
    }
}

async fn deliver(delivery: &DueDelivery, base: &str) -> Result<(), String> {
    let Some(kind) = delivery.kind else { return send(delivery, None).await };
    let payload: serde_json::Value =
        serde_json::from_str(&delivery.payload).map_err(|e| e.to_string())?;
    let message = NotificationText::of(&payload, base);
    match kind {
        NotifyKind::Slack | NotifyKind::Teams | NotifyKind::Ntfy => {
            send(delivery, Some((kind, &message))).await
        }
        NotifyKind::Mail => Mail::parse(&delivery.url)?.send(&message, delivery.id).await,
        NotifyKind::Command => {
            let argv: Vec<String> =
                serde_json::from_str(&delivery.url).map_err(|e| e.to_string())?;
            let text = delivery.payload.clone();
            let limit = TRY.saturating_sub(Duration::from_secs(1));
            let run = blocking(move || notify::run(&argv, &message, &text, limit));
            run.await.map_err(|e| e.to_string())?
        }
    }
}

/// Posts a delivery, signed, or a message as its channel wants it.
async fn send(
    delivery: &DueDelivery,
    told: Option<(NotifyKind, &NotificationText)>,
) -> Result<(), String> {
    let uri: Uri = delivery.url.parse().map_err(|e| format!("bad URL: {e}"))?;
    let host = uri.host().ok_or("the URL has no host")?.trim_matches(['[', ']']).to_owned();
    let secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
    let address = resolve(&host, port, delivery.allow_private).await?;
    let tcp = TcpStream::connect(address)
        .await
        .map_err(|e| format!("failed to connect to {address}: {e}"))?;
    let request = match told {
        None => request(&uri, &host, delivery)?,
        Some((kind, message)) => {
            let authority = uri.authority().map_or(host.as_str(), |authority| authority.as_str());
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            message.request(kind, path, authority)?
        }
    };
    if secure {
        post(outgoing_tls::encrypt(tcp, &host).await?, request).await
    } else {
        post(tcp, request).await
    }
}

/// The address to connect to: the first that is allowed.
async fn resolve(host: &str, port: u16, allow_private: bool) -> Result<SocketAddr, String> {
    let found = tokio::net::lookup_host((host, port))
        .await
        .map_err(|e| format!("failed to look up `{host}`: {e}"))?;
    let all: Vec<SocketAddr> = found.collect();
    let allowed = all.iter().find(|a| allow_private || is_public(a.ip()));
    allowed.copied().ok_or_else(|| match all.first() {
        Some(first) => format!(
            "`{host}` is {}, which is not a public address; `allow_private` permits it",
            first.ip()
        ),
        None => format!("`{host}` has no address"),
    })
}

/// Not loopback, private, link-local, shared, reserved, multicast or unspecified.
pub fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            let shared = a == 100 && (64..128).contains(&b);
            let benchmark = a == 198 && (b == 18 || b == 19);
            !(ip.is_loopback()
                || ip.is_private()
                || ip.is_link_local()
                || ip.is_broadcast()
                || ip.is_documentation()
                || ip.is_multicast()
                || a == 0
                || a >= 240
                || shared
                || benchmark)
        }
        IpAddr::V6(ip) => {
            if let Some(v4) = ip.to_ipv4_mapped() {
                return is_public(IpAddr::V4(v4));
            }
            // Only global unicast, without the parts that embed IPv4 addresses or are for
            // documents.
            let [first, second, ..] = ip.segments();
            let embeds_v4 = first == 0x2002 || (first == 0x2001 && second == 0);
            let documents = first == 0x2001 && second == 0xdb8;
            (0x2000..0x4000).contains(&first) && !embeds_v4 && !documents
        }
    }
}

fn request(uri: &Uri, host: &str, delivery: &DueDelivery) -> Result<Request<Full<Bytes>>, String> {
    let id = format!("msg_{}", delivery.id);
    let timestamp = (crate::clock::now_ms() / 1000).to_string();
    let signature = sign(&delivery.secret, &id, &timestamp, &delivery.payload);
    let authority = uri.authority().map_or_else(|| host.to_owned(), ToString::to_string);
    Request::post(uri.path_and_query().map_or("/", |p| p.as_str()))
        .header("host", authority)
        .header("content-type", "application/json")
        .header("user-agent", concat!("torc/", env!("CARGO_PKG_VERSION")))
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signature)
        .body(Full::new(Bytes::from(delivery.payload.clone())))
        .map_err(|e| e.to_string())
}

/// `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`.
pub fn sign(secret: &str, id: &str, timestamp: &str, body: &str) -> String {
    let key = match secret.strip_prefix("whsec_").map(|text| STANDARD.decode(text)) {
        Some(Ok(key)) => key,
        Some(Err(_)) | None => secret.as_bytes().to_vec(),
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes keys of any length");
    mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

async fn post<S>(stream: S, request: Request<Full<Bytes>>) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| e.to_string())?;
    let driving = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(|e| e.to_string());
    let outcome = match answer {
        Ok(answer) => {
            let status = answer.status();
            // Read and dropped, so that the other side sees a proper end; a failure here changes
            // nothing.
            let _ = Limited::new(answer.into_body(), ANSWER).collect().await;
            if status.is_success() { Ok(()) } else { Err(format!("the answer was {status}")) }
        }
        Err(error) => Err(error),
    };
    driving.abort();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_standard() {
        // Made with the reference library for the same input.
        let got = sign(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            "1614265330",
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(got, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    /// The same signature by another implementation: Python's, as a receiver would check it.
    const PYTHON: &str = "
import base64, hashlib, hmac, sys
secret, id, timestamp, body = (part.decode() for part in sys.stdin.buffer.read().split(b'\\0'))
key = base64.b64decode(secret[6:]) if secret.startswith('whsec_') else secret.encode()
digest = hmac.new(key, f'{id}.{timestamp}.{body}'.encode(), hashlib.sha256).digest()
print('v1,' + base64.b64encode(digest).decode(), end='')
";

    #[test]
    fn another_implementation_signs_the_same() {
        use std::io::Write as _;
        use std::process::{Command, Stdio};
        let cases = [
            ("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "msg_1", "1", ""),
            (
                "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                "msg_27UH4WbU6Z5A5EzD8u03UvzRbpk",
                "1649367553",
                "{\"email\": \"test@example.com\"}",
            ),
            (
                "a plain secret, as some receivers have",
                "msg_42",
                "1794789393",
                "{\"job_name\": \"größe.…\"}",
            ),
            (&"k".repeat(200), "msg_9007199254740993", "9999999999", &"x".repeat(100_000)),
        ];
        for (secret, id, timestamp, body) in cases {
            let python = Command::new("python3")
                .args(["-c", PYTHON])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            let Ok(mut python) = python else {
                eprintln!("skipped: there is no python3 here");
                return;
            };
            let input = [secret, id, timestamp, body].join("\0");
            python.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
            let output = python.wait_with_output().expect("it ends");
            let theirs = String::from_utf8(output.stdout).expect("text");
            assert_eq!(sign(secret, id, timestamp, body), theirs, "{secret} {id}");
        }
    }

    #[test]
    fn only_public_addresses_are_public() {
        let private = [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "::1",
            "fe80::1",
            "fc00::1",
            "::ffff:127.0.0.1",
            "::",
            "2002:7f00:1::",
            "198.18.0.1",
        ];
        for ip in private {
            assert!(!is_public(ip.parse().expect("an address")), "{ip}");
        }
        for ip in ["8.8.8.8", "1.1.1.1", "2606:4700::1111"] {
            assert!(is_public(ip.parse().expect("an address")), "{ip}");
        }
    }

    #[tokio::test]
    async fn a_private_target_is_refused_unless_allowed() {
        let error = resolve("127.0.0.1", 80, false).await.expect_err("refused");
        assert!(error.contains("not a public address"), "{error}");
        assert!(resolve("127.0.0.1", 80, true).await.is_ok());
    }
}
