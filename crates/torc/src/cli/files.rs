//! `torc files`: the files that a workflow's jobs read and write.

use super::edit::{self, EditArgs};
use super::parts::{Delete, New, One, Part};
use super::references::{self, LATEST};
use super::session::Access;
use super::{Context, parts};
use crate::error::Result;
use crate::exit::Exit;
use crate::output::card::Card;
use crate::output::{Field, Table, human};
use clap::Subcommand;
use serde_json::{Map, json};
use std::path::Path;
use torc_client::{Client, Query};
use torc_model::api::{FileView, RelationKind, RelationView, WorkflowView};
use torc_model::ids::WorkflowId;

/// List the files of a workflow, and change what the spec says of them
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc files list                             the files of the latest workflow
  torc files get weights                      where it is, who writes it, who reads it
  torc files update weights --path new.bin    jobs that name it run again
  torc files list-required-existing           inputs that no job writes, and which are missing")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// List files
    List(List),
    /// Show one file, who writes it and who reads it
    Get(One),
    /// Add a file to the spec
    Create(CreateFileArgs),
    /// Change the name or the path of a file
    Update(UpdateFileArgs),
    /// Take a file out of the spec
    Delete(Delete),
    /// List the files that must be there before the workflow runs
    ListRequiredExisting(Required),
}

#[derive(clap::Args, Debug)]
struct List {
    #[command(flatten)]
    list: parts::List,

    /// Only those that this job writes: its id or its name
    #[arg(long, value_name = "JOB", alias = "produced-by-job-id")]
    produced_by: Option<String>,

    /// Only those that this job reads: its id or its name
    #[arg(long, value_name = "JOB")]
    needed_by: Option<String>,
}

#[derive(clap::Args, Debug)]
struct CreateFileArgs {
    #[command(flatten)]
    new: New,

    /// Path, relative to the directory of the workflow
    #[arg(short, long)]
    path: String,

    #[command(flatten)]
    how: EditArgs,
}

#[derive(clap::Args, Debug)]
struct UpdateFileArgs {
    #[command(flatten)]
    one: One,

    /// Another name; jobs that name the file are changed with it
    #[arg(short, long)]
    name: Option<String>,

    /// Another path
    #[arg(short, long)]
    path: Option<String>,

    #[command(flatten)]
    how: EditArgs,
}

#[derive(clap::Args, Debug)]
struct Required {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        context.with_server(Access::Existing, async |client| {
            match self.command {
                Command::List(args) => args.execute(context, client).await?,
                Command::Get(one) => get(&one, context, client).await?,
                Command::Create(CreateFileArgs { new, path, how }) => {
                    let write = |entry: &mut Map<_, _>| _ = edit::set(entry, "path", Some(path));
                    new.execute::<FileView>(context, client, how, write).await?;
                }
                Command::Update(args) => args.execute(context, client).await?,
                Command::Delete(args) => args.execute::<FileView>(context, client).await?,
                Command::ListRequiredExisting(args) => args.execute(context, client).await?,
            }
            Ok(Exit::Success)
        })
    }
}

impl List {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.list.workflow).await?;
        let mut query = Query::new().add("workflow_id", workflow.id);
        for (key, job) in
            [("produced_by_job_id", &self.produced_by), ("needed_by_job_id", &self.needed_by)]
        {
            if let Some(job) = job {
                let of = workflow.id.to_string();
                query = query.add(key, references::job(client, job, &of).await?.id);
            }
        }
        self.list.show::<FileView>(context, client, query).await
    }
}

impl Part for FileView {
    const LIST: &'static str = "files";
    const WHAT: &'static str = "file";

    fn name(&self) -> &str {
        &self.name
    }

    fn workflow_id(&self) -> WorkflowId {
        self.workflow_id
    }

