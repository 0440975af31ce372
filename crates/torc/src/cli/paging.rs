//! `--limit`, `--offset`, `--sort-by` and `--reverse`, the same for every list.

use crate::error::Result;
use serde::de::DeserializeOwned;
use torc_client::{Client, Query};
use torc_model::api::Page;

/// Which part of a list.
#[derive(clap::Args, Debug)]
pub struct PagingArgs {
    /// Show at most this many rows [default: all]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..), allow_negative_numbers = true)]
    limit: Option<i64>,

    /// Skip this many rows
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    #[arg(hide_default_value = true, allow_negative_numbers = true)]
    offset: i64,

    /// Sort by this field, such as `name`; a wrong one is answered with all of them
    #[arg(long, value_name = "FIELD")]
    sort_by: Option<String>,

    /// The other way round
    #[arg(long)]
    reverse: bool,
}

impl PagingArgs {
    /// The order, unless the list has one of its own.
    fn order(&self, query: Query, default: Option<(&str, bool)>) -> Query {
        let (field, is_reversed) = match (&self.sort_by, default) {
            (Some(field), _) => (Some(field_of(field)), false),
            (None, Some((field, is_reversed))) => (Some(field), is_reversed),
            (None, None) => (None, false),
        };
        let query = query.maybe("sort_by", field);
        if is_reversed != self.reverse { query.add("reverse_sort", true) } else { query }
    }

    /// The rows in the order that the server gives them, unless the user asks for another.
    pub async fn fetch<T: DeserializeOwned>(
        &self,
        client: &Client,
        path: &str,
        query: Query,
    ) -> Result<Page<T>> {
        self.fetch_rows(client, path, self.order(query, None)).await
    }

    /// The same with an order of the list's own: a field, and whether it is turned round.
    pub async fn fetch_by<T: DeserializeOwned>(
        &self,
        client: &Client,
        path: &str,
        query: Query,
        order: (&str, bool),
    ) -> Result<Page<T>> {
        self.fetch_rows(client, path, self.order(query, Some(order))).await
    }

    /// The rows, over as many requests as the server needs.
    async fn fetch_rows<T: DeserializeOwned>(
        &self,
        client: &Client,
        path: &str,
        query: Query,
    ) -> Result<Page<T>> {
        let mut page: Page<T> = self.fetch_page(client, path, &query, 0).await?;
        while page.has_more && self.limit.is_none_or(|limit| (page.items.len() as i64) < limit) {
            let next: Page<T> =
                self.fetch_page(client, path, &query, page.items.len() as i64).await?;
            if next.items.is_empty() {
                break;
            }
            page.has_more = next.has_more;
            page.items.extend(next.items);
        }
        Ok(page)
    }

    async fn fetch_page<T: DeserializeOwned>(
        &self,
        client: &Client,
        path: &str,
        query: &Query,
        fetched: i64,
    ) -> Result<Page<T>> {
        let limit = self.limit.map_or(PAGE_ROWS, |limit| (limit - fetched).min(PAGE_ROWS));
        let query = query.clone().add("offset", self.offset + fetched).add("limit", limit);
        Ok(client.get(&format!("{path}{query}")).await?)
    }
}

/// The field that a heading of a table stands for.
fn field_of(word: &str) -> &str {
    match word {
        "time" | "elapsed" => "exec_seconds",
        "memory" => "peak_memory_bytes",
        "code" => "return_code",
        "attempt" => "attempt_id",
        "created" | "age" => "created_ms",
        "ended" => "ended_ms",
        other => other,
    }
}

/// Rows per request: few round trips, bounded answers.
const PAGE_ROWS: i64 = 10_000;
