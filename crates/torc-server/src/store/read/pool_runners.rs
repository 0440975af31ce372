//! Runners that serve every workflow their token may see.

use super::page::{self, Filter, List, Paging};
use super::runners::lease_begin;
use super::{ReadError, Reader};
use rusqlite::Row;
use torc_model::api::{Page, PoolRunnerView};
use torc_model::ids::PoolRunnerId;
use torc_model::status::{RunnerOrder, RunnerState};

const LIST: List = List {
    rows: "SELECT p.*, (SELECT count(*) FROM compute_node n WHERE n.pool_runner_id = p.id AND n.ended_ms IS NULL) \
           AS workflows, (SELECT count(*) FROM compute_node n JOIN job j ON j.workflow_id = n.workflow_id \
           AND j.status IN (3, 4) JOIN attempt a ON a.workflow_id = j.workflow_id AND a.job_id = j.id \
           AND a.ended_ms IS NULL AND a.compute_node_id = n.id \
           WHERE n.pool_runner_id = p.id AND n.ended_ms IS NULL) AS held FROM pool_runner p",
    table: "pool_runner p",
    key: "p.id",
    sorts: &[("id", "p.id"), ("hostname", "p.hostname"), ("started_ms", "p.started_ms")],
};

/// Which pool runners.
#[derive(Clone, Default, Debug)]
pub struct PoolRunnerFilter {
    /// With tokens of this user.
    pub user: Option<String>,
    /// Still there as far as known, or gone.
    pub is_active: Option<bool>,
}

impl Reader {
    /// One page of pool runners, as of `now_ms`.
    pub async fn list_pool_runners(
        &self,
        filter: PoolRunnerFilter,
        paging: Paging,
        now_ms: i64,
    ) -> Result<Page<PoolRunnerView>, ReadError> {
        self.read(move |connection| {
            let filter = Filter::default()
                .with("p.user = ?", filter.user)
                .with("(p.ended_ms IS NULL) = ?", filter.is_active);
            LIST.page(connection, filter, &paging, |row| view(row, now_ms))
        })
        .await
    }

    /// One pool runner, as of `now_ms`.
    pub async fn get_pool_runner(
        &self,
        id: PoolRunnerId,
        now_ms: i64,
    ) -> Result<PoolRunnerView, ReadError> {
        self.read(move |connection| {
            LIST.get(connection, "pool runner", id.0, |row| view(row, now_ms))
        })
        .await
    }
}

fn view(row: &Row<'_>, now_ms: i64) -> rusqlite::Result<PoolRunnerView> {
    let ended_ms: Option<i64> = row.get("ended_ms")?;
    let last_seen_ms: i64 = row.get("last_seen_ms")?;
    let state = match ended_ms {
        Some(_) => RunnerState::Ended,
        None if last_seen_ms >= lease_begin(now_ms) => RunnerState::Active,
        None => RunnerState::LostContact,
    };
    Ok(PoolRunnerView {
        id: page::id(row, "id", PoolRunnerId)?,
        user: row.get("user")?,
        hostname: row.get("hostname")?,
        pid: row.get("pid")?,
        capacity: page::json(row, "capacity")?.unwrap_or_default(),
        label: row.get("label")?,
        state,
        started_ms: row.get("started_ms")?,
        last_seen_ms,
        ended_ms,
        end_reason: row.get("end_reason")?,
        ordered: page::maybe_word(row, "ordered", RunnerOrder::parse)?,
        workflows: row.get("workflows")?,
        held: row.get("held")?,
    })
}
