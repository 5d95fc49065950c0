//! Details of kills: when they are read, and which Events get them.

use super::*;
use crate::kube_event::{Amendment, Limiting};
use crate::pods::{LargestMemory, Owner, OwnerMemory};
use crate::pressure::oom::Grounds;
use crate::reading::memory_use::{LargestProcesses, ProcessSize};
use crate::reading::oom::LimitOwner;
use crate::units::Bytes;

const SHORT_OF_MEMORY: KillVerdict = KillVerdict::NodePressure {
    why: Grounds::ConfirmedGlobal,
};

/// A kill in pod `aa` at this time, at the limit of `owner`.
pub(super) fn limited(ms: u64, owner: LimitOwner) -> Incident {
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
pub(super) fn node_out_of_memory(ms: u64) -> Incident {
    let mut incident = limited(ms, LimitOwner::Container);
    if let Occurrence::Kills(kills) = &mut incident.occurrence {
        kills.findings[0].scope = OomScope::Global;
        kills.findings[0].verdict = SHORT_OF_MEMORY;
    }
    incident
}

/// Ids of the Events that may get details.
fn ids(effects: &[Effect]) -> Vec<Option<EventId>> {
    let id = |effect: &Effect| match effect {
        Effect::Event(draft) => Some(draft.id),
        _ => None,
    };
    effects.iter().filter_map(id).collect()
}

pub(super) fn queries(effects: &[Effect]) -> Vec<DetailsOf> {
    let of = |effect: &Effect| match effect {
        Effect::BlockingQuery(BlockingQuery::KillDetails(of)) => Some(of.clone()),
        _ => None,
    };
    effects.iter().filter_map(of).collect()
}

pub(super) fn amendments(effects: Vec<Effect>) -> Vec<Amendment> {
    let amendment = |effect| match effect {
        Effect::Amend(amendment) => Some(amendment),
        _ => None,
    };
    effects.into_iter().filter_map(amendment).collect()
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
    incidents.on(In::ReportingStarted, at(0));
    incidents.on(In::ServerAnswered, at(0));
    incidents.on(present("aa"), at(0));
    incidents
}

#[test]
fn details_are_read_after_the_event_was_delivered_and_added_to_it() {
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
        let mut incidents = started(NodeEvents::Off);
        let effects = incidents.on(happened(limited(100, owner)), at(101));
        assert_eq!(queries(&effects), [], "not before the Event");
        let [Some(id)] = ids(&effects)[..] else {
            panic!("{effects:?}");
        };
        let effects = incidents.on(In::Delivered(id), at(103));
        assert_eq!(queries(&effects), [of], "{owner:?}");
        let added = amendments(incidents.on(found(), at(110)));
        assert_eq!(added.len(), 1, "{owner:?}");
        assert_eq!(added[0].id, id);
        for part in [
            "9 (java) with 40.0Ki",
            "shop/pod-aa (8.0Ki",
            "pod with id bb (4.0Ki",
        ] {
            assert!(added[0].message.contains(part), "{part}: {added:?}");
        }
        assert_eq!(incidents.on(In::Delivered(id), at(111)), [], "once");
        assert_eq!(incidents.on(found(), at(112)), [], "once");
    }
}

#[test]
fn both_events_of_an_incident_get_what_was_read_once_but_never_the_kubelets_words() {
    for (node_events, expected) in [(NodeEvents::Companion, 2), (NodeEvents::Kubelet, 1)] {
        for answer_first in [true, false] {
            let mut incidents = started(node_events);
            let effects = incidents.on(happened(node_out_of_memory(100)), at(101));
            let ids: Vec<_> = ids(&effects).into_iter().flatten().collect();
            assert_eq!(ids.len(), expected, "{node_events:?}");
            let mut asked = queries(&incidents.on(In::Delivered(ids[0]), at(103)));
            let mut added = Vec::new();
            if answer_first {
                added.extend(amendments(incidents.on(found(), at(104))));
            }
            for id in &ids[1..] {
                let effects = incidents.on(In::Delivered(*id), at(105));
                asked.extend(queries(&effects));
                added.extend(amendments(effects));
            }
            if !answer_first {
                added.extend(amendments(incidents.on(found(), at(106))));
            }
            let victims = vec![Pid(7)];
            assert_eq!(asked, [DetailsOf::Node { victims }]);
            let added: Vec<_> = added.iter().map(|one| one.id).collect();
            assert_eq!(added, ids, "{node_events:?} {answer_first}");
        }
    }
}

#[test]
fn of_a_storm_one_incident_in_two_seconds_gets_details() {
    let mut incidents = started(NodeEvents::Off);
    let mut asked = Vec::new();
    for n in 0..1000 {
        let ms = n * 10;
        let incident = limited(ms, LimitOwner::Container);
        let effects = incidents.on(happened(incident), at(ms));
        for id in ids(&effects).into_iter().flatten() {
            let effects = incidents.on(In::Delivered(id), at(ms + 1));
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
        ids(&incidents.on(happened(incident), at(ms)))[0].map(|id| {
            let effects = incidents.on(In::Delivered(id), at(ms + 1));
            (id, queries(&effects).len(), amendments(effects).len())
        })
    };
    let (first, queried, _) = sent(0).unwrap();
    assert_eq!(queried, 1);
    assert_eq!(sent(3000), None, "the helper thread still reads");
    let amended = amendments(incidents.on(found(), at(4000)));
    let amended: Vec<_> = amended.into_iter().map(|of| of.id).collect();
    assert_eq!(amended, [first]);
}

#[test]
fn events_that_are_delivered_late_or_never_get_no_details() {
    let mut incidents = started(NodeEvents::Off);
    let mut all = Vec::new();
    for ms in 0..100 {
        let incident = limited(ms, LimitOwner::Container);
        all.extend(ids(&incidents.on(happened(incident), at(ms))));
    }
    // Only the last are remembered, and they are too old.
    for id in all.into_iter().flatten() {
        assert_eq!(incidents.on(In::Delivered(id), at(1200)), []);
    }
    // A time limit of the helper thread, and an answer without a query.
    let incident = limited(2000, LimitOwner::Container);
    let effects = incidents.on(happened(incident), at(2000));
    let id = ids(&effects)[0].unwrap();
    assert_eq!(incidents.on(found(), at(2001)), []);
    assert_eq!(queries(&incidents.on(In::Delivered(id), at(2002))).len(), 1);
    let nothing = In::DetailsRead(DetailsRead::default());
    assert_eq!(incidents.on(nothing, at(7002)), []);
}

#[test]
fn a_kill_without_a_known_limit_gets_no_details() {
    let mut incidents = started(NodeEvents::Off);
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
        let effects = incidents.on(happened(incident), at(101));
        assert_eq!(ids(&effects), [None]);
    }
}
