//! The machines that the user has added: a file of their own, one host per line.

use super::ssh::Host;
use crate::error::{Error, Result};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where the machines are kept.
pub fn file() -> Result<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let state = set("XDG_STATE_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".local/state")));
    let state = state.ok_or_else(|| Error::usage("neither `XDG_STATE_HOME` nor `HOME` is set"))?;
    Ok(state.join("torc/remote-hosts"))
}

/// Those that were added.
pub fn read() -> Result<BTreeSet<Host>> {
    let file = file()?;
    if file.exists() { Ok(of_file(&file)?.into_iter().collect()) } else { Ok(BTreeSet::new()) }
}

/// Hosts of a file: one per line; `#` begins a comment.
pub fn of_file(path: &Path) -> Result<Vec<Host>> {
    let text = std::fs::read_to_string(path).map_err(Error::io("read", path))?;
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            let wrong = |why| Error::usage(format!("{}:{number}: `{line}`: {why}", path.display()));
            hosts.push(Host::parse(line).map_err(wrong)?);
        }
    }
    Ok(hosts)
}

/// Keeps these and no others.
pub fn write(hosts: &BTreeSet<Host>) -> Result<()> {
    let file = file()?;
    let dir = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
    let text: String = hosts.iter().map(|host| format!("{}\n", host.as_str())).collect();
    let part = file.with_extension(format!("{}", std::process::id()));
    std::fs::write(&part, text).map_err(Error::io("write", &part))?;
    std::fs::rename(&part, &file).map_err(Error::io("write", &file))
}
