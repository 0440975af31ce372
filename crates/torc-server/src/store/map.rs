//! Maps and steps in the store: items become jobs, reduce gets its results, captures become user
//! data, and what steps did becomes events.

use super::journal::{files, json, maps};
use super::lookups;
use super::refusal::Refusal;
use super::writer::{Failed, Tx};
use rusqlite::Connection;
use serde::Deserialize as _;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use torc_engine::commands::{ChangeItem, DropItems, RetryItems};
use torc_engine::{
    Claimed, FoundItems, ItemDifference, JobIx, MapJob, NewItem, On, Workflow, limit_name,
};
use torc_model::api::{AttemptPacket, CompletionReport, ErrorCode, ItemView, ItemsRequest};
use torc_model::ids::{JobId, WorkflowId};
use torc_model::plan::{Job, JobExtra, Plan};
use torc_model::status::{ItemOutcome, JobStatus};
use torc_model::steps::{Expr, Item, ItemSource, MapRole, MapSettings, Tree, job_name};

/// Puts the limit that each map sets on its items into them; `id` numbers the jobs.
pub fn set_limits(jobs: &mut [Job], id: impl Fn(usize) -> JobId) {
    if jobs.iter().all(|job| job.extra.map.is_none()) {
        return;
    }
    let roles: Vec<Option<MapRole>> = jobs.iter().map(|job| role(&job.extra)).collect();
    let mut bounded: HashMap<String, String> = HashMap::new();
    for (index, (job, role)) in jobs.iter().zip(&roles).enumerate() {
        if matches!(role, Some(MapRole::Map(settings)) if settings.max_parallel.is_some()) {
            bounded.insert(job.name.clone(), limit_name(id(index)));
        }
    }
    for (job, role) in jobs.iter_mut().zip(&roles) {
        if let Some(MapRole::Item { of, .. }) = role
            && let Some(limit) = bounded.get(of.as_str())
        {
            job.extra.uses.push(limit.clone());
        }
    }
}

/// What a job has to do with a map.
pub fn role_of(extra: &JobExtra) -> Option<MapRole> {
    role(extra)
}

fn role(extra: &JobExtra) -> Option<MapRole> {
    extra.map.as_ref().and_then(|map| MapRole::from_value(map).ok())
}

/// A map as the engine takes it.
pub fn map_job(settings: &MapSettings, is_expanded: bool) -> MapJob {
    MapJob {
        tolerate: settings.tolerate,
        fail_fast: settings.fail_fast,
        is_dynamic: !matches!(settings.items, ItemSource::List(_)),
        is_expanded,
        max_parallel: settings.max_parallel,
        ..MapJob::default()
    }
}

/// Tells the engine which jobs of a new workflow are maps and items.
pub fn tie(plan: &Plan, workflow: &mut Workflow) {
    let jobs =
        plan.jobs.iter().enumerate().filter(|(_, job)| job.extra.map.is_some()).map(
            |(index, job)| (JobIx::new(index), job.name.as_str(), role(&job.extra), false, false),
        );
    tie_all(jobs.collect(), workflow);
}

/// The maps and items among new jobs of a plan, for the engine. `place` gives a job of the plan its
/// index in the engine.
pub fn tie_new(
    plan: &Plan,
    new: &[usize],
    place: impl Fn(usize) -> Option<JobIx>,
    revision: &mut torc_engine::Revision,
) {
    let roles: Vec<(usize, MapRole)> =
        new.iter().filter_map(|at| Some((*at, role(&plan.jobs[*at].extra)?))).collect();
    if roles.is_empty() {
        return;
    }
    let names: HashMap<&str, usize> =
        plan.jobs.iter().enumerate().map(|(at, job)| (job.name.as_str(), at)).collect();
    for (at, role) in roles {
        let Some(index) = place(at) else { continue };
        match role {
            MapRole::Map(settings) => {
                revision.maps.push((index, Some(map_job(&settings, false))));
            }
            MapRole::Item { of, .. } => {
                let map = names.get(of.as_str()).and_then(|map| place(*map));
                revision.items.extend(map.map(|map| (index, map)));
            }
            MapRole::Reduce(_) => {}
        }
    }
}

