//! `torc ping`: does a server answer, and which?

use super::Context;
use super::session::Access;
use crate::error::Result;
use crate::exit::Exit;
use torc_model::api::Health;

/// Ask whether the server answers
#[derive(clap::Args, Debug)]
pub struct Args {}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            let health = client.health().await?;
            context.output.value(&health, |health| {
                let Health { status, version, .. } = health;
                format!("the server at {} answers: {status}, version {version}\n", client.url())
            })?;
            Ok(Exit::Success)
        })
    }
}
