//! The table of signals.

/// Names and numbers on Linux.
const SIGNALS: &[(&str, i64)] = &[
    ("SIGHUP", 1),
    ("SIGINT", 2),
    ("SIGQUIT", 3),
    ("SIGILL", 4),
    ("SIGTRAP", 5),
    ("SIGABRT", 6),
    ("SIGBUS", 7),
    ("SIGFPE", 8),
    ("SIGKILL", 9),
    ("SIGUSR1", 10),
    ("SIGSEGV", 11),
    ("SIGUSR2", 12),
    ("SIGPIPE", 13),
    ("SIGALRM", 14),
    ("SIGTERM", 15),
    ("SIGSTKFLT", 16),
    ("SIGCHLD", 17),
    ("SIGCONT", 18),
    ("SIGSTOP", 19),
    ("SIGTSTP", 20),
    ("SIGTTIN", 21),
    ("SIGTTOU", 22),
    ("SIGURG", 23),
    ("SIGXCPU", 24),
    ("SIGXFSZ", 25),
    ("SIGVTALRM", 26),
    ("SIGPROF", 27),
    ("SIGWINCH", 28),
    ("SIGIO", 29),
    ("SIGPWR", 30),
    ("SIGSYS", 31),
];

/// The number of a signal written as `SIGSEGV`, `segv` or `11`.
pub fn number(text: &str) -> Option<i64> {
    let upper = text.trim().to_ascii_uppercase();
    let full = if upper.starts_with("SIG") { upper.clone() } else { format!("SIG{upper}") };
    let by_number = || upper.parse().ok().filter(|n| (1..=64).contains(n));
    SIGNALS.iter().find(|(name, _)| *name == full).map(|(_, n)| *n).or_else(by_number)
}

/// The names of all signals.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    SIGNALS.iter().map(|(name, _)| *name)
}

/// The name of a signal, `SIGSEGV`, or `signal 42`.
pub fn name(number: i64) -> String {
    SIGNALS
        .iter()
        .find(|(_, n)| *n == number)
        .map_or_else(|| format!("signal {number}"), |(name, _)| (*name).to_owned())
}
