//! `torc job-dependencies`: what jobs depend on, read and write.

use super::Context;
use super::paging::PagingArgs;
use super::references::{self, LATEST};
use super::session::Access;
use crate::error::Result;
use crate::exit::Exit;
use crate::output::{Field, Table};
use clap::Subcommand;
use torc_client::Query;
use torc_model::api::{Page, RelationKind, RelationView};

/// List what jobs depend on, read and write
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  torc job-dependencies job-job         which job begins after which
  torc job-dependencies job-file 3      which job reads and writes which file
`torc check SPEC -f svg` draws the same before anything runs.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Which job begins after which
    #[command(name = "job-job")]
    Jobs(List),
    /// Which job reads and writes which file
    #[command(name = "job-file")]
    Files(List),
    /// Which job reads and writes which user data
    #[command(name = "job-user-data")]
    UserData(List),
}

#[derive(clap::Args, Debug)]
struct List {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    #[command(flatten)]
    paging: PagingArgs,
}

impl Args {
    /// Runs the command.
    pub fn execute(self, context: &Context) -> Result<Exit> {
        let (list, kinds, heading) = match self.command {
            Command::Jobs(list) => (list, "depends_on", "begins after"),
            Command::Files(list) => (list, "input_file,output_file", "file"),
            Command::UserData(list) => (list, "input_user_data,output_user_data", "user data"),
        };
        context.with_server(Access::Existing, async |client| {
            let workflow = references::workflow(client, &list.workflow).await?;
            let path = format!("/workflows/{}/relations", workflow.id);
            let query = Query::new().add("kind", kinds);
            let page: Page<RelationView> = list.paging.fetch(client, &path, query).await?;
            context.output.list("relations", &page.items, page.total_count, || {
                let mut table = Table::new(["job id", "job", "how", "id", heading]);
                for relation in &page.items {
                    let how = match relation.kind {
                        RelationKind::DependsOn => "after",
                        RelationKind::InputFile | RelationKind::InputUserData => "reads",
                        RelationKind::OutputFile | RelationKind::OutputUserData => "writes",
                    };
                    table.row([
                        Field::number(relation.job_id.0),
                        Field::text(&relation.job_name),
                        Field::text(how),
                        Field::number(relation.item_id),
                        Field::text(&relation.item_name),
                    ]);
                }
                table
            })?;
            Ok(Exit::Success)
        })
    }
}
