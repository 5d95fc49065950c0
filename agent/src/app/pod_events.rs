//! Which pod something happened in, and what its container is called; then it is told.
//!
//! What is known is told at once. A pod that the watch has not told of yet is waited for, and so is
//! the name of a container that nobody has asked for; neither for long, and both by the loop's alarm.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::App;
use crate::api::pod_watch::PodChange;
use crate::api::{ApiError, Client, Refusal, pod_containers, pod_watch};
use crate::clock::{BootNanos, Now};
use crate::config::{Config, Mode};
use crate::kube_event::{
    ContainerLabel, Draft, Incident, Involved, KillOutcomes, NodeEvents, PodRef, ReportedKills,
};
use crate::pods::{Containers, Pod, PodIndex};
use crate::reporting::Outlet;
use crate::tasks::Tasks;

/// How long a pod is waited for that the watch has not told of: whoever runs it may have heard of it
/// first, and the mirror of a static pod comes after it.
const UNSEEN: Duration = Duration::from_secs(2);
/// How long the name of a container is waited for. An API server that is well answers in one or two
/// milliseconds; one that is not must not hold up the Event.
const UNNAMED: Duration = Duration::from_millis(250);
/// A pod is asked for so often at most: its containers come and go in seconds.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The same of a pod that the server would not show us.
const REFUSED: Duration = Duration::from_mins(10);
/// Questions under way at most. Beyond them containers are told by their ids.
const QUESTIONS: usize = 32;
/// What may wait. Beyond it the oldest is told by what is known of it.
const MOST_WAITING: usize = 512;
/// Changes of pods: the watch to the loop. While it is full the watch waits.
const CHANGES: usize = 64;
/// Pods that were asked for lately, at most. Beyond them containers are told by their ids.
const MOST_ASKED: usize = 1024;

/// What is heard of pods.
#[derive(Debug)]
pub(super) enum News {
    /// From the watch.
    Pod(PodChange),
    /// Somebody was asked for containers.
    Containers(Answer),
}

/// What a question for the containers of a pod came to.
#[derive(Debug)]
pub(super) struct Answer {
    uid: Box<str>,
    found: Result<Containers, ApiError>,
}

/// Knows the node's pods, and holds what cannot be told yet.
pub(super) struct PodEvents {
    index: PodIndex,
    client: Option<Client>,
    changes: mpsc::Receiver<PodChange>,
    answers: mpsc::Receiver<Answer>,
    /// For the tasks that ask, of which there are never more than have room.
    send_answer: mpsc::Sender<Answer>,
    waiting: VecDeque<Waiting>,
    /// When pods were asked for, by uid; what is long ago is forgotten.
    asked: BTreeMap<Box<str>, Asked>,
    /// We may not watch pods.
    refused: bool,
    /// The log says that we may not read them.
    warned: bool,
    node_events: NodeEvents,
    /// Kills that no Event is wanted for.
    unwanted: ReportedKills,
}

/// Who records Events on the Node, by the configuration.
fn node_events(config: &Config) -> NodeEvents {
    match config.mode {
        _ if !config.oom_node_events => NodeEvents::Off,
        Mode::Node => NodeEvents::Kubelet,
        Mode::Companion => NodeEvents::Companion,
    }
}

/// An Event, and what it says in numbers.
struct Told {
    event: Draft,
    kills: u64,
    /// Whether its pod is there.
    there: bool,
}

struct Waiting {
    incident: Incident,
    pod: PodRef,
    since: BootNanos,
    /// When the name of the container was asked for.
    asked: Option<BootNanos>,
}

#[derive(Debug, Clone, Copy)]
struct Asked {
    at: BootNanos,
    under_way: bool,
    /// How long it is not asked for again.
    pause: Duration,
}

/// Where something is told.
enum Address {
    Pod(Pod, Option<ContainerLabel>),
    Node,
}

impl PodEvents {
    /// Starts the watch, where there is an API server. Must be called in a runtime.
    pub(super) fn new(config: &Config, outlet: Option<&Outlet>, tasks: &mut Tasks) -> Self {
        let (send_change, changes) = mpsc::channel(CHANGES);
        let (send_answer, answers) = mpsc::channel(QUESTIONS);
        if let Some(outlet) = outlet {
            let (client, node) = (outlet.client.clone(), config.node_name.clone());
            let jitter = outlet.jitter.clone();
            let watch = pod_watch::watch(client, node, jitter, send_change);
            tasks.spawn("pod watch", watch);
        }
        Self {
            index: PodIndex::default(),
            client: outlet.map(|outlet| outlet.client.clone()),
            changes,
            answers,
            send_answer,
            waiting: VecDeque::new(),
            asked: BTreeMap::new(),
            refused: false,
            warned: false,
            node_events: node_events(config),
            unwanted: ReportedKills::default(),
        }
    }