    fn table(files: &[Self]) -> Table {
        let mut table = Table::new(["id", "name", "path", "size", "modified"]);
        for file in files {
            table.row([
                Field::number(file.id),
                Field::text(&file.name),
                Field::text(&file.path),
                Field::optional(file.size.map(human::bytes)),
                Field::optional(file.mtime_ms.map(human::local_time)),
            ]);
        }
        table
    }
}

async fn get(one: &One, context: &Context, client: &Client) -> Result<()> {
    let file: FileView = one.find(client).await?;
    let path = format!("/workflows/{}/relations", file.workflow_id);
    let query = Query::new().add("kind", "input_file,output_file");
    let all: Vec<RelationView> = client.list_all(&path, &query).await?;
    let jobs = |kind: RelationKind| -> Vec<String> {
        let of = all.iter().filter(|r| r.kind == kind && r.item_id == file.id);
        of.map(|relation| relation.job_name.clone()).collect()
    };
    let (written, read) = (jobs(RelationKind::OutputFile), jobs(RelationKind::InputFile));
    let mut answer = json!(file);
    answer["written_by"] = json!(written);
    answer["read_by"] = json!(read);
    context.output.value(&answer, |_| {
        let mut card =
            Card::new(format!("{} (file {} of workflow {})", file.name, file.id, file.workflow_id));
        card.line("path", &file.path);
        card.optional("size", file.size.map(human::bytes));
        card.optional("modified", file.mtime_ms.map(human::local_time));
        card.optional("written by", (!written.is_empty()).then(|| written.join(", ")));
        card.optional("read by", (!read.is_empty()).then(|| read.join(", ")));
        card.render()
    })
}

/// Where jobs name files.
const KEYS: [&str; 2] = ["input_files", "output_files"];

impl UpdateFileArgs {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        edit::something(self.name.is_some() || self.path.is_some(), "`--name` or `--path`")?;
        let (file, mut edit) = self.one.edit::<FileView>(context, client).await?;
        let entry = edit.entry("files", &file.name)?;
        edit::set(entry, "path", self.path);
        if edit::set(entry, "name", self.name.as_deref())
            && let Some(name) = &self.name
        {
            edit.rename(&KEYS, &file.name, name)?;
        }
        edit.apply(&format!("file `{}`", file.name), self.how).await
    }
}

impl Required {
    async fn execute(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let query = Query::new().add("workflow_id", workflow.id);
        let files: Vec<FileView> = client.list_all("/files", &query).await?;
        let path = format!("/workflows/{}/relations", workflow.id);
        let query = Query::new().add("kind", "input_file,output_file");
        let all: Vec<RelationView> = client.list_all(&path, &query).await?;
        let ids = |kind: RelationKind| -> std::collections::HashSet<i64> {
            all.iter().filter(|r| r.kind == kind).map(|r| r.item_id).collect()
        };
        let (read, written) = (ids(RelationKind::InputFile), ids(RelationKind::OutputFile));
        let needed: Vec<(FileView, bool)> = files
            .into_iter()
            .filter(|file| read.contains(&file.id) && !written.contains(&file.id))
            .map(|file| {
                let exists = place(&workflow, &file.path).exists();
                (file, exists)
            })
            .collect();
        let shown: Vec<_> = needed
            .iter()
            .map(|(file, exists)| {
                let mut shown = json!(file);
                shown["exists"] = json!(exists);
                shown
            })
            .collect();
        context.output.list("files", &shown, shown.len() as i64, || {
            let mut table = Table::new(["id", "name", "path", "there"]);
            for (file, exists) in &needed {
                table.row([
                    Field::number(file.id),
                    Field::text(&file.name),
                    Field::text(&file.path),
                    Field::text(if *exists { "yes" } else { "missing" }),
                ]);
            }
            table
        })
    }
}

/// A path of a workflow as it is seen from here.
pub fn place(workflow: &WorkflowView, path: &str) -> std::path::PathBuf {
    Path::new(workflow.origin.directory.as_deref().unwrap_or_default()).join(path)
}
