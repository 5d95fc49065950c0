//! The pods of this node, by which subjects name the pods in what they report.
//!
//! A change is passed on to the incidents after it is applied, because they may wait for it.

use serde::{Deserialize, Serialize};

use super::{Decision, Effect, IncidentInput, Input, pass_on};
use crate::pods::{Containers, Pod, PodChange, PodIndex};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum PodInput {
    /// The watch reported a change.
    Changed(PodChange),
    /// The answer to [`Effect::ReadContainers`].
    Containers {
        /// The UID of the pod.
        uid: Box<str>,
        read: Result<Containers, ReadFailure>,
    },
}

/// The reason for which the containers of a pod are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReadFailure {
    /// The API server refused; a node may not read a pod that was removed.
    Forbidden,
    Other,
}

/// The API server's permission to watch pods, as far as it is known.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchPermission {
    #[default]
    Permitted,
    Refused,
}

#[derive(Debug, Default, Serialize, Deserialize)]
pub struct KnownPods {
    index: PodIndex,
    watch: WatchPermission,
    /// The missing permission to read pods was logged.
    warned: bool,
}

impl KnownPods {
    pub fn on(&mut self, input: PodInput) -> Vec<Effect> {
        match input {
            PodInput::Changed(change) => {
                let removed = self.apply(change.clone());
                let changed = IncidentInput::PodChanged(change);
                let mut effects = vec![pass_on(Input::Incident(changed))];
                effects.extend(removed.into_iter().map(removal));
                effects
            }
            PodInput::Containers { uid, read } => {
                let mut effects = Vec::new();
                if self.must_warn(&uid, &read) {
                    effects.push(Effect::Log(Decision::ContainersForbidden));
                }
                let read = read.map(|containers| self.index.set_containers(&uid, containers));
                let read = IncidentInput::ContainersRead { uid, read };
                effects.push(pass_on(Input::Incident(read)));
                effects
            }
        }
    }

    pub const fn index(&self) -> &PodIndex {
        &self.index
    }

    pub const fn watch(&self) -> WatchPermission {
        self.watch
    }

    /// Returns the pods that do not exist any more.
    fn apply(&mut self, change: PodChange) -> Vec<Pod> {
        match change {
            PodChange::Relisting => {
                self.watch = WatchPermission::Permitted;
                self.index.relist();
                Vec::new()
            }
            PodChange::Present(pod) => self.index.put(pod).into_iter().collect(),
            PodChange::Removed(uid) => self.index.remove(&uid).cloned().into_iter().collect(),
            PodChange::Listed => self.index.listed(),
            PodChange::Refused => {
                self.watch = WatchPermission::Refused;
                Vec::new()
            }
        }
    }

    /// Returns true once: a pod that exists cannot be read.
    fn must_warn(&mut self, uid: &str, read: &Result<Containers, ReadFailure>) -> bool {
        matches!(read, Err(ReadFailure::Forbidden))
            && self.index.exists(uid)
            && !std::mem::replace(&mut self.warned, true)
    }
}

fn removal(pod: Pod) -> Effect {
    Effect::Log(Decision::PodRemoved {
        namespace: pod.namespace,
        name: pod.name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_reaches_the_incidents_before_the_removals_that_follow_from_it() {
        let pod = |uid: &str| Pod::new("shop", &format!("pod-{uid}"), uid, None).unwrap();
        let present = |uid| PodChange::Present(pod(uid));
        let mut pods = KnownPods::default();
        // Change, the pod whose removal follows.
        let rows = [
            (present("aa"), None),
            (present("bb"), None),
            (PodChange::Removed("aa".to_owned()), Some("aa")),
            (PodChange::Refused, None),
            (PodChange::Relisting, None),
            (present("aa"), None),
            (PodChange::Listed, Some("bb")),
        ];
        for (change, removed) in rows {
            let effects = pods.on(PodInput::Changed(change.clone()));
            let changed = IncidentInput::PodChanged(change.clone());
            let mut expected = vec![pass_on(Input::Incident(changed))];
            expected.extend(removed.map(|uid| removal(pod(uid))));
            assert_eq!(effects, expected);
            let refused = pods.watch() == WatchPermission::Refused;
            assert_eq!(refused, change == PodChange::Refused);
        }
        assert!(pods.index().exists("aa") && !pods.index().exists("bb"));
    }
}
