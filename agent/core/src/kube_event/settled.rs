//! The Events about incidents that are read from the history. The container's place in the pod is
//! not there, and is read before the Event is written.

use std::time::SystemTime;

use super::{Annotations, ContainerLabel, Draft, Involved, NodeEvents, kill_text};
use crate::black_box::UNCLEAN_REBOOT;
use crate::incident::{IncidentId, JsonFacts, JsonIncident, JsonPod};
use crate::node_status::transition::EventType;
use crate::pods::Container;

/// A settled incident in its JSON form, and what is parsed of it.
#[derive(Debug, Clone, Copy)]
pub struct Settled<'a> {
    pub id: IncidentId,
    pub json: &'a JsonIncident,
    pub at: SystemTime,
    pub until: SystemTime,
}

/// Returns the Event on the Node that the incident has in any case, and the one on its object.
pub(super) fn drafts(
    json: &JsonIncident,
    (node_events, node): (NodeEvents, &str),
    at: SystemTime,
) -> (Option<Draft>, Option<Draft>) {
    let event = |object: Involved, reason: &str, message: String| {
        let many = |kills| u32::try_from(kills).unwrap_or(u32::MAX).max(1);
        let (of, times) = match &json.facts {
            Some(JsonFacts::OomKill(kill)) => (many(kill.kill.processes), 1),
            Some(JsonFacts::UnidentifiedOomKills(counted)) => {
                (many(counted.kills), many(counted.kills))
            }
            _ => (1, 1),
        };
        let in_pod = matches!(object, Involved::Pod { .. });
        let container = json.object.container.as_deref().filter(|_| in_pod);
        Draft {
            object,
            type_: EventType::Warning,
            is_transition: false,
            reason: reason.to_owned(),
            message,
            annotations: annotations(json, container),
            of,
            times,
            container: container
                .and_then(|name| Container::new(None, name))
                .map(ContainerLabel::Name),
            id: None,
            is_later: false,
            is_last: false,
            position: None,
            at,
            stamp: None,
        }
    };
    let on_node = |reason: &str| event(Involved::Node, reason, json.message.clone());
    let on_pod = match &json.object.pod {
        Some(JsonPod {
            namespace: Some(namespace),
            name: Some(name),
            uid,
        }) => Some(Involved::Pod {
            namespace: namespace.clone(),
            name: name.clone(),
            uid: uid.clone(),
            field_path: None,
        }),
        _ => None,
    };
    let on_pod = on_pod.map(|object| event(object, &json.reason, json.message.clone()));
    let is_in_pod = json.object.pod.is_some();
    match &json.facts {
        Some(JsonFacts::Condition(condition)) => {
            let change = condition.change();
            let words = |change| on_node(&json.reason).about_change(&change, node);
            (change.and_then(words), None)
        }
        Some(JsonFacts::Gap(_)) => (None, None),
        Some(JsonFacts::Boot(_)) => {
            let is_unclean = json.reason == UNCLEAN_REBOOT;
            (is_unclean.then(|| on_node(&json.reason)), None)
        }
        Some(JsonFacts::OomKill(kill)) if !is_in_pod || kill.is_global() => {
            let words = kill_text::again_on_node(json, kill, node_events);
            let node = words.map(|words| {
                let mut node = event(Involved::Node, words.reason, words.message);
                if node_events == NodeEvents::Kubelet {
                    node.annotations = Annotations::new();
                }
                node
            });
            let instead = (is_in_pod && node.is_none()).then(|| on_node(kill_text::IN_POD));
            (node, on_pod.or(instead))
        }
        // Another program reports them.
        Some(JsonFacts::UnidentifiedOomKills(_))
            if !is_in_pod && json.object.cgroup.is_none() && node_events == NodeEvents::Off =>
        {
            (None, None)
        }
        Some(JsonFacts::OomKill(_)) => (None, on_pod.or_else(|| Some(on_node(kill_text::IN_POD)))),
        _ if is_in_pod => (None, on_pod.or_else(|| Some(on_node(&json.reason)))),
        _ => (Some(on_node(&json.reason)), None),
    }
}

fn annotations(json: &JsonIncident, container: Option<&str>) -> Annotations {
    let Some(JsonFacts::OomKill(kill)) = &json.facts else {
        return Annotations::new();
    };
    Annotations::of_kill(Some(kill.kill.clone()), &kill.memory_users, container)
}

