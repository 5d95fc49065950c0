use std::time::SystemTime;

use super::*;
use crate::kube_event::{Involved, KillOwner, Occurrence, Period, UnidentifiedKills};
use crate::pods::{Container, ContainerList, PodId};

use IncidentInput as In;

fn at(ms: u64) -> Now {
    Now {
        boot: BootNanos(ms * 1_000_000),
        wall: SystemTime::UNIX_EPOCH,
    }
}

/// One kill that was counted in a pod, in a container if one is named.
fn kill(uid: &str, container: Option<&str>) -> Incident {
    let pod = PodId::Uid(uid.to_owned());
    Incident {
        pod: Some(PodRef {
            pod: pod.clone(),
            container: container.map(str::to_owned),
        }),
        at: SystemTime::UNIX_EPOCH,
        stamp: None,
        kills: ReportedKills::of(KillOwner::Pod(pod), 1),
        occurrence: Occurrence::UnidentifiedKills(UnidentifiedKills {
            cgroup: format!("/kubepods/pod{uid}"),
            kills: 1,
            again: 0,
            period: Period::Now,
        }),
    }
}

fn outside_pods() -> Incident {
    Incident {
        pod: None,
        ..kill("aa", None)
    }
}

fn happened(incident: Incident) -> In {
    In::Happened(vec![incident])
}

fn present(uid: &str) -> In {
    let pod = Pod::new("shop", &format!("pod-{uid}"), uid, None).unwrap();
    In::PodChanged(PodChange::Present(pod))
}

fn named(uid: &str, id: &str) -> In {
    let mut containers = Containers::default();
    containers.add(
        id,
        Container::new(ContainerList::Containers, "web").unwrap(),
    );
    In::Containers {
        uid: uid.into(),
        read: ContainersRead::Found(containers),
    }
}

fn unnamed(uid: &str, read: ContainersRead) -> In {
    let uid = uid.into();
    In::Containers { uid, read }
}

/// What follows, in short.
fn short(effects: &[Effect]) -> Vec<String> {
    let text = |effect: &Effect| match effect {
        Effect::Event(draft) => match &draft.object {
            Involved::Node => "on the node".to_owned(),
            Involved::Pod {
                name, field_path, ..
            } => {
                let path = field_path.as_deref().unwrap_or("-");
                format!("on {name} {path}")
            }
        },
        Effect::Query(Query::Containers(pod)) => format!("read {}", pod.name),
        Effect::Log(Decision::PodKilled { name, kills, .. }) => format!("{kills} in {name}"),
        Effect::Log(Decision::PodRemoved { name, .. }) => format!("{name} removed"),
        Effect::Log(Decision::ContainersForbidden) => "forbidden".to_owned(),
        Effect::Input(input) => match &**input {
            Input::KillCounter(KillCounterInput::Settled(_)) => "acknowledged".to_owned(),
            other => panic!("unexpected: {other:?}"),
        },
        other => panic!("unexpected: {other:?}"),
    };
    effects.iter().map(text).collect()
}

/// ms, input, what follows, when something is due in ms.
type Step = (u64, In, &'static [&'static str], Option<u64>);

fn play(node_events: NodeEvents, steps: Vec<Step>) {
    let mut incidents = Incidents::new(node_events);
    incidents.on(In::ReportingStarted, at(0));
    for (ms, input, expected, due) in steps {
        let name = format!("{input:?} at {ms} ms");
        let effects = incidents.on(input, at(ms));
        assert_eq!(short(&effects), expected, "{name}");
        assert_eq!(incidents.due(), due.map(|ms| at(ms).boot), "{name}");
    }
}

#[test]
fn an_incident_waits_for_its_pod_and_for_the_name_of_its_container() {
    #[rustfmt::skip]
    play(NodeEvents::Kubelet, vec![
        (0, happened(kill("aa", Some("c1"))), &[], Some(2000)),
        (5, In::Due, &[], Some(2000)),
        (10, present("aa"), &[], Some(2000)),
        (10, In::Due, &["read pod-aa"], Some(260)),
        (20, named("aa", "c1"), &[], Some(260)),
        (20, In::Due, &["1 in pod-aa", "on pod-aa spec.containers{web}"], None),
        (30, happened(kill("aa", Some("c1"))), &["1 in pod-aa", "on pod-aa spec.containers{web}"], None),
        (40, happened(kill("aa", None)), &["1 in pod-aa", "on pod-aa -"], None),
        (50, happened(kill("aa", Some("c2"))), &["1 in pod-aa", "on pod-aa -"], None),
        (1010, happened(kill("aa", Some("c2"))), &["read pod-aa"], Some(1260)),
        (1260, In::Due, &["1 in pod-aa", "on pod-aa -"], None),
        (1300, happened(kill("bb", None)), &[], Some(3300)),
        (3300, In::Due, &["on the node"], None),
    ]);
}

