//! `--limit` and `--offset`, the same for every list.

use crate::error::Result;
use serde::de::DeserializeOwned;
use torc_client::{Client, Query};
use torc_model::api::Page;

/// Which part of a list.
#[derive(clap::Args, Debug)]
pub struct Paging {
    /// Show at most this many rows [default: all]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..), allow_negative_numbers = true)]
    limit: Option<i64>,

    /// Skip this many rows
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    #[arg(hide_default_value = true, allow_negative_numbers = true)]
    offset: i64,
}

impl Paging {
    /// The rows, over as many requests as the server needs.
    pub async fn fetch<T: DeserializeOwned>(
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

/// Rows per request: few round trips, bounded answers.
const PAGE_ROWS: i64 = 10_000;
