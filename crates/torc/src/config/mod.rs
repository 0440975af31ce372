//! The configuration: `/etc/torc/config.toml`, `~/.config/torc/config.toml`, `./torc.toml`, the
//! environment and options, in that order; what comes later counts more.
//!
//! A file gives options their defaults, so what a value may be is decided in one place. A setting of a
//! file that does not exist, or has the wrong type, ends every command but `torc config`: a typing
//! error must not become the default silently.

mod settings;

pub use settings::{Kind, Place, SETTINGS, Setting};

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use torc_spec::nearest;

/// Names another file than `/etc/torc/config.toml`.
pub const ENV_SYSTEM: &str = "TORC_SYSTEM_CONFIG";
/// In the current directory.
const PROJECT: &str = "torc.toml";
const MAX_BYTES: u64 = 1 << 20;

/// Which of the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layer {
    /// Of the machine.
    System,
    /// Of the user.
    User,
    /// Of the current directory.
    Project,
}

impl Layer {
    /// All, the weakest first.
    pub const ALL: [Self; 3] = [Self::System, Self::User, Self::Project];

    /// Where its file is; None: the user has no home.
    pub fn path(self) -> Option<PathBuf> {
        let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        match self {
            Self::System => Some(
                named(ENV_SYSTEM).map_or_else(|| "/etc/torc/config.toml".into(), PathBuf::from),
            ),
            Self::User => torc_fs::user_config_dir().map(|dir| dir.join("config.toml")),
            Self::Project => Some(PROJECT.into()),
        }
    }
}

/// What is wrong with a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigProblem {
    /// The configuration file.
    pub file: PathBuf,
    /// Where in it, from 1; 0: the file as a whole.
    pub line: usize,
    /// What is wrong with it.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.file.display(), self.message),
            line => write!(f, "{}:{line}: {}", self.file.display(), self.message),
        }
    }
}

/// A value of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    /// As an option would have it; a list has several.
    pub values: Vec<String>,
    /// The file.
    pub file: PathBuf,
    /// The line in it.
    pub line: usize,
    layer: Option<Layer>,
}

/// What the files say.
#[derive(Default, Debug)]
pub struct ConfigFiles {
    /// By the key of the setting.
    pub set: BTreeMap<&'static str, Set>,
    /// What is wrong.
    pub problems: Vec<ConfigProblem>,
    /// What was passed over.
    pub warnings: Vec<ConfigProblem>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
}

/// The configuration of this process, read once.
pub fn get() -> &'static ConfigFiles {
    static CONFIG: OnceLock<ConfigFiles> = OnceLock::new();
    CONFIG.get_or_init(ConfigFiles::load)
}

impl ConfigFiles {
    fn load() -> Self {
        let mut config = Self::default();
        for layer in Layer::ALL {
            if let Some(path) = layer.path() {
                config.read(&path, Some(layer));
            }
        }
        config
    }

    /// Checks one file, wherever it is.
    pub fn of_file(path: &Path) -> Self {
        let mut config = Self::default();
        config.read(path, None);
        if config.files.is_empty() && config.problems.is_empty() {
            config.problem(path, 0, "there is no such file".to_owned(), None);
        }
        config
    }

    fn problem(&mut self, file: &Path, line: usize, message: String, hint: Option<String>) {
        self.problems.push(ConfigProblem { file: file.into(), line, message, hint });
    }

    fn read(&mut self, path: &Path, layer: Option<Layer>) {
        let text = match torc_fs::read_text(path, torc_fs::Trust::Config, MAX_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
            Err(error) => {
                let message = format!("cannot use it: {error}");
                // Another user may put a file where we work, as in `/tmp`: that must not stop us.
                let is_foreign = torc_fs::distrust(&error).is_some();
                let problem = ConfigProblem { file: path.into(), line: 0, message, hint: None };
                match layer {
                    Some(Layer::Project) if is_foreign => self.warnings.push(problem),
                    _ => self.problems.push(problem),
                }
                return;
            }
        };
        self.files.push(path.into());
        self.take(path, layer, &text);
    }