type Tied<'a> = (JobIx, &'a str, Option<MapRole>, bool, bool);

fn tie_all(jobs: Vec<Tied<'_>>, workflow: &mut Workflow) {
    let mut maps: HashMap<&str, JobIx> = HashMap::new();
    for (index, name, role, is_expanded, _) in &jobs {
        if let Some(MapRole::Map(settings)) = role {
            workflow.set_map(*index, map_job(settings, *is_expanded));
            maps.insert(name, *index);
        }
    }
    for (index, _, role, _, is_gone) in &jobs {
        if let Some(MapRole::Item { of, .. }) = role
            && let Some(map) = maps.get(of.as_str())
        {
            workflow.set_item(*index, *map, *is_gone);
        }
    }
}

/// The same for a workflow that was read from the database.
pub fn restore(db: &Connection, id: WorkflowId, workflow: &mut Workflow) -> rusqlite::Result<()> {
    let mut found = Vec::new();
    for row in maps::rows(db, id)? {
        let Some(index) = workflow.find(row.id) else { continue };
        found.push((index, row.name, role(&row.extra), row.is_expanded, row.is_gone));
    }
    if !found.is_empty() {
        let tied = found.iter().map(|(index, name, role, expanded, gone)| {
            (*index, name.as_str(), role.clone(), *expanded, *gone)
        });
        tie_all(tied.collect(), workflow);
        // Dependencies were counted without knowing of items.
        workflow.settle();
    }
    Ok(())
}

/// What an attempt of a map, an item or a reduce needs beyond its row.
pub fn complete_packet(
    tx: &mut Tx<'_>,
    claimed: &Claimed,
    role: &Value,
    packet: &mut AttemptPacket,
) -> Result<(), Failed> {
    let role = MapRole::from_value(role).map_err(Refusal::internal)?;
    let id = super::people::workflow_of(tx, claimed.job)?;
    match role {
        MapRole::Item { of, item, .. } => {
            let mut steps = maps::steps_of(tx.db, id, &of)?.unwrap_or_else(|| json!({}));
            steps["item"] = item;
            packet.steps = Some(steps);
        }
        MapRole::Map(mut settings) => {
            if let ItemSource::UserData { name, value, .. } = &mut settings.items {
                *value = files::find_user_data(tx.db, id, name)?.and_then(|(_, known)| known.data);
            }
            let tree = Tree { expand: Some(settings), ..Tree::default() };
            packet.steps = Some(tree.to_value());
            // It only looks for items; what each of them writes is theirs.
            packet.output_files.clear();
        }
        MapRole::Reduce(of) => {
            let results = results(tx, id, &of)?;
            if let Some(steps) = &mut packet.steps {
                steps["map"] = results;
            }
        }
    }
    Ok(())
}

/// The results of a map, as its reduce sees them.
fn results(tx: &mut Tx<'_>, id: WorkflowId, map: &str) -> Result<Value, Failed> {
    let rows = items(tx, id, map)?;
    let existing = || rows.iter().filter(|row| row.status != JobStatus::Disabled && !row.is_gone);
    let count = |outcome: ItemOutcome| existing().filter(|row| row.outcome == outcome).count();
    let (ok, recovered) = (count(ItemOutcome::Ok), count(ItemOutcome::Recovered));
    let lines: Vec<Value> = existing()
        .map(|row| {
            json!({
                "key": row.key, "item": row.item, "outcome": row.outcome, "exit_code": row.return_code,
                "attempts": row.attempt_id, "error": row.error.as_ref().map(|message| json!({"message": message})),
                "captures": row.captures, "stdout_file": row.stdout_path, "stderr_file": row.stderr_path,
            })
        })
        .collect();
    Ok(json!({
        "total": lines.len(), "successful": ok + recovered, "failed": lines.len() - ok - recovered,
        "recovered": recovered, "rows": lines,
    }))
}

