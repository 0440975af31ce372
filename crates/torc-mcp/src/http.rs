//! Streamable HTTP on loopback, with a token.

use crate::server::Server;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Random bytes in a token.
pub const TOKEN_BYTES: usize = 32;

/// More than the largest list of verdicts.
const LARGEST_REQUEST: usize = 8 << 20;

/// A server on a port of this machine.
pub struct HttpServer {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl HttpServer {
    /// Listens on loopback; port 0 takes a free one. Every request must carry the token.
    pub async fn start(server: Server, port: u16, token: &str) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        // Sessions are gone from the newest protocol, and leak in the older ones.
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_max_request_body_bytes(LARGEST_REQUEST)
            .enforce_origin_validation()
            .with_cancellation_token(stop.child_token());
        let service: StreamableHttpService<Server, LocalSessionManager> =
            StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config);
        let router = Router::new()
            .nest_service("/mcp", service)
            .layer(from_fn_with_state(Arc::<str>::from(token), check_token));
        let until = stop.clone();
        let task = tokio::spawn(async move {
            axum::serve(listener, router)
                .with_graceful_shutdown(async move { until.cancelled().await })
                .await
        });
        Ok(Self { address, stop, task })
    }

    /// Where clients find it.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// Waits until it ends by itself.
    pub async fn wait(&mut self) -> std::io::Result<()> {
        (&mut self.task).await.map_err(std::io::Error::other)?
    }

    /// Ends it; calls in flight are cut off.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.abort();
        // Aborted or ended: it is gone either way.
        let _ = self.task.await;
    }
}

async fn check_token(State(token): State<Arc<str>>, request: Request, next: Next) -> Response {
    let mut values = request.headers().get_all(header::AUTHORIZATION).iter();
    let given = match (values.next().and_then(|value| value.to_str().ok()), values.next()) {
        (Some(value), None) => value.strip_prefix("Bearer ").unwrap_or_default(),
        _ => "",
    };
    if bool::from(given.as_bytes().ct_eq(token.as_bytes())) {
        next.run(request).await
    } else {
        (StatusCode::UNAUTHORIZED, "a token is needed: `Authorization: Bearer TOKEN`\n")
            .into_response()
    }
}
