//! Containers that are killed as a whole: one Event for all processes, whenever their records
//! arrive.

use super::details::{found, limited, node_out_of_memory, queries, started};
use super::*;
use crate::reading::oom::{Consequence, LimitOwner};

const BY: &str = "process 9 (eater)";

/// A process of a container that is killed as a whole.
fn of_group(ms: u64, pid: u32) -> Occurred {
    as_group(limited(ms, LimitOwner::Container), pid)
}

fn as_group(mut incident: Occurred, pid: u32) -> Occurred {
    if let Occurrence::Kills(kills) = &mut incident.occurrence {
        let finding = &mut kills.findings[0];
        finding.victim = Pid(pid);
        finding.consequence = Some(Consequence::WholeContainer);
        finding.group = Some("/kubepods/podaa/c".to_owned());
        finding.trigger = Some(BY.to_owned());
    }
    incident
}

/// The same with something else in its finding.
fn but(mut incident: Occurred, change: impl FnOnce(&mut Finding)) -> Occurred {
    if let Occurrence::Kills(kills) = &mut incident.occurrence {
        change(&mut kills.findings[0]);
    }
    incident
}

fn drafts(effects: Vec<Then>) -> Vec<Draft> {
    let draft = |effect| match effect {
        Then::Event(draft) => Some(draft),
        Then::Other(_) => None,
    };
    effects.into_iter().filter_map(draft).collect()
}

/// The kills that the Events report.
fn kills(drafts: &[Draft]) -> u64 {
    drafts.iter().map(|draft| u64::from(draft.of)).sum()
}

/// Processes in the first sentence.
fn processes(draft: &Draft) -> u64 {
    let text = |(_, rest): (&str, &str)| rest.split(' ').next()?.parse().ok();
    let message = draft.message.replace("at least ", "");
    let many = message.split_once("The kernel killed ");
    let many = many.or_else(|| message.split_once("was killed ("));
    many.and_then(text).unwrap_or(1)
}

