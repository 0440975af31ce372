//! Asks the kernel for one TCP socket by its addresses (netlink, `sock_diag(7)`), and reads who owns it.
//!
//! `/proc/net/tcp` knows the same, but every `read` of it goes through the table of all sockets:
//! two milliseconds on a small machine, and several are needed.

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, sendto,
    socket_with,
};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// `SOCK_DIAG_BY_FAMILY` of `linux/sock_diag.h`, and the kinds of messages of `linux/netlink.h`.
const BY_FAMILY: u16 = 20;
const ERROR: u16 = 2;
const REQUEST: u16 = 1;
/// Lengths of `nlmsghdr`, `inet_diag_req_v2` and `inet_diag_msg`.
const HEADER: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;
/// Where `idiag_uid` and `idiag_inode` stand in `inet_diag_msg`.
const UID: usize = 64;
const INODE: usize = 68;
const NOT_FOUND: i32 = -2;
const TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;

/// The owner of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SocketOwner {
    pub uid: u32,
    /// A process holds the socket. A connection that was not accepted yet belongs to no process, and
    /// its `uid` says nothing.
    pub is_held: bool,
}

/// Questions to the kernel.
pub struct SockDiag(rustix::fd::OwnedFd);

impl SockDiag {
    pub fn open() -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::DGRAM);
        let protocol = Some(netlink::SOCK_DIAG);
        Ok(Self(socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?))
    }

    /// The socket at `local` that is connected with `remote`, or else the one that listens there.
    pub fn owner(&self, local: SocketAddr, remote: SocketAddr) -> io::Result<Option<SocketOwner>> {
        let kernel = netlink::SocketAddrNetlink::new(0, 0);
        sendto(&self.0, &question(local, remote), SendFlags::empty(), &kernel)?;
        let mut answer = [0; 1024];
        let (read, _) = recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        parse(answer.get(..read).unwrap_or_default())
    }
}

fn question(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + QUESTION);
    bytes.extend(((HEADER + QUESTION) as u32).to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(REQUEST.to_ne_bytes());
    bytes.extend([0; 8]); // number of the message, and who asks: the kernel knows
    bytes.extend([if local.is_ipv4() { AF_INET } else { AF_INET6 }, TCP, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes()); // sockets in any state
    bytes.extend(local.port().to_be_bytes());
    bytes.extend(remote.port().to_be_bytes());
    bytes.extend(words(local.ip()));
    bytes.extend(words(remote.ip()));
    bytes.extend([0; 4]); // any interface
    bytes.extend([0xff; 8]); // no cookie
    bytes
}

fn words(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut words = [0; 16];
            words[..4].copy_from_slice(&ip.octets());
            words
        }
    }
}

fn parse(answer: &[u8]) -> io::Result<Option<SocketOwner>> {
    let short = || io::Error::new(io::ErrorKind::InvalidData, "a short answer of the kernel");
    let four = |at: usize| -> io::Result<[u8; 4]> {
        let bytes = answer.get(at..at + 4).ok_or_else(short)?;
        bytes.try_into().map_err(|_| short())
    };
    let kind = answer.get(4..6).ok_or_else(short)?;
    let kind = u16::from_ne_bytes([kind[0], kind[1]]);
    match kind {
        BY_FAMILY if answer.len() >= HEADER + ANSWER => Ok(Some(SocketOwner {
            uid: u32::from_ne_bytes(four(HEADER + UID)?),
            is_held: u32::from_ne_bytes(four(HEADER + INODE)?) != 0,
        })),
        ERROR => match i32::from_ne_bytes(four(HEADER)?) {
            NOT_FOUND => Ok(None),
            code => Err(io::Error::from_raw_os_error(-code)),
        },
        _ => Err(short()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn nothing() -> SocketAddr {
        SocketAddr::from(([0, 0, 0, 0], 0))
    }

    #[test]
    fn a_connection_has_an_owner_when_it_is_accepted_and_its_listener_always() {
        let own = rustix::process::geteuid().as_raw();
        let held = Some(SocketOwner { uid: own, is_held: true });
        let kernel = SockDiag::open().unwrap();
        for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().unwrap().port();
            let host = if address.starts_with('[') { "[::1]" } else { "127.0.0.1" };
            let client = TcpStream::connect(format!("{host}:{port}")).unwrap();
            let (here, there) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
            let waiting = kernel.owner(there, here).unwrap().expect("a connection");
            assert!(!waiting.is_held, "{address}");
            let any = match there {
                SocketAddr::V4(_) => nothing(),
                SocketAddr::V6(_) => SocketAddr::from(([0u16; 8], 0)),
            };
            assert_eq!(kernel.owner(there, any).unwrap(), held, "{address}");
            let accepted = listener.accept().unwrap();
            assert_eq!(kernel.owner(there, here).unwrap(), held, "{address}");
            drop((listener, client, accepted));
        }
    }

    #[test]
    fn a_port_at_which_no_socket_is_has_no_owner() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap();
        drop(listener);
        assert_eq!(SockDiag::open().unwrap().owner(there, nothing()).unwrap(), None);
    }

    #[test]
    fn answers_that_are_cut_off_are_errors() {
        for length in 0..HEADER {
            assert!(parse(&[0; HEADER][..length]).is_err(), "{length}");
        }
        let mut cut = [0; HEADER + ANSWER - 1];
        cut[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        assert!(parse(&cut).is_err());
    }
}
