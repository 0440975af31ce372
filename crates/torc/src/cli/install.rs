//! `torc server install`: a unit of systemd, hardened, that runs the server.

use super::Context;
use crate::error::{Error, Result};
use crate::exit::Exit;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Write a unit of systemd that runs the server, and start it
#[derive(clap::Args, Debug)]
#[command(group(clap::ArgGroup::new("whose").required(true).args(["user", "system"])))]
#[command(after_help = "\
Examples:
  torc server install --user                             for this user, in ~/.torc
  sudo torc server install --system --as torc            for the machine, in /var/lib/torc
  torc server install --user -- --host 0.0.0.0 --port 8080

What the server is told stands in the configuration files or behind `--` (`torc server run --help`). Its log goes to
systemd's journal, which rotates it: `journalctl --user -u torc`. `loginctl enable-linger` lets a user's server outlive the login.")]
pub struct Args {
    /// For this user
    #[arg(long)]
    user: bool,

    /// For the machine; needs root
    #[arg(long)]
    system: bool,

    /// The user that a server of the machine runs as [default: who called sudo]
    #[arg(long = "as", value_name = "USER", requires = "system")]
    run_as: Option<String>,

    /// The unit's name
    #[arg(long, default_value = "torc")]
    name: String,

    /// Directory for the token and the database [default: ~/.torc, or /var/lib/torc]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,

    /// Only write the unit
    #[arg(long)]
    no_start: bool,

    /// Print the unit instead of writing it
    #[arg(long)]
    print: bool,

    /// Options of `torc server run`, behind `--`
    #[arg(last = true, value_name = "OPTIONS")]
    options: Vec<String>,
}

/// What a unit says.
struct SystemdUnit<'a> {
    program: &'a Path,
    state_dir: &'a Path,
    options: &'a [String],
    /// The user of a server of the machine; None: a user's own.
    run_as: Option<&'a str>,
}

/// Where a server of the machine keeps its state.
const STATE_DIR: &str = "/var/lib/torc";

/// What only the systemd of the machine has the right to set up: in a user's unit it fails.
const OF_THE_MACHINE: &str = "\
CapabilityBoundingSet=
ProtectSystem=full
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
";

impl SystemdUnit<'_> {
    fn text(&self) -> Result<String> {
        let mut words = vec![quoted(&text_of(self.program)?)?];
        words.extend(["server".into(), "run".into(), "--state-dir".into()]);
        words.push(quoted(&text_of(self.state_dir)?)?);
        for option in self.options {
            words.push(quoted(option)?);
        }
        let (wanted_by, whose) = match self.run_as {
            Some(user) => ("multi-user.target", format!("User={user}\n{OF_THE_MACHINE}")),
            None => ("default.target", String::new()),
        };
        let kept = match self.state_dir == Path::new(STATE_DIR) {
            true => "StateDirectory=torc\nStateDirectoryMode=0700\n",
            false => "",
        };
        // The server starts no jobs, but it sends batch jobs and reads the logs of jobs wherever they
        // are: `/home`, `/tmp` and devices of its file systems stay as they are.
        Ok(format!(
            "# Written by `torc server install`.\n\
             [Unit]\n\
             Description=Torc, a server of workflows\n\
             Documentation=man:torc(1)\n\
             After=network-online.target\n\
             Wants=network-online.target\n\
             \n\
             [Service]\n\
             Type=exec\n\
             {whose}\
             {kept}\
             ExecStart={command}\n\
             WorkingDirectory=/\n\
             Restart=on-failure\n\
             RestartSec=2\n\
             KillSignal=SIGTERM\n\
             TimeoutStopSec=60\n\
             LimitNOFILE=65536\n\
             UMask=0077\n\
             NoNewPrivileges=yes\n\
             RestrictSUIDSGID=yes\n\
             RestrictRealtime=yes\n\
             RestrictNamespaces=yes\n\
             RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK\n\
             LockPersonality=yes\n\
             MemoryDenyWriteExecute=yes\n\
             SystemCallArchitectures=native\n\
             StandardOutput=journal\n\
             StandardError=journal\n\
             \n\
             [Install]\n\
             WantedBy={wanted_by}\n",
            command = words.join(" "),
        ))
    }
}

fn text_of(path: &Path) -> Result<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Error::usage(format!("`{}` is not text", path.display())))
}

