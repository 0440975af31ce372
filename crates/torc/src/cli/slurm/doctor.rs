//! `torc slurm doctor`: what in this site's configuration will hurt.

use crate::cli::{Context, block_on};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table};
use torc_batch::slurm::Slurm;
use torc_model::slurm::cluster;
use torc_model::slurm::doctor::{FindingLevel, examine};

/// Read this site's Slurm configuration and say what will hurt
#[derive(clap::Args, Debug)]
pub struct Args {}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        super::require_slurm()?;
        let slurm = Slurm::new();
        let texts =
            block_on(async { Ok((slurm.show("config").await, slurm.show("partitions").await)) })?;
        let unreachable = |message: String| Error::Unreachable {
            message,
            hint: "is Slurm's controller up? `scontrol ping` tells".into(),
            is_unsent: false,
        };
        let config = cluster::config(&texts.0.map_err(unreachable)?);
        let partitions = cluster::partitions(&texts.1.map_err(unreachable)?);
        let findings = examine(&config, &partitions);
        let total = i64::try_from(findings.len()).unwrap_or(i64::MAX);
        context.output.list("findings", &findings, total, || {
            let mut table = Table::new(["", "setting", "meaning"]);
            for finding in &findings {
                let level = match finding.level {
                    FindingLevel::Info => "note",
                    FindingLevel::Warning => "warning",
                };
                table.row([
                    Field::text(level),
                    Field::text(&finding.setting),
                    Field::text(&finding.meaning),
                ]);
            }
            table
        })?;
        Ok(Exit::Success)
    }
}
