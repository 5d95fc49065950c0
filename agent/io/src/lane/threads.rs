//! Threads for calls that can block. A thread that has ended its call is kept for the next one,
//! because samples are a few seconds apart.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SendError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;

use nix::errno::Errno;
use tracing::{info, warn};

pub(super) type Job = Box<dyn FnOnce() + Send>;

/// Time for which a thread waits for another call before it ends.
const KEPT: Duration = Duration::from_mins(1);

/// Process-wide, as threads are. Lanes have one call at a time, which limits the number of threads.
static THREADS: Mutex<Threads> = Mutex::new(Threads {
    idle: Vec::new(),
    refused: false,
});

static USED: AtomicBool = AtomicBool::new(false);

/// Runs the calls of all lanes on threads of this module from now on. A process that must continue
/// if the kernel has no thread calls this at its start, because tokio would abort then. By default,
/// calls run on the threads of the runtime, because simulated time does not pass while one of those
/// works.
pub fn use_lane_threads() {
    USED.store(true, Ordering::Relaxed);
}

pub(super) fn are_used() -> bool {
    USED.load(Ordering::Relaxed)
}

struct Threads {
    /// The idle threads, each with its channel of capacity one, which is empty.
    idle: Vec<(ThreadId, SyncSender<Job>)>,
    /// The kernel refused the last thread that was started.
    refused: bool,
}

/// Runs `job` on the thread that became idle last, so that the others end, or on a new one.
pub(super) fn run(job: Job) -> Result<(), Errno> {
    let idle = threads().idle.pop();
    let job = match idle {
        Some((_, thread)) => match thread.send(job) {
            Ok(()) => return Ok(()),
            // It cannot have ended, because it was idle.
            Err(SendError(job)) => job,
        },
        None => job,
    };
    start(job)
}

fn start(job: Job) -> Result<(), Errno> {
    let started = thread::Builder::new()
        .name("lane".to_owned())
        .spawn(move || work(job));
    let refused = started.is_err();
    if std::mem::replace(&mut threads().refused, refused) != refused {
        match &started {
            Ok(_) => info!("threads can be started again"),
            Err(err) => {
                let err = err as &dyn std::error::Error;
                warn!(
                    err,
                    "cannot start a thread for calls that can block; tried again"
                );
            }
        }
    }
    let errno = |err: std::io::Error| Errno::from_raw(err.raw_os_error().unwrap_or_default());
    started.map(drop).map_err(errno)
}

fn work(mut job: Job) {
    let (sender, jobs) = sync_channel(1);
    let this = thread::current().id();
    loop {
        job();
        threads().idle.push((this, sender.clone()));
        let next = jobs.recv_timeout(KEPT).ok().or_else(|| {
            let mut threads = threads();
            let place = threads.idle.iter().position(|(id, _)| *id == this);
            if let Some(place) = place {
                threads.idle.remove(place);
                return None;
            }
            drop(threads);
            // It was taken from the list at this moment, so its job arrives.
            jobs.recv().ok()
        });
        match next {
            Some(next) => job = next,
            None => return,
        }
    }
}

/// Ignores poisoning: a panic elsewhere leaves the value consistent.
fn threads() -> MutexGuard<'static, Threads> {
    THREADS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_is_used_again_and_one_that_panics_is_not() {
        let (ended, calls) = channel();
        let call = |panics: bool| {
            let ended = ended.clone();
            run(Box::new(move || {
                ended.send(thread::current().id()).unwrap();
                assert!(!panics, "a fault");
            }))
            .unwrap();
            let id = calls.recv().unwrap();
            // It is idle a moment after its call.
            while !panics && !threads().idle.iter().any(|(idle, _)| *idle == id) {
                thread::yield_now();
            }
            id
        };
        let first = call(false);
        assert_eq!(call(false), first);
        assert_eq!(call(true), first);
        assert_ne!(call(false), first, "it has ended");
    }
}
