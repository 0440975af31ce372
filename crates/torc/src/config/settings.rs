//! What can be set in a configuration file: one table, from which files are read and checked, options
//! get their defaults, and the file of `torc config init` is written.

/// What a value must be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// A file or directory; relative to the directory of the configuration file, and `~/` is the
    /// home directory.
    Path,
    /// 0 to 65535.
    Port,
    /// `true` or `false`.
    Switch,
    /// A time such as `30d`.
    Time,
    /// A list of texts.
    List,
    /// One of these.
    OneOf(&'static [&'static str]),
}

/// Which option gets the value as its default.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Of every command.
    Global(&'static str),
    /// Of `torc server run`.
    Server(&'static str),
}

/// One setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// `SECTION.KEY`.
    pub key: &'static str,
    /// What it must be.
    pub kind: Kind,
    /// The option that it stands for.
    pub place: Place,
    /// The variable that counts more.
    pub env: Option<&'static str>,
    /// For `torc config init`.
    pub example: &'static str,
    /// What it does.
    pub help: &'static str,
}

impl Setting {
    /// Section and key.
    pub fn parts(&self) -> (&'static str, &'static str) {
        self.key.split_once('.').unwrap_or(("", self.key))
    }

    /// The option as people write it.
    pub fn option(&self) -> String {
        let (Place::Global(id) | Place::Server(id)) = self.place;
        format!("--{}", id.replace('_', "-"))
    }
}

const fn setting(
    key: &'static str,
    kind: Kind,
    place: Place,
    env: Option<&'static str>,
    example: &'static str,
    help: &'static str,
) -> Setting {
    Setting { key, kind, place, env, example, help }
}

use Kind::{List, OneOf, Path, Port, Switch, Text, Time};
use Place::{Global, Server};

/// All of them, by section.
pub const SETTINGS: &[Setting] = &[
    setting(
        "client.url",
        Text,
        Global("url"),
        Some("TORC_API_URL"),
        "\"https://torc.example.org:8080\"",
        "Address of the server; without it commands use the local state.",
    ),
    setting(
        "client.token_file",
        Path,
        Global("token_file"),
        Some("TORC_TOKEN_FILE"),
        "\"~/.config/torc/token\"",
        "File that holds the token for the server.",
    ),
    setting(
        "client.tls_ca",
        Path,
        Global("tls_ca"),
        Some("TORC_TLS_CA"),
        "\"/etc/torc/tls-cert.pem\"",
        "Certificates to trust for `https`, instead of the system's.",
    ),
    setting(
        "client.dir",
        Path,
        Global("dir"),
        Some("TORC_DIR"),
        "\"/scratch/me/.torc\"",
        "Directory of the local state.",
    ),
    setting(
        "client.format",
        OneOf(&["table", "json", "csv"]),
        Global("format"),
        Some("TORC_FORMAT"),
        "\"table\"",
        "How data is printed.",
    ),
    setting(
        "server.host",
        Text,
        Server("host"),
        None,
        "\"0.0.0.0\"",
        "Name or address to listen on; without it this machine only.",
    ),
    setting("server.port", Port, Server("port"), None, "8080", "Port to listen on."),
    setting(
        "server.state_dir",
        Path,
        Server("state_dir"),
        None,
        "\"/var/lib/torc\"",
        "Directory for the token and the database.",
    ),
    setting(
        "server.database",
        Path,
        Server("database"),
        None,
        "\"/var/lib/torc/torc.db\"",
        "Another place for the database.",
    ),
    setting(
        "server.tls_cert",
        Path,
        Server("tls_cert"),
        None,
        "\"/etc/torc/cert.pem\"",
        "Serve HTTPS with this certificate; with `tls_key`.",
    ),
    setting(
        "server.tls_key",
        Path,
        Server("tls_key"),
        None,
        "\"/etc/torc/key.pem\"",
        "The key of the certificate.",
    ),
    setting(
        "server.insecure",
        Switch,
        Server("insecure"),
        None,
        "false",
        "Serve plain HTTP although other machines can reach the address.",
    ),
    setting(
        "server.log_format",
        OneOf(&["text", "json"]),
        Server("log_format"),
        Some("TORC_LOG_FORMAT"),
        "\"text\"",
        "How the log looks.",
    ),
    setting(
        "server.allowed_hosts",
        List,
        Server("allowed_host"),
        None,
        "[\"torc.example.org\"]",
        "Further names that clients use for this machine.",
    ),
    setting(
        "server.trusted_proxies",
        List,
        Server("trusted_proxy"),
        None,
        "[\"10.0.0.5\"]",
        "Proxies, or networks of them, whose forwarded headers count.",
    ),
    setting(
        "server.public_url",
        Text,
        Server("public_url"),
        None,
        "\"https://torc.example.org\"",
        "The address that people use, for links in messages.",
    ),
    setting(
        "retention.older_than",
        Time,
        Server("prune_older_than"),
        None,
        "\"30d\"",
        "Delete workflows that ended longer ago; without it all are kept.",
    ),
    setting(
        "retention.keep_failed",
        Switch,
        Server("prune_keep_failed"),
        None,
        "true",
        "Keep those with jobs that did not succeed.",
    ),
    setting(
        "retention.with_files",
        Switch,
        Server("prune_with_files"),
        None,
        "false",
        "Remove the logs and samples of their jobs too.",
    ),
];
