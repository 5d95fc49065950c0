//! Loads the programs into a real kernel, and reads their records. Each file below has the checks
//! of one probe, which run on this machine's kernel and on those in virtual machines.

use std::time::Duration;

use nodepulse_core::record::{Received, Record, RecordedKill};
use nodepulse_core::units::Pid;
use nodepulse_io::clock::Clock;
use nodepulse_linux::kernel::{Kernel, loader, ring};
use tokio::sync::{mpsc, watch};

use crate::SOON;

pub mod disks;
pub mod flood;
pub mod judged;
pub mod kills;
pub mod pids;
pub mod psi;
pub mod testing;

pub struct Loaded {
    /// Detaches the programs on drop.
    pub kernel: Kernel,
    events: mpsc::Receiver<Received>,
    /// Stops reading the rings on drop.
    _leaving: watch::Sender<bool>,
}

impl Loaded {
    /// Starts to read both rings. Must be called in a runtime.
    pub fn start(loaded: loader::LoadedKernel) -> Self {
        let (send, events) = mpsc::channel(1024);
        let (leaving, stop) = watch::channel(false);
        for (ring, stop) in [(loaded.crit, stop.clone()), (loaded.bulk, stop)] {
            tokio::spawn(ring::read(ring, Clock::kernel(), send.clone(), stop));
        }
        Self {
            kernel: loaded.kernel,
            events,
            _leaving: leaving,
        }
    }

    /// Returns the first event for which `pick` returns a value, within [`SOON`]. Panics without
    /// one.
    pub async fn next<T>(&mut self, what: &str, mut pick: impl FnMut(&Record) -> Option<T>) -> T {
        let mut seen = Vec::new();
        let search = async {
            loop {
                let received = self.events.recv().await.expect("the rings are read");
                let event = received.record.expect("the record can be decoded");
                if let Some(found) = pick(&event) {
                    return found;
                }
                seen.push(event);
            }
        };
        match tokio::time::timeout(SOON, search).await {
            Ok(found) => found,
            Err(_) => panic!("no {what} within {SOON:?}; seen: {seen:?}"),
        }
    }

    /// Returns every event so far, and those within `wait`.
    pub async fn all_within(&mut self, wait: Duration) -> Vec<Record> {
        let mut seen = Vec::new();
        let collect = async {
            while let Some(received) = self.events.recv().await {
                seen.push(received.record.expect("the record can be decoded"));
            }
        };
        // The timeout ends it: the rings are read as long as the programs exist.
        let _ = tokio::time::timeout(wait, collect).await;
        seen
    }

    /// Waits for the kill of `pid`.
    pub async fn kill_of(&mut self, pid: u32) -> RecordedKill {
        self.next("OOM kill", |event| match event {
            Record::OomKill(kill) if kill.victim == Pid(pid) => Some((**kill).clone()),
            _ => None,
        })
        .await
    }

    pub fn assert_nothing_lost(&self) {
        for (reason, count) in self.kernel.losses().expect("the counters can be read") {
            assert_eq!((reason, count), (reason, 0));
        }
    }
}

/// Returns id and name of all programs in the kernel.
pub fn programs() -> Vec<(u32, String)> {
    let programs = aya::programs::loaded_programs();
    programs
        .filter_map(|info| {
            info.ok()
                .map(|i| (i.id(), i.name_as_str().unwrap_or("").to_owned()))
        })
        .collect()
}
