//! `torc hpc`: profiles of clusters.

use super::{Context, block_on};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::output::{Field, Table};
use clap::Subcommand;
use std::path::PathBuf;
use torc_batch::slurm::{Slurm, all_profiles, derive_profile, detect_profile, find_profile};
use torc_model::plan::Requirements;
use torc_model::slurm::profile::{Partition, Profile};
use torc_model::units::{Memory, Runtime};

/// Show what clusters offer, and describe this one
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc hpc detect                                                          which cluster is this?
  torc hpc show kestrel
  torc hpc match kestrel --cpus 16 --memory 64g --walltime 6h              which partitions fit a job
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
    /// List the partitions of a profile
    Partitions {
        /// A name of `torc hpc list`, or a file [default: the cluster that this is]
        name: Option<String>,

        /// Only those with GPUs
        #[arg(long)]
        gpu: bool,

        /// Only those whose nodes several jobs share
        #[arg(long)]
        shared: bool,
    },
    /// Find the partitions that fit a job
    Match(Match),
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

/// What a job needs.
#[derive(clap::Args, Debug)]
struct Match {
    /// A name of `torc hpc list`, or a file [default: the cluster that this is]
    name: Option<String>,

    /// CPUs
    #[arg(long, value_name = "N", default_value_t = 1)]
    cpus: u32,

    /// Memory, such as `16g`
    #[arg(long, value_parser = Memory::parse)]
    memory: Option<Memory>,

    /// Time, such as `4h` or `4:00:00`
    #[arg(long, alias = "runtime", value_parser = Runtime::parse)]
    walltime: Option<Runtime>,

    /// GPUs
    #[arg(long, value_name = "N", default_value_t = 0)]
    gpus: u32,

    /// Nodes
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,
}

impl Match {
    fn execute(self, context: &Context) -> Result<()> {
        let profile = profile(self.name.as_deref())?;
        let needs = Requirements {
            name: "the job".into(),
            num_cpus: self.cpus,
            num_gpus: self.gpus,
            num_nodes: self.nodes,
            memory: self.memory,
            runtime: self.walltime,
        };
        let runtime = self.walltime.map_or(0, |time| time.0);
        let fitting: Vec<&Partition> = profile
            .partitions
            .iter()
            .filter(|partition| partition.lacking(&needs, runtime).is_none())
            .collect();
        let best = profile.choose(&needs, runtime).ok();
        if fitting.is_empty() {
            let why = profile.choose(&needs, runtime).err().unwrap_or_default();
            return Err(Error::usage(why));
        }
        if context.output.is_json() {
            return context.output.json(&serde_json::json!({
                "profile": profile.name, "matching_partitions": fitting, "best_partition": best,
            }));
        }
        let fitting: Vec<Partition> = fitting.into_iter().cloned().collect();
        context.output.list("partitions", &fitting, fitting.len() as i64, || table(&fitting))?;
        match best {
            Some(best) => context.output.talk(format_args!("`{}` would be chosen", best.name)),
            None => context.output.talk("none of them is chosen unless it is named"),
        }
        Ok(())
    }
}

/// The profile that is named, or the one of the cluster that this is.
fn profile(name: Option<&str>) -> Result<Profile> {
    let hint = "name a profile: `torc hpc list` lists them";
    match name {
        Some(name) => find_profile(name).map_err(Error::usage),
        None => block_on(async { Ok(detect_profile(&Slurm::new()).await) })?
            .map_err(|message| Error::usage_hint(message, hint)),
    }
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
            Command::Partitions { name, gpu, shared } => {
                let profile = profile(name.as_deref())?;
                let wanted =
                    |p: &&Partition| (!gpu || p.gpus_per_node > 0) && (!shared || p.shared);
                let shown: Vec<Partition> =
                    profile.partitions.iter().filter(wanted).cloned().collect();
                context.output.list("partitions", &shown, shown.len() as i64, || table(&shown))?;
            }
            Command::Match(args) => args.execute(context)?,
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
        format!("{}\n{}", profile.name, table(&profile.partitions).render())
    })
}

fn table(partitions: &[Partition]) -> Table {
    let headings = ["partition", "cpus", "memory (MB)", "gpus", "walltime", "nodes", "notes"];
    let mut table = Table::new(headings);
    for p in partitions {
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
    table
}
