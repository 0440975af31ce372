//! Receives webhooks and writes down what arrived, before it answers.

use crate::space::NetworkSpace;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Signs the deliveries of every world.
pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// A body is far smaller; more is not ours.
const MAX_BODY: usize = 1 << 20;

/// One delivery.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Names it; the same for every try.
    pub id: String,
    /// What it says.
    pub body: Value,
    /// It is signed with the secret.
    pub is_signed: bool,
    /// When it arrived, in microseconds since 1970.
    pub at: i64,
}

/// Everything that arrived, in order.
#[derive(Clone, Default)]
pub struct DeliveryLog(Arc<Mutex<Vec<Delivery>>>);

impl DeliveryLog {
    /// What has arrived so far.
    pub fn all(&self) -> Vec<Delivery> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Microseconds since 1970, by the clock that the witnesses use.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Listens in the server's network until the process ends. Answers where.
pub fn start(space: &NetworkSpace) -> io::Result<(String, DeliveryLog)> {
    let listener = space.inside(|| TcpListener::bind("127.0.0.1:0"))?;
    let url = format!("http://{}/hook", listener.local_addr()?);
    let log = DeliveryLog::default();
    let ours = log.clone();
    std::thread::Builder::new().name("receiver".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let log = ours.clone();
            // A sender that is killed in the middle is no fault: it comes again.
            std::thread::spawn(move || receive(stream, &log));
        }
    })?;
    Ok((url, log))
}

fn receive(stream: TcpStream, log: &DeliveryLog) -> io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut headers: HashMap<String, String> = HashMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
        }
    }
    let header = |name: &str| headers.get(name).cloned().unwrap_or_default();
    let length = header("content-length").parse().unwrap_or(0).min(MAX_BODY);
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let (id, timestamp) = (header("webhook-id"), header("webhook-timestamp"));
    let is_signed = header("webhook-signature") == signature(&id, &timestamp, &body);
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let delivery = Delivery { id, body, is_signed, at: now() };
    log.0.lock().unwrap_or_else(PoisonError::into_inner).push(delivery);
    let mut stream = stream;
    stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n")
}

fn signature(id: &str, timestamp: &str, body: &[u8]) -> String {
    let key = STANDARD.decode(SECRET.trim_start_matches("whsec_")).unwrap_or_default();
    let Ok(mut mac) = Hmac::<sha2::Sha256>::new_from_slice(&key) else { return String::new() };
    mac.update(id.as_bytes());
    mac.update(b".");
    mac.update(timestamp.as_bytes());
    mac.update(b".");
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}
