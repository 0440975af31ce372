//! Which process this is, in a way that a reboot or a reused process id cannot fake.

use torc_fence::procfs;

/// The name of this machine.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Differs after every boot; None where the system does not tell.
pub fn boot_id() -> Option<String> {
    let space = procfs::boot_id();
    let (boot, _) = space.split_once('/').unwrap_or((&space, ""));
    (!boot.is_empty()).then(|| boot.to_owned())
}

/// Boot and process id namespace: processes can be seen by each other only when both are the same.
pub fn process_space() -> Option<String> {
    Some(procfs::boot_id()).filter(|space| !space.is_empty())
}

/// Whether the processes of this host and space can be seen from here.
pub fn can_see(host: &str, space: &str) -> bool {
    host == hostname() && process_space().is_some_and(|own| own == space)
}

/// When a process began, in clock ticks since boot; None when there is no such process (or no way
/// to tell), or when it has ended and only waits for its parent to notice.
pub fn pid_start(pid: u32) -> Option<u64> {
    let process = procfs::find_process(i32::try_from(pid).ok()?)?;
    (!process.is_zombie).then_some(process.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_a_start_and_no_process_has_none() {
        assert!(pid_start(std::process::id()).is_some());
        assert_eq!(pid_start(u32::MAX), None);
    }
}
