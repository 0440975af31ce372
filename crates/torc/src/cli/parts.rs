//! What the commands for named parts of a spec have in common: they are listed, found by id or name,
//! shown, added and taken out.

use super::Context;
use super::edit::{self, Edit, EditArgs};
use super::paging::PagingArgs;
use super::references::{self, LATEST, WorkflowOption};
use crate::error::Result;
use crate::output::Table;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use torc_client::{Client, Query};
use torc_model::api::Page;
use torc_model::ids::WorkflowId;

/// A kind of part, as the server tells of it.
pub trait Part: Serialize + DeserializeOwned {
    /// The list that the spec, the API and JSON answers have of them.
    const LIST: &'static str;
    /// One of them, in words.
    const WHAT: &'static str;
    /// Its name, unique in the workflow.
    fn name(&self) -> &str;
    /// Whose it is.
    fn workflow_id(&self) -> WorkflowId;
    /// All of them, a row each.
    fn table(list: &[Self]) -> Table;
}

/// Which workflow's parts to list.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct List {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    pub workflow: String,

    #[command(flatten)]
    paging: PagingArgs,
}

impl List {
    /// Shows the parts of this kind.
    pub async fn execute<P: Part>(self, context: &Context, client: &Client) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        self.show::<P>(context, client, Query::new().add("workflow_id", workflow.id)).await
    }

    /// Shows those that a query asks for.
    pub async fn show<P: Part>(
        self,
        context: &Context,
        client: &Client,
        query: Query,
    ) -> Result<()> {
        let page: Page<P> = self.paging.fetch(client, &format!("/{}", P::LIST), query).await?;
        context.output.list(P::LIST, &page.items, page.total_count, || P::table(&page.items))
    }
}

/// Which part is meant.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct One {
    /// Its id or its name
    #[arg(value_name = "NAME")]
    which: String,

    #[command(flatten)]
    workflow: WorkflowOption,
}

impl One {
    /// What the server knows of it.
    pub async fn find<P: Part>(&self, client: &Client) -> Result<P> {
        let path = format!("/{}", P::LIST);
        edit::find(client, &path, P::WHAT, &self.which, &self.workflow).await
    }

    /// Shows it as the only row of a list.
    pub async fn execute<P: Part>(self, context: &Context, client: &Client) -> Result<()> {
        let found: P = self.find(client).await?;
        context.output.value(&found, |found| P::table(std::slice::from_ref(found)).render())
    }

    /// The part, and the spec that it stands in, to be changed.
    pub async fn edit<'a, P: Part>(
        &self,
        context: &'a Context,
        client: &'a Client,
    ) -> Result<(P, Edit<'a>)> {
        let found: P = self.find(client).await?;
        let workflow = client.get_workflow(found.workflow_id()).await?;
        Ok((found, Edit::begin(context, client, workflow).await?))
    }
}

/// A new part of a workflow's spec.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct New {
    /// Workflow: its id, its name, or `latest`
    #[arg(default_value = LATEST)]
    workflow: String,

    /// Name, unique in the workflow
    #[arg(short, long)]
    name: String,
}

impl New {
    /// Adds it with what `write` puts beside its name.
    pub async fn execute<P: Part>(
        self,
        context: &Context,
        client: &Client,
        how: EditArgs,
        write: impl FnOnce(&mut Map<String, Value>),
    ) -> Result<()> {
        let workflow = references::workflow(client, &self.workflow).await?;
        let mut edit = Edit::begin(context, client, workflow).await?;
        let mut entry = Map::from_iter([("name".to_owned(), json!(self.name))]);
        write(&mut entry);
        edit.entries(P::LIST)?.push(Value::Object(entry));
        edit.apply(&format!("{} `{}`", P::WHAT, self.name), how).await
    }
}

/// Which part to take out.
#[derive(clap::Args, Debug)]
#[group(skip)]
pub struct Delete {
    #[command(flatten)]
    one: One,

    #[command(flatten)]
    how: EditArgs,
}

impl Delete {
    /// Takes it out of the spec.
    pub async fn execute<P: Part>(self, context: &Context, client: &Client) -> Result<()> {
        let (found, mut edit) = self.one.edit::<P>(context, client).await?;
        edit.remove(P::LIST, found.name())?;
        edit.apply(&format!("{} `{}`: taken out", P::WHAT, found.name()), self.how).await
    }
}
