//! Commands for which a shell would do nothing but run one program in its own place: these are run
//! at once, which costs less than half.
//!
//! `bash -c 'prog a b'` looks `prog` up, sets three variables and becomes `prog`. So do we, but
//! only for text that can mean nothing else, in an environment that makes bash do nothing else.
//! Whatever goes wrong is left to the shell, which then says it in its own words. The one thing
//! that is missed is its warning about a locale that does not exist.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Words with which bash does something itself.
const SHELL_WORDS: &[&str] = &[
    ".",
    ":",
    "[",
    "[[",
    "alias",
    "bg",
    "bind",
    "break",
    "builtin",
    "caller",
    "case",
    "cd",
    "command",
    "compgen",
    "complete",
    "compopt",
    "continue",
    "coproc",
    "declare",
    "dirs",
    "disown",
    "do",
    "done",
    "echo",
    "elif",
    "else",
    "enable",
    "esac",
    "eval",
    "exec",
    "exit",
    "export",
    "false",
    "fc",
    "fg",
    "fi",
    "for",
    "function",
    "getopts",
    "hash",
    "help",
    "history",
    "if",
    "in",
    "jobs",
    "kill",
    "let",
    "local",
    "logout",
    "mapfile",
    "popd",
    "printf",
    "pushd",
    "pwd",
    "read",
    "readarray",
    "readonly",
    "return",
    "select",
    "set",
    "shift",
    "shopt",
    "source",
    "suspend",
    "test",
    "then",
    "time",
    "times",
    "trap",
    "true",
    "type",
    "typeset",
    "ulimit",
    "umask",
    "unalias",
    "unset",
    "until",
    "wait",
    "while",
];

/// Variables that make bash behave in another way, or that it does not hand on as they are. So do
/// all whose name begins with `BASH`.
const SHELL_VARIABLES: &[&str] = &[
    "COMP_WORDBREAKS",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "HISTCMD",
    "IFS",
    "LINENO",
    "OPTERR",
    "OPTIND",
    "POSIXLY_CORRECT",
    "PPID",
    "PS1",
    "PS2",
    "PS4",
    "RANDOM",
    "SECONDS",
    "SHELLOPTS",
    "SRANDOM",
    "UID",
];

/// What bash would set for a program that it becomes, in the common environment of a runner.
#[derive(Clone, Debug)]
pub struct Plain {
    level: OsString,
    dir: PathBuf,
}

impl Plain {
    /// None where bash would do more, or where the shell is another one.
    pub fn new(shell: &Path, env: &[(OsString, OsString)], working_dir: &Path) -> Option<Self> {
        let get =
            |name: &str| env.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_os_str());
        let is_bash = shell.file_name() == Some(OsStr::new("bash"));
        let has = |name: &str| get(name).is_some();
        let is_odd = env.iter().any(|(name, _)| is_shells_own(name.as_bytes()));
        // It is forgotten when it does not exist.
        let has_lost_dir = get("OLDPWD").is_some_and(|dir| !Path::new(dir).is_dir());
        let level = match get("SHLVL")
            .map(|text| text.to_str().and_then(|text| text.parse::<u16>().ok()))
        {
            None => 0,
            // Larger ones are found wrong, and so is what is not a number.
            Some(level) => level.filter(|level| *level < 999)?,
        };
        // The first shell of a remote session reads its owner's settings.
        let is_first_of_session = level == 0 && (has("SSH_CLIENT") || has("SSH2_CLIENT"));
        if !is_bash || is_odd || has_lost_dir || is_first_of_session {
            return None;
        }
        Some(Self { level: level.to_string().into(), dir: logical_dir(get("PWD"), working_dir)? })
    }

    /// The variables that bash sets or changes for the program at `path`.
    pub fn variables<'a>(&'a self, path: &'a Path) -> [(&'static str, &'a OsStr); 3] {
        [("_", path.as_os_str()), ("SHLVL", &self.level), ("PWD", self.dir.as_os_str())]
    }
}

