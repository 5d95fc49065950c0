//! Details of kills: when they are read, and which Events get them.

use super::*;
use crate::kube_event::Limiting;
use crate::pods::{LargestMemory, Owner, OwnerMemory};
use crate::pressure::oom::Grounds;
use crate::reading::memory_use::{LargestProcesses, ProcessSize};
use crate::reading::oom::LimitOwner;
use crate::units::Bytes;

const SHORT_OF_MEMORY: KillVerdict = KillVerdict::NodePressure {
    why: Grounds::ConfirmedGlobal,
};

/// A kill in pod `aa` at this time, at the limit of `owner`.
pub(super) fn limited(ms: u64, owner: LimitOwner) -> Occurred {
    let mut incident = global(Some("aa"));
    let stamp = Stamp {
        kernel: at(ms).boot,
        read: at(ms).boot,
    };
    incident.stamp = Some(stamp);
    if let Occurrence::Kills(kills) = &mut incident.occurrence {
        kills.findings[0].stamp = stamp;
        kills.findings[0].scope = OomScope::Memcg(Limiting {
            owner,
            path: Some("/kubepods/podaa/c".to_owned()),
            tied: None,
            usage: None,
            unit: None,
        });
    }
    incident
}

/// The same because the node was out of memory.
pub(super) fn node_out_of_memory(ms: u64) -> Occurred {
    let mut incident = limited(ms, LimitOwner::Container);
    if let Occurrence::Kills(kills) = &mut incident.occurrence {
        kills.findings[0].scope = OomScope::Global;
        kills.findings[0].verdict = SHORT_OF_MEMORY;
    }
    incident
}

/// Ids of the Events.
fn ids(effects: &[Then]) -> Vec<EventId> {
    let id = |effect: &Then| match effect {
        Then::Event(draft) => draft.id,
        Then::Other(_) => None,
    };
    effects.iter().filter_map(id).collect()
}

