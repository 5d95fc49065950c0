//! Tasks that wait: the triggers that tell of it, and the files that say how much.

use std::collections::BTreeMap;

use tracing::{debug, info, warn};

use super::App;
use crate::clock::{BootNanos, Now};
use crate::config::Config;
use crate::host::cgroup::pods::PodsPath;
use crate::host::cgroup::{Hierarchy, Version};
use crate::host::{HostFile, HostRoot, psi};
use crate::os::psi::{Trigger, open};
use crate::pressure::stall::{StallBoard, StallSample};
use crate::pressure::{Exceeded, Pressure};
use crate::reading::{Stall, StallKind, StallOf};
use crate::subjects::{DiskInput, Input};

/// Sets the triggers that this configuration asks for, each refusal told once. Before privileges
/// are dropped: what a trigger may do is decided here.
#[must_use]
pub fn triggers(config: &Config, pods: &PodsPath) -> Vec<Trigger> {
    // One that is set stays where it is, and the pods may turn out to be in the other cgroup.
    let is_clear = pods.possible().len() == 1 || pods.existing().len() < 2;
    let files = files(config, pods).into_iter();
    let files = files.filter(|(stall, _)| is_clear || stall.of == StallOf::Node);
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
pub fn files(config: &Config, pods: &PodsPath) -> BTreeMap<Stall, HostFile> {
    let files = Files::new(config, pods.clone()).by_stall;
    let all = files.into_iter().filter(|_| config.psi.enabled);
    all.collect()
}

/// Where the pressure files are.
struct Files {
    pods: PodsPath,
    /// The cgroup that those of the pods are for.
    of: String,
    by_stall: BTreeMap<Stall, HostFile>,
}

impl Files {
    fn new(config: &Config, pods: PodsPath) -> Self {
        let root = HostRoot::new(&config.host_root);
        let node = Stall::ALL.into_iter();
        let node = node.filter(|stall| stall.of == StallOf::Node);
        let mut files = Self {
            of: String::new(),
            by_stall: node
                .map(|stall| (stall, psi::node_file(&root, stall.kind)))
                .collect(),
            pods,
        };
        files.follow();
        files
    }

    /// Where the pods' cgroup is another one than before, so are its files.
    fn follow(&mut self) {
        let path = self.pods.path();
        if path == self.of {
            return;
        }
        // Also where the controllers are in version 1: tasks are in both hierarchies.
        let Some(mount) = self.pods.layout().and_then(|on| on.unified.clone()) else {
            return;
        };
        let version = Version::V2;
        let dir = Hierarchy { mount, version }.dir(path);
        let of_pods = Stall::ALL.into_iter();
        let of_pods = of_pods.filter(|stall| stall.of == StallOf::Pods);
        self.by_stall
            .extend(of_pods.map(|stall| (stall, psi::cgroup_file(&dir, stall.kind))));
        path.clone_into(&mut self.of);
    }

    /// `None`: there can be none.
    fn of(&mut self, stall: Stall) -> Option<&HostFile> {
        self.follow();
        self.by_stall.get(&stall)
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
    pub(super) fn new(config: &Config, pods: PodsPath, told: &[Stall]) -> Self {
        let watched = Stall::ALL.into_iter().filter(|_| config.psi.enabled);
        let watched = watched.map(|stall| (stall, told.contains(&stall)));
        Self {
            board: StallBoard::new(
                config.psi.threshold,
                config.policy.transition_period,
                watched,
            ),
            files: Files::new(config, pods),
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

    /// It was last over then, before a restart.
    pub(super) fn restore(&mut self, stall: Stall, at: BootNanos) {
        self.board.restore(stall, at);
    }

    /// When it was last over.
    pub(super) fn exceeded(&self, stall: Stall) -> Exceeded {
        self.board.exceeded(stall)
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
        let read = psi::read(file, &mut self.buf).unwrap_or_else(|err| {
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
        if stall == Stall::new(StallOf::Node, StallKind::Io) {
            self.feed(Input::Disk(DiskInput::IoStalled), now);
        }
    }

    /// Reads the pressure files that are due.
    pub(super) fn look_at_stalls(&mut self, now: Now) {
        let soon = now.boot.plus(crate::reporting::ALIGN);
        let due: Vec<Stall> = self.stalls.board.due(soon).collect();
        for stall in due {
            self.look_at_stall(stall, now);
        }
    }

    fn look_at_stall(&mut self, stall: Stall, now: Now) {
        let sample = self.stalls.sample(stall);
        if let Some(change) = self.stalls.board.apply_sample(stall, sample, now.boot) {
            self.journal.record_stall_change(&change, now.wall);
            info!(
                of = stall.of.as_str(),
                kind = stall.kind.as_str(),
                from = %change.from,
                to = %change.to,
                some = ?sample,
                "stall pressure changed"
            );
        }
        self.facts.stalls = self.stalls.pressures();
        self.facts_changed(false, now);
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;
    use crate::app::pods_path;
    use crate::config::Overrides;
    use crate::host::scratch::Scratch;

    const CGROUPS: &str = "sys/fs/cgroup";

    /// A node with these cgroups of pods, none of which has a process.
    fn node(pods: &[&str]) -> (Scratch, Config) {
        let dir = Scratch::new();
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        dir.write("proc/self/mountinfo", mounts);
        dir.write(&format!("{CGROUPS}/cgroup.controllers"), "memory pids\n");
        let of_node = ["proc/pressure/memory", "proc/pressure/io"].map(str::to_owned);
        let files =
            |pods: &&str| ["memory", "io"].map(|kind| format!("{CGROUPS}/{pods}/{kind}.pressure"));
        for file in of_node.into_iter().chain(pods.iter().flat_map(files)) {
            dir.write(&file, "");
        }
        let overrides = Overrides {
            host_root: Some(dir.path().display().to_string()),
            ..Overrides::default()
        };
        let none = |_: &std::path::Path| Err(ErrorKind::NotFound.into());
        let config = Config::load(&overrides, &|_| None, &none, "a").unwrap();
        (dir, config)
    }

    #[test]
    fn no_trigger_is_set_in_a_cgroup_that_may_not_be_that_of_the_pods() {
        let rows: [(&[&str], usize); 3] = [
            (&["kubepods"], 4),
            (&["kubepods.slice"], 4),
            (&["kubepods.slice", "kubepods"], 2),
        ];
        for (there, expected) in rows {
            let (_dir, config) = node(there);
            let set = triggers(&config, &pods_path(&config));
            let set: Vec<Stall> = set.iter().map(Trigger::stall).collect();
            assert_eq!(set.len(), expected, "{there:?}: {set:?}");
        }
    }

    #[test]
    fn pressure_files_follow_the_cgroup_of_the_pods() {
        let (dir, config) = node(&["kubepods.slice", "kubepods"]);
        let mut files = Files::new(&config, pods_path(&config));
        let stall = Stall::new(StallOf::Pods, StallKind::Io);
        let mut path = || files.of(stall).unwrap().path().to_owned();
        let cgroups = dir.path().join(CGROUPS);
        assert_eq!(path(), cgroups.join("kubepods.slice/io.pressure"));
        dir.write(
            &format!("{CGROUPS}/kubepods/cgroup.events"),
            "populated 1\n",
        );
        assert_eq!(path(), cgroups.join("kubepods/io.pressure"));
    }
}
