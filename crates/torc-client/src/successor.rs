//! A server that ends while a command talks to it, and the one that takes its place.

use crate::{Client, Error};
use http::Method;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Looks for the server that has the state now.
type Find = dyn Fn() -> Pin<Box<dyn Future<Output = Option<Client>> + Send>> + Send + Sync;

/// How to go on when the server is gone. Clones of a client share what was found.
#[derive(Clone)]
pub(crate) struct Successor {
    find: Arc<Find>,
    found: Arc<OnceCell<Option<Client>>>,
}

impl Client {
    /// The same client, which goes on with the server that `find` names when its own has ended:
    /// with every read, and with a change only if nothing of it was sent.
    pub fn with_successor<F>(mut self, find: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Option<Client>> + Send + 'static,
    {
        let find: Arc<Find> = Arc::new(move || Box::pin(find()));
        self.successor = Some(Successor { find, found: Arc::default() });
        self
    }

    /// The client to ask instead after this error.
    pub(crate) async fn instead(&self, method: &Method, error: &Error) -> Option<Client> {
        let successor = self.successor.as_ref()?;
        let may_repeat = error.is_unsent() || (*method == Method::GET && error.is_broken());
        if !may_repeat {
            return None;
        }
        let found = successor.found.get_or_init(|| (successor.find)()).await.as_ref()?;
        Some(found.with_time_limit(self.time_limit()))
    }
}
