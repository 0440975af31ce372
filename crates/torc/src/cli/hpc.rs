//! `torc hpc`: profiles of clusters.

use super::{Context, block_on};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table};
use clap::Subcommand;
use std::path::PathBuf;
use torc_batch::slurm::{Slurm, all_profiles, derive_profile, detect_profile, find_profile};
use torc_model::slurm::profile::Profile;

/// Show what clusters offer, and describe this one
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc hpc detect                                                          which cluster is this?
  torc hpc show kestrel
  torc hpc generate --name mine -o ~/.config/torc/profiles/mine.json       keep this cluster as a profile

Profiles are JSON files; those in ~/.config/torc/profiles win over the built-in ones of the same name.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List the known profiles
    List,
    /// Show the partitions of a profile
    Show {
        /// A name of `torc hpc list`, or a file
        name: String,
    },
    /// Tell which cluster this is
    Detect,
    /// Make a profile out of what Slurm tells about this cluster
    Generate {
        /// Name of the profile [default: the cluster's]
        #[arg(long)]
        name: Option<String>,

        /// File to write [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let wrong = |message: String| Error::usage(message);
        match self.command {
            Command::List => {
                let profiles = all_profiles().map_err(wrong)?;
                let total = i64::try_from(profiles.len()).unwrap_or(i64::MAX);
                context.output.list("profiles", &profiles, total, || {
                    let mut table = Table::new(["name", "cluster", "partitions"]);
                    for profile in &profiles {
                        let count = i64::try_from(profile.partitions.len()).unwrap_or(i64::MAX);
                        table.row([
                            Field::text(&profile.name),
                            Field::text(&profile.display_name),
                            Field::number(count),
                        ]);
                    }
                    table
                })?;
            }
            Command::Show { name } => show(context, &find_profile(&name).map_err(wrong)?)?,
            Command::Detect => {
                let found = block_on(async { Ok(detect_profile(&Slurm::new()).await) })?;
                let hint = "name a profile with `--profile` where one is needed";
                show(context, &found.map_err(|message| Error::usage_hint(message, hint))?)?;
            }
            Command::Generate { name, output } => {
                super::slurm::require_slurm()?;
                let found =
                    block_on(async { Ok(derive_profile(&Slurm::new(), name.as_deref()).await) })?;
                let profile = found.map_err(wrong)?;
                match output {
                    Some(file) => {
                        let mut text = serde_json::to_string_pretty(&profile)
                            .unwrap_or_else(|error| unreachable!("our own types: {error}"));
                        text.push('\n');
                        std::fs::write(&file, text).map_err(Error::io("write", &file))?;
                        context.output.talk(format_args!("wrote `{}`", file.display()));
                    }
                    None => context.output.json(&profile)?,
                }
            }
        }
        Ok(Exit::Success)
    }
}

fn show(context: &Context, profile: &Profile) -> Result<()> {
    context.output.value(profile, |profile| {
        let headings = ["partition", "cpus", "memory (MB)", "gpus", "walltime", "nodes", "notes"];
        let mut table = Table::new(headings);
        for p in &profile.partitions {
            let notes = [
                (p.is_default, "default"),
                (p.shared, "shared"),
                (p.preemptible, "preemptible"),
                (p.requires_explicit_request, "only when named"),
            ];
            let mut notes: Vec<String> =
                notes.iter().filter(|(is, _)| *is).map(|(_, word)| (*word).to_owned()).collect();
            if !p.unverified.is_empty() {
                notes.push(format!("unverified: {}", p.unverified.join(", ")));
            }
            table.row([
                Field::text(&p.name),
                Field::number(i64::from(p.cpus_per_node)),
                Field::number(i64::try_from(p.memory_mb).unwrap_or(i64::MAX)),
                Field::number(i64::from(p.gpus_per_node)),
                Field::right(p.max_walltime.as_deref().unwrap_or("unlimited")),
                Field::optional_number(p.max_nodes.map(i64::from)),
                Field::text(notes.join(", ")),
            ]);
        }
        format!("{}\n{}", profile.name, table.render())
    })
}
