//! Incidents on their way to Kubernetes Events: in which pod they were, and what its container is
//! called.
//!
//! What is known is reported at once. A pod that the watch has not reported yet is waited for, and so
//! is the name of a container that was not asked for before; neither for long.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{Decision, Effect, Input, KillCounterInput, Query, pass_on};
use crate::clock::{BootNanos, Now};
use crate::kube_event::{ContainerLabel, Draft, Incident, KillOutcomes, NodeEvents, ReportedKills};
use crate::pods::{Containers, Pod, PodChange, PodIndex, PodRef};

#[cfg(test)]
mod tests;

/// Time limit for a pod that the watch has not reported yet: a kubelet may start it first, and the
/// mirror of a static pod is created after it.
const UNKNOWN_POD: Duration = Duration::from_secs(2);
/// Time limit for the name of a container. A healthy API server answers in one or two milliseconds;
/// a slow one must not delay the Event.
const UNKNOWN_NAME: Duration = Duration::from_millis(250);
/// Minimum interval between two reads of one pod, whose containers can change within seconds.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// The same for a pod that the agent is not permitted to read.
const FORBIDDEN: Duration = Duration::from_mins(10);
/// Maximum number of reads of pods at the same time. Beyond it containers are named by their ids.
pub const MAX_READS: usize = 32;
/// Maximum number of incidents that wait. Beyond it the oldest is reported with what is known.
const MAX_WAITING: usize = 512;
/// Maximum number of pods whose last read is stored. Beyond it containers are named by their ids.
const MAX_REMEMBERED: usize = 1024;

/// Everything that can happen to incidents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum IncidentInput {
    /// Who records Events on the Node.
    Configured(NodeEvents),
    /// Events are recorded from now on. Before, incidents are only logged.
    ReportingStarted,
    /// New incidents.
    Happened(Vec<Incident>),
    /// The watch reported a change.
    PodChanged(PodChange),
    /// The answer to [`Query::Containers`].
    Containers {
        /// The UID of the pod.
        uid: Box<str>,
        /// What was read.
        read: ContainersRead,
    },
    /// Time has passed, or more may be known.
    Due,
    /// The agent stops: everything is reported with what is known.
    Stopping,
}

/// The result of reading the containers of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainersRead {
    /// Its containers.
    Found(Containers),
    /// The API server refused; a node may not read a pod that was removed.
    Forbidden,
    /// Not read.
    Failed,
}

/// An incident that cannot be reported yet.
#[derive(Debug)]
struct Waiting {
    incident: Incident,
    pod: PodRef,
    wait: WaitFor,
}

/// What an incident waits for, and until when.
///
/// ```text
///           pod unknown                      container's name unknown
/// happened ─────────────► Pod ───── known ─────────────────────────────► Name
///    │                      │ deadline, or pods cannot be watched            │ known, or deadline
///    │                      ▼                                                ▼
///    │                  the Node                                          the Pod
///    └── both known: the Pod
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WaitFor {
    Pod { until: BootNanos },
    Name { until: BootNanos },
}

/// The last read of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastRead {
    UnderWay { asked: BootNanos },
    Finished { again: BootNanos },
}

/// The object of an Event.
enum Target {
    Pod(Pod, Option<ContainerLabel>),
    Node,
}

/// Whether Events are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventRecording {
    LogOnly,
    Events,
}

/// Whether the API server permits the watch on pods, as far as is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchPermission {
    Permitted,
    Refused,
}

/// The pods of this node, and the incidents that wait.
#[derive(Debug)]
pub struct Incidents {
    reporting: EventRecording,
    node_events: NodeEvents,
    index: PodIndex,
    watch: WatchPermission,
    waiting: VecDeque<Waiting>,
    /// By uid of the pod.
    reads: BTreeMap<Box<str>, LastRead>,
    /// The missing permission to read pods was logged.
    warned: bool,
    /// Kills for which no Event is recorded.
    unwanted: ReportedKills,
    effects: Vec<Effect>,
}

impl Incidents {
    /// Without pods and incidents.
    pub fn new(node_events: NodeEvents) -> Self {
        Self {
            reporting: EventRecording::LogOnly,
            node_events,
            index: PodIndex::default(),
            watch: WatchPermission::Permitted,
            waiting: VecDeque::new(),
            reads: BTreeMap::new(),
            warned: false,
            unwanted: ReportedKills::default(),
            effects: Vec::new(),
        }
    }

    /// Takes an input, and returns what follows from it.
    pub fn on(&mut self, input: IncidentInput, now: Now) -> Vec<Effect> {
        match input {
            IncidentInput::Configured(node_events) => self.node_events = node_events,
            IncidentInput::ReportingStarted => self.reporting = EventRecording::Events,
            IncidentInput::Happened(incidents) => self.happened(incidents, now.boot),
            IncidentInput::PodChanged(change) => self.pod_changed(change),
            IncidentInput::Containers { uid, read } => self.containers_read(&uid, read, now.boot),
            IncidentInput::Due => self.release(now.boot),
            IncidentInput::Stopping => {
                for waiting in std::mem::take(&mut self.waiting) {
                    self.report_as_known(&waiting);
                }
            }
        }
        std::mem::take(&mut self.effects)
    }

    /// The next deadline of an incident that waits.
    pub fn due(&self) -> Option<BootNanos> {
        self.waiting.iter().map(Waiting::until).min()
    }

