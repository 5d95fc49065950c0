//! What the watch on pods reports.

use super::{Decision, Effect, Incidents, Pod, PodChange, WatchPermission};

impl Incidents {
    pub(super) fn pod_changed(&mut self, change: PodChange) {
        let removed = match change {
            PodChange::Relisting => {
                self.watch = WatchPermission::Permitted;
                self.index.relist();
                Vec::new()
            }
            PodChange::Present(pod) => self.pod_present(pod).into_iter().collect(),
            PodChange::Removed(uid) => self.index.remove(&uid).cloned().into_iter().collect(),
            PodChange::Listed => {
                self.uncounted.clear();
                self.index.listed()
            }
            PodChange::Refused => {
                self.watch = WatchPermission::Refused;
                Vec::new()
            }
        };
        for Pod {
            namespace, name, ..
        } in removed
        {
            let removed = Decision::PodRemoved { namespace, name };
            self.effects.push(Effect::Log(removed));
        }
    }

    /// Returns the pod that it replaces.
    fn pod_present(&mut self, pod: Pod) -> Option<Pod> {
        if let Some(kills) = self.uncounted.remove(&pod.uid) {
            self.count_in_metric(&pod, kills);
        }
        self.index.put(pod)
    }
}
