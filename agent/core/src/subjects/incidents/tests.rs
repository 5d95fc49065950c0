use std::time::SystemTime;

use super::Incidents as Subject;
use super::*;
use crate::clock::Stamp;
use crate::incident::Occurrence;
use crate::kube_event::{
    ContainerLabel, Draft, EventId, EventWords, Finding, Involved, KillOwner, KillPlace,
    NodeEvents, Period, ReportedKills, UnidentifiedKills, VictimOwner,
};
use crate::pods::{Container, ContainerList, Containers, PodId, PodRef};
use crate::pressure::oom::{Doubt, KillVerdict};
use crate::reading::oom::{LimitOwner, OomScope};
use crate::subjects::kills::causes::Causes;
use crate::subjects::pods::PodInput;
use crate::subjects::{BlockingQuery, Input};
use crate::units::Pid;

use IncidentInput as In;

mod details;
mod groups;
mod links;
mod reads;

const DUE: Input = Input::Incident(In::Due);
const STOPPING: Input = Input::Incident(In::Stopping);

impl From<In> for Input {
    fn from(input: In) -> Self {
        Self::Incident(input)
    }
}

/// What follows from an input: an Event about an incident, or another effect.
#[derive(Debug, Clone, PartialEq)]
enum Then {
    Event(Draft),
    Other(Effect),
}

/// Incidents, the pods of their node, and the words of their Events.
struct Incidents {
    pods: KnownPods,
    subject: Subject,
    causes: Causes,
    words: EventWords,
    revisions: BTreeMap<IncidentId, u8>,
}

impl Incidents {
    fn new(node_events: NodeEvents) -> Self {
        Self {
            pods: KnownPods::default(),
            subject: Subject::new(BootId(1), true, &BTreeMap::new()),
            causes: Causes::default(),
            words: EventWords::new("n", node_events),
            revisions: BTreeMap::new(),
        }
    }

    /// Returns the effects, with those of inputs to the incidents in their places, and with Events
    /// instead of incidents.
    fn on(&mut self, input: impl Into<Input>, now: Now) -> Vec<Then> {
        match input.into() {
            Input::Incident(mut input) => {
                if let In::Happened(incidents) = &mut input {
                    for incident in incidents {
                        self.find_causes(incident);
                    }
                }
                let effects = self.subject.on(input, &self.pods, now).into_iter();
                effects.flat_map(|effect| self.worded(effect)).collect()
            }
            Input::Pod(input) => {
                let effects = self.pods.on(input).into_iter();
                let passed_on = effects.map(|effect| match effect {
                    Effect::Input(input) => self.on(*input, now),
                    other => vec![Then::Other(other)],
                });
                passed_on.flatten().collect()
            }
            other => panic!("unexpected: {other:?}"),
        }
    }

    fn find_causes(&mut self, occurred: &mut Occurred) {
        if let Occurrence::Kills(kills) = &mut occurred.occurrence {
            let findings = kills.findings.drain(..);
            kills.findings = findings.map(|kill| self.causes.assign(kill)).collect();
        }
    }

    fn worded(&mut self, effect: Effect) -> Vec<Then> {
        let Effect::Incident(incident) = effect else {
            return vec![Then::Other(effect)];
        };
        let before = self.revisions.insert(incident.id, incident.revision);
        assert_eq!(incident.revision, before.unwrap_or(0) + 1, "{incident:?}");
        assert!(incident.revision <= 4, "{incident:?}");
        let drafts = self.words.word(&incident, None);
        drafts.into_iter().map(Then::Event).collect()
    }

    fn due(&self) -> Option<BootNanos> {
        self.subject.due()
    }
}

fn at(ms: u64) -> Now {
    Now {
        boot: BootNanos(ms * 1_000_000),
        wall: SystemTime::UNIX_EPOCH,
    }
}

/// One kill that was counted in a pod, in a container if one is named.
fn kill(uid: &str, container: Option<&str>) -> Occurred {
    let pod = PodId::Uid(uid.to_owned());
    Occurred {
        pod: Some(PodRef {
            pod: pod.clone(),
            container: container.map(str::to_owned),
        }),
        at: SystemTime::UNIX_EPOCH,
        until: SystemTime::UNIX_EPOCH,
        stamp: None,
        kills: ReportedKills::of(KillOwner::Pod(pod), 1),
        occurrence: Occurrence::UnidentifiedKills(UnidentifiedKills {
            place: KillPlace::Cgroup(format!("/kubepods/pod{uid}")),
            kills: 1,
            period: Period::Now,
        }),
    }
}