    /// Takes over what the configuration says by now.
    pub(super) fn configure(&mut self, config: &Config) {
        self.node_events = node_events(config);
    }

    /// What the watch or an answer tells; never, without an API server.
    pub(super) async fn news(&mut self) -> News {
        tokio::select! {
            Some(change) = self.changes.recv() => News::Pod(change),
            Some(answer) = self.answers.recv() => News::Containers(answer),
            else => std::future::pending().await,
        }
    }

    /// When something that waits is told by what is known then.
    pub(super) fn due(&self) -> Option<BootNanos> {
        self.waiting.iter().map(Waiting::until).min()
    }

    /// Events to record now for something that happened.
    fn tell(&mut self, mut incident: Incident, now: BootNanos) -> Vec<Told> {
        let mut told = Vec::new();
        if let Some(event) = incident.on_node(self.node_events) {
            told.push(Told::of_node(event));
            // Each kill is reported by one Event; this one has them.
            incident.kills = ReportedKills::default();
        }
        let Some(pod) = incident.pod.clone() else {
            self.unwanted.add_all(incident.kills);
            return told;
        };
        let mut waiting = Waiting {
            incident,
            pod,
            since: now,
            asked: None,
        };
        match self.address(&mut waiting, now) {
            Some(address) => told.extend(self.told(&waiting, address)),
            None => self.waiting.push_back(waiting),
        }
        while self.waiting.len() > MOST_WAITING
            && let Some(oldest) = self.waiting.pop_front()
        {
            told.extend(self.told_as_known(&oldest));
        }
        told
    }

    /// What has waited long enough, or need not wait any more.
    fn release(&mut self, now: BootNanos) -> Vec<Told> {
        let mut told = Vec::new();
        for mut waiting in std::mem::take(&mut self.waiting) {
            match self.address(&mut waiting, now) {
                Some(address) => told.extend(self.told(&waiting, address)),
                None => self.waiting.push_back(waiting),
            }
        }
        told
    }

    /// Everything that waits, by what is known of it: there will be no later.
    fn release_all(&mut self) -> Vec<Told> {
        let waiting = std::mem::take(&mut self.waiting);
        let told = waiting.iter().filter_map(|one| self.told_as_known(one));
        told.collect()
    }

    /// Where to tell it; `None`: that may be known soon.
    fn address(&mut self, waiting: &mut Waiting, now: BootNanos) -> Option<Address> {
        let Some(pod) = self.index.find(&waiting.pod.pod) else {
            let over = self.refused || waiting.until() <= now;
            return over.then_some(Address::Node);
        };
        let pod = pod.clone();
        let Some(id) = &waiting.pod.container else {
            return Some(Address::Pod(pod, None));
        };
        if let Some(container) = self.index.container(&pod.uid, id) {
            let name = ContainerLabel::Name(container.clone());
            return Some(Address::Pod(pod, Some(name)));
        }
        let by_id = Address::Pod(pod.clone(), Some(ContainerLabel::Id(id.clone())));
        if !self.ask(&pod, now) {
            return Some(by_id);
        }
        let asked = *waiting.asked.get_or_insert(now);
        (asked.plus(UNNAMED) <= now).then_some(by_id)
    }

    /// Whether an answer is to come that tells what the pod's containers are called.
    fn ask(&mut self, pod: &Pod, now: BootNanos) -> bool {
        self.asked
            .retain(|_, asked| asked.under_way || now.since(asked.at) < asked.pause);
        if let Some(asked) = self.asked.get(&pod.uid) {
            return asked.under_way;
        }
        let under_way = self.asked.values().filter(|asked| asked.under_way).count();
        let full = QUESTIONS <= under_way || MOST_ASKED <= self.asked.len();
        let Some(client) = self.client.clone().filter(|_| !full) else {
            return false;
        };
        if !self.index.exists(&pod.uid) {
            return false;
        }
        let asked = Asked {
            at: now,
            under_way: true,
            pause: ASK_AGAIN,
        };
        self.asked.insert(pod.uid.clone(), asked);
        let (pod, answers) = (pod.clone(), self.send_answer.clone());
        tokio::spawn(async move {
            let found = pod_containers::read(&client, &pod.namespace, &pod.name).await;
            let uid = pod.uid;
            // The loop may have ended meanwhile.
            drop(answers.send(Answer { uid, found }).await);
        });
        true
    }

