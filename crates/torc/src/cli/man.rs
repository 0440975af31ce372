//! `torc man`: the manual pages, one for each command, made from the same definitions as `--help`.

use super::{Cli, Context};
use crate::error::{Error, Result};
use crate::exit::Exit;
use clap::CommandFactory as _;
use std::path::{Path, PathBuf};

/// Write the manual pages
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example:
  torc man ~/.local/share/man/man1     then `man torc-run`")]
pub struct Args {
    /// Directory for the pages; it is made if it is not there
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let dir = &self.directory;
        std::fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
        let mut command = super::flowing(Cli::command());
        command.build();
        let mut written = 0;
        write(&command, dir, &mut written)?;
        context.output.talk(format_args!("wrote {written} pages to `{}`", dir.display()));
        Ok(Exit::Success)
    }
}

/// Writes the page of a command and those of the commands below it. A built command knows its whole
/// name, such as `torc-jobs-list`.
fn write(command: &clap::Command, dir: &Path, written: &mut usize) -> Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = dir.join(format!("{name}.1"));
    let mut page = Vec::new();
    let rendered = clap_mangen::Man::new(command.clone()).render(&mut page);
    rendered.and_then(|()| std::fs::write(&path, page)).map_err(Error::io("write", &path))?;
    *written += 1;
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write(inner, dir, written)?;
    }
    Ok(())
}
