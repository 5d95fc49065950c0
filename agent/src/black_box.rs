//! EDGE: keeps what the agent reads in the black box on the disk, without delaying anything else.
//!
//! Records come with samples that are taken anyway, and wait until they have to survive a power
//! cut, so that an idle agent wakes its helper thread once a minute.

#![forbid(unsafe_code)]

use std::fs;
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::black_box::{
    self, AgentGap, Batch, LastAgent, LastBoot, Marks, Observed, Origin, Recorder, next_number,
};
use nodepulse_core::clock::Now;
use nodepulse_core::incident::{Incident, Occurred};
use nodepulse_io::clock::Clock;
use nodepulse_io::lane::{Lane, Lanes, NoAnswer, Purpose};
use nodepulse_io::tasks::Tasks;
use nodepulse_linux::black_box::{Ring, evidence, machine_id};
use nodepulse_linux::host::HostRoot;
use nodepulse_linux::state::saved_at;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tracing::{info, warn};

use crate::config::{BlackBoxSync, Config};
use crate::history::HistoryFiles;
use crate::queries::blocking::saved::BOOT_ID;

/// After this time without an answer, the disk counts as hanging.
const LIMIT: Duration = Duration::from_secs(5);

/// Time for the last records at the exit.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// The unit creates this file in the state directory before it stops the agent, if the machine
/// shuts down.
const SHUTDOWN: &str = "shutdown";

/// An open black box, before anything is recorded.
#[derive(Debug)]
pub struct OpenBlackBox {
    ring: Ring,
    recorder: Recorder,
    is_durable: bool,
    shutdown: PathBuf,
    /// How the last boot ended, at the first start after a boot; or since when no agent ran.
    found: Option<Occurred>,
}

impl OpenBlackBox {
    /// Opens the black box in the directory of the history, which is open.
    ///
    /// # Errors
    ///
    /// Fails if the id of the boot or the file cannot be read, or if there is no room.
    pub fn open(files: &HistoryFiles, config: &Config) -> io::Result<Self> {
        let root = HostRoot::new(&config.host_root);
        let boot = root.read_string(BOOT_ID).map_err(io::Error::other)?;
        let boot = boot.parse();
        let boot = boot.map_err(|()| io::Error::other("the id of the boot is not a UUID"))?;
        let origin = Origin {
            machine: black_box::machine(&machine_id(&root)),
            boot,
            tag: RandomState::new().hash_one(0),
        };
        let (ring, records) = Ring::open(files.directory())?;
        let last = LastBoot::find(&records, origin.machine, boot);
        let ended = last.map(|last| {
            let evidence = evidence(&root);
            // After all files that were read.
            last.end(&evidence, Clock::kernel().now())
        });
        let last_agent = LastAgent {
            saved: saved_at(&config.state_directory),
            gap: files.last_gap(),
        };
        let of = (origin.machine, boot);
        let gap = || AgentGap::find(&records, of, last_agent, Clock::kernel().now());
        let found = ended.or_else(gap);
        let shutdown = config.state_directory.join(SHUTDOWN);
        // It outlives a restart of systemd without one of the kernel. As a rule there is none.
        let _removed = fs::remove_file(&shutdown);
        Ok(Self {
            ring,
            recorder: Recorder::new(origin, next_number(&records)),
            is_durable: config.black_box_sync == BlackBoxSync::Auto,
            shutdown,
            found,
        })
    }

    pub const fn take_found(&mut self) -> Option<Occurred> {
        self.found.take()
    }
}

/// The black box of this agent, if it has one.
pub struct BlackBox(Option<Recording>);

struct Recording {
    recorder: Recorder,
    /// Has room for one batch. While the disk does not answer, records wait in the recorder.
    batches: mpsc::Sender<Batch>,
    ended: oneshot::Receiver<()>,
    lane: Lane,
    shutdown: PathBuf,
}

impl BlackBox {
    /// Must be called in a runtime.
    pub fn start(opened: Option<OpenBlackBox>, lanes: &Lanes, tasks: &mut Tasks) -> Self {
        Self(opened.map(|opened| {
            let (batches, queued) = mpsc::channel(1);
            let (ring, lane) = (Arc::new(opened.ring), lanes.of(Purpose::History));
            let writing = write(ring, lane.clone(), queued, opened.is_durable);
            Recording {
                recorder: opened.recorder,
                batches,
                ended: tasks.spawn_finite("black box", writing),
                lane,
                shutdown: opened.shutdown,
            }
        }))
    }

    pub const fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    pub fn observe(&mut self, observed: &Observed<'_>, now: Now) {
        if let Some(recording) = &mut self.0 {
            recording.recorder.observe(observed, now);
            recording.hand_over(now);
        }
    }

    pub fn observe_incident(&mut self, incident: &Incident) {
        if let Some(recording) = &mut self.0 {
            recording.recorder.observe_incident(incident);
        }
    }

    /// Records at once that the machine shuts down, or that this was cancelled.
    pub fn shut_down(&mut self, is_announced: bool, now: Now) {
        if let Some(recording) = &mut self.0 {
            recording.recorder.shut_down(is_announced, now);
            recording.hand_over(now);
        }
    }

    /// Waits until the last record is on the disk, within limits.
    /// `agent_stopped`: the agent was stopped, and has not failed.
    pub async fn finish(self, agent_stopped: bool, now: Now) {
        let Some(Recording {
            recorder,
            batches,
            ended,
            lane,
            shutdown,
        }) = self.0
        else {
            return;
        };
        let written = async {
            let is_shutdown = lane.run(LAST_WRITE, move || shutdown.exists()).await;
            let marks = Marks {
                shutdown: is_shutdown.unwrap_or(false),
                agent_stopped,
            };
            let last = recorder.stop(marks, now);
            // Fails if the task was aborted.
            let _queued = batches.send(last).await;
            drop(batches);
            ended.await
        };
        if timeout(LAST_WRITE, written).await.is_err() {
            warn!("the black box may lack the last record: the disk does not answer");
        }
    }
}

impl Recording {
    fn hand_over(&mut self, now: Now) {
        if self.recorder.is_due(now)
            && let Ok(room) = self.batches.try_reserve()
        {
            room.send(self.recorder.take(now));
        }
    }
}

/// Returns when there will be no further batches and all are written.
async fn write(ring: Arc<Ring>, lane: Lane, mut batches: mpsc::Receiver<Batch>, durable: bool) {
    let mut is_failing = false;
    while let Some(batch) = batches.recv().await {
        let ring = Arc::clone(&ring);
        let written = lane.run(LIMIT, move || ring.write(&batch, durable)).await;
        let is_hanging = matches!(&written, Err(NoAnswer::Late(_) | NoAnswer::Blocked));
        match written.unwrap_or_else(|err| Err(io::Error::other(err))) {
            Ok(()) if is_failing => {
                info!("the black box is recorded again");
                is_failing = false;
            }
            Err(err) if !is_failing => {
                let err = &err as &dyn std::error::Error;
                warn!(err, "the black box is not recorded");
                is_failing = true;
            }
            Ok(()) | Err(_) => {}
        }
        if is_hanging {
            lane.free().await;
        }
    }
}
