//! EDGE: calls that can wait for a disk indefinitely, with one thread per purpose.
//!
//! A thread that hangs in the kernel cannot be cancelled. There is therefore at most one thread per
//! purpose: while its call hangs, that purpose is unavailable, and the others continue. It works
//! again when the call returns.

#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

mod threads;

pub use threads::use_lane_threads;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Purpose {
    Configuration,
    /// Reads kubeconfig, certificates and tokens, or runs the program that issues them.
    Credentials,
    /// Space of the root directory's file system; at the start, properties of the machine.
    Nodefs,
    Disks,
    /// Reads `/etc/resolv.conf` and `/etc/hosts`.
    Names,
    /// Reads the names of the links to container logs.
    ContainerLogs,
    /// Reads and writes the state file, and the cgroups' counters that are kept there.
    State,
    /// Reads the memory use before an OOM kill.
    KillDetails,
    /// Appends to the history of incidents.
    History,
}

impl Purpose {
    /// All purposes, and therefore the maximum number of threads.
    pub const ALL: [Self; 9] = [
        Self::Configuration,
        Self::Credentials,
        Self::Nodefs,
        Self::Disks,
        Self::Names,
        Self::ContainerLogs,
        Self::State,
        Self::KillDetails,
        Self::History,
    ];

    /// Returns the name in metrics and messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Credentials => "credentials",
            Self::Nodefs => "nodefs",
            Self::Disks => "disks",
            Self::Names => "names",
            Self::ContainerLogs => "container_logs",
            Self::State => "state",
            Self::KillDetails => "kill_details",
            Self::History => "history",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// There was no answer within the limit; the thread still waits.
    #[error("no answer within {}s", .0.as_secs_f64())]
    Late(Duration),
    /// An earlier call for the same purpose has not returned, so no call was made.
    #[error("an earlier call has not returned")]
    Blocked,
    /// The call ended without an answer, which is a bug.
    #[error("the call ended early")]
    Ended,
    /// The kernel has no thread for the call, for example because all PIDs are in use.
    #[error("cannot start a thread ({0})")]
    NoThread(Errno),
}

/// The calls for one purpose, one at a time. Clones share the lane.
#[derive(Debug, Clone)]
pub struct Lane {
    purpose: Purpose,
    one: Arc<Semaphore>,
    late: Arc<Mutex<Late>>,
}

#[derive(Debug, Default)]
struct Late {
    /// Time at which the call counts as hanging; `None` if no call runs.
    at: Option<Instant>,
    logged: bool,
}

impl Lane {
    pub fn new(purpose: Purpose) -> Self {
        Self {
            purpose,
            one: Arc::new(Semaphore::new(1)),
            late: Arc::default(),
        }
    }

    pub const fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Returns true if a call runs that has exceeded its limit.
    pub fn is_blocked(&self) -> bool {
        let late = lock(&self.late);
        late.at.is_some_and(|at| at <= Instant::now())
    }

    /// Runs `call` on another thread and waits for it, both for at most `limit`. Waits for another
    /// call that is within its limit. Must be called in a runtime.
    pub async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        if self.is_blocked() {
            return Err(NoAnswer::Blocked);
        }
        let run = async {
            let permit = Arc::clone(&self.one).acquire_owned().await;
            let running = RunningCall::start(self, permit.map_err(|_| NoAnswer::Ended)?, limit);
            let (answered, answer) = oneshot::channel();
            start(move || {
                // After a panic, the lane is free before the caller knows.
                let (answered, running) = (answered, running);
                let answer = call();
                drop(running);
                // The caller may have been dropped.
                drop(answered.send(answer));
            })?;
            answer.await.map_err(|_| NoAnswer::Ended)
        };
        timeout(limit, run).await.unwrap_or_else(|_| {
            self.log_late(limit);
            Err(NoAnswer::Late(limit))
        })
    }

    pub async fn free(&self) {
        // The semaphore is never closed.
        drop(self.one.acquire().await);
    }

    fn log_late(&self, limit: Duration) {
        let mut late = lock(&self.late);
        if late.at.is_some() && !late.logged {
            late.logged = true;
            warn!(
                purpose = self.purpose.as_str(),
                limit_s = limit.as_secs_f64(),
                "a file system does not answer; no further calls for this purpose until it does"
            );
        }
    }
}

/// Runs `job` on a thread, see [`use_lane_threads`].
fn start(job: impl FnOnce() + Send + 'static) -> Result<(), NoAnswer> {
    if threads::are_used() {
        return threads::run(Box::new(job)).map_err(NoAnswer::NoThread);
    }
    drop(tokio::task::spawn_blocking(job));
    Ok(())
}

/// A running call, which exists even after its caller is dropped.
struct RunningCall {
    lane: Lane,
    _permit: OwnedSemaphorePermit,
}

