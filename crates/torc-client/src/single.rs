//! One connection that is kept, for requests that come one after the other.

use crate::tls::Connector;
use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use tokio::sync::Mutex;
use tower::ServiceExt as _;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The connection, once there is one.
pub struct Single {
    connector: Connector,
    sender: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Single {
    /// Nothing is connected yet.
    pub fn new(connector: Connector) -> Self {
        Self { connector, sender: Mutex::default() }
    }

    /// Sends a request; a connection that was closed meanwhile is replaced as long as nothing has
    /// been sent on it.
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        let mut kept = self.sender.lock().await;
        let uri = request.uri().clone();
        let mut request = in_origin_form(request)?;
        if let Some(mut sender) = kept.take()
            && sender.ready().await.is_ok()
        {
            match sender.try_send_request(request).await {
                Ok(answer) => {
                    *kept = Some(sender);
                    return Ok(answer);
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().into()),
                },
            }
        }
        let mut sender = self.connect(uri).await?;
        let answer = sender.send_request(request).await?;
        *kept = Some(sender);
        Ok(answer)
    }

    async fn connect(&self, uri: Uri) -> Result<SendRequest<Full<Bytes>>, Failure> {
        let stream = self.connector.clone().oneshot(uri).await?;
        let (sender, connection) = handshake(stream).await?;
        // It ends when the sender is dropped or the server closes it; the next request meets the
        // error.
        tokio::spawn(async move { drop(connection.await) });
        Ok(sender)
    }
}

/// As it goes over the wire: the path alone, and the server's name in a header.
pub fn in_origin_form(mut request: Request<Full<Bytes>>) -> Result<Request<Full<Bytes>>, Failure> {
    let authority = request.uri().authority().ok_or("an address without a host")?;
    let host = HeaderValue::from_str(authority.as_str())?;
    request.headers_mut().insert(header::HOST, host);
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse()?;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use crate::Client;
    use axum::routing::get;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;

    /// A server that counts its connections, and closes all of them at the end.
    async fn serve(listener: TcpListener, count: Arc<AtomicUsize>, stop: oneshot::Receiver<()>) {
        let path = format!("{}/ping", torc_model::api::BASE_PATH);
        let app = axum::Router::new().route(&path, get(|| async { axum::Json(7) }));
        let listener = axum::serve::ListenerExt::tap_io(listener, move |_| {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let stopped = async { drop(stop.await) };
        axum::serve(listener, app).with_graceful_shutdown(stopped).await.unwrap();
    }

    #[tokio::test]
    async fn one_connection_serves_many_requests_and_is_replaced_when_the_server_comes_back() {
        let connections = Arc::new(AtomicUsize::new(0));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let client = Client::new(&format!("http://{address}"), "t").unwrap().single();

        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(serve(listener, connections.clone(), stopped));
        for _ in 0..5 {
            assert_eq!(client.get::<i64>("/ping").await.unwrap(), 7);
        }
        assert_eq!(connections.load(Ordering::SeqCst), 1);
        stop.send(()).unwrap();
        server.await.unwrap();
        assert!(client.get::<i64>("/ping").await.unwrap_err().is_temporary());

        let listener = TcpListener::bind(address).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(serve(listener, connections.clone(), stopped));
        assert_eq!(client.get::<i64>("/ping").await.unwrap(), 7);
        assert_eq!(connections.load(Ordering::SeqCst), 2);
        stop.send(()).unwrap();
        server.await.unwrap();
    }
}