    fn take(&mut self, path: &Path, layer: Option<Layer>, text: &str) {
        let line_of =
            |at: usize| text.as_bytes()[..at.min(text.len())].split(|b| *b == b'\n').count();
        let table = match DeTable::parse(text) {
            Ok(table) => table,
            Err(error) => {
                let line = error.span().map_or(0, |span| line_of(span.start));
                return self.problem(path, line, error.message().to_owned(), None);
            }
        };
        let mut own: BTreeMap<&'static str, Set> = BTreeMap::new();
        for (section, content) in table.get_ref() {
            let line = line_of(section.span().start);
            let name = section.get_ref().as_ref();
            let sections = SETTINGS.iter().map(|setting| setting.parts().0);
            if !sections.clone().any(|known| known == name) {
                let (message, hint) = unknown("section", name, sections.collect());
                self.problem(path, line, message, hint);
                continue;
            }
            let DeValue::Table(content) = content.get_ref() else {
                let message = format!("`{name}` is a section: write `[{name}]`");
                self.problem(path, line, message, None);
                continue;
            };
            for (key, value) in content {
                let line = line_of(key.span().start);
                let setting = SETTINGS.iter().find(|s| s.parts() == (name, key.get_ref().as_ref()));
                let Some(setting) = setting else {
                    let keys = SETTINGS.iter().filter(|s| s.parts().0 == name);
                    let what = format!("key of `[{name}]`");
                    let (message, hint) =
                        unknown(&what, key.get_ref(), keys.map(|s| s.parts().1).collect());
                    self.problem(path, line, message, hint);
                    continue;
                };
                match read_value(setting, value, path) {
                    Ok(values) => {
                        let set = Set { values, file: path.into(), line, layer };
                        own.insert(setting.key, set);
                    }
                    Err(message) => self.problem(path, line, message, None),
                }
            }
        }
        self.check_project(path, layer, &mut own);
        if own.contains_key("client.url") {
            // A token goes with its server: a stronger file that names another server must not get
            // the token that a weaker one has for its own.
            self.set.remove("client.token_file");
            self.set.remove("client.tls_ca");
        }
        self.set.extend(own);
    }

    /// The file of a directory may come with what a user has downloaded. It must not send the token of
    /// another place to a server of its choice.
    fn check_project(
        &mut self,
        path: &Path,
        layer: Option<Layer>,
        own: &mut BTreeMap<&'static str, Set>,
    ) {
        let Some(set) = own.get("client.token_file") else { return };
        let is_project = layer == Some(Layer::Project)
            || layer.is_none() && path.file_name().is_some_and(|name| name == PROJECT);
        let here = std::env::current_dir().unwrap_or_default();
        let dir = here.join(path.parent().unwrap_or(Path::new("")));
        let is_inside = |file: &str| {
            let file = Path::new(file);
            file.starts_with(&dir)
                && !file.components().any(|part| part == std::path::Component::ParentDir)
        };
        if is_project && !set.values.iter().all(|file| is_inside(file)) {
            let line = set.line;
            let message = "a `torc.toml` names token files of its own directory only".to_owned();
            let hint = "put `token_file` into `~/.config/torc/config.toml`, beside its `url`";
            self.problem(path, line, message, Some(hint.into()));
            own.remove("client.token_file");
        }
    }

    /// The same command, whose options take what the files say as their defaults.
    pub fn apply(&'static self, mut command: clap::Command) -> clap::Command {
        for setting in SETTINGS {
            let Some(set) = self.set.get(setting.key) else { continue };
            command = match setting.place {
                Place::Global(id) => with_default(command, id, setting, set),
                Place::Server(id) => command.mut_subcommand("server", |server| {
                    server.mut_subcommand("run", |run| with_default(run, id, setting, set))
                }),
            };
        }
        command
    }
}

