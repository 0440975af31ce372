//! What several pages look at is made once for all of them.
//!
//! A value is good while its stamp (the newest event, or the number of jobs) is the same, and at
//! least for forty times as long as it took to make: whatever is looked at costs a fortieth of a
//! processor at most.

use super::error::ApiError;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use torc_model::api::{CriticalPathView, FailureGroup, FamilyResources, PaceView};
use torc_model::forecast::ForecastView;
use torc_model::ids::WorkflowId;
use torc_model::slurm::wire::AllocationUse;

use crate::store::FamilyCounts;
use crate::store::read::{FamilyGraph, FamilyIndex};

/// Beyond this many workflows the memory is emptied.
const MAX_WORKFLOWS: usize = 200;
const COST_FACTOR: u32 = 40;

/// Everything that is kept.
pub struct Shown {
    pub index: Cache<FamilyIndex>,
    pub counts: Cache<FamilyCounts>,
    pub pace: Cache<PaceView>,
    pub failures: Cache<Vec<FailureGroup>>,
    pub resources: Cache<Vec<FamilyResources>>,
    pub graph: Cache<FamilyGraph>,
    pub critical_path: Cache<CriticalPathView>,
    pub timeline: Cache<Vec<u8>>,
    pub picture_by_runner: Cache<Vec<u8>>,
    pub picture_by_family: Cache<Vec<u8>>,
    pub forecast: Cache<ForecastView>,
    pub allocations: Cache<Vec<AllocationUse>>,
}

impl Default for Shown {
    fn default() -> Self {
        let (soon, later) = (Duration::from_millis(400), Duration::from_secs(2));
        Self {
            index: Cache::new(Duration::ZERO),
            counts: Cache::new(soon),
            pace: Cache::new(later),
            failures: Cache::new(later),
            resources: Cache::new(later),
            graph: Cache::new(Duration::ZERO),
            critical_path: Cache::new(later),
            timeline: Cache::new(later),
            picture_by_runner: Cache::new(later),
            picture_by_family: Cache::new(later),
            forecast: Cache::new(later),
            allocations: Cache::new(later),
        }
    }
}

type Slot<T> = Arc<tokio::sync::Mutex<Option<Entry<T>>>>;

/// One value per workflow.
pub struct Cache<T> {
    slots: Mutex<HashMap<WorkflowId, Slot<T>>>,
    least: Duration,
}

struct Entry<T> {
    value: Arc<T>,
    stamp: i64,
    made: Instant,
    good_for: Duration,
}

impl<T> Cache<T> {
    fn new(least: Duration) -> Self {
        Self { slots: Mutex::default(), least }
    }

    /// The value, made anew if it is old and its stamp has changed. Access that come meanwhile
    /// wait for it instead of making their own.
    pub async fn get(
        &self,
        id: WorkflowId,
        stamp: i64,
        make: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<Arc<T>, ApiError> {
        let slot = {
            let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            if slots.len() >= MAX_WORKFLOWS && !slots.contains_key(&id) {
                slots.clear();
            }
            slots.entry(id).or_default().clone()
        };
        let mut slot = slot.lock().await;
        if let Some(entry) = &*slot
            && (entry.stamp == stamp || entry.made.elapsed() < entry.good_for)
        {
            return Ok(entry.value.clone());
        }
        let begin = Instant::now();
        let value = Arc::new(make.await?);
        let good_for = self.least.max(begin.elapsed() * COST_FACTOR);
        *slot = Some(Entry { value: value.clone(), stamp, made: Instant::now(), good_for });
        Ok(value)
    }

    /// The value if it was made and nothing has happened since.
    pub async fn as_of(&self, id: WorkflowId, stamp: i64) -> Option<Arc<T>> {
        let slot = {
            let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
            slots.get(&id)?.clone()
        };
        let slot = slot.lock().await;
        slot.as_ref().filter(|entry| entry.stamp == stamp).map(|entry| entry.value.clone())
    }

    /// Forgets what is known of a workflow.
    pub fn forget(&self, id: WorkflowId) {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_value_is_made_again_only_when_it_is_old_and_its_stamp_has_changed() {
        let cache = Cache::<i64>::new(Duration::from_secs(3600));
        let id = WorkflowId(1);
        assert_eq!(*cache.get(id, 1, async { Ok(10) }).await.unwrap(), 10);
        assert_eq!(*cache.get(id, 2, async { Ok(20) }).await.unwrap(), 10, "it is young");
        assert_eq!(cache.as_of(id, 2).await, None, "something has happened since");
        assert_eq!(cache.as_of(id, 1).await.as_deref(), Some(&10));
        cache.forget(id);
        assert_eq!(cache.as_of(id, 1).await, None);
        assert_eq!(*cache.get(id, 2, async { Ok(20) }).await.unwrap(), 20);
        let quick = Cache::<i64>::new(Duration::ZERO);
        assert_eq!(*quick.get(id, 1, async { Ok(1) }).await.unwrap(), 1);
        assert_eq!(*quick.get(id, 1, async { Ok(2) }).await.unwrap(), 1, "nothing has happened");
        let failed = quick.get(WorkflowId(2), 1, async { Err(ApiError::internal()) }).await;
        assert!(failed.is_err());
    }
}
