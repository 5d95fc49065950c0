//! Measures when the API server has conditions that flap: here in simulated time, in [`real`] on
//! this machine.

use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::reading::{Stall, StallKind, StallOf};
use nodepulse_core::record::{Record, Side};
use serde_json::Value;

use crate::api_server::ApiServer;
use crate::host_root::MadeUpHost;
use crate::node::{Running, pass};
use crate::view::View;

pub mod real;
pub mod resource;

const NODE: &str = "worker-1";
/// Number of crossings of each threshold.
pub const CROSSINGS: u32 = 20;
/// Time between two crossings of one threshold.
const PERIOD: Duration = Duration::from_secs(20);
/// Time for which each threshold is exceeded.
const LASTS: Duration = Duration::from_secs(3);
/// Time that exceeds any sample or regular computation.
const REST: Duration = Duration::from_secs(30);

/// The resource that exceeds its threshold. Each is reported by the kernel, so that alone it has no
/// latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exceeds {
    /// Number of tasks.
    Pids,
    /// Memory, of 16 GiB.
    Memory,
    /// Latency of the disk 8:0.
    Disk,
}

impl Exceeds {
    async fn set(self, over: bool, host: &MadeUpHost, node: &Running) {
        let side = if over { Side::Over } else { Side::Under };
        let kernel = node.kernel();
        match self {
            Self::Pids => {
                let tasks = if over { 9_600 } else { 200 };
                host.pid_max(10_000).tasks(u64::from(tasks));
                kernel.pid_crossing(side, tasks).await;
            }
            Self::Memory => {
                host.mem_working_set(if over { "16000Mi" } else { "4Gi" });
                let stall = Stall::new(StallOf::Node, StallKind::Memory);
                let at = BootNanos(0);
                kernel.send_record(Record::Stall { at, stall }).await;
            }
            // Without slow windows it is responsive again.
            Self::Disk if over => kernel.slow_window((8, 0)).await,
            Self::Disk => {}
        }
    }
}

impl Exceeds {
    /// Returns how long the users of a slow disk are read before the decision.
    const fn read_for(self) -> Duration {
        match self {
            Self::Pids | Self::Memory => Duration::ZERO,
            Self::Disk => Duration::from_secs(1),
        }
    }
}

/// A resource whose threshold is crossed every 20 s.
#[derive(Debug, Clone, Copy)]
pub struct Flapping {
    pub exceeds: Exceeds,
    pub type_: &'static str,
    /// Time of the first crossing.
    pub phase: Duration,
}

/// Crosses all thresholds [`CROSSINGS`] times. Returns for each condition how late the API server
/// had each True; `None` if it did not have it before its end.
pub async fn cross(
    all: &[Flapping],
    api: &ApiServer,
    host: &MadeUpHost,
    node: &Running,
) -> Vec<Vec<Option<Duration>>> {
    let began = api.now();
    let crossings = |of: &Flapping| {
        let first = of.phase;
        (0..CROSSINGS).map(move |n| first + PERIOD * n)
    };
    let mut changes: Vec<(Duration, Exceeds, bool)> = Vec::new();
    for of in all {
        for at in crossings(of) {
            changes.push((at, of.exceeds, true));
            changes.push((at + LASTS, of.exceeds, false));
        }
    }
    changes.sort_unstable();
    for (at, exceeds, over) in changes {
        pass((began + at).saturating_sub(api.now())).await;
        exceeds.set(over, host, node).await;
    }
    pass(REST).await;
    let late = |of: &Flapping| {
        let at = trues(View::of(api, NODE), of.type_);
        let late = |crossed: Duration| {
            let written = at
                .iter()
                .find(|at| (crossed..crossed + LASTS).contains(*at));
            written.map(|at| (*at - crossed).saturating_sub(of.exceeds.read_for()))
        };
        crossings(of).map(|at| late(began + at)).collect()
    };
    all.iter().map(late).collect()
}

/// Returns when patches set this condition to True.
fn trues(view: View<'_>, type_: &str) -> Vec<Duration> {
    let sets = |body: &Value| {
        let conditions = body["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|c| c["type"] == type_ && c["status"] == "True")
    };
    let patches = view.patches().into_iter();
    let patches = patches.filter(|patch| patch.body.as_ref().is_some_and(sets));
    patches.map(|patch| patch.at).collect()
}
