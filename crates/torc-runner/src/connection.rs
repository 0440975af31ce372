//! Whether a process of an attempt waits for an answer over the network, and from where. The kernel
//! tells by `/proc`: the system call that a thread is in, and the table of TCP connections.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use torc_fence::procfs::Process;

/// System calls that wait for data of the descriptor that is their first argument, or for it to be
/// connected.
const ON_DESCRIPTOR: [i64; 5] =
    [libc::SYS_read, libc::SYS_readv, libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_connect];

/// System calls that wait for one of several descriptors.
const ON_SEVERAL: [i64; 3] = [libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_pwait];

/// The older ones, which newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const ON_SEVERAL_BEFORE: [i64; 3] = [libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_wait];
#[cfg(not(target_arch = "x86_64"))]
const ON_SEVERAL_BEFORE: [i64; 0] = [];

/// A TCP connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Connection {
    local: SocketAddr,
    remote: SocketAddr,
}

/// The other end of a connection that one of these processes waits for, where that end is none of
/// them.
pub fn awaited_peer(tree: &[Process]) -> Option<String> {
    let sockets: Vec<(i32, HashMap<u64, Connection>)> = tree
        .iter()
        .filter(|process| !process.is_zombie)
        .map(|process| (process.pid, connections(process.pid)))
        .collect();
    let own: HashSet<SocketAddr> =
        sockets.iter().flat_map(|(_, held)| held.values().map(|c| c.local)).collect();
    sockets.iter().find_map(|(pid, held)| {
        let foreign = |c: &&Connection| !own.contains(&c.remote);
        let awaited = waits(*pid).find_map(|wait| match wait {
            Wait::On(descriptor) => held.get(&inode(*pid, descriptor)?).filter(foreign),
            Wait::OnSeveral => held.values().find(foreign),
        });
        awaited.map(|connection| connection.remote.to_string())
    })
}

/// What a thread waits for.
enum Wait {
    On(u64),
    OnSeveral,
}

/// What the threads of a process wait for, as far as it can be a socket.
fn waits(pid: i32) -> impl Iterator<Item = Wait> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    tasks.filter_map(|task| {
        let text = fs::read_to_string(task.ok()?.path().join("syscall")).ok()?;
        wait(&text)
    })
}

/// Reads `/proc/PID/syscall`: the number, and the arguments as hexadecimal numbers.
fn wait(text: &str) -> Option<Wait> {
    let mut words = text.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    if ON_DESCRIPTOR.contains(&number) {
        return Some(Wait::On(u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?));
    }
    let several = ON_SEVERAL.contains(&number) || ON_SEVERAL_BEFORE.contains(&number);
    several.then_some(Wait::OnSeveral)
}

/// The socket that a descriptor of a process is.
fn inode(pid: i32, descriptor: u64) -> Option<u64> {
    socket(&fs::read_link(format!("/proc/{pid}/fd/{descriptor}")).ok()?.display().to_string())
}

/// Of `socket:[12345]`.
fn socket(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The TCP connections that a process holds, by the number of their socket.
fn connections(pid: i32) -> HashMap<u64, Connection> {
    let held: HashSet<u64> = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten()
        .filter_map(|entry| socket(&fs::read_link(entry.ok()?.path()).ok()?.display().to_string()))
        .collect();
    if held.is_empty() {
        return HashMap::new();
    }
    ["tcp", "tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok())
        .flat_map(|text| text.lines().skip(1).filter_map(row).collect::<Vec<_>>())
        .filter(|(inode, _)| held.contains(inode))
        .collect()
}

/// A row of `/proc/net/tcp` of a connection that is up or is being made.
fn row(line: &str) -> Option<(u64, Connection)> {
    const ESTABLISHED: &str = "01";
    const SYN_SENT: &str = "02";
    let words: Vec<&str> = line.split_whitespace().collect();
    let (local, remote) = (address(words.get(1)?)?, address(words.get(2)?)?);
    [ESTABLISHED, SYN_SENT].contains(words.get(3)?).then_some(())?;
    Some((words.get(9)?.parse().ok()?, Connection { local, remote }))
}

/// `0100007F:1F90`: an address as words of the machine's byte order, and a port.
fn address(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| -> Option<[u8; 4]> {
        Some(u32::from_str_radix(address.get(at..at + 8)?, 16).ok()?.to_ne_bytes())
    };
    let ip = match address.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(at * 8)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::process::{Child, Command};
    use torc_fence::procfs::find_process;

    /// bash that connects to a port and waits for a line.
    fn reader(port: u16) -> Child {
        let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; read -u 3 line");
        Command::new("bash").args(["-c", &script]).spawn().expect("bash")
    }

    fn process(child: &Child) -> Process {
        let pid = i32::try_from(child.id()).expect("a pid");
        find_process(pid).expect("it runs")
    }

    /// Waits until a child is in a system call that waits for a socket.
    fn until_it_waits(child: &Child) -> Process {
        let process = process(child);
        while !waits(process.pid).any(|wait| matches!(wait, Wait::On(fd) if fd != 0)) {
            std::thread::yield_now();
        }
        process
    }

    #[test]
    fn a_process_that_waits_for_another_program_names_its_address() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let mut child = reader(address.port());
        let (connection, _) = listener.accept().expect("it connects");
        let tree = [until_it_waits(&child)];
        assert_eq!(awaited_peer(&tree), Some(address.to_string()));
        drop(connection);
        child.wait().expect("it ends");
        assert_eq!(awaited_peer(&tree), None);
    }

    #[test]
    fn a_row_of_the_table_is_read_and_a_listener_is_none() {
        let row_of = |state: &str| {
            format!(
                "   0: 0100007F:8A3C 0100007F:1F90 {state} 00000000:00000000 00:00000000 00000000 \
                 0 0 4711 1 0000000000000000 20 4 30 10 -1"
            )
        };
        let (inode, connection) = row(&row_of("01")).expect("a connection");
        assert_eq!(inode, 4711);
        assert_eq!(connection.remote, "127.0.0.1:8080".parse().expect("an address"));
        assert_eq!(row(&row_of("0A")), None);
        let six = "00000000000000000000000001000000:0050";
        assert_eq!(address(six), Some("[::1]:80".parse().expect("an address")));
        let mapped = "0000000000000000FFFF00000100007F:0050";
        assert_eq!(address(mapped), Some("127.0.0.1:80".parse().expect("an address")));
    }
}