pub(super) fn queries(effects: &[Then]) -> Vec<DetailsOf> {
    let of = |effect: &Then| match effect {
        Then::Other(Effect::BlockingQuery(BlockingQuery::KillDetails(of))) => Some(of.clone()),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

/// Later versions of Events.
pub(super) fn later(effects: Vec<Then>) -> Vec<Draft> {
    let later = |effect| match effect {
        Then::Event(draft) if draft.is_later => Some(draft),
        _ => None,
    };
    effects.into_iter().filter_map(later).collect()
}

pub(super) fn found() -> Input {
    let process = ProcessSize {
        pid: Pid(9),
        comm: "java".to_owned(),
        resident: Bytes::from_kib(40),
    };
    let processes = LargestProcesses {
        largest: vec![process],
        compared: 1,
        is_partial: false,
    };
    let pod = |uid: &str, used| OwnerMemory {
        owner: Owner::from(PodId::Uid(uid.to_owned())),
        used: Bytes::from_kib(used),
        request: Some(Bytes::default()),
    };
    In::DetailsRead(DetailsRead {
        processes,
        memory: LargestMemory {
            owners: vec![pod("aa", 8), pod("bb", 4)],
            outside_pods: None,
        },
        ..DetailsRead::default()
    })
    .into()
}

pub(super) fn started(node_events: NodeEvents) -> Incidents {
    let mut incidents = Incidents::new(node_events);
    incidents.on(In::ServerAnswered, at(0));
    incidents.on(present("aa"), at(0));
    incidents
}

#[test]
fn details_are_read_after_the_event_was_delivered_or_a_moment_later_and_added_to_it() {
    use LimitOwner::{Container, Other, Pod, PodsCgroup};
    let cgroup = DetailsOf::Cgroup {
        path: "/kubepods/podaa/c".to_owned(),
        victims: vec![Pid(7)],
        group: None,
    };
    for (owner, of) in [
        (Container, cgroup.clone()),
        (Pod, cgroup.clone()),
        (Other, cgroup),
        (PodsCgroup, DetailsOf::Pods),
    ] {
        for is_delivered in [true, false] {
            let mut incidents = started(NodeEvents::Off);
            let effects = incidents.on(happened(limited(100, owner)), at(101));
            assert_eq!(queries(&effects), [], "not before the Event");
            assert_eq!(incidents.due(), Some(at(121).boot));
            let [id] = ids(&effects)[..] else {
                panic!("{effects:?}");
            };
            let effects = if is_delivered {
                incidents.on(In::Delivered(id.incident), at(103))
            } else {
                incidents.on(DUE, at(121))
            };
            assert_eq!(queries(&effects), std::slice::from_ref(&of), "{owner:?}");
            let added = later(incidents.on(found(), at(130)));
            assert_eq!(added.len(), 1, "{owner:?}");
            assert_eq!((added[0].id, added[0].of), (Some(id), 0));
            for part in [
                "9 (java) with 40.0Ki",
                "shop/pod-aa (8.0Ki",
                "pod with id bb (4.0Ki",
            ] {
                assert!(added[0].message.contains(part), "{part}: {added:?}");
            }
            assert_eq!(
                incidents.on(In::Delivered(id.incident), at(131)),
                [],
                "once"
            );
            assert_eq!(incidents.on(found(), at(132)), [], "once");
            assert_eq!(incidents.due(), Some(at(1100).boot), "of a group");
            assert_eq!(incidents.on(DUE, at(1100)), [], "nothing is added");
            assert_eq!(incidents.due(), None);
        }
    }
}

#[test]
fn both_events_of_an_incident_get_what_was_read_once_but_never_the_kubelets_words() {
    for (node_events, expected) in [(NodeEvents::Companion, 2), (NodeEvents::Kubelet, 1)] {
        let mut incidents = started(node_events);
        let effects = incidents.on(happened(node_out_of_memory(100)), at(101));
        let ids = ids(&effects);
        assert_eq!(ids.len(), 2, "{node_events:?}");
        let mut asked = Vec::new();
        for (id, ms) in ids.iter().zip([103, 105]) {
            let effects = incidents.on(In::Delivered(id.incident), at(ms));
            asked.extend(queries(&effects));
        }
        let victims = vec![Pid(7)];
        assert_eq!(asked, [DetailsOf::Node { victims }]);
        let added = later(incidents.on(found(), at(106))).into_iter();
        let added: Vec<_> = added.filter_map(|one| one.id).collect();
        assert_eq!(added, ids[2 - expected..], "{node_events:?}");
    }
}

#[test]
fn of_a_storm_one_incident_in_two_seconds_gets_details() {
    let mut incidents = started(NodeEvents::Off);
    let mut asked = Vec::new();
    for n in 0..1000 {
        let ms = n * 10;
        let mut incident = limited(ms, LimitOwner::Container);
        if let Occurrence::Kills(kills) = &mut incident.occurrence {
            kills.findings[0].trigger = Some(format!("process {n} (b)"));
        }
        let effects = incidents.on(happened(incident), at(ms));
        for id in ids(&effects) {
            let effects = incidents.on(In::Delivered(id.incident), at(ms + 1));
            asked.extend(queries(&effects).iter().map(|_| ms));
            incidents.on(found(), at(ms + 2));
        }
    }
    assert_eq!(asked, [0, 2010, 4020, 6030, 8040]);
}

#[test]
fn what_is_read_late_about_one_incident_is_not_added_to_another() {
    let mut incidents = started(NodeEvents::Off);
    let mut sent = |ms| {
        let incident = limited(ms, LimitOwner::Container);
        let id = ids(&incidents.on(happened(incident), at(ms)))[0];
        let effects = incidents.on(In::Delivered(id.incident), at(ms + 1));
        (id, queries(&effects).len(), later(effects).len())
    };
    assert_eq!(sent(0).1, 1);
    let (_, queried, _) = sent(3000);
    assert_eq!(queried, 0, "the helper thread still reads");
    let first_is_settled = incidents.on(DUE, at(3500));
    assert_eq!(later(first_is_settled), []);
    assert_eq!(later(incidents.on(found(), at(4000))), []);
}

#[test]
fn kills_whose_event_is_late_are_read_soon_and_never_when_they_are_old() {
    let mut incidents = started(NodeEvents::Off);
    let incident = limited(2000, LimitOwner::Container);
    let effects = incidents.on(happened(incident), at(2000));
    let id = ids(&effects)[0].incident;
    assert_eq!(
        incidents.on(found(), at(2001)),
        [],
        "an answer without a query"
    );
    assert_eq!(queries(&incidents.on(In::Delivered(id), at(2002))).len(), 1);
    let nothing = In::DetailsRead(DetailsRead::default());
    assert_eq!(incidents.on(nothing, at(2102)), [], "a time limit");

    let old = limited(2000, LimitOwner::Container);
    incidents.on(happened(old), at(5001));
    assert_eq!(queries(&incidents.on(DUE, at(5021))), []);
}

#[test]
fn a_kill_without_a_known_limit_gets_no_details() {
    // Global, but not confirmed.
    let mut doubtful = node_out_of_memory(100);
    if let Occurrence::Kills(kills) = &mut doubtful.occurrence {
        kills.findings[0].verdict = KillVerdict::EventOnly { why: Doubt::Sysrq };
    }
    let mut removed = limited(100, LimitOwner::Container);
    if let Occurrence::Kills(kills) = &mut removed.occurrence
        && let OomScope::Memcg(limiting) = &mut kills.findings[0].scope
    {
        limiting.path = Some("id:9".to_owned());
    }
    for incident in [doubtful, removed, kill("aa", None)] {
        let mut incidents = started(NodeEvents::Off);
        let effects = incidents.on(happened(incident), at(101));
        let effects = short(&effects);
        assert!(effects.contains(&"on pod-aa -".to_owned()), "{effects:?}");
        assert_eq!(queries(&incidents.on(DUE, at(121))), []);
    }
}
