//! What the watch on pods reports.

use super::{Decision, Effect, Incidents, Pod, PodChange, UNKNOWN_POD, WaitFor, WatchPermission};
use crate::clock::BootNanos;

impl Incidents {
    /// Until when a pod that is not known is waited for. After a start in an outage none is known.
    pub(super) fn until_pod_is_known(&self, now: BootNanos) -> BootNanos {
        if self.answered {
            now.plus(UNKNOWN_POD)
        } else {
            BootNanos(u64::MAX)
        }
    }

    pub(super) fn server_answered(&mut self, now: BootNanos) {
        if std::mem::replace(&mut self.answered, true) {
            return;
        }
        let latest = self.until_pod_is_known(now);
        for waiting in &mut self.waiting {
            if let WaitFor::Pod { until } = &mut waiting.wait {
                *until = (*until).min(latest);
            }
        }
    }

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
