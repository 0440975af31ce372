//! Whose process is at the other end of a connection on this machine.
//!
//! A server that died leaves its address in `server.json`, and any local user may listen there
//! next. Clients and runners that go on asking would hand that user their token. The kernel knows
//! who owns a socket, and tells by netlink; where it does not, in `/proc/net/tcp`.

use crate::sock_diag::SockDiag;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpStream;
use tower_service::Service;

/// Whether the server must be a process of this user or root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerCheck {
    /// The user named the address: the process that listens there is meant.
    Anyone,
    /// The address is from a file of this user's server.
    Ours,
}

/// Another user's process listens at the address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ForeignListener {
    uid: u32,
    port: u16,
}

impl fmt::Display for ForeignListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { uid, port } = self;
        write!(f, "port {port} belongs to a process of another user (uid {uid}); nothing was sent")
    }
}

impl std::error::Error for ForeignListener {}

/// Refuses a connection whose other end is a process of another user on this machine.
pub fn check(stream: &TcpStream) -> io::Result<()> {
    let (here, there) = (stream.local_addr()?, stream.peer_addr()?);
    if here.ip() != there.ip() {
        return Ok(());
    }
    let own = rustix::process::geteuid().as_raw();
    let strange = |uid: &u32| *uid != own && *uid != 0;
    // Kernels without the module for such questions answer that there is no socket.
    let owners = match asked(here, there) {
        Ok(owners) if !owners.is_empty() => owners,
        _ => listed(here, there),
    };
    match owners.into_iter().find(strange) {
        Some(uid) => Err(io::Error::other(ForeignListener { uid, port: there.port() })),
        None => Ok(()),
    }
}

/// Who owns the server's end of this connection and the listening socket, by netlink.
fn asked(client: SocketAddr, server: SocketAddr) -> io::Result<Vec<u32>> {
    let kernel = SockDiag::open()?;
    let nothing = match server.ip() {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
    };
    let connection = kernel.owner(server, client)?;
    let listener = kernel.owner(server, SocketAddr::new(nothing, 0))?;
    let held = [connection, listener].into_iter().flatten().filter(|owner| owner.is_held);
    Ok(held.map(|owner| owner.uid).collect())
}

/// The same by the tables of all sockets.
fn listed(client: SocketAddr, server: SocketAddr) -> Vec<u32> {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .flat_map(|table| owners(&table, client, server))
        .collect()
}

/// Who owns the listening socket and the server's end of this connection. Both are needed: a
/// connection that was not accepted yet has no owner, and its listener is still there.
fn owners(table: &str, client: SocketAddr, server: SocketAddr) -> Vec<u32> {
    const LISTEN: &str = "0A";
    let is_owner = |line: &&str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (Some(local), Some(remote), Some(state)) = (words.next(), words.next(), words.next())
        else {
            return false;
        };
        let (Some(local), Some(remote)) = (address(local), address(remote)) else { return false };
        let is_here = local.port() == server.port()
            && (canonical(local.ip()) == canonical(server.ip()) || local.ip().is_unspecified());
        let is_ours =
            remote.port() == client.port() && canonical(remote.ip()) == canonical(client.ip());
        is_here && (state == LISTEN || is_ours)
    };
    let uid = |line: &str| line.split_ascii_whitespace().nth(7)?.parse().ok();
    table.lines().skip(1).filter(is_owner).filter_map(uid).collect()
}

fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// `0100007F:1F90`: the address as 32-bit words in the machine's byte order, the port as a number.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| u32::from_str_radix(ip.get(at..at + 8)?, 16).ok();
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?.to_ne_bytes()).into(),
        32 => {
            let mut bytes = [0; 16];
            for (n, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(n * 8)?.to_ne_bytes());
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// Connects, and looks who is there before anything is sent.
#[derive(Clone)]
pub struct CheckedConnector {
    pub(crate) http: HttpConnector,
    pub(crate) peer: PeerCheck,
}

impl Service<http::Uri> for CheckedConnector {
    type Response = TokioIo<TcpStream>;
    type Error = Box<dyn std::error::Error + Send + Sync>;
    type Future =
        Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send + 'static>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.http.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: http::Uri) -> Self::Future {
        let (connecting, peer) = (self.http.call(uri), self.peer);
        Box::pin(async move {
            let stream = connecting.await?;
            if peer == PeerCheck::Ours {
                check(stream.inner())?;
            }
            Ok(stream)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid
   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0
   1: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 2 1 0
   2: 0100007F:1F90 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1001        0 3 1 0
   3: 0100007F:9C40 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     7        0 4 1 0
   4: 0100007F:1F90 0100007F:9C41 01 00000000:00000000 00:00000000 00000000  1002        0 5 1 0
";

    #[test]
    fn listener_and_the_servers_end_of_this_connection_are_found() {
        let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        assert_eq!(owners(TABLE, at(40000), at(8080)), [1000, 1001]);
        assert_eq!(owners(TABLE, at(40000), at(2024)), [0]);
        assert_eq!(owners(TABLE, at(40000), at(80)), [0; 0]);
        let sixth = "00000000000000000000000001000000:1F90";
        assert_eq!(address(sixth), Some("[::1]:8080".parse().unwrap()));
    }

    #[tokio::test]
    async fn our_own_server_is_no_stranger() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let here = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(asked(here.0, here.1).unwrap(), [own]);
        assert!(listed(here.0, here.1).contains(&own));
        check(&stream).unwrap();
    }
}