/// The items of a map, in their order.
pub fn items(tx: &mut Tx<'_>, id: WorkflowId, map: &str) -> Result<Vec<ItemView>, Failed> {
    let index = map_index(tx, id, map)?;
    items_of(tx, id, index)
}

/// The items of all maps.
pub fn all_items(tx: &mut Tx<'_>, id: WorkflowId) -> Result<Vec<ItemView>, Failed> {
    let workflow = tx.workflow(id)?;
    let maps: Vec<JobIx> =
        workflow.indexes().filter(|index| workflow.map(*index).is_some()).collect();
    let mut all = Vec::new();
    for map in maps {
        all.extend(items_of(tx, id, map)?);
    }
    Ok(all)
}

fn items_of(tx: &mut Tx<'_>, id: WorkflowId, index: JobIx) -> Result<Vec<ItemView>, Failed> {
    let workflow = tx.workflow(id)?;
    let ids: Vec<JobId> = workflow
        .map(index)
        .map_or_else(Vec::new, |m| m.items.iter().map(|i| workflow.job(*i).id()).collect());
    let mut views = Vec::with_capacity(ids.len());
    for job in ids {
        let row = maps::item(tx.db, job)?;
        let (key, item) = match role(&row.extra) {
            Some(MapRole::Item { key, item, .. }) => (key, item),
            _ => (String::new(), Value::Null),
        };
        let steps = row.steps.unwrap_or_default();
        let outcome = match row.view.status {
            JobStatus::Completed if steps["recovered"].as_i64() > Some(0) => ItemOutcome::Recovered,
            JobStatus::Completed => ItemOutcome::Ok,
            JobStatus::Disabled => ItemOutcome::Dropped,
            status if status.is_bad_end() => ItemOutcome::Failed,
            _ => ItemOutcome::Open,
        };
        let captures = Some(steps["captures"].clone()).filter(|captures| !captures.is_null());
        views.push(ItemView { key, item, outcome, captures, ..row.view });
    }
    Ok(views)
}

fn map_index(tx: &mut Tx<'_>, id: WorkflowId, map: &str) -> Result<JobIx, Failed> {
    tx.workflow(id)?;
    let job = lookups::find_job(tx.db, id, map)?;
    let workflow = tx.workflow(id)?;
    let index =
        job.and_then(|job| workflow.find(job)).filter(|index| workflow.map(*index).is_some());
    index.ok_or_else(|| {
        Refusal::conflict(ErrorCode::NotAMap, format!("`{map}` is not a job with `map`")).into()
    })
}

/// What an attempt of a map found when it looked for its items, against what rows say of them.
pub fn found_items(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    index: JobIx,
    report: &CompletionReport,
) -> Result<Option<FoundItems>, Failed> {
    let Some(found) = report.steps.as_ref().and_then(|steps| steps.get("items")) else {
        return Ok(None);
    };
    let is_dynamic = tx.workflow(id)?.map(index).is_some_and(|map| map.is_dynamic);
    if report.cause.is_some() || !is_dynamic {
        return Ok(None);
    }
    let items: Vec<Item> =
        Vec::deserialize(found).map_err(|e| Refusal::invalid("steps.items", e.to_string()))?;
    compare(tx, id, index, items).map(Some)
}