#[test]
fn without_permission_nothing_waits_and_the_log_has_it_once() {
    use ContainersRead::{Failed, Forbidden};
    #[rustfmt::skip]
    play(NodeEvents::Kubelet, vec![
        (0, In::PodChanged(PodChange::Refused), &[], None),
        (0, happened(kill("bb", None)), &["on the node"], None),
        (1, present("aa"), &[], None),
        (1, happened(kill("aa", Some("c1"))), &["read pod-aa"], Some(251)),
        (2, unnamed("aa", Forbidden), &["forbidden"], Some(251)),
        (2, In::Due, &["1 in pod-aa", "on pod-aa -"], None),
        (599_000, happened(kill("aa", Some("c1"))), &["1 in pod-aa", "on pod-aa -"], None),
        (601_000, happened(kill("aa", Some("c1"))), &["read pod-aa"], Some(601_250)),
        (601_001, unnamed("aa", Forbidden), &[], Some(601_250)),
        (601_001, In::Due, &["1 in pod-aa", "on pod-aa -"], None),
        (601_002, present("cc"), &[], None),
        (601_002, happened(kill("cc", Some("c1"))), &["read pod-cc"], Some(601_252)),
        (601_003, unnamed("cc", Failed), &[], Some(601_252)),
        (601_003, In::Due, &["1 in pod-cc", "on pod-cc -"], None),
        (601_004, In::PodChanged(PodChange::Relisting), &[], None),
        (601_004, happened(kill("bb", None)), &[], Some(603_004)),
    ]);
}

#[test]
fn what_waits_is_reported_by_what_is_known_if_it_is_too_much_or_the_last() {
    let mut steps: Vec<Step> = vec![
        (0, present("aa"), &[], None),
        (
            0,
            happened(kill("aa", Some("c1"))),
            &["read pod-aa"],
            Some(250),
        ),
    ];
    for _ in 1..MAX_WAITING {
        steps.push((0, happened(kill("bb", None)), &[], Some(250)));
    }
    let oldest: &[&str] = &["1 in pod-aa", "on pod-aa -"];
    steps.push((0, happened(kill("bb", None)), oldest, Some(2000)));
    play(NodeEvents::Kubelet, steps);

    let mut incidents = Incidents::new(NodeEvents::Off);
    incidents.on(In::ReportingStarted, at(0));
    incidents.on(happened(kill("aa", None)), at(0));
    let last = incidents.on(In::Stopping, at(1));
    assert_eq!(
        (short(&last), incidents.due()),
        (vec!["on the node".to_owned()], None)
    );
}

#[test]
fn at_most_so_many_pods_are_read_at_the_same_time() {
    let mut incidents = Incidents::new(NodeEvents::Kubelet);
    incidents.on(In::ReportingStarted, at(0));
    let mut reads = 0;
    for n in 0..=MAX_READS {
        let uid = format!("{n:x}");
        incidents.on(present(&uid), at(0));
        let effects = incidents.on(happened(kill(&uid, Some("c"))), at(0));
        reads += usize::from(matches!(effects.first(), Some(Effect::Query(_))));
    }
    assert_eq!(reads, MAX_READS);
    incidents.on(unnamed("0", ContainersRead::Failed), at(1));
    let effects = incidents.on(happened(kill("20", Some("c"))), at(1));
    assert_eq!(short(&effects), ["read pod-20"], "there is room again");
}

#[test]
fn kills_without_an_event_count_as_acknowledged() {
    let mut incidents = Incidents::new(NodeEvents::Kubelet);
    let effects = incidents.on(happened(kill("aa", None)), at(0));
    assert_eq!(short(&effects), ["acknowledged"], "nothing is reported");
    incidents.on(In::ReportingStarted, at(0));
    let effects = incidents.on(happened(outside_pods()), at(0));
    assert_eq!(short(&effects), ["on the node"], "the Event has it");
    incidents.on(present("aa"), at(0));
    let effects = incidents.on(In::PodChanged(PodChange::Removed("aa".to_owned())), at(0));
    assert_eq!(short(&effects), ["pod-aa removed"]);
}
