//! Limits that a command sets itself. Where one of them was in the way, more from Torc changes
//! nothing.

use super::pattern::ascii;
use regex::Regex;
use std::sync::LazyLock;

/// Which limit of its own a command sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OwnLimit {
    /// Memory: of a heap, of an address space, or of a container.
    Memory,
    /// A limit on its time.
    Time,
    /// Open files, processes, CPU time or the size of files.
    System,
}

/// A kind of limit, a word that its pattern cannot do without, and the pattern, which is compiled
/// only for commands that have the word.
type Known = (OwnLimit, &'static str, LazyLock<Regex>);

static PATTERNS: [Known; 16] = [
    (OwnLimit::Memory, "-Xmx", LazyLock::new(|| ascii(r"(^|\s|=|,|')-Xmx\d+[kmgtKMGT]?"))),
    (OwnLimit::Memory, "space", LazyLock::new(|| ascii(r"--max[-_]old[-_]space[-_]size[= ]\d+"))),
    (OwnLimit::Memory, "ulimit", LazyLock::new(|| ascii(r"\bulimit\s+(-[SH]+\s+)?-[vdm]\s+\d+"))),
    (OwnLimit::Memory, "prlimit", LazyLock::new(|| ascii(r"\bprlimit\b.*--(as|data|rss)=\S+"))),
    (
        OwnLimit::Memory,
        "-m",
        LazyLock::new(|| ascii(r"\b(docker|podman|nerdctl)\b.*\s(-m|--memory)[= ]\S+")),
    ),
    (OwnLimit::Memory, "systemd-run", LazyLock::new(|| ascii(r"\bsystemd-run\b.*MemoryMax=\S+"))),
    (OwnLimit::Memory, "memory_limit", LazyLock::new(|| ascii(r"\bmemory_limit=\d+\w?"))),
    (OwnLimit::Memory, "R_MAX_VSIZE", LazyLock::new(|| ascii(r"\bR_MAX_VSIZE=\S+"))),
    (OwnLimit::Memory, "GOMEMLIMIT", LazyLock::new(|| ascii(r"\bGOMEMLIMIT=\S+"))),
    (OwnLimit::Memory, "+RTS", LazyLock::new(|| ascii(r"\s\+RTS\b.*\s-M\d+\w?"))),
    (OwnLimit::Memory, "--heap-size-hint", LazyLock::new(|| ascii(r"--heap-size-hint=\S+"))),
    (OwnLimit::Memory, "-memory", LazyLock::new(|| ascii(r"--(driver|executor)-memory[= ]\S+"))),
    (
        OwnLimit::Memory,
        "DOTNET_GCHeapHardLimit",
        LazyLock::new(|| ascii(r"\bDOTNET_GCHeapHardLimit=\S+")),
    ),
    (
        OwnLimit::Time,
        "timeout",
        LazyLock::new(|| {
            ascii(
                r"(^|[\s;|&(])g?timeout\s+((-[ks]|--kill-after|--signal)\s+\S+\s+|-\S+\s+)*\d+(\.\d+)?[smhd]?\s",
            )
        }),
    ),
    (OwnLimit::System, "ulimit", LazyLock::new(|| ascii(r"\bulimit\s+(-[SH]+\s+)?-[nutfs]\s+\d+"))),
    (
        OwnLimit::System,
        "prlimit",
        LazyLock::new(|| ascii(r"\bprlimit\b.*--(nofile|nproc|cpu|fsize)=\S+")),
    ),
];

/// The words of a command that set a limit of this kind.
pub fn own_limit(command: &str, kind: OwnLimit) -> Option<&str> {
    let found = PATTERNS
        .iter()
        .filter(|(of, word, _)| *of == kind && command.contains(word))
        .find_map(|(_, _, regex)| regex.find(command))?;
    Some(found.as_str().trim_matches([' ', '=', ',', '\'', ';', '(', '|', '&']))
}

/// How many bytes a message says that it asked for: `Unable to allocate 1.2 GiB`.
pub fn asked_bytes(message: &str) -> Option<u64> {
    static ASKED: LazyLock<Regex> = LazyLock::new(|| {
        ascii(
            r"(?i)(?:allocat\w*|size|request\w*|needs?|alloc)\b[^0-9]{0,40}?(\d+(?:\.\d*)?)\s*(bytes?|[kmgtp]i?b?)\b",
        )
    });
    let found = ASKED.captures(message)?;
    let number: f64 = found[1].trim_end_matches('.').parse().ok()?;
    let unit = match found[2].chars().next()?.to_ascii_lowercase() {
        'k' => 1u64 << 10,
        'm' => 1 << 20,
        'g' => 1 << 30,
        't' => 1 << 40,
        'p' => 1 << 50,
        _ => 1,
    };
    Some((number * unit as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_in_a_command_are_seen() {
        for (command, kind, words) in [
            ("java -Xmx48m -jar a.jar", OwnLimit::Memory, Some("-Xmx48m")),
            ("java -XX:MaxRAMPercentage=50 App", OwnLimit::Memory, None),
            ("ulimit -v 400000; python3 a.py", OwnLimit::Memory, Some("ulimit -v 400000")),
            (
                "node --max-old-space-size=512 a.js",
                OwnLimit::Memory,
                Some("--max-old-space-size=512"),
            ),
            ("docker run --memory=2g image", OwnLimit::Memory, Some("docker run --memory=2g")),
            ("timeout 1 python3 a.py", OwnLimit::Time, Some("timeout 1")),
            ("timeout -k 1 10m python3 a.py", OwnLimit::Time, Some("timeout -k 1 10m")),
            (
                "cd x && timeout --signal=INT 5s ./a",
                OwnLimit::Time,
                Some("timeout --signal=INT 5s"),
            ),
            ("python3 train.py --timeout 30", OwnLimit::Time, None),
            ("ulimit -n 256; ./a", OwnLimit::System, Some("ulimit -n 256")),
            ("python3 a.py", OwnLimit::Memory, None),
        ] {
            assert_eq!(own_limit(command, kind), words, "{command}");
        }
    }

    #[test]
    fn what_was_asked_for_is_read() {
        let gib = |n: f64| Some((n * (1u64 << 30) as f64) as u64);
        assert_eq!(asked_bytes("Unable to allocate 7.28 TiB for an array"), gib(7.28 * 1024.0));
        assert_eq!(asked_bytes("Unable to allocate 572. MiB for an array"), Some(572 << 20));
        assert_eq!(asked_bytes("cannot allocate vector of size 3.5 Gb"), gib(3.5));
        assert_eq!(asked_bytes("memory allocation of 8589934592 bytes failed"), gib(8.0));
        assert_eq!(asked_bytes("out of memory"), None);
    }
}
