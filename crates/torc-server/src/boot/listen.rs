//! Accepts connections and serves them, within limits, until it is told to stop.

use super::tls::Tls;
use crate::api::Front;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A client that connects and then says nothing is dropped after this long.
const FIRST_REQUEST: Duration = Duration::from_secs(30);
/// Time for the headers of a request, and for the pause before it. Longer than clients keep idle
/// connections (60 s), so that it is they who close them and no request meets a closing connection.
const NEXT_REQUEST: Duration = Duration::from_secs(75);
/// After this long requests in flight are cut off.
pub(super) const GRACE: Duration = Duration::from_secs(5);
const MAX_HEADERS: usize = 64;
const MAX_HEADER_BYTES: usize = 32 << 10;
const MAX_BUFFER_BYTES: usize = 128 << 10;

/// Serves until `stop`; then lets requests in flight end, for a while.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    front: Arc<Front>,
    max_connections: usize,
    stop: CancellationToken,
) {
    let connections = TaskTracker::new();
    let permits = Arc::new(Semaphore::new(max_connections.max(1)));
    let cut = CancellationToken::new();
    loop {
        let accept = async {
            // Never closed, so a permit always comes.
            let permit = permits.clone().acquire_owned().await.ok();
            (permit, listener.accept().await)
        };
        let (permit, accepted) = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection = serve_stream(stream, tls.clone(), front.clone(), stop.clone());
                let cut = cut.clone();
                connections.spawn(async move {
                    let _permit = permit;
                    tokio::select! {
                        () = connection => {}
                        () = cut.cancelled() => {}
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "can not accept a connection");
                // Out of file descriptors, most likely: others must close first.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(GRACE, connections.wait()).await.is_err() {
        cut.cancel();
        connections.wait().await;
    }
}

async fn serve_stream(
    stream: TcpStream,
    tls: Option<Tls>,
    front: Arc<Front>,
    stop: CancellationToken,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let Some(tls) = tls else { return serve_connection(stream, front, stop).await };
    match tokio::time::timeout(FIRST_REQUEST, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve_connection(stream, front, stop).await,
        // A client that speaks plain HTTP, distrusts the certificate or scans ports.
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

async fn serve_connection<S>(stream: S, front: Arc<Front>, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let spoke = Arc::new(AtomicBool::new(false));
    let service = {
        let spoke = spoke.clone();
        hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
            spoke.store(true, Ordering::Relaxed);
            let answer = front.answer(request);
            async move { Ok::<_, Infallible>(answer.await) }
        })
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(NEXT_REQUEST)
        .max_headers(MAX_HEADERS)
        .max_header_size(MAX_HEADER_BYTES)
        .max_buf_size(MAX_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let silence = async {
        tokio::time::sleep(FIRST_REQUEST).await;
        if spoke.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = silence => return,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client that went away or broke a limit: nothing to do, and nobody to tell.
        tracing::debug!(%error, "a connection ended badly");
    }
}
