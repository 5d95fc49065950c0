//! Tasks that wait: the triggers that tell of it, and the files that say how much.

use std::collections::BTreeMap;

use tracing::{debug, info, warn};

use super::App;
use crate::clock::{BootNanos, Now};
use crate::config::Config;
use crate::host::cgroup::pods::PodsPath;
use crate::host::cgroup::{Hierarchy, Layout, Version};
use crate::host::{HostFile, HostRoot, psi};
use crate::kernel::psi::{Trigger, open};
use crate::pressure::Pressure;
use crate::pressure::stall::{StallBoard, StallSample};
use crate::reading::{Stall, StallKind, StallOf};

/// Sets the triggers that this configuration asks for, each refusal told once. Before privileges
/// are dropped: what a trigger may do is decided here.
#[must_use]
pub fn triggers(config: &Config) -> Vec<Trigger> {
    let files = files(config).into_iter();
    let set = |(stall, file): (Stall, HostFile)| {
        let trigger = open(file.path(), stall).inspect_err(|err| {
            warn!(
                of = stall.of.as_str(),
                kind = stall.kind.as_str(),
                path = %file.path().display(),
                err = err as &dyn std::error::Error,
                "no trigger; the pressure file is read every ten seconds instead"
            );
        });
        trigger.ok()
    };
    files.filter_map(set).collect()
}

/// The pressure files of this node, as far as there can be any.
#[must_use]
pub fn files(config: &Config) -> BTreeMap<Stall, HostFile> {
    let files = Files::new(config);
    let all = Stall::ALL.into_iter().filter(|_| config.psi.enabled);
    all.filter_map(|stall| Some((stall, files.of(stall)?)))
        .collect()
}

/// Where the pressure files are.
struct Files {
    root: HostRoot,
    unified: Option<Hierarchy>,
    pods: PodsPath,
}

impl Files {
    fn new(config: &Config) -> Self {
        let root = HostRoot::new(&config.host_root);
        let layout = Layout::detect(&root).ok();
        let pods = PodsPath::new(layout.as_ref(), &config.pods_cgroups);
        // Also where the controllers are in version 1: tasks are in both hierarchies.
        let unified = layout
            .and_then(|layout| layout.unified)
            .map(|mount| Hierarchy {
                mount,
                version: Version::V2,
            });
        Self {
            root,
            unified,
            pods,
        }
    }

    /// `None`: there can be none.
    fn of(&self, stall: Stall) -> Option<HostFile> {
        match stall.of {
            StallOf::Node => Some(psi::node_file(&self.root, stall.kind)),
            StallOf::Pods => {
                let pods = self.unified.as_ref()?.dir(self.pods.path());
                Some(psi::cgroup_file(&pods, stall.kind))
            }
        }
    }
}

/// What is known of tasks that wait.
pub(super) struct Stalls {
    board: StallBoard,
    files: Files,
    buf: Vec<u8>,
}

impl Stalls {
    /// `told` are those for which there is a trigger.
    pub(super) fn new(config: &Config, told: &[Stall]) -> Self {
        let watched = Stall::ALL.into_iter().filter(|_| config.psi.enabled);
        let watched = watched.map(|stall| (stall, told.contains(&stall)));
        Self {
            board: StallBoard::new(
                config.psi.threshold,
                config.policy.transition_period,
                watched,
            ),
            files: Files::new(config),
            buf: Vec::new(),
        }
    }

    /// The state of every stall.
    pub(super) fn pressures(&self) -> BTreeMap<Stall, Pressure> {
        self.board.pressures()
    }

    /// The API server has it as True.
    pub(super) fn hold(&mut self, stall: Stall, now: BootNanos) {
        self.board.seed(stall, now);
    }

    pub(super) fn set_transition_period(&mut self, period: std::time::Duration) {
        self.board.set_transition_period(period);
    }

    /// When to wake up for them; `None` while nothing stalls.
    pub(super) fn wake_at(&self) -> Option<BootNanos> {
        self.board.wake_at()
    }

    /// `some` of one file, now. About 5 µs.
    fn sample(&mut self, stall: Stall) -> Option<StallSample> {
        let file = self.files.of(stall)?;
        let read = psi::read(&file, &mut self.buf).unwrap_or_else(|err| {
            debug!(err = &err as &dyn std::error::Error, "pressure not read");
            None
        });
        read.map(|psi| StallSample {
            avg10: psi.some.avg10,
            avg60: psi.some.avg60,
        })
    }
}

impl App {
    /// A trigger fired.
    pub(super) fn stalled(&mut self, stall: Stall, now: Now) {
        debug!(of = stall.of.as_str(), kind = stall.kind.as_str(), "stall");
        self.look_at_stall(stall, now);
        match stall.kind {
            StallKind::Memory => self.hot.hint(now.boot),
            StallKind::Io => self.ask_storage(),
        }
        // The pods' tasks are among the node's, which has a trigger of its own.
        if stall == Stall::new(StallOf::Node, StallKind::Io)
            && let Some(question) = self.probes.suspect_disks()
        {
            self.blocking.ask(question);
        }
    }

    /// Reads the pressure files that are due.
    pub(super) fn look_at_stalls(&mut self, now: Now) {
        let soon = now.boot.plus(super::reporting::ALIGN);
        let due: Vec<Stall> = self.stalls.board.due(soon).collect();
        for stall in due {
            self.look_at_stall(stall, now);
        }
    }

    fn look_at_stall(&mut self, stall: Stall, now: Now) {
        let sample = self.stalls.sample(stall);
        if let Some(change) = self.stalls.board.looked(stall, sample, now.boot) {
            self.journal.stalled(&change, now.wall);
            info!(
                of = stall.of.as_str(),
                kind = stall.kind.as_str(),
                from = ?change.from,
                to = ?change.to,
                some = ?sample,
                "stall pressure changed"
            );
        }
        self.facts.stalls = self.stalls.pressures();
        self.facts_changed(false, now);
    }
}
