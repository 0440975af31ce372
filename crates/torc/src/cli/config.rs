//! `torc config`: what is configured, and where each value comes from.

use super::Context;
use crate::config::{self, ConfigFiles, ConfigProblem, Layer, SETTINGS, Setting};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table, escape};
use clap::Subcommand;
use serde::Serialize;
use std::path::PathBuf;

/// Show, check and begin configuration files
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc config show                    every value, and where it comes from
  torc config init                    begin ~/.config/torc/config.toml
  torc config check                   are the files right?

Read in this order, the later counts more: /etc/torc/config.toml, ~/.config/torc/config.toml, ./torc.toml, the environment
(`TORC_...`), options.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Show every value and where it comes from
    Show,
    /// Check the files, or the one that is named
    #[command(visible_alias = "validate")]
    Check {
        /// Another file than those that are used here
        file: Option<PathBuf>,
    },
    /// List the files that are looked for
    Paths,
    /// Write a file with everything that can be set, all of it commented out
    Init(Init),
}

#[derive(clap::Args, Debug)]
struct Init {
    /// `~/.config/torc/config.toml`, which is what is written unless said otherwise
    #[arg(long)]
    user: bool,

    /// `/etc/torc/config.toml`
    #[arg(long, conflicts_with = "user")]
    system: bool,

    /// `torc.toml` in this directory
    #[arg(long, visible_alias = "project", conflicts_with_all = ["user", "system"])]
    local: bool,
}

/// A value and where it comes from.
#[derive(Serialize, Debug)]
struct ShownSetting {
    key: &'static str,
    value: Option<String>,
    origin: String,
}

#[derive(Serialize, Debug)]
struct SettingSource {
    path: PathBuf,
    is_read: bool,
}

/// The problems as one error.
pub fn refusal(problems: &[ConfigProblem]) -> Option<Error> {
    let first = problems.first()?;
    let lines: Vec<String> =
        problems.iter().map(|problem| escape::line(&problem.to_string()).into()).collect();
    let hint = first
        .hint
        .clone()
        .unwrap_or_else(|| "`torc config init` writes a right one to compare with".into());
    Some(Error::usage_hint(lines.join("\n"), hint))
}

impl Args {
    /// Runs the command. `given` are the options of this call that a file could set.
    pub fn execute(self, context: &Context, given: &[String]) -> Result<Exit> {
        match self.command {
            Command::Show => show(context, config::get(), given)?,
            Command::Check { file } => {
                let own;
                let checked = match &file {
                    Some(file) => {
                        own = ConfigFiles::of_file(file);
                        &own
                    }
                    None => config::get(),
                };
                check(context, checked)?;
            }
            Command::Paths => paths(context, config::get())?,
            Command::Init(args) => args.execute(context)?,
        }
        Ok(Exit::Success)
    }
}

fn origin(setting: &Setting, config: &ConfigFiles, given: &[String]) -> (Option<String>, String) {
    let option = setting.option();
    if let Some(at) = given.iter().position(|word| *word == option) {
        return (given.get(at + 1).cloned(), option);
    }
    if let Some(name) = setting.env
        && let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty())
    {
        return (Some(value.to_string_lossy().into_owned()), name.to_owned());
    }
    match config.set.get(setting.key) {
        Some(set) => (Some(set.values.join(", ")), format!("{}:{}", set.file.display(), set.line)),
        None => (None, "default".to_owned()),
    }
}

fn show(context: &Context, config: &ConfigFiles, given: &[String]) -> Result<()> {
    let shown: Vec<ShownSetting> = SETTINGS
        .iter()
        .map(|setting| {
            let (value, origin) = origin(setting, config, given);
            ShownSetting { key: setting.key, value, origin }
        })
        .collect();
    context.output.list("settings", &shown, shown.len() as i64, || {
        let mut table = Table::new(["key", "value", "from"]);
        for one in &shown {
            table.row([
                Field::text(one.key),
                Field::text(one.value.as_deref().unwrap_or_default()),
                Field::text(&one.origin),
            ]);
        }
        table
    })?;
    for problem in config.problems.iter().chain(&config.warnings) {
        context.output.warn(format_args!("{}", escape::line(&problem.to_string())));
    }
    Ok(())
}

fn check(context: &Context, config: &ConfigFiles) -> Result<()> {
    for problem in &config.warnings {
        context.output.warn(format_args!("{}", escape::line(&problem.to_string())));
    }
    if let Some(error) = refusal(&config.problems) {
        return Err(error);
    }
    let files: Vec<String> = config.files.iter().map(|file| file.display().to_string()).collect();
    context.output.value(
        &serde_json::json!({ "files": files, "settings": config.set.len() }),
        |_| match files.is_empty() {
            true => "there is no configuration file; `torc config init` begins one\n".to_owned(),
            false => format!("nothing is wrong in {}\n", files.join(" and ")),
        },
    )
}

fn paths(context: &Context, config: &ConfigFiles) -> Result<()> {
    let looked: Vec<SettingSource> = Layer::ALL
        .into_iter()
        .filter_map(Layer::path)
        .map(|path| SettingSource { is_read: config.files.contains(&path), path })
        .collect();
    context.output.list("files", &looked, looked.len() as i64, || {
        let mut table = Table::new(["path", "state"]);
        for one in &looked {
            let state = if one.is_read { "read" } else { "absent" };
            table.row([Field::text(one.path.display().to_string()), Field::text(state)]);
        }
        table
    })
}

impl Init {
    fn execute(self, context: &Context) -> Result<()> {
        let layer = match (self.system, self.local) {
            (true, _) => Layer::System,
            (_, true) => Layer::Project,
            (false, false) => Layer::User,
        };
        let path = layer.path().ok_or_else(|| {
            Error::usage_hint("there is no home directory", "set `HOME`, or say `--local`")
        })?;
        if let Some(dir) = path.parent().filter(|dir| !dir.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir).map_err(Error::io("create", dir))?;
        }
        torc_fs::write_new_private(&path, config::template().as_bytes()).map_err(|error| {
            match error.kind() {
                std::io::ErrorKind::AlreadyExists => Error::usage_hint(
                    format!("`{}` is there already", path.display()),
                    "`torc config show` shows what it says",
                ),
                _ => Error::Io { doing: "write", path: path.clone(), source: error },
            }
        })?;
        if layer == Layer::System {
            // Every user of the machine reads it; it holds no secrets.
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
            std::fs::set_permissions(&path, mode).map_err(Error::io("change", &path))?;
        }
        context
            .output
            .value(&serde_json::json!({ "path": path }), |_| format!("wrote {}\n", path.display()))
    }
}