    fn answered(&mut self, answer: Answer) {
        let Answer { uid, found } = answer;
        let asked = self.asked.get_mut(&uid);
        let err = match found {
            Ok(containers) => {
                self.index.set_containers(&uid, containers);
                None
            }
            Err(err) => Some(err),
        };
        // Of a pod that is gone a node is told the same as of somebody else's.
        let refused = err.as_ref().and_then(ApiError::refusal) == Some(Refusal::Forbidden);
        if let Some(asked) = asked {
            asked.under_way = false;
            if refused {
                asked.pause = REFUSED;
            }
        }
        let Some(err) = err else {
            return;
        };
        let err = &err as &dyn std::error::Error;
        if refused && self.index.exists(&uid) && !std::mem::replace(&mut self.warned, true) {
            warn!(
                err,
                "containers are told by their ids; allow this identity to get pods"
            );
        } else {
            debug!(err, "name of a container not known");
        }
    }

    /// Takes note of a change. Gives the pods that are gone.
    fn changed(&mut self, change: PodChange) -> Vec<Pod> {
        match change {
            PodChange::Relisting => {
                self.refused = false;
                self.index.relist();
            }
            PodChange::Present(pod) => return self.index.put(pod).into_iter().collect(),
            PodChange::Removed(uid) => {
                return self.index.remove(&uid).cloned().into_iter().collect();
            }
            PodChange::Listed => return self.index.listed(),
            PodChange::Refused => self.refused = true,
        }
        Vec::new()
    }

    fn told_as_known(&self, waiting: &Waiting) -> Option<Told> {
        let address = match self.index.find(&waiting.pod.pod) {
            Some(pod) => {
                let id = waiting.pod.container.clone().map(ContainerLabel::Id);
                Address::Pod(pod.clone(), id)
            }
            None => Address::Node,
        };
        self.told(waiting, address)
    }

    /// `None`: the Node's own Event has told it already.
    fn told(&self, waiting: &Waiting, address: Address) -> Option<Told> {
        let incident = &waiting.incident;
        match address {
            Address::Pod(pod, container) => Some(Told {
                event: incident.on_pod(&pod, container.as_ref()),
                kills: incident.new_kills(),
                there: self.index.exists(&pod.uid),
            }),
            Address::Node
                if incident.kills.is_empty() && incident.on_node(self.node_events).is_some() =>
            {
                None
            }
            Address::Node => Some(Told::of_node(incident.on_node_instead())),
        }
    }
}

impl Waiting {
    /// When it is told by what is known.
    fn until(&self) -> BootNanos {
        match self.asked {
            Some(asked) => asked.plus(UNNAMED),
            None => self.since.plus(UNSEEN),
        }
    }
}

impl Told {
    fn of_node(event: Draft) -> Self {
        Self {
            event,
            kills: 0,
            there: false,
        }
    }
}

impl App {
    /// Tells what happened, at once or when it is known of what pod.
    pub(super) fn tell(&mut self, incidents: impl IntoIterator<Item = Incident>, now: Now) {
        if self.reporting.is_none() {
            for incident in incidents {
                self.pod_events.unwanted.add_all(incident.kills); // They are in the log.
            }
        } else {
            for incident in incidents {
                let told = self.pod_events.tell(incident, now.boot);
                self.record_told(told);
            }
        }
        let acknowledged = std::mem::take(&mut self.pod_events.unwanted);
        let outcomes = KillOutcomes {
            acknowledged,
            ..KillOutcomes::default()
        };
        self.counts.settle(outcomes, now.boot);
    }

    pub(super) fn pods_changed(&mut self, news: News, now: Now) {
        let mut next = Some(news);
        while let Some(news) = next {
            match news {
                News::Pod(change) => {
                    for pod in self.pod_events.changed(change) {
                        self.metering.pod_gone(&pod.namespace, &pod.name);
                    }
                }
                News::Containers(answer) => self.pod_events.answered(answer),
            }
            next = self.pod_events.changes.try_recv().ok().map(News::Pod);
        }
        self.tell_waiting(now);
    }

    /// Tells what waited and need not any more.
    pub(super) fn tell_waiting(&mut self, now: Now) {
        let told = self.pod_events.release(now.boot);
        self.record_told(told);
    }

    /// Tells whatever waits: there will be no later.
    pub(super) fn tell_all_waiting(&mut self) {
        let told = self.pod_events.release_all();
        self.record_told(told);
    }

    fn record_told(&mut self, told: Vec<Told>) {
        for Told {
            event,
            kills,
            there,
        } in told
        {
            if let (
                Involved::Pod {
                    namespace, name, ..
                },
                true,
            ) = (&event.object, there)
            {
                self.metering.pod_killed(namespace, name, kills);
            }
            self.record_all(vec![event]);
        }
    }
}
