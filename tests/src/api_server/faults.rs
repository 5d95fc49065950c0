//! Scripted misbehaviour.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::record::Recorded;

/// The kind of fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The answer is late. Further faults apply to the same request.
    Latency(Duration),
    /// An error answer with a proper `Status` body.
    Status(u16),
    /// 429 with `Retry-After`, in seconds.
    TooManyRequests(u32),
    /// 429 that asks for a wait beyond all durations, in the header and in the body.
    HugeRetryAfter,
    /// 500 with a body that never ends.
    EndlessError,
    /// 200 with a line that never ends.
    EndlessLine,
    /// 200 with a body that would take hundreds of times its size in memory.
    ManyMembers,
    /// 200 with headers of a megabyte.
    LargeHeaders,
    /// 200 without a body: a watch that is over at once.
    Empty,
    /// 200 with one bookmark: a watch that brings something, and is over at once.
    Bookmark,
    /// 200 with an error event of code 500: a watch that the server cannot serve as requested.
    ErrorEvent,
    /// The request is carried out, and its answer comes one byte a second.
    Drip,
    /// No answer; the connection stays.
    Hang,
    /// The request is carried out, and then there is no answer.
    HangAfterwards,
    /// The connection is reset instead of an answer.
    Reset,
    /// The request is carried out, and then the connection is reset instead of an answer.
    ResetAfterwards,
    /// The connection is reset after the headers of the answer.
    ResetAfterHeaders,
    /// Half of the body of the answer, with the length of the whole.
    Truncated,
    /// 200 with a body that is not JSON.
    Garbage,
    /// This connection stops for ever, as if a firewall had dropped its state.
    FreezeConnection,
    /// All connections there are stop; new ones work.
    FreezeConnections,
    /// All connections there are and will be stop, until [`super::ApiServer::thaw`].
    FreezeAll,
    /// The answer comes, and the connection takes no more requests.
    GoAway,
    /// The answer has this `Date`.
    Date(String),
}

type Predicate = Box<dyn Fn(&Recorded) -> bool + Send + Sync>;

/// An [`Effect`], and the requests that it happens to.
pub struct Fault {
    matches: Predicate,
    skip: u32,
    times: u32,
    effect: Effect,
}

impl Fault {
    /// Happens once, to the first request with this method (`*` for any) below this path.
    pub fn on(method: &str, path_prefix: &str, effect: Effect) -> Self {
        let (method, prefix) = (method.to_owned(), path_prefix.to_owned());
        Self::when(
            move |request| {
                (method == "*" || request.method == method) && request.path.starts_with(&prefix)
            },
            effect,
        )
    }

    /// Happens once, to the first request that the predicate is true for.
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

    /// Lets the first `skip` matching requests pass.
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

    /// Happens until the plan is cleared.
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

/// The faults to come, in the order in which they are tried.
#[derive(Debug, Default)]
pub struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    /// Adds a fault behind the others.
    pub fn push(&self, fault: Fault) {
        self.plan().push(fault);
    }

    /// Removes all faults. Frozen connections stay frozen.
    pub fn clear(&self) {
        self.plan().clear();
    }

    /// How many faults have still to happen.
    pub fn pending(&self) -> usize {
        self.plan().iter().filter(|fault| fault.times > 0).count()
    }

    /// What happens to this request: latencies, and then at most one other effect.
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