#[cfg(test)]
mod tests {
    use super::super::{
        EventWords, Finding, KillPlace, Period, RefusedForks, UnidentifiedKills, VictimOwner,
    };
    use super::*;
    use crate::incident::{Incident, Occurred, Occurrence, Position, by_cause};
    use crate::node_status::ledger::ConditionChange;
    use crate::pods::{Pod, PodId, PodRef};
    use crate::pressure::oom::{Grounds, KillVerdict};
    use crate::reading::oom::OomScope;
    use crate::tests::{finding, now};

    const ALL: [NodeEvents; 3] = [NodeEvents::Off, NodeEvents::Companion, NodeEvents::Kubelet];

    fn pod_ref() -> PodRef {
        PodRef {
            pod: PodId::Uid("aa".to_owned()),
            container: None,
        }
    }

    /// Returns the incident in a pod that is known, in one that is not, and in none.
    fn places(occurred: &Occurred) -> [Incident; 3] {
        [(true, true), (true, false), (false, false)].map(|(is_in_pod, is_known)| {
            let mut occurred = occurred.clone();
            occurred.pod = is_in_pod.then(pod_ref);
            if let Occurrence::Kills(kills) = &mut occurred.occurrence {
                for kill in &mut kills.findings {
                    kill.owner = match occurred.pod.clone() {
                        Some(pod) => VictimOwner::Pod(pod),
                        None => VictimOwner::NoPod,
                    };
                }
            }
            let mut incident = crate::tests::incident(occurred);
            let pod = Pod::new("shop", "web-0", "aa", None);
            incident.object.pod = pod.filter(|_| is_known);
            incident.object.is_resolved = true;
            incident.settled = true;
            incident
        })
    }

    fn occurred(occurrence: Occurrence) -> Occurred {
        Occurred {
            stamp: None,
            occurrence,
            ..by_cause(vec![finding(7)], now(9)).remove(0)
        }
    }

    #[test]
    fn an_incident_from_the_history_has_the_same_events() {
        let global = Finding {
            scope: OomScope::Global,
            verdict: KillVerdict::NodePressure {
                why: Grounds::ConfirmedGlobal,
            },
            ..finding(7)
        };
        let counted = Occurrence::UnidentifiedKills(UnidentifiedKills {
            place: KillPlace::NoPod,
            kills: 3,
            period: Period::Now,
        });
        let refused = Occurrence::RefusedForks(RefusedForks {
            cgroup: "/kubepods/podaa/c".to_owned(),
            forks: 2,
            limit: None,
            tasks: None,
        });
        let change = Occurrence::Condition(ConditionChange {
            type_: "Slow".to_owned(),
            status: crate::node_status::Status::True,
            reason: "Because".to_owned(),
            message: "m".to_owned(),
            details: None,
            ended: None,
        });
        let all = [
            by_cause(vec![finding(7), finding(8)], now(9)).remove(0),
            by_cause(vec![global], now(9)).remove(0),
            occurred(counted),
            occurred(refused),
        ];
        let [_, _, change] = places(&occurred(change));
        let position = Position(1);
        let incidents = all.iter().flat_map(places).chain([change]);
        for (incident, node_events) in
            incidents.flat_map(|incident| ALL.map(|node_events| (incident.clone(), node_events)))
        {
            let fresh = EventWords::new("n", node_events).word(&incident, Some(position));
            let json = JsonIncident::new(&incident, |_| String::new());
            let settled = Settled {
                id: incident.id,
                json: &json,
                at: incident.occurred.at,
                until: incident.occurred.until,
            };
            let settled = EventWords::new("n", node_events).word_settled(&settled, position);
            let comparable = |draft: &Draft| {
                let mut draft = draft.clone();
                draft.stamp = None;
                let is_companion = draft.reason == "OOMKilling" && json.object.pod.is_some();
                if is_companion && draft.object == Involved::Node {
                    // The history has the words for the pod.
                    let begin = ["Pod shop/web-0: A", "Process 7 (p7) in pod"];
                    assert!(begin.iter().any(|begin| draft.message.starts_with(begin)));
                    draft.message.clear();
                }
                draft
            };
            let fresh: Vec<_> = fresh.iter().map(comparable).collect();
            let settled: Vec<_> = settled.iter().map(comparable).collect();
            assert_eq!(settled, fresh, "{node_events:?} {json:?}");
        }
    }
}
