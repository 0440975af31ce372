//! What agents are told about failures. Shipped as text, extended by a site's own text, never a
//! hidden rule.

/// What comes with the program.
pub const SHIPPED: &str = include_str!("guidance.md");

/// Names another file with a site's own guidance.
pub const ENV_FILE: &str = "TORC_RECOVERY_GUIDANCE";

/// Larger files are a mistake: every agent reads all of it.
const LARGEST: u64 = 64 << 10;

/// The shipped text, with the site's and the user's own behind it.
pub fn load() -> Result<String, String> {
    let mut text = SHIPPED.to_owned();
    for path in torc_fs::config_files(ENV_FILE, "recovery-guidance.md") {
        // It tells agents what to do: no other user may have written it.
        let own = match torc_fs::read_text(&path, torc_fs::Trust::Config, LARGEST) {
            Ok(own) => own,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
            Err(error) => return Err(format!("cannot read `{}`: {error}", path.display())),
        };
        text.push('\n');
        text.push_str(&own);
    }
    Ok(text)
}
