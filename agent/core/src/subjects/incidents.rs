//! Incidents on their way to Kubernetes Events: in which pod they were, and what its container is
//! called.
//!
//! What is known is reported at once: from the watch on pods, and from the link that the kubelet
//! made for the container's log. A pod that neither has is waited for, and so is the name of a
//! container; neither for long. The API server is asked once for each pod, to learn its lists of
//! containers, and again if the node does not have a name.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::pods::{KnownPods, ReadFailure, WatchPermission};
use super::{BlockingQuery, Decision, Effect, Input, KillCounterInput, pass_on};
use crate::clock::{BootNanos, Now};
use crate::kube_event::{
    ContainerLabel, Draft, EventId, EventPlace, Incident, KillOutcomes, NodeEvents, ReportedKills,
};
use crate::pods::{Pod, PodChange, PodId, PodRef};

mod details;
mod groups;
mod links;
mod pod_watch;
#[cfg(test)]
mod tests;

use details::Details;
pub use details::{DetailsOf, DetailsRead};
use groups::Groups;
pub use links::LinksRead;
use links::{LinkWait, Links};

/// Time limit for a pod that the watch has not reported yet: a kubelet may start it first, and the
/// mirror of a static pod is created after it.
const UNKNOWN_POD: Duration = Duration::from_secs(2);
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
    /// The API server answered for the first time.
    ServerAnswered,
    /// New incidents.
    Happened(Vec<Incident>),
    /// The watch reported a change, which is applied to the known pods.
    PodChanged(PodChange),
    /// The answer to [`Effect::ReadContainers`]; the containers are stored with the known pods.
    ContainersRead {
        /// The UID of the pod.
        uid: Box<str>,
        read: Result<(), ReadFailure>,
    },
    /// To [`BlockingQuery::ContainerLinks`].
    Links(LinksRead),
    /// The API server has an Event to which details can be added.
    Delivered(EventId),
    /// To [`BlockingQuery::KillDetails`].
    DetailsRead(DetailsRead),
    /// Time has passed, or more may be known.
    Due,
    /// The agent stops: everything is reported with what is known.
    Stopping,
}

/// An incident that cannot be reported yet.
#[derive(Debug, Serialize, Deserialize)]
struct Waiting {
    incident: Incident,
    pod: PodRef,
    wait: WaitFor,
    link: LinkWait,
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
enum WaitFor {
    Pod { until: BootNanos },
    Name { until: BootNanos },
}

/// The last read of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum EventRecording {
    LogOnly,
    Events,
}

/// The incidents that wait, and what is known about those that were reported.
#[derive(Debug, Serialize, Deserialize)]
pub struct Incidents {
    reporting: EventRecording,
    node_events: NodeEvents,
    waiting: VecDeque<Waiting>,
    links: Links,
    details: Details,
    groups: Groups,
    /// Kills that were reported before the watch reported their pod, by its uid.
    uncounted: BTreeMap<Box<str>, u64>,
    /// By uid of the pod.
    reads: BTreeMap<Box<str>, LastRead>,
    /// The API server has answered since the start. Before, no name is waited for in vain.
    answered: bool,
    /// Kills for which no Event is recorded.
    unwanted: ReportedKills,
    effects: Vec<Effect>,
}

impl Incidents {
    /// Without incidents.
    pub fn new(node_events: NodeEvents) -> Self {
        Self {
            reporting: EventRecording::LogOnly,
            node_events,
            waiting: VecDeque::new(),
            links: Links::default(),
            details: Details::default(),
            groups: Groups::default(),
            uncounted: BTreeMap::new(),
            reads: BTreeMap::new(),
            answered: false,
            unwanted: ReportedKills::default(),
            effects: Vec::new(),
        }
    }

