//! Accepts connections and serves them, within limits, until it is told to stop.

use super::tls::Tls;
use crate::api::{Acquaintance, Front, PeerAddress};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    let strangers = Arc::new(UnprovenConnections::new(most_strangers(max_connections)));
    let cut = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if permits.available_permits() == 0 {
                    strangers.evict();
                }
                let permit = tokio::select! {
                    () = stop.cancelled() => break,
                    // Never closed, so a permit always comes.
                    permit = permits.clone().acquire_owned() => permit.ok(),
                };
                let stranger = UnprovenConnection::enter(&strangers, Peer::at(peer.ip()));
                let (tls, front, stop) = (tls.clone(), front.clone(), stop.clone());
                let connection = serve_stream(stream, peer.ip(), tls, front, stop, stranger);
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
                tracing::warn!(%error, "cannot accept a connection");
                // Out of file descriptors, most likely: others must close first.
                strangers.evict();
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

/// Most connections that have shown no good token yet. They must leave room for others, and
/// descriptors for the database and for logs.
fn most_strangers(max_connections: usize) -> usize {
    const MOST: u64 = 1024;
    let descriptors = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let by_descriptors = usize::try_from(descriptors.map_or(MOST, |all| (all / 4).min(MOST)));
    by_descriptors.unwrap_or(usize::MAX).min(max_connections.div_ceil(2)).max(1)
}

/// Where a connection comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Peer {
    /// This machine, through the Unix socket.
    Local,
    /// An address; of IPv6 its network, because a single host has all of that.
    Address(IpAddr),
}

impl Peer {
    fn at(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
            v4 => v4,
        })
    }
}

/// Connections that have shown no good token yet, the oldest first. When there are too many, the
/// oldest of the peer that has the most is closed for a new one. So a peer cannot keep others out,
/// and of its own connections it is the idle ones that go: a client that has a token shows it at
/// once.
pub(super) struct UnprovenConnections {
    most: usize,
    list: Mutex<BTreeMap<u64, (Peer, CancellationToken)>>,
    next: AtomicU64,
}

impl UnprovenConnections {
    pub(super) fn new(most: usize) -> Self {
        Self { most, list: Mutex::default(), next: AtomicU64::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (Peer, CancellationToken)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the oldest of the peer that has the most. As many are looked at as there may be, and
    /// only while there are that many.
    fn evict(&self) {
        let mut list = self.lock();
        let mut counts: HashMap<Peer, usize> = HashMap::new();
        for (peer, _) in list.values() {
            *counts.entry(*peer).or_default() += 1;
        }
        let Some(highest) = counts.values().copied().max() else { return };
        let is_its = |peer: &Peer| counts.get(peer) == Some(&highest);
        let oldest = list.iter().find(|(_, (peer, _))| is_its(peer)).map(|(id, _)| *id);
        if let Some((_, connection)) = oldest.and_then(|id| list.remove(&id)) {
            connection.cancel();
        }
    }
}

/// A connection in the list of [`UnprovenConnections`], until it shows a good token or ends.
pub(super) struct UnprovenConnection {
    id: u64,
    list: Arc<UnprovenConnections>,
    is_evicted: CancellationToken,
}

impl UnprovenConnection {
    pub(super) fn enter(list: &Arc<UnprovenConnections>, peer: Peer) -> Self {
        if list.lock().len() >= list.most {
            list.evict();
        }
        let (id, is_evicted) =
            (list.next.fetch_add(1, Ordering::Relaxed), CancellationToken::new());
        list.lock().insert(id, (peer, is_evicted.clone()));
        Self { id, list: list.clone(), is_evicted }
    }

    fn leave(&self) {
        self.list.lock().remove(&self.id);
    }
}

impl Drop for UnprovenConnection {
    fn drop(&mut self) {
        self.leave();
    }
}

async fn serve_stream(
    stream: TcpStream,
    address: IpAddr,
    tls: Option<Tls>,
    front: Arc<Front>,
    stop: CancellationToken,
    stranger: UnprovenConnection,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let address = Some(address);
    let Some(tls) = tls else {
        return serve_connection(stream, address, front, stop, stranger).await;
    };
    match tokio::time::timeout(FIRST_REQUEST, tls.accept(stream)).await {
        Ok(Ok(stream)) => serve_connection(stream, address, front, stop, stranger).await,
        // A client that speaks plain HTTP, distrusts the certificate or scans ports.
        Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

/// Serves one connection of any kind until it ends or `stop`.
pub(super) async fn serve_connection<S>(
    stream: S,
    address: Option<IpAddr>,
    front: Arc<Front>,
    stop: CancellationToken,
    stranger: UnprovenConnection,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let spoke = Arc::new(AtomicBool::new(false));
    let is_evicted = stranger.is_evicted.clone();
    let is_known = Arc::new(AtomicBool::new(false));
    let acquaintance = {
        let is_known = is_known.clone();
        Acquaintance::new(move || {
            if !is_known.swap(true, Ordering::Relaxed) {
                stranger.leave();
            }
        })
    };
    let service = {
        let spoke = spoke.clone();
        hyper::service::service_fn(move |mut request: hyper::Request<Incoming>| {
            spoke.store(true, Ordering::Relaxed);
            if !is_known.load(Ordering::Relaxed) {
                request.extensions_mut().insert(acquaintance.clone());
            }
            if let Some(address) = address.filter(|_| front.wants_peers()) {
                request.extensions_mut().insert(PeerAddress(address));
            }
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
        () = is_evicted.cancelled() => return,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // A client that went away or broke a limit: nothing to do, and no one left to answer.
        tracing::debug!(%error, "a connection ended badly");
    }
}
