//! Scripts on other machines, over the user's own `ssh`.
//!
//! Each script is a constant; what it works with comes through its standard input, so that no value
//! becomes shell text and no secret stands on a command line.

use crate::error::{Error, Result};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

/// Environment variable with the words that start ssh, such as `ssh -F FILE`.
pub const PROGRAM: &str = "TORC_SSH";

/// A machine, as ssh names it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Host(String);

impl Host {
    /// `[user@]host`, a name of the user's ssh configuration, or `ssh://[user@]host:port`.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        let is_fit = |c: char| c.is_ascii_alphanumeric() || "-._@:/[]%".contains(c);
        if text.is_empty() || text.starts_with('-') || !text.chars().all(is_fit) {
            return Err("expected a host as ssh names it, such as `n17` or `me@n17`".into());
        }
        // In Torc 1.0.0 the workflow stood here; ssh would read a number as an address.
        if text.chars().all(|c| c.is_ascii_digit()) {
            return Err(format!(
                "a number is no machine; coming from Torc 1.0.0: `torc remote run -w {text}` serves one workflow, \
                 and machines are named, or all that were added are meant"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// As the user wrote it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As the name of a directory.
    pub fn file_name(&self) -> String {
        self.0.replace(['/', ':'], "_")
    }
}

/// What a script said on a machine.
pub struct RemoteOutput {
    /// Standard output.
    pub out: Vec<u8>,
}

impl RemoteOutput {
    /// Its lines.
    pub fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&self.out).lines().map(str::to_owned).collect()
    }
}

/// Runs a script on a machine. `lines` and then `rest` are its standard input.
pub fn call(
    host: &Host,
    script: &str,
    lines: &[&str],
    rest: &mut (dyn Read + Send),
) -> Result<RemoteOutput> {
    if let Some(line) = lines.iter().find(|line| line.contains('\n')) {
        return Err(Error::usage(format!("`{}` has more than one line", line.escape_debug())));
    }
    let mut command = ssh(host);
    // The login shell sees one quoted word, and that is a constant.
    command.arg(format!("sh -c '{}'", script.replace('\'', "'\\''")));
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Error::io("start", "ssh"))?;
    let mut input = child.stdin.take();
    // Both ways at once: a machine that answers before it has read all must not block.
    let (out, wrote) = std::thread::scope(|scope| {
        let writer = scope.spawn(move || -> std::io::Result<()> {
            let Some(input) = input.as_mut() else { return Ok(()) };
            for line in lines {
                writeln!(input, "{line}")?;
            }
            std::io::copy(rest, input).map(drop)
        });
        let out = child.wait_with_output();
        (out, writer.join())
    });
    let out = out.map_err(Error::io("wait for", "ssh"))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        let said = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no answer");
        return Err(Error::usage(said.trim()));
    }
    // It may have said all it had to say without reading everything.
    let _ = wrote;
    Ok(RemoteOutput { out: out.stdout })
}

fn ssh(host: &Host) -> Command {
    let words = std::env::var(PROGRAM).unwrap_or_else(|_| "ssh".into());
    let mut words = words.split_whitespace().map(OsString::from);
    let mut command = Command::new(words.next().unwrap_or_else(|| "ssh".into()));
    command.args(words);
    command.args(["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]);
    command.args(["-o", "ServerAliveInterval=15", "--", host.as_str()]);
    command
}