    fn happened(&mut self, incidents: Vec<Incident>, now: BootNanos) {
        for incident in incidents {
            match self.reporting {
                EventRecording::LogOnly => self.unwanted.add_all(incident.kills),
                EventRecording::Events => self.report(incident, now),
            }
        }
        let acknowledged = std::mem::take(&mut self.unwanted);
        if !acknowledged.is_empty() {
            let settled = KillCounterInput::Settled(KillOutcomes {
                acknowledged,
                ..KillOutcomes::default()
            });
            let settled = Input::KillCounter(settled);
            self.effects.push(pass_on(settled));
        }
    }

    fn report(&mut self, mut incident: Incident, now: BootNanos) {
        if let Some(draft) = incident.on_node(self.node_events) {
            self.effects.push(Effect::Event(draft));
            // Each kill is reported by one Event, which is this one.
            incident.kills = ReportedKills::default();
        }
        let Some(pod) = incident.pod.clone() else {
            self.unwanted.add_all(incident.kills);
            return;
        };
        let until = now.plus(UNKNOWN_POD);
        self.report_or_wait(
            Waiting {
                incident,
                pod,
                wait: WaitFor::Pod { until },
            },
            now,
        );
        while self.waiting.len() > MAX_WAITING
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.report_as_known(&oldest);
        }
    }

    fn report_or_wait(&mut self, mut waiting: Waiting, now: BootNanos) {
        match self.target(&mut waiting, now) {
            Some(target) => self.report_to(&waiting.incident, target),
            None => self.waiting.push_back(waiting),
        }
    }

    /// Reports what has waited long enough, or need not wait any more.
    fn release(&mut self, now: BootNanos) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.report_or_wait(waiting, now);
        }
    }

    /// The object of the Event; `None`: it may be known soon.
    fn target(&mut self, waiting: &mut Waiting, now: BootNanos) -> Option<Target> {
        let Some(pod) = self.index.find(&waiting.pod.pod).cloned() else {
            let over = self.watch == WatchPermission::Refused || waiting.until() <= now;
            return over.then_some(Target::Node);
        };
        let Some(id) = &waiting.pod.container else {
            return Some(Target::Pod(pod, None));
        };
        if let Some(container) = self.index.container(&pod.uid, id) {
            let name = ContainerLabel::Name(container.clone());
            return Some(Target::Pod(pod, Some(name)));
        }
        let by_id = ContainerLabel::Id(id.clone());
        if !self.is_being_read(&pod, now) {
            return Some(Target::Pod(pod, Some(by_id)));
        }
        let until = match waiting.wait {
            WaitFor::Name { until } => until,
            WaitFor::Pod { .. } => now.plus(UNKNOWN_NAME),
        };
        waiting.wait = WaitFor::Name { until };
        (until <= now).then_some(Target::Pod(pod, Some(by_id)))
    }

    /// Whether the names of the pod's containers are being read. Queries them unless they were read
    /// recently.
    fn is_being_read(&mut self, pod: &Pod, now: BootNanos) -> bool {
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
        if full || !self.index.exists(&pod.uid) {
            return false;
        }
        let under_way = LastRead::UnderWay { asked: now };
        self.reads.insert(pod.uid.clone(), under_way);
        self.effects
            .push(Effect::Query(Query::Containers(pod.clone())));
        true
    }

    fn containers_read(&mut self, uid: &str, read: ContainersRead, now: BootNanos) {
        let pause = match read {
            ContainersRead::Found(containers) => {
                self.index.set_containers(uid, containers);
                READ_AGAIN
            }
            ContainersRead::Failed => READ_AGAIN,
            ContainersRead::Forbidden => {
                if self.index.exists(uid) && !std::mem::replace(&mut self.warned, true) {
                    self.effects
                        .push(Effect::Log(Decision::ContainersForbidden));
                }
                FORBIDDEN
            }
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

    fn pod_changed(&mut self, change: PodChange) {
        let removed = match change {
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
        };
        for pod in removed {
            let Pod {
                namespace, name, ..
            } = pod;
            let removed = Decision::PodRemoved { namespace, name };
            self.effects.push(Effect::Log(removed));
        }
    }

    fn report_as_known(&mut self, waiting: &Waiting) {
        let target = match self.index.find(&waiting.pod.pod) {
            Some(pod) => {
                let id = waiting.pod.container.clone().map(ContainerLabel::Id);
                Target::Pod(pod.clone(), id)
            }
            None => Target::Node,
        };
        self.report_to(&waiting.incident, target);
    }

    fn report_to(&mut self, incident: &Incident, target: Target) {
        let draft = match target {
            Target::Pod(pod, container) => {
                self.count_kills(incident, &pod);
                incident.on_pod(&pod, container.as_ref())
            }
            Target::Node if self.is_reported(incident) => return,
            Target::Node => incident.on_node_instead(),
        };
        self.effects.push(Effect::Event(draft));
    }

    /// Whether an Event on the Node already reports it.
    fn is_reported(&self, incident: &Incident) -> bool {
        let on_node = || -> Option<Draft> { incident.on_node(self.node_events) };
        incident.kills.is_empty() && on_node().is_some()
    }

    fn count_kills(&mut self, incident: &Incident, pod: &Pod) {
        let kills = incident.new_kills();
        if self.index.exists(&pod.uid) {
            self.effects.push(Effect::Log(Decision::PodKilled {
                namespace: pod.namespace.clone(),
                name: pod.name.clone(),
                kills,
            }));
        }
    }
}

impl Waiting {
    /// When it is reported with what is known.
    fn until(&self) -> BootNanos {
        match self.wait {
            WaitFor::Pod { until } | WaitFor::Name { until } => until,
        }
    }
}
