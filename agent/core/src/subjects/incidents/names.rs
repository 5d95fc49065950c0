//! The object of an incident: in which pod it was, and what its container is called.
//!
//! What is known is handed on at once: from the watch on pods, and from the link that the kubelet
//! made for the container's log. A pod that neither has is waited for, and so is the name of a
//! container; neither for long. The API server is asked once for each pod, to learn its lists of
//! containers, and again if the node does not have a name.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::links::{LinkWait, LinksRead};
use super::{AT_ONCE, Incidents, Open};
use crate::clock::BootNanos;
use crate::incident::{Incident, Object};
use crate::kube_event::ContainerLabel;
use crate::pods::{Pod, PodId, PodRef};
use crate::subjects::Effect;
use crate::subjects::pods::{KnownPods, ReadFailure, WatchPermission};

/// Time limit for a pod that the watch has not reported yet: a kubelet may start it first, and the
/// mirror of a static pod is created after it.
pub(super) const UNKNOWN_POD: Duration = Duration::from_secs(2);
/// Time limit for the name of a container. A healthy API server answers in one or two milliseconds,
/// and a kubelet makes the link of a new container in about ten; slow ones must not delay the
/// Event.
const UNKNOWN_NAME: Duration = Duration::from_millis(250);
/// Minimum interval between two reads of one pod, whose containers can change within seconds.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// The same for a pod that the agent is not permitted to read.
const FORBIDDEN: Duration = Duration::from_mins(10);
/// Maximum number of reads of pods at the same time. Beyond it containers are named by their ids.
pub const MAX_READS: usize = 32;
/// Maximum number of pods whose last read is stored. Beyond it containers are named by their ids.
pub(super) const MAX_REMEMBERED: usize = 1024;

/// An incident whose object is not known yet.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Waiting {
    pub pod: PodRef,
    pub wait: WaitFor,
    pub link: LinkWait,
}

/// What an incident waits for, and until when.
///
/// ```text
///           pod unknown                      container's name unknown
/// happened ─────────────► Pod ───── known ─────────────────────────────► Name
///    │                    │ │ deadline, or pods cannot be watched            │ known, or deadline
///    │         its link ──┘ ▼                                                ▼
///    │         is found: the Pod, else the Node                           the Pod
///    └── both known: the Pod
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum WaitFor {
    Pod { until: BootNanos },
    Name { until: BootNanos },
}

/// The last read of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LastRead {
    UnderWay { asked: BootNanos },
    Finished { again: BootNanos },
}

impl Waiting {
    /// When the object is what is known then.
    pub(super) fn until(&self) -> BootNanos {
        match self.wait {
            WaitFor::Pod { until } | WaitFor::Name { until } => until,
        }
    }

    /// Until when only the link of its container is waited for, if it can name the pod.
    fn link_until(&self) -> Option<BootNanos> {
        match self.pod.pod {
            PodId::Uid(_) => Some(self.link.since()?.plus(UNKNOWN_NAME)),
            PodId::ConfigHash(_) => None,
        }
    }
}

impl Incidents {
    pub(super) fn wait_for_object(&self, incident: &Incident, now: BootNanos) -> Option<Waiting> {
        let pod = incident.occurred.pod.clone()?;
        let until = self.until_pod_is_known(now);
        Some(Waiting {
            link: self.links.wait(pod.container.as_deref(), now),
            pod,
            wait: WaitFor::Pod { until },
        })
    }

    /// Takes what is known about the object, which is resolved if it cannot improve soon.
    pub(super) fn find_object(&mut self, open: &mut Open, pods: &KnownPods, now: BootNanos) {
        let Some(mut waiting) = open.waiting.take() else {
            return;
        };
        let object = self.object(&waiting.pod, pods);
        if self.may_improve(&object, &mut waiting, pods, now) {
            open.incident.object = object;
            open.waiting = Some(waiting);
        } else {
            self.resolve(open, object, pods);
        }
    }

    pub(super) fn resolve_as_known(&mut self, open: &mut Open, pods: &KnownPods) {
        if let Some(waiting) = open.waiting.take() {
            let object = self.object(&waiting.pod, pods);
            self.resolve(open, object, pods);
        }
    }

    fn resolve(&mut self, open: &mut Open, object: Object, pods: &KnownPods) {
        open.waiting = None;
        if let Some(pod) = &object.pod {
            let occurred = &mut open.incident.occurred;
            occurred.name_trigger(|id| self.label(pod, id, pods));
            let kills = occurred.killed();
            self.count_kills(kills, pod, pods);
        }
        open.incident.object = Object {
            is_resolved: true,
            ..object
        };
    }

    /// Hands on incidents whose object has been waited for long enough, or need not be any more.
    pub(super) fn due_objects(&mut self, pods: &KnownPods, now: BootNanos) {
        let mut resolved = 0;
        for mut open in std::mem::take(&mut self.open) {
            if open.waiting.is_none() || AT_ONCE <= resolved {
                self.open.push_back(open);
                continue;
            }
            self.find_object(&mut open, pods, now);
            let open = if open.waiting.is_none() {
                resolved += 1;
                self.hand_on(open, now)
            } else {
                Some(open)
            };
            self.open.extend(open);
        }
        self.is_due = AT_ONCE <= resolved;
    }

    /// The object of an incident, by what is known.
    fn object(&self, pod: &PodRef, pods: &KnownPods) -> Object {
        let id = pod.container.as_deref();
        let mut object = Object {
            pod: None,
            container: None,
            is_resolved: false,
        };
        if let Some(known) = pods.index().find(&pod.pod) {
            object.container = id.map(|id| self.label(known, id, pods));
            object.pod = Some(known.clone());
        } else if let Some(link) = id.and_then(|id| self.links.get(id)) {
            object.pod = link.in_pod(&pod.pod);
            let named = object.pod.as_ref().and_then(|_| link.container());
            object.container = named.map(ContainerLabel::Name);
        }
        object
    }

