//! Injects faults by a plan.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::record::Recorded;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Delays the answer. Further faults apply to the same request.
    Latency(Duration),
    /// Answers with an error and a valid `Status` body.
    Status(u16),
    /// Answers with 429 and `Retry-After`, in seconds.
    TooManyRequests(u32),
    /// Answers with 429 and a delay beyond all durations, in the header and in the body.
    HugeRetryAfter,
    /// Answers with 500 and an endless body.
    EndlessError,
    /// Answers with 200 and an endless line.
    EndlessLine,
    /// Answers with 200 and a body that would take hundreds of times its size in memory.
    ManyMembers,
    /// Answers with 200 and headers of a megabyte.
    LargeHeaders,
    /// Answers with 200 and no body: a watch that ends at once.
    Empty,
    /// Answers with 200 and one bookmark: a watch that has an event, and ends at once.
    Bookmark,
    /// Answers with 200 and an error event of code 500: a watch that the server cannot serve as
    /// requested.
    ErrorEvent,
    /// Performs the request, and sends its answer one byte per second.
    Drip,
    /// Sends no answer, and leaves the connection open.
    Hang,
    /// Performs the request, and sends no answer.
    HangAfterwards,
    /// Resets the connection instead of an answer.
    Reset,
    /// Performs the request, and resets the connection instead of an answer.
    ResetAfterwards,
    /// Resets the connection after the headers of the answer.
    ResetAfterHeaders,
    /// Sends half of the answer's body, with the length of the whole.
    Truncated,
    /// Answers with 200 and a body that is not JSON.
    Garbage,
    /// Stops this connection for ever, as if a firewall had dropped its state.
    FreezeConnection,
    /// Stops all existing connections; new ones work.
    FreezeConnections,
    /// Stops all existing and new connections, until [`super::ApiServer::thaw`].
    FreezeAll,
    /// Answers, and accepts no further requests on the connection.
    GoAway,
    /// Answers with this `Date`.
    Date(String),
}

type Predicate = Box<dyn Fn(&Recorded) -> bool + Send + Sync>;

/// An [`Effect`], and the requests that it applies to.
pub struct Fault {
    matches: Predicate,
    skip: u32,
    times: u32,
    effect: Effect,
}

impl Fault {
    /// Applies once, to the first request with this method (`*` for any) below this path.
    pub fn on(method: &str, path_prefix: &str, effect: Effect) -> Self {
        let (method, prefix) = (method.to_owned(), path_prefix.to_owned());
        Self::when(
            move |request| {
                (method == "*" || request.method == method) && request.path.starts_with(&prefix)
            },
            effect,
        )
    }

    /// Applies once, to the first request for which the predicate is true.
    pub fn when(
        matches: impl Fn(&Recorded) -> bool + Send + Sync + 'static,
        effect: Effect,
    ) -> Self {
        Self {
            matches: Box::new(matches),
            skip: 0,
            times: 1,
            effect,
        }
    }

    /// Skips the first `skip` matching requests.
    #[must_use]
    pub fn skip(mut self, skip: u32) -> Self {
        self.skip = skip;
        self
    }

    /// Applies to this many requests.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }

    /// Applies until the plan is cleared.
    #[must_use]
    pub fn always(self) -> Self {
        self.times(u32::MAX)
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault")
            .field("skip", &self.skip)
            .field("times", &self.times)
            .field("effect", &self.effect)
            .finish_non_exhaustive()
    }
}

/// The faults that are left, in the order in which they are tried.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    pub fn push(&self, fault: Fault) {
        self.plan().push(fault);
    }

    /// Removes all faults. Frozen connections stay frozen.
    pub fn clear(&self) {
        self.plan().clear();
    }

    /// Returns the number of faults that are left.
    pub fn pending(&self) -> usize {
        self.plan().iter().filter(|fault| fault.times > 0).count()
    }

    /// Returns the effects on this request: latencies, and then at most one other.
    pub(super) fn take(&self, request: &Recorded) -> Vec<Effect> {
        let mut effects = Vec::new();
        for fault in self.plan().iter_mut() {
            if fault.times == 0 || !(fault.matches)(request) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            if fault.times != u32::MAX {
                fault.times -= 1;
            }
            effects.push(fault.effect.clone());
            if !matches!(fault.effect, Effect::Latency(_)) {
                break;
            }
        }
        effects
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, Vec<Fault>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