    /// Takes an input, and returns what follows from it.
    pub fn on(&mut self, input: IncidentInput, pods: &KnownPods, now: Now) -> Vec<Effect> {
        match input {
            IncidentInput::Configured(node_events) => self.node_events = node_events,
            IncidentInput::ReportingStarted => self.reporting = EventRecording::Events,
            IncidentInput::ServerAnswered => self.server_answered(now.boot),
            IncidentInput::Happened(incidents) => self.happened(incidents, pods, now.boot),
            IncidentInput::PodChanged(change) => {
                self.server_answered(now.boot);
                self.pod_changed(change);
            }
            IncidentInput::ContainersRead { uid, read } => {
                self.containers_read(&uid, read, now.boot);
            }
            IncidentInput::Links(read) => self.links_read(&read, pods, now.boot),
            IncidentInput::Delivered(id) => self.delivered(id, now.boot),
            IncidentInput::DetailsRead(read) => self.details_read(read, pods),
            IncidentInput::Due => self.release(pods, now.boot),
            IncidentInput::Stopping => {
                for waiting in std::mem::take(&mut self.waiting) {
                    self.report_as_known(waiting, pods, now.boot);
                }
                self.report_groups(BootNanos(u64::MAX));
            }
        }
        self.read_links(now.boot);
        self.report_groups(now.boot);
        std::mem::take(&mut self.effects)
    }

    /// The next deadline of an incident that waits.
    pub fn due(&self) -> Option<BootNanos> {
        let link = |waiting: &Waiting| self.links.due(waiting.link);
        let due = |waiting| link(waiting).map_or(waiting.until(), |at| at.min(waiting.until()));
        let waiting = self.waiting.iter().map(due).min();
        [waiting, self.groups.due()].into_iter().flatten().min()
    }