#[test]
fn later_processes_are_in_the_version_of_the_event_that_has_the_details() {
    let mut incidents = started(NodeEvents::Off);
    let first = drafts(incidents.on(happened(of_group(100, 1)), at(100)));
    let [
        Draft {
            id: Some(id),
            is_later: false,
            is_last: false,
            times: 1,
            of: 1,
            ..
        },
    ] = first[..]
    else {
        panic!("{first:?}");
    };
    let later = incidents.on(happened(of_group(101, 2)), at(101));
    assert_eq!(
        short(&later),
        ["1 in pod-aa"],
        "the metric counts it at once"
    );
    assert_eq!(incidents.due(), Some(at(120).boot), "details");
    let asked = queries(&incidents.on(In::Delivered(id.incident), at(103)));
    let [DetailsOf::Cgroup { victims, group, .. }] = &asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(*victims, [Pid(1), Pid(2)]);
    assert_eq!(group.as_deref(), Some("/kubepods/podaa/c"));

    let versions = drafts(incidents.on(found(), at(110)));
    let [version] = &versions[..] else {
        panic!("{versions:?}");
    };
    let expected = (Some(id), true, 0, 1, None);
    let got = (
        version.id,
        version.is_later,
        version.times,
        version.of,
        version.stamp,
    );
    assert_eq!(got, expected);
    assert_eq!((kills(&first), kills(&versions)), (1, 1));
    for part in [
        "(2 processes",
        "2 processes together",
        "9 (java) with 40.0Ki",
    ] {
        let message = version.message.replace("The kernel killed ", "(");
        let message = message.replace("at least ", "");
        assert!(message.contains(part), "{part}: {message}");
    }
    let kill = version.annotations.get("nodepulse.dev/oom-kill").unwrap();
    assert!(kill.contains(r#""processes":2"#), "{kill}");
    assert!(
        version
            .annotations
            .get("nodepulse.dev/memory-users")
            .is_some()
    );
    assert_eq!(incidents.due(), Some(at(1101).boot), "the end of the group");

    // One more, after the details were added.
    assert_eq!(
        drafts(incidents.on(happened(of_group(900, 3)), at(900))),
        []
    );
    assert_eq!(drafts(incidents.on(DUE, at(1149))), []);
    let versions = drafts(incidents.on(DUE, at(1150)));
    assert_eq!((versions.len(), kills(&versions)), (1, 1));
    assert_eq!(
        (
            versions[0].id,
            versions[0].is_later,
            processes(&versions[0])
        ),
        (Some(id), true, 3)
    );
    assert!(versions[0].message.contains("9 (java)"), "{versions:?}");
}

#[test]
fn without_details_later_processes_follow_together() {
    let mut incidents = started(NodeEvents::Off);
    let first = drafts(incidents.on(happened(of_group(0, 1)), at(0)));
    let mut all = first.clone();
    for n in 1..=40 {
        let ms = u64::from(n) * 20;
        all.extend(drafts(incidents.on(happened(of_group(ms, n + 1)), at(ms))));
        all.extend(drafts(incidents.on(DUE, at(ms))));
    }
    all.extend(drafts(incidents.on(STOPPING, at(801))));
    assert_eq!(kills(&all), 41);
    let versions: Vec<_> = all.iter().map(processes).collect();
    assert_eq!(versions, [1, 15, 29, 41]);
    assert!(
        all[1..]
            .iter()
            .all(|of| of.is_later && of.id == first[0].id),
        "{all:?}"
    );
}

#[test]
fn an_event_that_waits_for_a_name_has_the_later_processes_at_once() {
    let mut incidents = started(NodeEvents::Off);
    let mut of_unknown = |pid| {
        let incident = of_group(u64::from(pid), pid);
        let pod = PodRef {
            pod: PodId::Uid("bb".to_owned()),
            container: None,
        };
        let owner = VictimOwner::Pod(pod.clone());
        let incident = Occurred {
            pod: Some(pod),
            ..but(incident, |finding| finding.owner = owner)
        };
        short(&incidents.on(happened(incident), at(u64::from(pid))))
    };
    for pid in 1..=3 {
        assert_eq!(of_unknown(pid), [""; 0]);
    }
    incidents.on(present("bb"), at(5));
    let effects = incidents.on(DUE, at(5));
    assert_eq!(short(&effects), ["3 in pod-bb", "on pod-bb -"]);
    let events = drafts(effects);
    assert_eq!((processes(&events[0]), kills(&events)), (3, 3));
    assert_eq!(incidents.due(), Some(at(21).boot), "details");
}

#[test]
fn the_container_of_the_trigger_has_its_name_in_every_version() {
    let mut incidents = started(NodeEvents::Off);
    let killed = |ms, pid| {
        let mut incident = but(of_group(ms, pid), |of| {
            of.trigger_container = Some(ContainerLabel::Id("c2".to_owned()));
        });
        if let Some(pod) = &mut incident.pod {
            pod.container = Some("c1".to_owned());
        }
        happened(incident)
    };
    let mut containers = Containers::default();
    for (id, name) in [("c1", "web"), ("c2", "proxy")] {
        let list = Some(ContainerList::Containers);
        containers.add(id, Container::new(list, name).unwrap());
    }
    let read = read("aa", Ok(containers));
    let mut all = drafts(without_links(&mut incidents, killed(0, 1), at(0)));
    for (ms, input) in [(10, read), (10, DUE), (20, killed(20, 2)), (300, DUE)] {
        all.extend(drafts(incidents.on(input, at(ms))));
    }
    let versions: Vec<_> = all.iter().map(processes).collect();
    assert_eq!(versions, [1, 2]);
    for draft in all {
        let expected = format!("More memory was requested by {BY} in container proxy.");
        assert!(draft.message.ends_with(&expected), "{}", draft.message);
    }
}

#[test]
fn another_kill_is_another_event() {
    let proxy = VictimOwner::Pod(PodRef {
        pod: PodId::Uid("aa".to_owned()),
        container: Some("proxy".to_owned()),
    });
    let rows: [(&str, Occurred, usize); 6] = [
        ("of the same group", of_group(1098, 2), 0),
        ("a second later", of_group(1100, 2), 1),
        (
            "for another process",
            but(of_group(101, 2), |of| {
                of.trigger = Some("process 8 (b)".to_owned());
            }),
            1,
        ),
        (
            "in another container",
            but(of_group(101, 2), |of| of.owner = proxy),
            1,
        ),
        (
            "of one process, at the same limit for the same one",
            but(of_group(101, 2), |of| {
                of.consequence = Some(Consequence::ChildProcess);
            }),
            0,
        ),
        (
            "at a limit that was not found",
            but(of_group(101, 2), |of| of.scope = OomScope::Unknown),
            0,
        ),
    ];
    for (name, later, expected) in rows {
        let mut incidents = started(NodeEvents::Off);
        incidents.on(happened(of_group(100, 1)), at(100));
        let events = drafts(incidents.on(happened(later), at(1100)));
        let new = events.iter().filter(|event| !event.is_later);
        assert_eq!(new.count(), expected, "{name}: {events:?}");
    }
}

#[test]
fn both_events_about_a_group_have_all_processes_but_the_kubelets_words_stay() {
    for (node_events, on_node) in [(NodeEvents::Companion, 2), (NodeEvents::Kubelet, 1)] {
        let mut incidents = started(node_events);
        let [one, two] = [1, 2].map(|pid| as_group(node_out_of_memory(100), pid));
        let mut events = drafts(incidents.on(happened(one), at(100)));
        let ids: Vec<_> = events.iter().map(|event| event.id).collect();
        assert!(
            ids.iter().all(Option::is_some),
            "{node_events:?}: {events:?}"
        );
        assert_eq!(drafts(incidents.on(happened(two), at(101))), []);
        let versions = drafts(incidents.on(DUE, at(351)));
        let of: Vec<_> = versions.iter().map(|version| version.id).collect();
        assert_eq!(of, ids, "{node_events:?}");
        let reported: Vec<_> = versions.iter().map(processes).collect();
        assert_eq!(reported, [on_node, 2], "{node_events:?}");
        events.extend(versions);
        assert_eq!(kills(&events), 4, "{node_events:?}");
    }
}

#[test]
fn of_many_groups_at_once_every_kill_is_reported() {
    let mut incidents = started(NodeEvents::Off);
    let mut events = Vec::new();
    for n in 0..200_u32 {
        let ms = u64::from(n) * 10;
        // A different one each time, and each for several times.
        let trigger = format!("process {} (b)", n / 3 % 20);
        let incident = but(of_group(ms, n), |of| of.trigger = Some(trigger));
        events.extend(drafts(incidents.on(happened(incident), at(ms))));
        events.extend(drafts(incidents.on(DUE, at(ms))));
    }
    events.extend(drafts(incidents.on(STOPPING, at(2000))));
    assert_eq!(kills(&events), 200);
}

#[test]
fn the_event_on_the_node_has_later_processes_while_the_pod_is_not_known() {
    let mut incidents = Incidents::new(NodeEvents::Companion);
    incidents.on(In::ServerAnswered, at(0));
    let of_node = |ms, pid| happened(as_group(node_out_of_memory(ms), pid));
    let first = drafts(incidents.on(of_node(100, 1), at(100)));
    assert_eq!((first.len(), kills(&first)), (1, 1));
    assert_eq!(drafts(incidents.on(of_node(110, 2), at(110))), []);
    let later = drafts(incidents.on(DUE, at(360)));
    assert_eq!(
        (later.len(), kills(&later), processes(&later[0])),
        (1, 1, 2)
    );
    assert_eq!((later[0].id, later[0].is_later), (first[0].id, true));
    // The revision with the pod is left for it, and the settled one has the rest.
    drafts(incidents.on(of_node(370, 3), at(370)));
    assert_eq!(drafts(incidents.on(DUE, at(620))), []);
    incidents.on(present("aa"), at(700));
    let events = drafts(incidents.on(DUE, at(700)));
    let objects: Vec<_> = events
        .iter()
        .map(|event| (event.object == Involved::Node, event.is_later))
        .collect();
    assert_eq!(objects, [(true, true), (false, false)]);
    assert_eq!((kills(&events), processes(&events[1])), (1 + 3, 3));
    assert_eq!(drafts(incidents.on(DUE, at(1370))), []);
    assert_eq!(incidents.due(), Some(at(3600).boot), "its details");
}
