//! Finds the items of a map, on the machine that sees its files.

use std::path::Path;
use torc_model::steps::{Item, ItemSource, MapSettings, prepare};

/// A list of items of this size is a mistake.
const MAX_BYTES: u64 = 256 << 20;

/// The items, once the text of a file or of a command is there.
pub fn items(
    settings: &MapSettings,
    working_dir: &Path,
    printed: Option<&Path>,
) -> Result<Vec<Item>, String> {
    let read = |path: &Path| {
        let bytes = torc_fs::read(path, torc_fs::Trust::Regular, MAX_BYTES)
            .map_err(|error| format!("cannot read the items from `{}`: {error}", path.display()))?;
        String::from_utf8(bytes)
            .map_err(|_| format!("the items in `{}` are not UTF-8 text", path.display()))
    };
    let values = match &settings.items {
        ItemSource::List(items) => Ok(items.clone()),
        ItemSource::File { path, select } => {
            ItemSource::read(&read(&working_dir.join(path))?, select.as_deref())
        }
        ItemSource::Command { select, .. } => {
            let printed = printed.ok_or("the command of the items did not run")?;
            ItemSource::read(&read(printed)?, select.as_deref())
        }
        ItemSource::UserData { name, select, value } => {
            let value = value.clone().ok_or_else(|| format!("user data `{name}` has no value"))?;
            ItemSource::select(value, select.as_deref())
        }
    };
    prepare(settings, values.map_err(|error| error.to_string())?).map_err(|error| error.to_string())
}