/// One kill because the node was out of memory: in a pod, or in none.
fn global(uid: Option<&str>) -> Occurred {
    let counted = kill(uid.unwrap_or("aa"), None);
    let pod = uid.and(counted.pod.clone());
    let owner = pod.clone().map_or(VictimOwner::NoPod, VictimOwner::Pod);
    let finding = Finding {
        stamp: crate::tests::stamp(at(0).boot),
        comm: "victim".to_owned(),
        owner,
        scope: OomScope::Global,
        verdict: KillVerdict::EventOnly {
            why: Doubt::MemoryLeft,
        },
        ..crate::tests::finding(7)
    };
    Occurred {
        pod,
        occurrence: Occurrence::Kills(vec![finding].into()),
        ..counted
    }
}

fn changed(change: PodChange) -> Input {
    Input::Pod(PodInput::Changed(change))
}

fn removed(uid: &str) -> Input {
    changed(PodChange::Removed(uid.to_owned()))
}

fn happened(occurred: Occurred) -> Input {
    In::Happened(vec![occurred]).into()
}

fn present(uid: &str) -> Input {
    let pod = Pod::new("shop", &format!("pod-{uid}"), uid, None).unwrap();
    changed(PodChange::Present(pod))
}

fn named(uid: &str, id: &str) -> Input {
    let mut containers = Containers::default();
    containers.add(
        id,
        Container::new(Some(ContainerList::Containers), "web").unwrap(),
    );
    read(uid, Ok(containers))
}

fn unnamed(uid: &str, failure: ReadFailure) -> Input {
    read(uid, Err(failure))
}

fn read(uid: &str, read: Result<Containers, ReadFailure>) -> Input {
    let uid = uid.into();
    Input::Pod(PodInput::Containers { uid, read })
}

/// What follows, in short.
fn short(effects: &[Then]) -> Vec<String> {
    let text = |effect: &Then| match effect {
        Then::Event(draft) => match &draft.object {
            Involved::Node => "on the node".to_owned(),
            Involved::Pod {
                name, field_path, ..
            } => {
                let path = field_path.as_deref().unwrap_or("-");
                format!("on {name} {path}")
            }
        },
        Then::Other(Effect::ReadContainers(pod)) => format!("read {}", pod.name),
        Then::Other(Effect::Log(Decision::PodKilled { name, kills, .. })) => {
            format!("{kills} in {name}")
        }
        Then::Other(Effect::Log(Decision::PodRemoved { name, .. })) => format!("{name} removed"),
        Then::Other(Effect::Log(Decision::ContainersForbidden)) => "forbidden".to_owned(),
        other @ Then::Other(_) => panic!("unexpected: {other:?}"),
    };
    effects.iter().map(text).collect()
}

/// What follows on a node without links to container logs.
fn without_links(incidents: &mut Incidents, input: impl Into<Input>, now: Now) -> Vec<Then> {
    let mut effects = incidents.on(input, now);
    let is_query = |effect: &Then| {
        matches!(
            effect,
            Then::Other(Effect::BlockingQuery(BlockingQuery::ContainerLinks(_)))
        )
    };
    if let Some(query) = effects.iter().position(is_query) {
        effects.remove(query);
        let unavailable = In::Links(LinksRead::Unavailable);
        effects.extend(without_links(incidents, unavailable, now));
    }
    effects
}

/// ms, input, what follows, when something is due in ms.
type Step = (u64, Input, &'static [&'static str], Option<u64>);

fn play(node_events: NodeEvents, steps: Vec<Step>) {
    let mut incidents = Incidents::new(node_events);
    incidents.on(In::ServerAnswered, at(0));
    for (ms, input, expected, due) in steps {
        let name = format!("{input:?} at {ms} ms");
        let effects = without_links(&mut incidents, input, at(ms));
        assert_eq!(short(&effects), expected, "{name}");
        assert_eq!(incidents.due(), due.map(|ms| at(ms).boot), "{name}");
    }
}

