//! Notifications of memory limits that cgroups of pods reach.

use crate::host::cgroup::Hierarchy;
use crate::host::cgroup::pods::PodsPath;
use crate::os::limit_watch::LimitWatch;
use crate::units::CgroupId;

/// The watched pods.
pub struct LimitWatches {
    memory: Option<Hierarchy>,
    watch: LimitWatch,
}

impl LimitWatches {
    /// Nothing is watched.
    pub fn new(pods: &PodsPath, watch: LimitWatch) -> Self {
        Self {
            memory: pods.layout().map(|layout| layout.memory.clone()),
            watch,
        }
    }

    /// Watches these pods until the first notification of each; without pods, watches none any more.
    pub fn watch(&mut self, pods: Vec<(CgroupId, String)>) {
        if pods.is_empty() {
            self.watch.stop();
        } else if let Some(memory) = &self.memory {
            let pods = pods.into_iter();
            self.watch
                .add(pods.map(|(id, path)| (id, memory.dir(&path))));
        }
    }
}
