//! Finds the server: by environment, or by the file that a local server leaves in `.torc/`.

use crate::{Client, Error};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use torc_fs::Trust;
use torc_model::api::ServerFile;

/// Address of the server.
pub const ENV_URL: &str = "TORC_API_URL";
/// Token for it. Jobs get a file instead, because environments are easily printed.
pub const ENV_TOKEN: &str = "TORC_TOKEN";
/// File that holds the token.
pub const ENV_TOKEN_FILE: &str = "TORC_TOKEN_FILE";
/// PEM file of certificates to trust for an encrypted server, instead of the system's.
pub const ENV_TLS_CA: &str = "TORC_TLS_CA";
/// Directory that holds the state of a local server.
pub const STATE_DIR: &str = ".torc";
/// What a running server writes there.
pub const SERVER_FILE: &str = "server.json";
/// Neither a server file nor a token is ever this long.
const MAX_BYTES: u64 = 64 << 10;

/// Where the server file is in a state directory.
pub fn server_file_path(state_dir: &Path) -> PathBuf {
    state_dir.join(SERVER_FILE)
}

/// Reads the server file of a state directory. Both must be this user's and closed to writing by
/// others: a user who may write there names the server that gets our commands and hands out jobs.
pub fn read_server_file(state_dir: &Path) -> Result<ServerFile, Error> {
    let path = server_file_path(state_dir);
    let text = torc_fs::read_private_in(state_dir, SERVER_FILE, MAX_BYTES)
        .map_err(|e| config(format!("cannot use `{}`: {e}", path.display())))?;
    serde_json::from_slice(&text)
        .map_err(|e| config(format!("cannot understand `{}`: {e}", path.display())))
}

/// Writes the server file whole or not at all, readable by its owner only from the first byte on.
pub fn write_server_file(state_dir: &Path, content: &ServerFile) -> std::io::Result<()> {
    let temporary = state_dir.join(format!("{SERVER_FILE}.{}", std::process::id()));
    // Whatever an earlier process with our id left would keep its mode.
    match std::fs::remove_file(&temporary) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
    file.write_all(&serde_json::to_vec_pretty(content)?)?;
    file.sync_all()?;
    std::fs::rename(&temporary, server_file_path(state_dir))
}

/// How a server was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// Talks to it.
    pub client: Client,
    /// The state directory, when it was found through one.
    pub state_dir: Option<PathBuf>,
}

/// Finds the server: `TORC_API_URL` with `TORC_TOKEN` or `TORC_TOKEN_FILE`, else the nearest
/// `.torc/server.json` from the current directory upwards. That the file is there does not mean
/// that the server still runs.
pub fn find() -> Result<Option<Found>, Error> {
    if let Some(url) = variable(ENV_URL)? {
        return Ok(Some(Found {
            client: Client::with_ca(
                &url,
                &environment_token()?,
                variable(ENV_TLS_CA)?.as_deref().map(Path::new),
            )?,
            state_dir: None,
        }));
    }
    let here = std::env::current_dir()
        .map_err(|e| config(format!("cannot tell the current directory: {e}")))?;
    let Some(state_dir) = find_state_dir(&here) else { return Ok(None) };
    let file = read_server_file(&state_dir)?;
    Ok(Some(Found { client: Client::local(&file)?, state_dir: Some(state_dir) }))
}

/// The nearest `.torc` directory with a server file, from `start` upwards, that is this user's and
/// closed to writing by others. Directories of other users are passed over: in a shared directory
/// any user can make one.
pub fn find_state_dir(start: &Path) -> Option<PathBuf> {
    let is_found =
        |dir: &PathBuf| server_file_path(dir).is_file() && torc_fs::check_private_dir(dir).is_ok();
    start.ancestors().map(|dir| dir.join(STATE_DIR)).find(is_found)
}

fn environment_token() -> Result<String, Error> {
    if let Some(token) = variable(ENV_TOKEN)? {
        return Ok(token);
    }
    match variable(ENV_TOKEN_FILE)? {
        Some(path) => read_token_file(Path::new(&path)),
        None => Err(Error::Config {
            message: format!("`{ENV_URL}` is set, but there is no token"),
            hint: Some(format!(
                "set `{ENV_TOKEN_FILE}` to a file with the token, or `{ENV_TOKEN}` to the token itself"
            )),
        }),
    }
}

/// Reads a token from a file of this user or root that others may not write.
pub fn read_token_file(path: &Path) -> Result<String, Error> {
    let text = torc_fs::read_text(path, Trust::Config, MAX_BYTES)
        .map_err(|e| config(format!("cannot use the token file `{}`: {e}", path.display())))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(config(format!("the token file `{}` is empty", path.display())));
    }
    Ok(token.into())
}

fn variable(name: &str) -> Result<Option<String>, Error> {
    match std::env::var(name) {
        Ok(value) if value.trim().is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(config(format!("`{name}` is not text"))),
    }
}

fn config(message: String) -> Error {
    Error::Config { message, hint: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn sample() -> ServerFile {
        ServerFile {
            url: "http://127.0.0.1:1".into(),
            token: "secret".into(),
            tls_ca: None,
            embedded: false,
            pid: 1,
            hostname: "h".into(),
            started_ms: 5,
            version: "0".into(),
        }
    }

    #[test]
    fn server_file_is_found_from_below_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join(STATE_DIR);
        let below = dir.path().join("a/b");
        std::fs::create_dir_all(&below).unwrap();
        torc_fs::make_private_dir(&state).unwrap();
        assert_eq!(find_state_dir(&below).filter(|d| d.starts_with(dir.path())), None);
        write_server_file(&state, &sample()).unwrap();
        write_server_file(&state, &sample()).unwrap();
        let found = find_state_dir(&below).unwrap();
        assert_eq!(read_server_file(&found).unwrap(), sample());
        let mode = std::fs::metadata(server_file_path(&found)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_broken_server_file_names_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = server_file_path(dir.path());
        torc_fs::write_new_private(&path, b"{").unwrap();
        let error = read_server_file(dir.path()).unwrap_err().to_string();
        assert!(error.contains("server.json"), "{error}");
    }

    #[test]
    fn an_empty_token_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t");
        std::fs::write(&path, " \n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_token_file(&path).is_err());
        std::fs::write(&path, "abc\n").unwrap();
        assert_eq!(read_token_file(&path).unwrap(), "abc");
    }

    #[test]
    fn state_that_others_may_write_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join(STATE_DIR);
        std::fs::create_dir(&state).unwrap();
        write_server_file(&state, &sample()).unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(&state, 0o700);
        assert_eq!(find_state_dir(dir.path()), Some(state.clone()));
        for open in [0o777, 0o770, 0o1777] {
            set(&state, open);
            assert_ne!(find_state_dir(dir.path()), Some(state.clone()), "{open:o}");
            let error = read_server_file(&state).unwrap_err().to_string();
            assert!(error.contains("may write to it"), "{error}");
        }
        set(&state, 0o700);
        set(&server_file_path(&state), 0o666);
        let error = read_server_file(&state).unwrap_err().to_string();
        assert!(error.contains("may write to it"), "{error}");
    }
}
