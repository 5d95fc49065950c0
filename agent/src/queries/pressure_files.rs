//! The pressure files of the node and its pods, and the triggers set in them.

use std::collections::BTreeMap;

use tracing::{debug, warn};

use crate::config::Config;
use crate::host::cgroup::pods::PodsPath;
use crate::host::cgroup::{Hierarchy, Version};
use crate::host::{HostFile, HostRoot, psi};
use crate::os::psi::{Trigger, open};
use crate::pressure::stall::StallSample;
use crate::reading::{Stall, StallOf};

/// Sets the triggers of this configuration, and logs each failure. Must be called before privileges
/// are dropped: the kernel checks them when a trigger is set.
pub fn triggers(config: &Config, pods: &PodsPath) -> Vec<Trigger> {
    // A trigger cannot be moved, and the pods may turn out to be in the other cgroup.
    let is_clear = pods.possible().len() == 1 || pods.existing().len() < 2;
    let files = files(config, pods).into_iter();
    let files = files.filter(|(stall, _)| is_clear || stall.of == StallOf::Node);
    let set = |(stall, file): (Stall, HostFile)| {
        let trigger =
            open(file.path(), stall, config.psi.thresholds.of(stall.kind)).inspect_err(|err| {
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

/// The pressure files of this node that can exist.
pub fn files(config: &Config, pods: &PodsPath) -> BTreeMap<Stall, HostFile> {
    let files = Files::new(config, pods.clone()).by_stall;
    let all = files.into_iter().filter(|_| config.psi.enabled);
    all.collect()
}

/// The paths of the pressure files.
struct Files {
    pods: PodsPath,
    /// The cgroup of the pods' files.
    pods_cgroup: String,
    by_stall: BTreeMap<Stall, HostFile>,
}

impl Files {
    fn new(config: &Config, pods: PodsPath) -> Self {
        let root = HostRoot::new(&config.host_root);
        let node = Stall::ALL.into_iter();
        let node = node.filter(|stall| stall.of == StallOf::Node);
        let mut files = Self {
            pods_cgroup: String::new(),
            by_stall: node
                .map(|stall| (stall, psi::node_file(&root, stall.kind)))
                .collect(),
            pods,
        };
        files.follow();
        files
    }

    /// Updates the paths of the pods' files if their cgroup has changed.
    fn follow(&mut self) {
        let path = self.pods.path();
        if path == self.pods_cgroup {
            return;
        }
        // Used with controllers in version 1 too: tasks are in both hierarchies.
        let Some(mount) = self.pods.layout().and_then(|on| on.unified.clone()) else {
            return;
        };
        let version = Version::V2;
        let dir = Hierarchy { mount, version }.dir(path);
        let of_pods = Stall::ALL.into_iter();
        let of_pods = of_pods.filter(|stall| stall.of == StallOf::Pods);
        self.by_stall
            .extend(of_pods.map(|stall| (stall, psi::cgroup_file(&dir, stall.kind))));
        path.clone_into(&mut self.pods_cgroup);
    }

    /// `None` if there can be no such file.
    fn file(&mut self, stall: Stall) -> Option<&HostFile> {
        self.follow();
        self.by_stall.get(&stall)
    }
}

/// Reads the pressure files.
pub struct PressureFiles {
    files: Files,
    buf: Vec<u8>,
}

impl PressureFiles {
    pub fn new(config: &Config, pods: PodsPath) -> Self {
        Self {
            files: Files::new(config, pods),
            buf: Vec::new(),
        }
    }

    /// Reads `some` of one file, in about 5 µs. `None` if it does not exist or cannot be read.
    pub fn sample(&mut self, stall: Stall) -> Option<StallSample> {
        let file = self.files.file(stall)?;
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

#[cfg(test)]
mod tests {
    use super::super::fixture::{self, CGROUPS};
    use super::super::signals::pods_path;
    use super::*;
    use crate::host::scratch::Scratch;
    use crate::reading::StallKind;

    /// A node with these cgroups of pods, which contain no process.
    fn node(pods: &[&str]) -> (Scratch, Config) {
        let of_node = ["proc/pressure/memory", "proc/pressure/io"].map(str::to_owned);
        let files = |pods: &&str| ["memory", "io"].map(|kind| format!("@{pods}/{kind}.pressure"));
        let files = of_node.into_iter().chain(pods.iter().flat_map(files));
        let files: Vec<String> = files.collect();
        let files: Vec<(&str, &str)> = files.iter().map(|file| (file.as_str(), "")).collect();
        fixture::node(&files)
    }

    #[test]
    fn no_trigger_is_set_in_a_cgroup_that_may_not_be_that_of_the_pods() {
        let rows: [(&[&str], usize); 3] = [
            (&["kubepods"], 4),
            (&["kubepods.slice"], 4),
            (&["kubepods.slice", "kubepods"], 2),
        ];
        for (cgroups, expected) in rows {
            let (_dir, config) = node(cgroups);
            let set = triggers(&config, &pods_path(&config));
            let set: Vec<Stall> = set.iter().map(Trigger::stall).collect();
            assert_eq!(set.len(), expected, "{cgroups:?}: {set:?}");
        }
    }

    #[test]
    fn pressure_files_follow_the_cgroup_of_the_pods() {
        let (dir, config) = node(&["kubepods.slice", "kubepods"]);
        let mut files = Files::new(&config, pods_path(&config));
        let stall = Stall::new(StallOf::Pods, StallKind::Io);
        let mut path = || files.file(stall).unwrap().path().to_owned();
        let cgroups = dir.path().join(CGROUPS);
        assert_eq!(path(), cgroups.join("kubepods.slice/io.pressure"));
        dir.write(
            &format!("{CGROUPS}/kubepods/cgroup.events"),
            "populated 1\n",
        );
        assert_eq!(path(), cgroups.join("kubepods/io.pressure"));
    }
}
