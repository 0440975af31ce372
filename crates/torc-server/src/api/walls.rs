//! Walls between users: who may see which workflow, in memory.
//!
//! What is known of a workflow is read at the first question about it and forgotten with every change of
//! an owner or a group: such changes are few, questions are many.

use super::auth::{Caller, Scope};
use super::error::ApiError;
use super::tokens::{Person, TokenScope};
use super::{App, to_the_end};
use crate::store::read::{Audience, Reader, Sharers, Thing};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use torc_model::api::Role;
use torc_model::ids::{JobId, WorkflowId};

/// Beyond this many workflows the memory is emptied.
const MAX_REMEMBERED: usize = 10_000;

/// What is known of walls.
#[derive(Default)]
pub struct Walls {
    known: RwLock<Known>,
}

#[derive(Default)]
struct Known {
    /// Grows whenever everything is forgotten: what was read before counts for nothing then.
    epoch: u64,
    workflows: HashMap<WorkflowId, Arc<Sharers>>,
}

impl Walls {
    fn recall(&self, id: WorkflowId) -> (u64, Option<Arc<Sharers>>) {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        (known.epoch, known.workflows.get(&id).cloned())
    }

    /// Who may see a workflow; None: there is none.
    async fn sharers(
        &self,
        reader: &Reader,
        id: WorkflowId,
    ) -> Result<Option<Arc<Sharers>>, ApiError> {
        let (epoch, known) = self.recall(id);
        if known.is_some() {
            return Ok(known);
        }
        let Some(read) = reader.sharers(id).await?.map(Arc::new) else { return Ok(None) };
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.epoch == epoch {
            if known.workflows.len() >= MAX_REMEMBERED {
                known.workflows.clear();
            }
            known.workflows.insert(id, read.clone());
        }
        Ok(Some(read))
    }

    /// An owner or a group has changed.
    pub fn forget(&self) {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.epoch += 1;
        known.workflows.clear();
    }
}

impl Person {
    /// May see a workflow that these share.
    fn is_among(&self, id: WorkflowId, sharers: &Sharers) -> bool {
        match self.scope {
            TokenScope::Workflow(own) => own == id,
            TokenScope::Group(group) => sharers.groups.contains(&group),
            TokenScope::User => {
                *self.user == *sharers.owner || sharers.members.contains(&*self.user)
            }
        }
    }
}

/// Which part of a list the caller gets.
pub struct Within {
    /// Of this workflow only.
    pub workflow_id: Option<i64>,
    /// Of workflows that these may see.
    pub audience: Audience,
}

impl App {
    /// The caller may see this workflow; to those who may not, it is not there.
    pub(super) async fn check(&self, caller: &Caller, id: WorkflowId) -> Result<(), ApiError> {
        caller.check(id)?;
        match caller.walled() {
            Some(person) if !self.may_see(person, id).await? => {
                Err(Thing::Workflow.not_found(id.0).into())
            }
            _ => Ok(()),
        }
    }

    /// The same for the workflow of a thing.
    pub(super) async fn check_thing(
        &self,
        caller: &Caller,
        thing: Thing,
        id: i64,
    ) -> Result<WorkflowId, ApiError> {
        let workflow = self.reader().workflow_of(thing, id).await?;
        caller.check(workflow)?;
        match caller.walled() {
            Some(person) if !self.may_see(person, workflow).await? => {
                Err(thing.not_found(id).into())
            }
            _ => Ok(workflow),
        }
    }

    /// The same for several jobs.
    pub(super) async fn check_jobs(
        &self,
        caller: &Caller,
        jobs: impl IntoIterator<Item = JobId>,
    ) -> Result<(), ApiError> {
        if caller.walled().is_some() {
            for job in jobs {
                self.check_thing(caller, Thing::Job, job.0).await?;
            }
        }
        Ok(())
    }

    /// Whether a stream that was begun may go on: the token is still good, and the wall still open.
    pub(super) async fn may_go_on(&self, caller: &Caller, id: WorkflowId) -> bool {
        let Some(person) = caller.person() else { return true };
        self.inner.auth.tokens.is_good(person.token).await && self.check(caller, id).await.is_ok()
    }

