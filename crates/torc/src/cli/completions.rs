//! `torc completions`: a script that teaches a shell our commands.

use super::{Cli, Context};
use crate::error::Result;
use crate::exit::Exit;
use crate::output;
use clap::CommandFactory;
use clap_complete::Shell;

/// Print a completion script for a shell
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Example, for bash:
  torc completions bash > ~/.local/share/bash-completion/completions/torc")]
pub struct Args {
    /// The shell
    shell: Shell,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, _: &Context) -> Result<Exit> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "torc", &mut script);
        output::write_data(&script)?;
        Ok(Exit::Success)
    }
}