#[test]
fn an_incident_waits_for_its_pod_and_for_the_name_of_its_container() {
    #[rustfmt::skip]
    play(NodeEvents::Kubelet, vec![
        (0, happened(kill("aa", Some("c1"))), &[], Some(2000)),
        (5, DUE, &[], Some(2000)),
        (10, present("aa"), &[], Some(2000)),
        (10, DUE, &["read pod-aa"], Some(260)),
        (20, named("aa", "c1"), &[], Some(260)),
        (20, DUE, &["1 in pod-aa", "on pod-aa spec.containers{web}"], None),
        (30, happened(kill("aa", Some("c1"))), &["1 in pod-aa", "on pod-aa spec.containers{web}"], None),
        (40, happened(kill("aa", None)), &["1 in pod-aa", "on pod-aa -"], None),
        (50, happened(kill("aa", Some("c2"))), &["1 in pod-aa", "on pod-aa -"], None),
        (1010, happened(kill("aa", Some("c2"))), &["read pod-aa"], Some(1260)),
        (1260, DUE, &["1 in pod-aa", "on pod-aa -"], None),
        (1300, happened(kill("bb", None)), &[], Some(3300)),
        (3300, DUE, &["on the node"], None),
    ]);
}

#[test]
fn without_permission_nothing_waits_and_the_log_has_it_once() {
    use ReadFailure::{Forbidden, Other};
    #[rustfmt::skip]
    play(NodeEvents::Kubelet, vec![
        (0, changed(PodChange::Refused), &[], None),
        (0, happened(kill("bb", None)), &["on the node"], None),
        (1, present("aa"), &[], None),
        (1, happened(kill("aa", Some("c1"))), &["read pod-aa"], Some(251)),
        (2, unnamed("aa", Forbidden), &["forbidden"], Some(251)),
        (2, DUE, &["1 in pod-aa", "on pod-aa -"], None),
        (599_000, happened(kill("aa", Some("c1"))), &["1 in pod-aa", "on pod-aa -"], None),
        (601_000, happened(kill("aa", Some("c1"))), &["read pod-aa"], Some(601_250)),
        (601_001, unnamed("aa", Forbidden), &[], Some(601_250)),
        (601_001, DUE, &["1 in pod-aa", "on pod-aa -"], None),
        (601_002, present("cc"), &[], None),
        (601_002, happened(kill("cc", Some("c1"))), &["read pod-cc"], Some(601_252)),
        (601_003, unnamed("cc", Other), &[], Some(601_252)),
        (601_003, DUE, &["1 in pod-cc", "on pod-cc -"], None),
        (601_004, changed(PodChange::Relisting), &[], None),
        (601_004, happened(kill("bb", None)), &[], Some(603_004)),
    ]);
}

#[test]
fn an_incident_is_reported_without_names_if_the_queue_is_full_or_the_agent_stops() {
    let mut steps: Vec<Step> = vec![
        (0, present("aa"), &[], None),
        (
            0,
            happened(kill("aa", Some("c1"))),
            &["read pod-aa"],
            Some(250),
        ),
    ];
    for _ in 1..MAX_OPEN {
        steps.push((0, happened(kill("bb", None)), &[], Some(250)));
    }
    let oldest: &[&str] = &["1 in pod-aa", "on pod-aa -"];
    steps.push((0, happened(kill("bb", None)), oldest, Some(2000)));
    play(NodeEvents::Kubelet, steps);

    // One that waits stays, if another does not.
    let mut incidents = details::started(NodeEvents::Off);
    incidents.on(happened(kill("bb", None)), at(0));
    for n in 0..MAX_OPEN {
        let mut other = details::limited(0, LimitOwner::Container);
        if let Occurrence::Kills(kills) = &mut other.occurrence {
            kills.findings[0].trigger = Some(format!("process {n} (b)"));
        }
        let effects = short(&incidents.on(happened(other), at(0)));
        assert!(!effects.contains(&"on the node".to_owned()), "{effects:?}");
    }

    let mut incidents = Incidents::new(NodeEvents::Off);
    incidents.on(In::ServerAnswered, at(0));
    incidents.on(happened(kill("aa", None)), at(0));
    let last = incidents.on(STOPPING, at(1));
    assert_eq!(
        (short(&last), incidents.due()),
        (vec!["on the node".to_owned()], None)
    );
}