    /// The same from memory alone; None: that does not tell.
    pub(super) fn check_now(&self, caller: &Caller, id: WorkflowId) -> Option<()> {
        caller.check(id).ok()?;
        let Some(person) = caller.walled() else { return Some(()) };
        let sharers = self.inner.walls.recall(id).1?;
        person.is_among(id, &sharers).then_some(())
    }

    async fn may_see(&self, person: &Person, id: WorkflowId) -> Result<bool, ApiError> {
        let sharers = self.inner.walls.sharers(self.reader(), id).await?;
        Ok(sharers.is_some_and(|sharers| person.is_among(id, &sharers)))
    }

    /// The wall before what a path names.
    pub(super) async fn check_path(
        &self,
        person: &Person,
        thing: Thing,
        id: i64,
        only_own: bool,
    ) -> Result<(), ApiError> {
        let workflow = match thing {
            Thing::Workflow => WorkflowId(id),
            other => self.reader().workflow_of(other, id).await?,
        };
        let sharers = self.inner.walls.sharers(self.reader(), workflow).await?;
        let Some(sharers) = sharers.filter(|sharers| person.is_among(workflow, sharers)) else {
            return Err(thing.not_found(id).into());
        };
        if only_own && *person.user != *sharers.owner {
            let message = format!("workflow {workflow} belongs to {}", sharers.owner);
            return Err(ApiError::forbidden(message)
                .hint("only its owner and admins delete it or share it with others"));
        }
        Ok(())
    }

    /// Which part of a list the caller gets: what was asked for, as far as they may see it.
    pub(super) async fn within(
        &self,
        caller: &Caller,
        asked: Option<i64>,
    ) -> Result<Within, ApiError> {
        let workflow_id = caller.narrow(asked)?;
        let audience = match (caller.walled(), workflow_id) {
            (None, _) => Audience::All,
            // One look in memory spares the database the question for each row.
            (Some(person), Some(id)) if self.may_see(person, WorkflowId(id)).await? => {
                Audience::All
            }
            (Some(person), _) => person.audience(),
        };
        Ok(Within { workflow_id, audience })
    }

    /// Changes owners or groups. Runs in a task of its own: when a caller hangs up, its request is
    /// dropped where it waits, and between the commit and the change in memory a wall would stay open.
    pub(super) async fn change_walls<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ApiError>> + Send + 'static,
    ) -> Result<T, ApiError> {
        let app = self.clone();
        to_the_end(async move {
            let done = work.await;
            app.inner.walls.forget();
            // Pools choose by what they may see; the wall itself stands in every request.
            app.store().walls_changed().await?;
            done
        })
        .await
    }
}

impl Person {
    /// Whose eyes their lists are for.
    pub fn audience(&self) -> Audience {
        match self.scope {
            _ if self.role == Role::Admin => Audience::All,
            TokenScope::User => Audience::User(self.user.clone()),
            TokenScope::Group(id) => Audience::Group(id),
            // Its lists are narrowed to its workflow.
            TokenScope::Workflow(_) => Audience::All,
        }
    }
}

impl Caller {
    /// Whose token it is, also through a page.
    pub fn person(&self) -> Option<&Person> {
        match self {
            Self::Known(Scope::Person(person) | Scope::Page(_, Some(person))) => Some(person),
            Self::Known(
                Scope::Owner
                | Scope::Runner(_)
                | Scope::Job(..)
                | Scope::Action(_)
                | Scope::Page(_, None),
            )
            | Self::Anonymous => None,
        }
    }

    /// The person, if there are walls before them.
    pub fn walled(&self) -> Option<&Person> {
        self.person().filter(|person| person.role != Role::Admin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_a_change_does_not_come_back_after_it() {
        let walls = Walls::default();
        let (epoch, known) = walls.recall(WorkflowId(1));
        assert!(known.is_none());
        walls.forget();
        assert_ne!(walls.recall(WorkflowId(1)).0, epoch);
    }
}