/// Gives an option its default, here and in all commands below that have one of the same name.
fn with_default(
    command: clap::Command,
    id: &'static str,
    setting: &Setting,
    set: &'static Set,
) -> clap::Command {
    let has_it = command.get_arguments().any(|arg| arg.get_id() == id);
    let command = match has_it {
        false => command,
        true => command.mut_arg(id, |arg| match setting.kind {
            Kind::Switch if set.values.iter().all(|value| value != "true") => arg,
            _ => arg.default_values(set.values.iter().map(String::as_str)),
        }),
    };
    command.mut_subcommands(|below| with_default(below, id, setting, set))
}

fn unknown(what: &str, name: &str, mut known: Vec<&'static str>) -> (String, Option<String>) {
    known.dedup();
    let message = format!("there is no {what} `{name}` (known: {})", known.join(", "));
    let hint = nearest(name, known).map(|meant| format!("did you mean `{meant}`?"));
    (message, hint)
}

/// The value as an option would have it.
fn read_value(
    setting: &Setting,
    value: &Spanned<DeValue<'_>>,
    file: &Path,
) -> Result<Vec<String>, String> {
    let name = setting.key;
    let text = |what: &str| match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        _ => Err(format!("`{name}` is {what}")),
    };
    Ok(match setting.kind {
        Kind::Text => vec![text("text in quotes")?],
        Kind::Path => vec![place(&text("a path in quotes")?, file)?],
        Kind::Time => {
            let time = text("a time in quotes, such as \"30d\"")?;
            torc_model::units::Runtime::parse(&time)
                .map_err(|error| format!("`{name}`: {error}; a time is written as \"30d\""))?;
            vec![time]
        }
        Kind::OneOf(words) => {
            let word = text("a word in quotes")?;
            if !words.contains(&word.as_str()) {
                return Err(format!("`{name}` is one of {}, not `{word}`", words.join(", ")));
            }
            vec![word]
        }
        Kind::Port => match value.get_ref() {
            DeValue::Integer(number) => {
                let port = u16::from_str_radix(number.as_str(), number.radix());
                vec![port.map_err(|_| format!("`{name}` goes from 0 to 65535"))?.to_string()]
            }
            _ => return Err(format!("`{name}` is a whole number")),
        },
        Kind::Switch => match value.get_ref() {
            DeValue::Boolean(on) => vec![on.to_string()],
            _ => return Err(format!("`{name}` is true or false")),
        },
        Kind::List => {
            let wrong = || format!("`{name}` is a list of texts, such as [\"a\", \"b\"]");
            let DeValue::Array(items) = value.get_ref() else { return Err(wrong()) };
            let item = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
                DeValue::String(text) => Ok(text.to_string()),
                _ => Err(wrong()),
            };
            items.iter().map(item).collect::<Result<_, _>>()?
        }
    })
}

/// A path as it is meant: beside the file, or in the home directory.
fn place(text: &str, file: &Path) -> Result<String, String> {
    let path = match text.strip_prefix("~/") {
        Some(rest) => {
            let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
            PathBuf::from(home.ok_or("`HOME` is not set, so `~/` means nothing")?).join(rest)
        }
        None => {
            let here = std::env::current_dir().map_err(|error| error.to_string())?;
            here.join(file.parent().unwrap_or(Path::new(""))).join(text)
        }
    };
    path.into_os_string().into_string().map_err(|_| "the path is not text".to_owned())
}