#[test]
fn of_hundreds_that_are_due_together_some_are_settled_at_a_time() {
    for is_listed in [false, true] {
        let mut incidents = Incidents::new(NodeEvents::Off);
        incidents.on(In::ServerAnswered, at(0));
        for n in 0..200 {
            incidents.on(happened(kill(&n.to_string(), None)), at(0));
        }
        if is_listed {
            let pods = (0..200).map(|n| present(&n.to_string()));
            let effects = pods.flat_map(|pod| incidents.on(pod, at(0)));
            assert_eq!(short(&effects.collect::<Vec<_>>()), [""; 0]);
        }
        let mut settled = Vec::new();
        while let Some(due) = incidents.due() {
            let now = at(3500);
            assert!(due <= now.boot, "{} are settled", settled.len());
            let mut events = short(&incidents.on(DUE, now));
            events.retain(|event| event.starts_with("on"));
            assert!((1..=32).contains(&events.len()), "{events:?}");
            settled.append(&mut events);
        }
        let on_node = settled.iter().filter(|on| *on == "on the node");
        let expected = if is_listed { 0 } else { 200 };
        assert_eq!((settled.len(), on_node.count()), (200, expected));
    }
}

#[test]
fn without_an_api_server_incidents_are_settled_soon() {
    let mut subject = Subject::new(BootId(1), false, &BTreeMap::new());
    let pods = KnownPods::default();
    let killed = In::Happened(vec![kill("aa", Some("c1"))]);
    let effects = subject.on(killed, &pods, at(0));
    let of = |effects: &[Effect]| -> Vec<(u8, bool)> {
        let revision = |effect: &Effect| match effect {
            Effect::Incident(of) => Some((of.revision, of.settled)),
            _ => None,
        };
        effects.iter().filter_map(revision).collect()
    };
    assert_eq!(of(&effects), [(1, false)]);
    assert_eq!(subject.due(), Some(at(50).boot), "a link may name the pod");
    assert_eq!(of(&subject.on(In::Due, &pods, at(250))), [(2, true)]);
    assert_eq!(subject.due(), None);
}

#[test]
fn a_kill_for_lack_of_memory_on_the_node_is_reported_there_once_and_on_its_pod() {
    use NodeEvents::{Kubelet, Off};
    let known = || (0, present("aa"), &[] as &'static [&'static str], None);
    #[rustfmt::skip]
    let rows: Vec<(NodeEvents, Vec<Step>)> = vec![
        (Kubelet, vec![
            known(),
            (0, happened(global(Some("aa"))), &["1 in pod-aa", "on the node", "on pod-aa -"], Some(1000)),
        ]),
        (Kubelet, vec![
            (0, happened(global(Some("bb"))), &["on the node"], Some(2000)),
            (2000, DUE, &[], None),
        ]),
        (Off, vec![
            (0, happened(global(Some("bb"))), &[], Some(2000)),
            (2000, DUE, &["on the node"], None),
        ]),
        (Off, vec![
            known(),
            (0, happened(global(Some("aa"))), &["1 in pod-aa", "on pod-aa -"], Some(1000)),
        ]),
        (Kubelet, vec![(0, happened(global(None)), &["on the node"], Some(1000))]),
        (Off, vec![(0, happened(global(None)), &[], Some(1000))]),
    ];
    for (node_events, steps) in rows {
        play(node_events, steps);
    }
}

#[test]
fn a_removed_pod_has_events_but_is_neither_read_nor_counted_for_its_metric() {
    #[rustfmt::skip]
    play(NodeEvents::Kubelet, vec![
        (0, present("aa"), &[], None),
        (0, happened(kill("aa", Some("c1"))), &["read pod-aa"], Some(250)),
        (1, removed("aa"), &["pod-aa removed"], Some(250)),
        (2, unnamed("aa", ReadFailure::Forbidden), &[], Some(250)),
        (2, DUE, &["on pod-aa -"], None),
        (700_000, happened(kill("aa", Some("c1"))), &["on pod-aa -"], None),
        (700_001, present("bb"), &[], None),
        (700_001, present("cc"), &[], None),
        (700_002, changed(PodChange::Relisting), &[], None),
        (700_002, present("cc"), &[], None),
        (700_002, changed(PodChange::Listed), &["pod-bb removed"], None),
    ]);
}

#[test]
fn a_container_whose_name_is_not_known_at_the_end_is_named_by_its_id() {
    let mut incidents = Incidents::new(NodeEvents::Kubelet);
    incidents.on(In::ServerAnswered, at(0));
    incidents.on(present("aa"), at(0));
    incidents.on(happened(kill("aa", Some("0123456789abcdef"))), at(0));
    let effects = incidents.on(STOPPING, at(1));
    let [_, Then::Event(draft)] = &effects[..] else {
        panic!("no Event: {effects:?}");
    };
    let expected = "OOM kills in container 0123456789ab:";
    assert!(draft.message.starts_with(expected), "{}", draft.message);
}