fn is_shells_own(name: &[u8]) -> bool {
    name.starts_with(b"BASH") || SHELL_VARIABLES.iter().any(|own| own.as_bytes() == name)
}

/// A variable of one job that only a shell can honor.
pub fn needs_shell(name: &str) -> bool {
    is_shells_own(name.as_bytes()) || matches!(name, "SHLVL" | "PWD" | "OLDPWD" | "_")
}

/// The directory as bash names it: as it was called before, if that still leads to it.
fn logical_dir(called: Option<&OsStr>, working_dir: &Path) -> Option<PathBuf> {
    let here = working_dir.metadata().ok()?;
    let is_here =
        |path: &Path| path.metadata().is_ok_and(|m| m.dev() == here.dev() && m.ino() == here.ino());
    let is_clean = |path: &OsStr| {
        let bytes = path.as_bytes();
        bytes.first() == Some(&b'/')
            && (bytes == b"/"
                || bytes[1..].split(|b| *b == b'/').all(|part| !matches!(part, b"" | b"." | b"..")))
    };
    match called {
        Some(called) if is_clean(called) && is_here(Path::new(called)) => Some(called.into()),
        _ => working_dir.canonicalize().ok(),
    }
}

/// The words of a command that a shell would only look up and run; None if it might do more.
pub fn words(text: &str) -> Option<Vec<Cow<'_, str>>> {
    let mut words: Vec<Cow<'_, str>> = Vec::new();
    let mut rest = text.trim_matches([' ', '\t', '\n']);
    while !rest.is_empty() {
        let (word, after) = word(rest)?;
        words.push(word);
        rest = after.trim_start_matches([' ', '\t']);
    }
    let first = words.first()?;
    // A quoted name is looked up like another, but who writes such a thing means something.
    let is_name = text.trim_start_matches([' ', '\t', '\n']).starts_with(first.as_ref());
    // `%` would name a job of the shell, and `=` makes a variable.
    let is_special = first.is_empty() || first.starts_with('%') || first.contains('=');
    (is_name && !is_special && !SHELL_WORDS.contains(&first.as_ref())).then_some(words)
}

/// One word and what follows it.
fn word(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let is_safe = |c: char| {
        c.is_ascii_alphanumeric()
            || "_-./:=,+@%".contains(c)
            || (!c.is_ascii() && c.is_alphanumeric())
    };
    let mut word = Cow::Borrowed("");
    let mut rest = text;
    loop {
        let length = rest.find(|c| !is_safe(c)).unwrap_or(rest.len());
        let (safe, after) = rest.split_at(length);
        word += safe;
        rest = after;
        let Some(c) = rest.chars().next() else { return Some((word, rest)) };
        let inside = match c {
            ' ' | '\t' => return Some((word, rest)),
            '\'' => rest[1..].split_once('\''),
            '"' => rest[1..]
                .split_once('"')
                .filter(|(inside, _)| !inside.contains(['$', '`', '\\', '!'])),
            _ => return None,
        };
        let (inside, after) = inside?;
        word += inside;
        rest = after;
    }
}

/// The file that a shell would run for this name: the first executable one on the path. None if it
/// would complain.
pub fn find(name: &str, path: Option<&OsStr>, working_dir: &Path) -> Option<PathBuf> {
    let is_program = |file: &Path| {
        working_dir
            .join(file)
            .metadata()
            .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if name.contains('/') {
        let file = PathBuf::from(name);
        return is_program(&file).then_some(file);
    }
    // An empty place means the working directory. What is relative stays so: it is looked up where
    // it is run.
    let places = std::env::split_paths(path?)
        .map(|p| if p.as_os_str().is_empty() { PathBuf::from(".") } else { p });
    places.map(|place| place.join(name)).find(|file| is_program(file))
}