/// A file with everything that can be set, all of it commented out.
pub fn template() -> String {
    let mut text = String::from(
        "# Configuration of Torc. `torc config show` tells what holds and where it comes from.\n\
         # Stronger are, in this order: ./torc.toml, TORC_... variables, options.\n",
    );
    let mut section = "";
    for setting in SETTINGS {
        let (of, key) = setting.parts();
        if of != section {
            section = of;
            text += &format!("\n[{section}]\n");
        }
        text += &format!("# {}\n# {key} = {}\n", setting.help, setting.example);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(text: &str) -> ConfigFiles {
        let mut config = ConfigFiles::default();
        config.take(Path::new("/etc/torc/config.toml"), Some(Layer::System), text);
        config
    }

    fn problems(text: &str) -> Vec<String> {
        take(text).problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_file_of_init_is_right_also_when_everything_in_it_is_used() {
        assert_eq!(problems(&template()), [""; 0]);
        let used: String = template()
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest) if rest.contains(" = ") => format!("{rest}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let config = take(&used);
        assert_eq!(config.problems, []);
        assert_eq!(config.set.len(), SETTINGS.len());
    }

    #[test]
    fn every_setting_is_an_option_of_its_command_and_its_variable_counts() {
        use clap::CommandFactory as _;
        let command = crate::cli::Cli::command();
        let server = command.find_subcommand("server").and_then(|s| s.find_subcommand("run"));
        for setting in SETTINGS {
            let (command, id) = match setting.place {
                Place::Global(id) => (&command, id),
                Place::Server(id) => (server.expect("it is there"), id),
            };
            let arg = command.get_arguments().find(|arg| arg.get_id() == id);
            let arg = arg.unwrap_or_else(|| panic!("{}: there is no --{id}", setting.key));
            let env = arg.get_env().map(|env| env.to_string_lossy().into_owned());
            assert_eq!(env.as_deref(), setting.env, "{}", setting.key);
        }
    }

    #[test]
    fn mistakes_have_a_place_and_a_suggestion() {
        let found = take("[client]\nurl = \"http://x\"\nurll = \"y\"\n[sever]\nport = 1\n");
        let lines: Vec<usize> = found.problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, [3, 4]);
        assert_eq!(found.problems[0].hint.as_deref(), Some("did you mean `url`?"));
        assert_eq!(found.problems[1].hint.as_deref(), Some("did you mean `server`?"));
        for (text, expected) in [
            ("[server]\nport = \"8080\"\n", "whole number"),
            ("[server]\nport = 70000\n", "65535"),
            ("[server]\ninsecure = \"yes\"\n", "true or false"),
            ("[server]\nallowed_hosts = \"a\"\n", "list"),
            ("[client]\nformat = \"xml\"\n", "one of table, json, csv"),
            ("[retention]\nolder_than = \"soon\"\n", "30d"),
            ("client = 1\n", "[client]"),
            ("[client\n", ":1:"),
        ] {
            let problems = problems(text);
            assert!(problems.len() == 1 && problems[0].contains(expected), "{text}: {problems:?}");
        }
    }

    #[test]
    fn a_stronger_file_with_another_server_does_not_get_the_weaker_ones_token() {
        let mut config =
            take("[client]\nurl = \"http://a\"\ntoken_file = \"/a\"\nformat = \"json\"\n");
        config.take(Path::new("torc.toml"), Some(Layer::Project), "[client]\nurl = \"http://b\"\n");
        assert_eq!(config.set["client.url"].values, ["http://b"]);
        assert!(!config.set.contains_key("client.token_file"));
        assert_eq!(config.set["client.format"].values, ["json"]);
        for odd in ["/home/me/.torc/token", "../token", "~/token"] {
            let mut config = ConfigFiles::default();
            let text = format!("[client]\nurl = \"http://evil\"\ntoken_file = \"{odd}\"\n");
            config.take(Path::new("torc.toml"), Some(Layer::Project), &text);
            assert_eq!(config.problems.len(), 1, "{odd}");
        }
        let mut config = ConfigFiles::default();
        config.take(Path::new("torc.toml"), Some(Layer::Project), "[client]\ntoken_file = \"t\"\n");
        assert_eq!(config.problems, []);
    }
}