    /// How a container of a known pod is called.
    fn label(&self, pod: &Pod, id: &str, pods: &KnownPods) -> ContainerLabel {
        if let Some(container) = pods.index().container(&pod.uid, id) {
            return ContainerLabel::Name(container.clone());
        }
        let link = self.links.get(id).filter(|link| link.is_in(pod));
        let container = link.and_then(|link| {
            let specified = pods.index().named(&pod.uid, &link.container);
            specified.cloned().or_else(|| link.container())
        });
        container.map_or_else(|| ContainerLabel::Id(id.to_owned()), ContainerLabel::Name)
    }

    /// Whether more than `object` may be known soon.
    fn may_improve(
        &mut self,
        object: &Object,
        waiting: &mut Waiting,
        pods: &KnownPods,
        now: BootNanos,
    ) -> bool {
        waiting.link = waiting.link.at(now);
        let Some(pod) = &object.pod else {
            if pods.watch() == WatchPermission::Refused || !self.has_server {
                let until = waiting.link_until().unwrap_or(now);
                waiting.wait = WaitFor::Pod { until };
            }
            return now < waiting.until();
        };
        let Some(label) = object
            .container
            .as_ref()
            .filter(|label| !is_complete(label))
        else {
            return false;
        };
        let until = match waiting.wait {
            WaitFor::Name { until } => until,
            WaitFor::Pod { .. } => now.plus(UNKNOWN_NAME),
        };
        waiting.wait = WaitFor::Name { until };
        now < until
            && (self.read_may_come(pod, waiting.link, pods, now)
                || link_may_come(label, waiting.link, pods.index().exists(&pod.uid)))
    }

    /// Whether the API server is to answer with the name of a container. It is asked at once if the
    /// pod's lists of containers are not known, and otherwise only if the node does not have the
    /// name.
    fn read_may_come(
        &mut self,
        pod: &Pod,
        link: LinkWait,
        pods: &KnownPods,
        now: BootNanos,
    ) -> bool {
        let is_unread = matches!(link, LinkWait::Unread { .. });
        let enough = is_unread && pods.index().has_containers(&pod.uid);
        !enough && self.is_being_read(pod, pods, now)
    }

    /// Reads the names of links for all that wait for them.
    pub(super) fn read_links(&mut self, now: BootNanos) {
        let waiting = self.open.iter().filter_map(|open| open.waiting.as_ref());
        let waiting =
            waiting.filter_map(|waiting| Some((waiting.pod.container.as_deref()?, waiting.link)));
        let query = self.links.ask(waiting, now);
        self.effects.extend(query.map(Effect::BlockingQuery));
    }

    pub(super) fn links_read(&mut self, read: &LinksRead, pods: &KnownPods, now: BootNanos) {
        let asked = self.links.read(read);
        for waiting in self
            .open
            .iter_mut()
            .filter_map(|open| open.waiting.as_mut())
        {
            if let Some(id) = waiting
                .pod
                .container
                .as_deref()
                .filter(|id| asked.contains(*id))
            {
                waiting.link = self.links.answered(waiting.link, id, read, now);
            }
        }
        self.due_objects(pods, now);
    }

    /// Whether the names of the pod's containers are being read. Queries them unless they were read
    /// recently.
    fn is_being_read(&mut self, pod: &Pod, pods: &KnownPods, now: BootNanos) -> bool {
        self.reads.retain(|_, read| match read {
            LastRead::UnderWay { .. } => true,
            LastRead::Finished { again } => now < *again,
        });
        if let Some(read) = self.reads.get(&pod.uid) {
            return matches!(read, LastRead::UnderWay { .. });
        }
        let is_under_way = |read: &&LastRead| matches!(read, LastRead::UnderWay { .. });
        let under_way = self.reads.values().filter(is_under_way).count();
        let full = MAX_READS <= under_way || MAX_REMEMBERED <= self.reads.len();
        if full || !pods.index().exists(&pod.uid) {
            return false;
        }
        let under_way = LastRead::UnderWay { asked: now };
        self.reads.insert(pod.uid.clone(), under_way);
        self.effects.push(Effect::ReadContainers(pod.clone()));
        true
    }

    pub(super) fn containers_read(
        &mut self,
        uid: &str,
        read: Result<(), ReadFailure>,
        now: BootNanos,
    ) {
        let pause = match read {
            Ok(()) | Err(ReadFailure::Other) => READ_AGAIN,
            Err(ReadFailure::Forbidden) => FORBIDDEN,
        };
        if let Some(read) = self.reads.get_mut(uid) {
            let asked = match *read {
                LastRead::UnderWay { asked } => asked,
                LastRead::Finished { .. } => now,
            };
            let again = asked.plus(pause);
            *read = LastRead::Finished { again };
        }
    }
}

/// Whether a link is to come that names a container of a pod, which may not exist any more.
const fn link_may_come(label: &ContainerLabel, link: LinkWait, pod_exists: bool) -> bool {
    match (label, link) {
        (ContainerLabel::Id(_), LinkWait::Unread { .. }) => true,
        // The link of a new container may be late.
        (ContainerLabel::Id(_), LinkWait::Missing { .. }) => pod_exists,
        (ContainerLabel::Id(_), LinkWait::Settled) | (ContainerLabel::Name(_), _) => false,
    }
}

/// Whether nothing more can be known about the container.
fn is_complete(label: &ContainerLabel) -> bool {
    matches!(label, ContainerLabel::Name(container) if container.list.is_some())
}
