//! Where configuration is: the site's in `/etc/torc`, the user's in `~/.config/torc`.

use std::path::{Path, PathBuf};

/// The user's directory for configuration, `$XDG_CONFIG_HOME/torc` or `~/.config/torc`.
pub fn user_config_dir() -> Option<PathBuf> {
    let named = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".config"));
    // The standard ignores relative paths.
    named.filter(|dir| dir.is_absolute()).or_else(home).map(|dir| dir.join("torc"))
}

/// The files that configure one thing: the one that the variable names, else the site's and then the
/// user's. They need not exist.
pub fn config_files(variable: &str, name: &str) -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os(variable).filter(|named| !named.is_empty()) {
        return vec![named.into()];
    }
    let own = user_config_dir().map(|dir| dir.join(name));
    [Path::new("/etc/torc").join(name)].into_iter().chain(own).collect()
}