fn compare(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    index: JobIx,
    items: Vec<Item>,
) -> Result<FoundItems, Failed> {
    let workflow = tx.workflow(id)?;
    let parent = workflow.job(index).id();
    let ids: Vec<(JobIx, JobId)> = workflow.map(index).map_or_else(Vec::new, |map| {
        map.items.iter().map(|item| (*item, workflow.job(*item).id())).collect()
    });
    let name = lookups::name_of(tx.db, parent)?;
    let mut extra = lookups::job_extra(tx.db, parent)?;
    if matches!(role(&extra), Some(MapRole::Map(settings)) if settings.max_parallel.is_some()) {
        extra.uses.push(limit_name(parent));
    }
    let mut known: BTreeMap<String, (JobIx, Value)> = BTreeMap::new();
    for (item, job) in ids {
        let old = lookups::job_extra(tx.db, job)?;
        if let Some(MapRole::Item { key, item: value, .. }) = role(&old) {
            known.insert(key, (item, value));
        }
    }
    let ItemDifference { kept, changed, new, gone } = ItemDifference::of(known, items);
    let text = |item: &Item| -> rusqlite::Result<Option<String>> {
        let role =
            MapRole::Item { of: name.clone(), key: item.key.clone(), item: item.item.clone() };
        json(Some(&JobExtra { map: Some(role.to_value()), ..extra.clone() }))
    };
    let new = new
        .iter()
        .map(|item| Ok(NewItem { name: job_name(&name, &item.key), extra: text(item)? }))
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let changed = changed
        .iter()
        .map(|(at, item)| Ok((*at, text(item)?)))
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(FoundItems { new, kept, changed, gone })
}

/// The items that a request names: by key, by expression, or all that ended badly.
fn chosen(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &ItemsRequest,
) -> Result<Vec<ItemView>, Failed> {
    let filter = request.filter.as_deref().map(Expr::parse).transpose();
    let filter = filter.map_err(|error| Refusal::invalid("where", error.to_string()))?;
    let mut found = items(tx, id, &request.job)?;
    for key in &request.keys {
        if !found.iter().any(|item| item.key == *key) {
            return Err(Refusal::conflict(
                ErrorCode::NoSuchItem,
                format!("`{}` has no item `{key}`", request.job),
            )
            .into());
        }
    }
    let mut wrong = None;
    found.retain(|item| {
        let named = request.keys.is_empty() || request.keys.contains(&item.key);
        let dead = !request.keys.is_empty() || (item.status.is_bad_end() && !item.is_gone);
        let holds = filter.as_ref().is_none_or(|filter| {
            filter.holds(&|root| (root == "item").then_some(&item.item)).unwrap_or_else(|error| {
                wrong = Some(error.to_string());
                false
            })
        });
        named && dead && holds
    });
    if let Some(message) = wrong {
        return Err(Refusal::invalid("where", message).into());
    }
    Ok(found)
}

fn indexes(tx: &mut Tx<'_>, id: WorkflowId, items: &[ItemView]) -> Result<Vec<JobIx>, Failed> {
    let workflow = tx.workflow(id)?;
    Ok(items.iter().filter_map(|item| workflow.find(item.job_id)).collect())
}

/// Runs items again.
pub fn retry(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &ItemsRequest,
) -> Result<Vec<ItemView>, Failed> {
    let found = chosen(tx, id, request)?;
    if request.item.is_some() && found.len() != 1 {
        return Err(Refusal::invalid("item", "name one item by its key to edit it").into());
    }
    let items = indexes(tx, id, &found)?;
    tx.handle(On(id, RetryItems { items: &items }))?;
    if let (Some(new), [single]) = (&request.item, found.as_slice()) {
        let mut extra = lookups::job_extra(tx.db, single.job_id)?;
        if let Some(MapRole::Item { of, key, .. }) = role(&extra) {
            extra.map = Some(MapRole::Item { of, key, item: new.clone() }.to_value());
        }
        let (item, extra) = (single.job_id, json(Some(&extra))?);
        tx.handle(On(id, ChangeItem { item, extra }))?;
    }
    Ok(found)
}

/// Takes dead items out of the count.
pub fn drop_items(
    tx: &mut Tx<'_>,
    id: WorkflowId,
    request: &ItemsRequest,
) -> Result<Vec<ItemView>, Failed> {
    let found = chosen(tx, id, request)?;
    let items = indexes(tx, id, &found)?;
    tx.handle(On(id, DropItems { items: &items }))?;
    Ok(found)
}
