//! `torc slurm`: allocations on a Slurm cluster.

mod allocations;
mod auto_schedule;
mod compare;
mod doctor;
mod generate;
mod parse_logs;
mod plan;
mod proposal;
mod regenerate;
mod run_agent;
mod run_allocation;
mod sacct;
mod schedule_nodes;
mod schedulers;
mod sync;
mod usage;

pub use auto_schedule::{
    AutoOptions, AutoSchedule, is_for_slurm, node_shapes, open_allocations, reschedule,
};
pub use parse_logs::find_issues;
pub use plan::{NodeOptions, PlanView, plan_of, render as render_plan};
pub use proposal::propose;
pub use sacct::records as accounting_records;
pub use schedule_nodes::{await_event, describe as describe_sent, events_from_now, send_waiting};
pub use sync::{render as render_sync, synchronize};

use super::Context;
use crate::error::{Error, Result};
use crate::exit::Exit;
use clap::Subcommand;
use torc_batch::System;

/// Ask a Slurm cluster for nodes, look at them, and recover them
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc slurm generate sweep.yaml --account abc -o sweep_slurm.yaml    then `torc submit sweep_slurm.yaml`
  torc slurm regenerate sweep --account abc --submit                  after allocations were lost
  torc slurm allocations sweep                                        what was asked for and what became of it
  torc slurm doctor                                                   what in this site's configuration will hurt")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Generate(generate::Args),
    Plan(compare::Args),
    Regenerate(regenerate::Args),
    ScheduleNodes(schedule_nodes::Args),
    Allocations(allocations::Args),
    Usage(usage::Args),
    Schedulers(schedulers::Args),
    Sacct(sacct::Args),
    ParseLogs(parse_logs::Args),
    Doctor(doctor::Args),
    #[command(hide = true)]
    RunAllocation(run_allocation::Args),
    #[command(hide = true)]
    RunAgent(run_agent::Args),
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        match self.command {
            Command::Generate(args) => args.execute(context),
            Command::Plan(args) => args.execute(context),
            Command::Regenerate(args) => args.execute(context),
            Command::ScheduleNodes(args) => args.execute(context),
            Command::Schedulers(args) => args.execute(context),
            Command::Allocations(args) => args.execute(context),
            Command::Usage(args) => args.execute(context),
            Command::Sacct(args) => args.execute(context),
            Command::ParseLogs(args) => args.execute(context),
            Command::Doctor(args) => args.execute(context),
            Command::RunAllocation(args) => args.execute(context),
            Command::RunAgent(args) => args.execute(),
        }
    }
}

/// The batch system of this machine; there has to be one.
pub fn system() -> Result<System> {
    System::here().map_err(Error::usage)?.ok_or_else(|| {
        Error::usage_hint(
            "`sbatch` and `squeue` are not on the PATH, nor the programs of Grid Engine or PBS",
            "call this on a login node of the cluster",
        )
    })
}

/// Slurm's programs are needed here.
pub fn require_slurm() -> Result<()> {
    if torc_batch::slurm::Slurm::is_here() {
        return Ok(());
    }
    Err(Error::usage_hint(
        "`sbatch` and `squeue` are not on the PATH",
        "call this on a login node of the cluster",
    ))
}
