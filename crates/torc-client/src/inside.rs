//! A server in the same process, which is asked without a connection.

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use std::io;
use std::pin::Pin;
use std::sync::Arc;

/// What an answer says, wherever it comes from.
pub type AnswerBody = UnsyncBoxBody<Bytes, io::Error>;

/// An answer under way.
pub type Answer = Pin<Box<dyn Future<Output = io::Result<Response<AnswerBody>>> + Send>>;

/// Answers a request in the thread that asks. A server that has ended gives a failure.
pub type InProcess = Arc<dyn Fn(Request<Full<Bytes>>) -> Answer + Send + Sync>;

/// The same answer, whatever kind of body it has.
pub fn boxed<B>(answer: Response<B>) -> Response<AnswerBody>
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    answer.map(|body| body.map_err(io::Error::other).boxed_unsync())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Client;
    use http::{StatusCode, header};
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Answers with what it was asked, for as long as it is not ended.
    fn echo(has_ended: &Arc<AtomicBool>) -> InProcess {
        let has_ended = has_ended.clone();
        Arc::new(move |request| {
            let has_ended = has_ended.load(Ordering::SeqCst);
            Box::pin(async move {
                if has_ended {
                    return Err(io::Error::other("ended"));
                }
                let text = |name| request.headers()[name].to_str().unwrap_or_default().to_string();
                let asked =
                    [request.uri().to_string(), text(header::HOST), text(header::AUTHORIZATION)];
                let said =
                    request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
                let answer =
                    serde_json::json!({"asked": asked, "said": String::from_utf8_lossy(&said)});
                let mut answer = Response::new(Full::new(Bytes::from(answer.to_string())));
                *answer.status_mut() = StatusCode::CREATED;
                Ok(boxed(answer))
            })
        })
    }

    #[tokio::test]
    async fn a_server_in_the_same_process_is_asked_without_a_connection() {
        // No server listens there.
        let client = Client::new("http://127.0.0.1:9", "secret").unwrap();
        let has_ended = Arc::new(AtomicBool::new(false));
        let client = client.with_inside(echo(&has_ended));
        let single = client.single();
        let answer: serde_json::Value = single.post("/claims?x=1", &[7]).await.unwrap();
        let asked = ["/torc-service/v1/claims?x=1", "127.0.0.1:9", "Bearer secret"];
        assert_eq!(answer, serde_json::json!({"asked": asked, "said": "[7]"}));

        has_ended.store(true, Ordering::SeqCst);
        let error = single.get::<()>("/x").await.unwrap_err();
        assert!(error.is_temporary(), "{error}");
        // Other requests go over the network.
        assert!(client.get::<()>("/x").await.unwrap_err().is_temporary());
    }
}
