//! `torc slurm run-agent`: what the runner of an allocation starts on its other nodes. Not for people.

use crate::cli::block_on;
use crate::error::{Error, Result};
use crate::exit::Exit;

/// Run jobs of an allocation's runner on another node
#[derive(clap::Args, Debug)]
pub struct Args {}

impl Args {
    /// Runs the command.
    pub fn execute(self) -> Result<Exit> {
        block_on(async {
            torc_runner::run_agent().await.map_err(|error| Error::usage(error.to_string()))?;
            Ok(Exit::Success)
        })
    }
}