impl RunningCall {
    fn start(lane: &Lane, permit: OwnedSemaphorePermit, limit: Duration) -> Self {
        *lock(&lane.late) = Late {
            at: Instant::now().checked_add(limit),
            logged: false,
        };
        Self {
            lane: lane.clone(),
            _permit: permit,
        }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        let was = std::mem::take(&mut *lock(&self.lane.late));
        if was.logged {
            let purpose = self.lane.purpose.as_str();
            info!(purpose, "the file system has answered");
        }
    }
}

/// Ignores poisoning: a panic elsewhere leaves the value consistent.
fn lock(late: &Mutex<Late>) -> MutexGuard<'_, Late> {
    late.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Clone)]
pub struct Lanes(Vec<Lane>);

impl Lanes {
    /// Uses the lanes in `shared`, and new ones for the other purposes.
    pub fn new(shared: &[Lane]) -> Self {
        let lane = |purpose| {
            let shared = shared.iter().find(|lane| lane.purpose() == purpose);
            shared.map_or_else(|| Lane::new(purpose), Lane::clone)
        };
        Self(Purpose::ALL.map(lane).to_vec())
    }

    pub fn of(&self, purpose: Purpose) -> Lane {
        let known = self.0.iter().find(|lane| lane.purpose() == purpose);
        known.map_or_else(|| Lane::new(purpose), Lane::clone)
    }

    pub fn all(&self) -> &[Lane] {
        &self.0
    }

    /// Returns the purposes with a call that exceeded its limit and has not returned.
    pub fn blocked(&self) -> Vec<&'static str> {
        let blocked = self.0.iter().filter(|lane| lane.is_blocked());
        blocked.map(|lane| lane.purpose().as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

    /// Returns a call that hangs until the sender is dropped.
    fn hanging() -> (mpsc::Sender<()>, impl FnOnce() -> u32 + Send + 'static) {
        let (end, ended) = mpsc::channel::<()>();
        let call = move || {
            let _closed = ended.recv();
            7
        };
        (end, call)
    }

    /// Runs a call until it is late. Simulated time does not advance while a thread works, so it is
    /// advanced here.
    async fn late(lane: &Lane, call: impl FnOnce() -> u32 + Send + 'static) {
        let (running, ()) = tokio::join!(lane.run(LIMIT, call), async {
            tokio::task::yield_now().await;
            tokio::time::advance(LIMIT).await;
        });
        assert_eq!(running, Err(NoAnswer::Late(LIMIT)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_blocks_only_its_purpose_until_it_returns() {
        let (stuck, other) = (Lane::new(Purpose::Nodefs), Lane::new(Purpose::Disks));
        let (end, call) = hanging();
        late(&stuck, call).await;
        assert!(stuck.is_blocked() && !other.is_blocked());
        // No second thread, however often it is called.
        for _ in 0..100 {
            let answer = stuck.run(LIMIT, || panic!("a second thread")).await;
            assert_eq!(answer, Err::<(), _>(NoAnswer::Blocked));
        }
        assert_eq!(other.run(LIMIT, || 3).await, Ok(3));

        drop(end);
        stuck.free().await;
        assert!(!stuck.is_blocked());
        assert_eq!(stuck.run(LIMIT, || 4).await, Ok(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_caller_is_dropped_still_blocks_its_purpose() {
        let lane = Lane::new(Purpose::Credentials);
        let (end, call) = hanging();
        {
            let running = lane.run(LIMIT, call);
            tokio::pin!(running);
            tokio::select! {
                biased;
                _ = &mut running => panic!("it hangs"),
                () = tokio::task::yield_now() => {}
            }
        }
        assert!(!lane.is_blocked(), "it is still within its limit");
        tokio::time::advance(LIMIT).await;
        assert!(lane.is_blocked());
        drop(end);
        lane.free().await;
        assert!(!lane.is_blocked());
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_panics_blocks_nothing() {
        let lane = Lane::new(Purpose::State);
        let ended = lane.run(LIMIT, || panic!("a fault")).await;
        assert_eq!(ended, Err::<(), _>(NoAnswer::Ended));
        assert!(!lane.is_blocked());
        assert_eq!(lane.run(LIMIT, || 4).await, Ok(4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shared_lane_is_that_of_its_purpose() {
        let shared = Lane::new(Purpose::Names);
        let lanes = Lanes::new(std::slice::from_ref(&shared));
        assert_eq!(lanes.all().len(), Purpose::ALL.len());
        let (end, call) = hanging();
        late(&shared, call).await;
        assert_eq!(lanes.blocked(), ["names"]);
        for purpose in Purpose::ALL {
            assert_eq!(lanes.of(purpose).purpose(), purpose);
            let is_shared = purpose == Purpose::Names;
            assert_eq!(lanes.of(purpose).is_blocked(), is_shared, "{purpose:?}");
        }
        drop(end);
        shared.free().await;
        assert!(lanes.blocked().is_empty());
    }
}
