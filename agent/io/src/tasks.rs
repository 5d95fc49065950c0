//! EDGE: the tasks that run for as long as the agent does.
//!
//! A task that ends takes a part of the agent with it, which nothing else replaces. The caller that
//! starts a task therefore waits for its end here, and treats that as an error.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::future::Future;

use tokio::sync::oneshot;
use tokio::task::{AbortHandle, Id, JoinSet};
use tracing::error;

/// Tasks, each with a name, which are aborted on drop.
#[derive(Debug, Default)]
pub struct Tasks {
    running: JoinSet<()>,
    names: HashMap<Id, &'static str>,
}

impl Tasks {
    /// Starts a task. Must be called in a runtime.
    pub fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> AbortHandle {
        let handle = self.running.spawn(task);
        self.names.insert(handle.id(), name);
        handle
    }

    /// Starts a task whose work ends in order, which the returned receiver announces. As a task it
    /// goes on, so that [`Self::ended`] does not report it. Must be called in a runtime.
    pub fn spawn_finite(
        &mut self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> oneshot::Receiver<()> {
        let (end, ended) = oneshot::channel();
        self.spawn(name, async move {
            work.await;
            // Fails if the end is not awaited, as when the agent is aborted.
            let _awaited = end.send(());
            std::future::pending::<()>().await;
        });
        ended
    }

    /// Waits until a task ends, and returns its name. Waits for ever while there is none.
    pub async fn ended(&mut self) -> &'static str {
        let Some(ended) = self.running.join_next_with_id().await else {
            return std::future::pending().await;
        };
        let (id, panic) = match ended {
            Ok((id, ())) => (id, None),
            Err(err) => (err.id(), Some(err)),
        };
        let name = self.names.remove(&id).unwrap_or("unnamed");
        if let Some(err) = panic {
            let err = &err as &dyn std::error::Error;
            error!(task = name, err, "a task panicked");
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_returns_and_one_that_panics_are_both_named() {
        let mut tasks = Tasks::default();
        tasks.spawn("running", std::future::pending());
        tasks.spawn("returning", async {});
        assert_eq!(tasks.ended().await, "returning");
        tasks.spawn("panicking", async { panic!("a fault") });
        assert_eq!(tasks.ended().await, "panicking");
    }
}
