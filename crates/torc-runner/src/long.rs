//! What is too long for the kernel goes by file: shell text, values of variables, lists of paths.
//!
//! Linux takes no single argument or variable of 128 KiB or more (`MAX_ARG_STRLEN`), and all of them
//! together may fill a quarter of the stack limit, usually 2 MiB. A shell's own variables have no
//! such limit, so shell text still sees every value under its name; programs find the name of the
//! file in `NAME_FILE`.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Longest argument or variable, name included, with room below the kernel's 128 KiB.
pub const LONGEST: usize = 120 << 10;
/// All values together: half of what the kernel usually takes, because the runner's own environment
/// and the arguments of what the job starts count as well.
const ALL_VALUES: usize = 1 << 20;
/// Values up to this size stay in the environment however many there are.
pub const SMALL: usize = 4 << 10;

/// What a process needs besides its own order.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// Lists of paths to write, each to its own file, one path per line.
    pub lists: Vec<(PathBuf, Vec<String>)>,
    /// Directory for long text and values; made when it is needed.
    pub dir: Option<PathBuf>,
}

/// Text or values are too long for the kernel.
pub fn is_long(text: &str, env: &[(String, String)]) -> bool {
    let mut all = 0;
    let is_long = |(name, value): &(String, String)| {
        all += value.len();
        name.len() + value.len() > LONGEST
    };
    text.len() > LONGEST || env.iter().any(is_long) || all > ALL_VALUES
}

/// Variables whose values are in files, and the text that reads them back in a shell.
#[derive(Debug, Default)]
pub struct Values {
    /// The whole environment, with `NAME_FILE` in the place of `NAME` where that was long.
    pub env: Vec<(String, String)>,
    /// Shell text that comes first.
    pub prelude: String,
}

/// Writes the lists.
pub fn write_lists(lists: &[(PathBuf, Vec<String>)]) -> io::Result<()> {
    for (path, list) in lists {
        let text: String = list.iter().flat_map(|path| [path.as_str(), "\n"]).collect();
        write_new(path, &text, 0o666)?;
    }
    Ok(())
}

/// Writes long values to files below `dir`.
pub fn values(env: &[(String, String)], dir: &Path) -> io::Result<Values> {
    let all: usize = env.iter().map(|(_, value)| value.len()).sum();
    let most = if all > ALL_VALUES { SMALL } else { LONGEST };
    let mut found = Values::default();
    for (nth, (name, value)) in env.iter().enumerate() {
        if name.len() + value.len() <= most {
            found.env.push((name.clone(), value.clone()));
            continue;
        }
        // Of variables with one name the last wins, so each gets a file of its own.
        let path = dir.join(format!("{nth}"));
        private_dir(dir)?;
        write_new(&path, value, 0o600)?;
        found.env.push((format!("{name}_FILE"), path.display().to_string()));
        if is_shell_name(name) {
            // A command substitution drops line breaks at the end: the `x` keeps them.
            found.prelude += &format!("{name}=$(cat -- \"${name}_FILE\"; printf x); ");
            found.prelude += &format!("{name}=${{{name}%x}}; ");
        }
    }
    Ok(found)
}

/// Writes shell text to a file below `dir`.
pub fn script(text: &str, dir: &Path) -> io::Result<PathBuf> {
    private_dir(dir)?;
    let path = dir.join("command.sh");
    write_new(&path, text, 0o600)?;
    Ok(path)
}

/// Removes what [`values`] and [`script`] wrote.
pub fn remove(dir: &Path) {
    if let Err(error) = fs::remove_dir_all(dir)
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(dir = %dir.display(), %error, "cannot remove the files of long values");
    }
}

fn is_shell_name(name: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(is_word) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn private_dir(dir: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir)
}

/// A new file, never one that is there already: it may be a link that leads elsewhere.
fn write_new(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file: File = File::options().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, length: usize) -> (String, String) {
        (name.into(), "v".repeat(length))
    }

    #[test]
    fn only_what_the_kernel_would_refuse_is_long() {
        assert!(!is_long("true", &[pair("A", 1000)]));
        assert!(is_long(&"x".repeat(LONGEST + 1), &[]));
        assert!(is_long("true", &[pair("A", LONGEST)]));
        let many: Vec<_> = (0..20).map(|n| pair(&format!("A{n}"), 60 << 10)).collect();
        assert!(is_long("true", &many));
    }

    #[test]
    fn long_values_go_to_files_and_come_back_in_a_shell() {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("{}'\"$(false)\n\n", "v".repeat(200_000));
        let env = [("SHORT".to_owned(), "s".to_owned()), ("LONG".to_owned(), text.clone())];
        let found = values(&env, &dir.path().join("d")).unwrap();
        assert_eq!(found.env[0], env[0]);
        assert_eq!(found.env[1].0, "LONG_FILE");
        let shell = std::process::Command::new("bash")
            .args(["-euo", "pipefail", "-c", &format!("{}\nprintf %s \"$LONG\"", found.prelude)])
            .envs(found.env)
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(shell.stdout).unwrap(), text);
    }
}
