//! Network namespaces: server and runners of a world whose network fails have one each, with nothing
//! in it but its own loopback. Only the wires of the harness lead from one to another.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// A network of its own, or that of the harness.
#[derive(Clone, Debug, Default)]
pub struct NetworkSpace(Option<Arc<File>>);

impl NetworkSpace {
    /// A new network in which only the loopback is up. Needs root.
    pub fn new() -> io::Result<Self> {
        // The file keeps it there after the process that made it has ended.
        let mut maker = Command::new("unshare")
            .args(["--net", "sh", "-c", "ip link set lo up && echo up && read -r _"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = maker.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let found = File::open(format!("/proc/{}/ns/net", maker.id()));
        // The end of its input ends it.
        drop(maker.stdin.take());
        maker.wait()?;
        if line.trim() != "up" {
            return Err(io::Error::other("no network namespace can be made here"));
        }
        Ok(Self(Some(Arc::new(found?))))
    }

    /// Calls `act` inside: sockets that it makes belong there, and processes that it starts.
    pub fn inside<T: Send>(&self, act: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let Some(space) = &self.0 else { return act() };
        // The network belongs to a thread, so one of its own goes there and does not come back.
        std::thread::scope(|scope| {
            let act = scope.spawn(|| {
                move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network))?;
                act()
            });
            act.join().unwrap_or_else(|_| Err(io::Error::other("a thread broke down")))
        })
    }

    /// Starts a process inside.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        self.inside(|| command.spawn())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_port_of_one_network_is_not_there_in_another() {
        if !rustix::process::geteuid().is_root() {
            return eprintln!("skipped: only root makes network namespaces");
        }
        let (one, other) = (NetworkSpace::new().unwrap(), NetworkSpace::new().unwrap());
        let listener = one.inside(|| TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        one.inside(|| TcpStream::connect(address)).unwrap();
        assert!(other.inside(|| TcpStream::connect(address)).is_err());
        assert!(TcpStream::connect(address).is_err());
        let seen = |space: &NetworkSpace| {
            let listed = space.inside(|| Command::new("ip").args(["-o", "link"]).output()).unwrap();
            String::from_utf8_lossy(&listed.stdout).lines().count()
        };
        assert_eq!(seen(&one), 1, "only the loopback");
    }
}