/// A word of `ExecStart`: systemd splits at blanks, and `%`, `$`, quotes and backslashes mean something.
fn quoted(word: &str) -> Result<String> {
    if word.chars().any(char::is_control) {
        return Err(Error::usage("a unit's command has no control characters"));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:,@+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return Ok(word.to_owned());
    }
    let mut out = String::from("\"");
    for c in word.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '%' | '$' => out.extend([c, c]),
            _ => out.push(c),
        }
    }
    out.push('"');
    Ok(out)
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let name_is_plain = |c: char| c.is_ascii_alphanumeric() || "-_@.".contains(c);
        if self.name.is_empty() || !self.name.chars().all(name_is_plain) {
            return Err(Error::usage(format!("`{}` is not the name of a unit", self.name)));
        }
        let home = || {
            std::env::var_os("HOME")
                .filter(|home| !home.is_empty())
                .map(PathBuf::from)
                .ok_or_else(|| Error::usage("`HOME` is not set"))
        };
        let run_as = if self.system { Some(self.owner()?) } else { None };
        let state_dir = match (&self.state_dir, self.system) {
            (Some(dir), _) => std::path::absolute(dir).map_err(Error::io("find", dir))?,
            (None, true) => STATE_DIR.into(),
            (None, false) => home()?.join(".torc"),
        };
        let program = std::env::current_exe().map_err(Error::io("find", "this program"))?;
        let unit = SystemdUnit {
            program: &program,
            state_dir: &state_dir,
            options: &self.options,
            run_as: run_as.as_deref(),
        };
        let text = unit.text()?;
        if self.print {
            context.output.data(&text)?;
            return Ok(Exit::Success);
        }
        let dir = match self.system {
            true => PathBuf::from("/etc/systemd/system"),
            false => {
                let base = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
                let base = base.filter(|dir| dir.is_absolute());
                base.map_or_else(|| Ok(home()?.join(".config")), Ok::<_, Error>)?
                    .join("systemd/user")
            }
        };
        let path = dir.join(format!("{}.service", self.name));
        std::fs::create_dir_all(&dir).map_err(Error::io("create", &dir))?;
        std::fs::write(&path, text).map_err(Error::io("write", &path))?;
        let is_started = self.start(context)?;
        context.output.value(&json!({ "unit": path, "is_started": is_started }), |_| {
            format!("wrote {}\n", path.display())
        })?;
        Ok(Exit::Success)
    }

    /// The user of a server of the machine.
    fn owner(&self) -> Result<String> {
        let called = || std::env::var("SUDO_USER").ok().filter(|user| user != "root");
        let user = self.run_as.clone().or_else(called).ok_or_else(|| {
            Error::usage_hint(
                "as which user is the server to run?",
                "say `--as USER`; as root it could do more than it needs",
            )
        })?;
        let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        let is_local = known.lines().any(|line| line.split(':').next() == Some(&user));
        // Users of a directory service are not in the file.
        let is_known = is_local
            || Command::new("id")
                .arg("-u")
                .arg("--")
                .arg(&user)
                .output()
                .is_ok_and(|o| o.status.success());
        match is_known {
            true => Ok(user),
            false => Err(Error::usage_hint(
                format!("there is no user `{user}` on this machine"),
                format!("`useradd --system --create-home {user}` makes one"),
            )),
        }
    }

    /// Starts it where systemd runs; elsewhere says what is left to do.
    fn start(&self, context: &Context) -> Result<bool> {
        let mine = self.user.then_some("--user");
        let typed = |words: &str| match self.user {
            true => format!("systemctl --user {words}"),
            false => format!("systemctl {words}"),
        };
        let unit = format!("{}.service", self.name);
        if self.no_start || !is_systemd_here(self.user) {
            let why = if self.no_start { "as asked" } else { "systemd does not run here" };
            context.output.talk(format_args!(
                "not started, {why}: `{}`, then `{}`",
                typed("daemon-reload"),
                typed(&format!("enable --now {unit}"))
            ));
            return Ok(false);
        }
        for words in [vec!["daemon-reload"], vec!["enable", "--now", &unit]] {
            let output = Command::new("systemctl")
                .args(mine)
                .args(&words)
                .output()
                .map_err(Error::io("run", "systemctl"))?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(Error::usage_hint(
                    format!("`{}` failed: {said}", typed(&words.join(" "))),
                    format!(
                        "the unit is written; `{}` says more",
                        typed(&format!("status {unit}"))
                    ),
                ));
            }
        }
        context
            .output
            .talk(format_args!("started; `{}` shows it", typed(&format!("status {unit}"))));
        Ok(true)
    }
}

/// systemd made this directory if it is the system's first process; a user's own has a socket.
fn is_systemd_here(of_user: bool) -> bool {
    let is_booted = Path::new("/run/systemd/system").is_dir();
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    is_booted && (!of_user || runtime.is_some_and(|dir| dir.join("systemd/private").exists()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_command_stay_words() {
        for (word, expected) in [
            ("/usr/bin/torc", "/usr/bin/torc"),
            ("a b", "\"a b\""),
            ("100%", "\"100%%\""),
            ("$HOME", "\"$$HOME\""),
            ("say \"x\\", "\"say \\\"x\\\\\""),
            ("", "\"\""),
        ] {
            assert_eq!(quoted(word).unwrap(), expected);
        }
        assert!(quoted("a\nExecStartPre=/bin/evil").is_err());
    }

    #[test]
    fn a_unit_of_the_machine_names_its_user_and_a_users_own_does_not() {
        let unit = |run_as| SystemdUnit {
            program: Path::new("/usr/bin/torc"),
            state_dir: Path::new("/var/lib/torc"),
            options: &[],
            run_as,
        };
        let system = unit(Some("torc")).text().unwrap();
        assert!(system.contains("\nUser=torc\n") && system.contains("WantedBy=multi-user.target"));
        assert!(
            system.contains("\nExecStart=/usr/bin/torc server run --state-dir /var/lib/torc\n")
        );
        let own = unit(None).text().unwrap();
        assert!(!own.contains("User=") && own.contains("WantedBy=default.target"));
    }
}
