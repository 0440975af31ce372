//! Which process this is, in a way that a reboot or a reused process id cannot fake.

use std::path::Path;

/// The name of this machine.
pub fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Differs after every boot; None where the system does not tell.
pub fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_string())
}

/// Boot and process id namespace: processes can be seen by each other only when both are the same.
pub fn process_space() -> Option<String> {
    let boot = boot_id()?;
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(space) => Some(format!("{boot}/{}", space.display())),
        Err(_) => Some(boot),
    }
}

/// Whether the processes of this host and space can be seen from here.
pub fn can_see(host: &str, space: &str) -> bool {
    host == hostname() && process_space().is_some_and(|own| own == space)
}

/// When a process began, in clock ticks since boot; None when there is no such process (or no way
/// to tell), or when it has ended and only waits for its parent to notice.
pub fn pid_start(pid: u32) -> Option<u64> {
    let stat =
        std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    parse_start(&stat)
}

/// Field 22 of `/proc/PID/stat`. The name in field 2 may hold spaces and brackets, so count from
/// its end.
fn parse_start(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X" | "x")).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_found_behind_a_hostile_name() {
        let stat = "7 (a ) 1 2 (b) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        assert_eq!(parse_start(stat), Some(4242));
        assert_eq!(parse_start(&stat.replace(" S ", " Z ")), None, "a zombie has ended");
        assert_eq!(parse_start("7 (sh) S 1"), None);
        assert_eq!(parse_start(""), None);
    }

    #[test]
    fn this_process_has_a_start_and_no_process_has_none() {
        assert!(pid_start(std::process::id()).is_some());
        assert_eq!(pid_start(u32::MAX), None);
    }
}
