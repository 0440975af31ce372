//! `torc export ro-crate`: a run as a Provenance Run Crate: its spec, its files with checksums, and every
//! attempt with its times, its end and what it read and wrote.

mod entities;

use super::Context;
use super::record::Record;
use super::references::{self, LATEST};
use crate::archive::Zip;
use crate::error::{Error, Result};
use crate::output::escape;
use entities::{Crate, decoded};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use torc_client::Client;
use torc_model::api::WorkflowView;
use torc_model::units::Memory;

/// The file that describes a crate.
const METADATA: &str = "ro-crate-metadata.json";
/// The spec inside of the crate.
const SPEC: &str = "workflow.json";
/// The largest file that is copied unless the user says otherwise.
const DEFAULT_MOST: u64 = 100 << 20;

/// Write a run as an RO-Crate: spec, files with checksums, every attempt with its times and its end
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc export ro-crate -o run.zip
  torc export ro-crate sweep -o crate --license https://spdx.org/licenses/CC-BY-4.0
The crate follows the Provenance Run Crate profile 0.5. Files up to `--max-file-size` are copied into it; larger
ones are described with their checksum and where they are.")]
pub struct RoCrate {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Directory to write, or a file that ends with `.zip` [default: ro-crate_wfID]
    #[arg(short, long, value_name = "DIR|FILE.zip")]
    output: Option<PathBuf>,

    /// Licence of what is in the crate, as a URL
    #[arg(long, value_name = "URL")]
    license: Option<String>,

    /// Copy files up to this size
    #[arg(long, value_name = "SIZE", default_value = "100m", value_parser = Memory::parse)]
    max_file_size: Memory,
}

impl RoCrate {
    /// Runs the command.
    pub async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let id = workflow.id;
        let path = self.output.unwrap_or_else(|| format!("ro-crate_wf{id}").into());
        let record = Record::fetch(client, workflow).await?;
        let written = write(&record, &path, self.license.as_deref(), self.max_file_size.0)?;
        for missing in &written.missing {
            context.output.warn(format_args!(
                "`{}` is not there and not in the crate",
                escape::line(missing)
            ));
        }
        let answer = json!({"workflow_id": id, "crate": path, "files": written.files,
                            "attempts": record.attempts.len(), "missing": written.missing});
        context
            .output
            .value(&answer, |_| format!("{}\n", escape::line(&path.display().to_string())))
    }
}

/// Writes the crate of a complete workflow that wants one, beside its logs. The run is over: what goes wrong
/// here is told and changes nothing about it.
pub async fn if_wanted(context: &Context, client: &Client, workflow: &WorkflowView, dir: &Path) {
    if !workflow.enable_ro_crate {
        return;
    }
    let path = dir.join(format!("ro-crate_wf{}", workflow.id));
    let written = match Record::fetch(client, workflow.clone()).await {
        Ok(record) => write(&record, &path, None, DEFAULT_MOST),
        Err(error) => Err(error),
    };
    match written {
        Ok(_) => context.output.talk(format_args!("wrote the RO-Crate `{}`", path.display())),
        Err(error) => {
            context
                .output
                .warn(format_args!("the RO-Crate `{}` was not written: {error}", path.display()));
        }
    }
}

/// What was written.
pub struct Written {
    /// Files in the crate.
    pub files: usize,
    /// Paths of files that are not there.
    pub missing: Vec<String>,
}

/// Writes the crate.
pub fn write(record: &Record, path: &Path, license: Option<&str>, most: u64) -> Result<Written> {
    let mut crate_ = Crate::new(record, license, most);
    crate_.read_files()?;
    crate_.describe();
    let spec = pretty(&record.spec);
    let metadata = pretty(&crate_.document());
    let copied: Vec<(&str, &Path)> = crate_
        .data
        .values()
        .filter(|data| data.is_copied)
        .map(|data| (data.id.as_str(), data.place.as_path()))
        .collect();
    let written = Written { files: copied.len() + 1, missing: crate_.missing.clone() };
    if path.extension().is_some_and(|end| end == "zip") {
        let file = std::fs::File::create(path).map_err(Error::io("write", path))?;
        let mut zip = Zip::new(std::io::BufWriter::new(file));
        let mut put = |name: &str, mut content: &[u8]| zip.add_from(name, &mut content);
        put(METADATA, &metadata)
            .and_then(|()| put(SPEC, &spec))
            .map_err(Error::io("write", path))?;
        for (name, place) in copied {
            let mut file =
                torc_fs::open(place, torc_fs::Trust::Regular).map_err(Error::io("read", place))?;
            zip.add_from(&decoded(name), &mut file).map_err(Error::io("write", path))?;
        }
        zip.finish().map_err(Error::io("write", path))?;
        return Ok(written);
    }
    let save = |name: &str, content: &[u8]| -> Result<()> {
        let target = path.join(name);
        let mut file = std::fs::File::create(&target).map_err(Error::io("write", &target))?;
        file.write_all(content).map_err(Error::io("write", &target))
    };
    std::fs::create_dir_all(path).map_err(Error::io("make", path))?;
    save(SPEC, &spec)?;
    for (name, place) in copied {
        let target = path.join(decoded(name));
        let dir = target.parent().unwrap_or(path);
        std::fs::create_dir_all(dir).map_err(Error::io("make", dir))?;
        std::fs::copy(place, &target).map_err(Error::io("copy", place))?;
    }
    // Last: a directory without it is no crate.
    save(METADATA, &metadata)?;
    Ok(written)
}

fn pretty(value: &Value) -> Vec<u8> {
    let mut text = serde_json::to_vec_pretty(value)
        .unwrap_or_else(|error| unreachable!("our own types: {error}"));
    text.push(b'\n');
    text
}
