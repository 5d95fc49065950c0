//! Changes of the known pods.

use super::names::{UNKNOWN_POD, WaitFor};
use super::{Incidents, PodChange};
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
        for waiting in self
            .open
            .iter_mut()
            .filter_map(|open| open.waiting.as_mut())
        {
            if let WaitFor::Pod { until } = &mut waiting.wait {
                *until = (*until).min(latest);
            }
        }
    }

    pub(super) fn pod_changed(&mut self, change: PodChange) {
        match change {
            PodChange::Present(pod) => {
                if let Some(kills) = self.uncounted.remove(&pod.uid) {
                    self.count_in_metric(&pod, kills);
                }
            }
            PodChange::Listed => self.uncounted.clear(),
            PodChange::Relisting | PodChange::Removed(_) | PodChange::Refused => {}
        }
    }
}