    fn happened(&mut self, incidents: Vec<Incident>, pods: &KnownPods, now: BootNanos) {
        for mut incident in incidents {
            let pod = incident.pod.as_ref();
            let pod = pod.and_then(|at| pods.index().find(&at.pod));
            incident.pod_name = pod.map(|pod| format!("{}/{}", pod.namespace, pod.name));
            match self.reporting {
                EventRecording::LogOnly => self.unwanted.add_all(incident.kills),
                EventRecording::Events => {
                    if let Some(incident) = self.add_to_group(incident, pods, now) {
                        self.report(incident, pods, now);
                    }
                }
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

    fn report(&mut self, mut incident: Incident, pods: &KnownPods, now: BootNanos) {
        if let Some(draft) = incident.on_node(self.node_events) {
            self.record(draft, &incident, EventPlace::Node, now);
            // Each kill is reported by one Event, which is this one.
            incident.kills = ReportedKills::default();
        }
        let Some(pod) = incident.pod.clone() else {
            self.unwanted.add_all(incident.kills);
            return;
        };
        let until = self.until_pod_is_known(now);
        self.report_or_wait(
            Waiting {
                incident,
                link: self.links.wait(pod.container.as_deref(), now),
                pod,
                wait: WaitFor::Pod { until },
            },
            pods,
            now,
        );
        while self.waiting.len() > MAX_WAITING
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.report_as_known(oldest, pods, now);
        }
    }

    fn report_or_wait(&mut self, mut waiting: Waiting, pods: &KnownPods, now: BootNanos) {
        let target = self.target(&waiting.pod, pods);
        if self.may_improve(&target, &mut waiting, pods, now) {
            self.waiting.push_back(waiting);
        } else {
            self.report_to(waiting.incident, target, pods, now);
        }
    }

    /// Reports what has waited long enough, or need not wait any more.
    fn release(&mut self, pods: &KnownPods, now: BootNanos) {
        for waiting in std::mem::take(&mut self.waiting) {
            self.report_or_wait(waiting, pods, now);
        }
    }

    /// The object of the Event, by what is known.
    fn target(&self, pod: &PodRef, pods: &KnownPods) -> Target {
        let id = pod.container.as_deref();
        if let Some(known) = pods.index().find(&pod.pod) {
            let label = id.map(|id| self.label(known, id, pods));
            return Target::Pod(known.clone(), label);
        }
        let link = id.and_then(|id| self.links.get(id));
        let by_link = link.and_then(|link| {
            let label = link.container().map(ContainerLabel::Name);
            Some(Target::Pod(link.in_pod(&pod.pod)?, label))
        });
        by_link.unwrap_or(Target::Node)
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

    /// Whether more than `target` may be known soon.
    fn may_improve(
        &mut self,
        target: &Target,
        waiting: &mut Waiting,
        pods: &KnownPods,
        now: BootNanos,
    ) -> bool {
        waiting.link = waiting.link.at(now);
        match target {
            Target::Node => {
                if pods.watch() == WatchPermission::Refused {
                    let until = waiting.link_until().unwrap_or(now);
                    waiting.wait = WaitFor::Pod { until };
                }
                now < waiting.until()
            }
            Target::Pod(pod, Some(label)) if !is_complete(label) => {
                let until = match waiting.wait {
                    WaitFor::Name { until } => until,
                    WaitFor::Pod { .. } => now.plus(UNKNOWN_NAME),
                };
                waiting.wait = WaitFor::Name { until };
                now < until
                    && (self.read_may_come(pod, waiting.link, pods, now)
                        || link_may_come(label, waiting.link, pods.index().exists(&pod.uid)))
            }
            Target::Pod(..) => false,
        }
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
    fn read_links(&mut self, now: BootNanos) {
        let waiting = self.waiting.iter();
        let waiting =
            waiting.filter_map(|waiting| Some((waiting.pod.container.as_deref()?, waiting.link)));
        let query = self.links.ask(waiting, now);
        self.effects.extend(query.map(Effect::BlockingQuery));
    }

    fn links_read(&mut self, read: &LinksRead, pods: &KnownPods, now: BootNanos) {
        let asked = self.links.read(read);
        for waiting in &mut self.waiting {
            if let Some(id) = waiting
                .pod
                .container
                .as_deref()
                .filter(|id| asked.contains(*id))
            {
                waiting.link = self.links.answered(waiting.link, id, read, now);
            }
        }
        self.release(pods, now);
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

    fn containers_read(&mut self, uid: &str, read: Result<(), ReadFailure>, now: BootNanos) {
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

    fn report_as_known(&mut self, waiting: Waiting, pods: &KnownPods, now: BootNanos) {
        let target = self.target(&waiting.pod, pods);
        self.report_to(waiting.incident, target, pods, now);
    }

    fn report_to(
        &mut self,
        mut incident: Incident,
        target: Target,
        pods: &KnownPods,
        now: BootNanos,
    ) {
        let (draft, place) = match target {
            Target::Pod(pod, container) => {
                incident.name_trigger(|id| self.label(&pod, id, pods));
                self.count_kills(&incident, &pod, pods);
                self.set_pod_of_group(&incident, &pod);
                let draft = incident.on_pod(&pod, container.as_ref());
                (draft, EventPlace::Pod(container))
            }
            Target::Node if self.is_reported(&incident) => return,
            Target::Node => (incident.on_node_instead(), EventPlace::NodeInstead),
        };
        self.record(draft, &incident, place, now);
    }

    /// Whether an Event on the Node already reports it.
    fn is_reported(&self, incident: &Incident) -> bool {
        let on_node = || -> Option<Draft> { incident.on_node(self.node_events) };
        incident.kills.is_empty() && on_node().is_some()
    }

    fn count_kills(&mut self, incident: &Incident, pod: &Pod, pods: &KnownPods) {
        let kills = incident.new_kills();
        if pods.index().exists(&pod.uid) {
            self.count_in_metric(pod, kills);
        } else if !pods.index().is_known(&pod.uid) && self.uncounted.len() < MAX_WAITING {
            *self.uncounted.entry(pod.uid.clone()).or_default() += kills;
        }
    }

    fn count_in_metric(&mut self, pod: &Pod, kills: u64) {
        self.effects.push(Effect::Log(Decision::PodKilled {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            kills,
        }));
    }
}

impl Waiting {
    /// When it is reported with what is known.
    fn until(&self) -> BootNanos {
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
