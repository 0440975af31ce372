//! `torc new`: writes a small commented spec to begin with.

use super::Context;
use crate::error::{Error, Result};
use crate::exit::Exit;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// Write a small commented example to begin with
#[derive(clap::Args, Debug)]
#[command(
    visible_alias = "init",
    after_help = "\
Examples:
  torc new sweep                 writes sweep.yaml; `torc run sweep.yaml` runs it
  torc new retry -o flaky.yaml
  torc new pipeline -o -         prints it"
)]
pub struct Args {
    /// What it shows
    #[arg(value_enum, default_value = "pipeline")]
    kind: Kind,

    /// Write to this file (`-`: standard output)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The kinds of examples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Kind {
    /// One job per combination of parameter values, and one that collects
    Sweep,
    /// Jobs that hand files to each other
    Pipeline,
    /// A job that fails, is repaired and tried again
    Retry,
    /// Stages in Slurm allocations
    Slurm,
    /// A job of several steps with a handler for failures
    Steps,
}

impl Kind {
    #[cfg(test)]
    const ALL: [Self; 5] = [Self::Sweep, Self::Pipeline, Self::Retry, Self::Slurm, Self::Steps];

    fn name(self) -> &'static str {
        match self {
            Self::Sweep => "sweep",
            Self::Pipeline => "pipeline",
            Self::Retry => "retry",
            Self::Slurm => "slurm",
            Self::Steps => "steps",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Sweep => include_str!("examples/sweep.yaml"),
            Self::Pipeline => include_str!("examples/pipeline.yaml"),
            Self::Retry => include_str!("examples/retry.yaml"),
            Self::Slurm => include_str!("examples/slurm.yaml"),
            Self::Steps => include_str!("examples/steps.yaml"),
        }
    }
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let path = self.output.unwrap_or_else(|| format!("{}.yaml", self.kind.name()).into());
        if path.as_os_str() == "-" {
            context.output.data(self.kind.text())?;
            return Ok(Exit::Success);
        }
        // Never over a file that is there: it may be a user's work.
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(
            |error| match error.kind() {
                std::io::ErrorKind::AlreadyExists => Error::usage_hint(
                    format!("`{}` is there already", path.display()),
                    "name another file with `-o FILE`",
                ),
                _ => Error::io("create", &path)(error),
            },
        )?;
        file.write_all(self.kind.text().as_bytes()).map_err(Error::io("write", &path))?;
        let name = path.display();
        let next = if self.kind == Kind::Slurm { "check" } else { "run" };
        context.output.talk(format_args!("wrote `{name}`; `torc {next} {name}` comes next"));
        Ok(Exit::Success)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use torc_spec::{Source, SpecFormat};

    #[test]
    fn every_example_is_right_and_without_doubt() {
        for kind in Kind::ALL {
            let parsed = torc_spec::parse(&Source::new(kind.name(), kind.text(), SpecFormat::Yaml));
            let parsed = parsed.unwrap_or_else(|errors| panic!("{errors}"));
            let checked =
                parsed.spec.check(Default::default()).unwrap_or_else(|errors| panic!("{errors}"));
            let doubts = checked.warnings.count(torc_spec::Severity::Warning);
            assert!(
                parsed.warnings.is_empty() && doubts == 0,
                "{}{}",
                parsed.warnings,
                checked.warnings
            );
        }
    }
}
