//! The wording of an incident's Events: on the Pod if it is known, on the Node if not.

use super::annotations::ENDED_INCIDENT;
use super::container_label::{ContainerLabel, SHORT_ID};
use super::finding::NodeEvents;
use super::kill_text;
use super::{Annotations, Draft, Involved, KillDetails, KillPlace, Words};
use crate::escape::quote;
use crate::incident::{Incident, Occurrence};
use crate::node_status::ledger::ConditionChange;
use crate::node_status::transition::EventType;
use crate::pods::PodId;

impl Incident {
    /// Returns the Event on the Node that the incident needs in any case: for kills because the
    /// node is out of memory, and for what happened in no pod. Returns `None` if it needs none.
    pub(super) fn on_node(&self, node_events: NodeEvents, node: &str) -> Option<Draft> {
        let kills = match &self.occurred.occurrence {
            Occurrence::Kills(kills) => kills,
            // Another program reports them.
            Occurrence::UnidentifiedKills(counted)
                if !matches!(counted.place, KillPlace::Cgroup(_))
                    && node_events == NodeEvents::Off =>
            {
                return None;
            }
            Occurrence::Condition(change) => {
                let words = self.draft(Involved::Node, change_words(change));
                return words.about_change(change, node);
            }
            // Missed kills have Events.
            Occurrence::Gap(_) => return None,
            Occurrence::Boot(end) => return end.is_unclean().then(|| self.on_node_instead()),
            Occurrence::UnidentifiedKills(_)
            | Occurrence::RefusedForks(_)
            | Occurrence::Volume(_) => {
                return self.occurred.pod.is_none().then(|| self.on_node_instead());
            }
        };
        let first = kills.first()?;
        if !first.is_global() && self.occurred.pod.is_some() {
            return None;
        }
        let (place, details) = (self.place(), self.details());
        let words =
            kill_text::words_on_node(kills, place.as_deref(), details.as_ref(), node_events)?;
        let mut draft = self.draft(Involved::Node, words);
        if node_events != NodeEvents::Kubelet {
            draft.annotations = self.annotations(None);
        }
        Some(draft)
    }

    /// Returns the Event on the Node for an incident whose Pod is unknown.
    pub(super) fn on_node_instead(&self) -> Draft {
        Draft {
            annotations: self.annotations(None),
            ..self.draft(Involved::Node, self.words_on_node_instead())
        }
    }

    /// Returns the Event on the Pod; `None` if it is not known.
    pub(super) fn on_pod(&self) -> Option<Draft> {
        let pod = self.object.pod.as_ref()?;
        let container = self.object.container.as_ref();
        let object = Involved::Pod {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
            field_path: container.and_then(ContainerLabel::field_path),
        };
        let unspecified = |label: &&ContainerLabel| label.field_path().is_none();
        Some(Draft {
            annotations: self.annotations(container),
            container: container.filter(unspecified).cloned(),
            ..self.draft(object, self.words_on_pod())
        })
    }

    /// Returns the words of the Event on the Pod, or of that on the Node if the Pod is not known.
    pub fn words(&self) -> Words {
        if self.object.pod.is_some() {
            return self.words_on_pod();
        }
        let on_node = match &self.occurred.occurrence {
            Occurrence::Kills(kills) => {
                let (place, details) = (self.place(), self.details());
                let node_events = NodeEvents::Companion;
                kill_text::words_on_node(kills, place.as_deref(), details.as_ref(), node_events)
            }
            Occurrence::UnidentifiedKills(_)
            | Occurrence::RefusedForks(_)
            | Occurrence::Volume(_)
            | Occurrence::Condition(_)
            | Occurrence::Boot(_)
            | Occurrence::Gap(_) => None,
        };
        on_node.unwrap_or_else(|| self.words_on_node_instead())
    }

    fn words_on_node_instead(&self) -> Words {
        match &self.occurred.occurrence {
            Occurrence::Kills(kills) => Words {
                reason: kill_text::IN_POD,
                message: kill_text::on_node(
                    kills,
                    self.place().as_deref(),
                    self.details().as_ref(),
                ),
            },
            Occurrence::UnidentifiedKills(counted) => counted.words(&match &counted.place {
                KillPlace::Cgroup(cgroup) => format!(" in cgroup {}", quote(cgroup)),
                KillPlace::NoPod => " outside the pods".to_owned(),
                KillPlace::Unknown => {
                    " that the kernel counted, whose records were not received and whose cgroups are not \
                     known"
                        .to_owned()
                }
            }),
            Occurrence::RefusedForks(refused) => {
                let (cgroup, of_pod) = (quote(&refused.cgroup), self.of_pod());
                let limit = refused.limit_of_cgroup();
                refused.words(&format!(" in cgroup {cgroup}{of_pod}"), &limit)
            }
            Occurrence::Volume(trouble) => trouble.words(),
            Occurrence::Condition(change) => change_words(change),
            Occurrence::Boot(end) => end.words(),
            Occurrence::Gap(gap) => gap.words(),
        }
    }

    fn words_on_pod(&self) -> Words {
        let container = self.object.container.as_ref();
        let whereabouts = container.map_or_else(String::new, ContainerLabel::whereabouts);
        match &self.occurred.occurrence {
            Occurrence::Kills(kills) => Words {
                reason: kill_text::IN_POD,
                message: kill_text::in_pod(
                    kills,
                    container.map(ContainerLabel::called),
                    self.details().as_ref(),
                ),
            },
            Occurrence::UnidentifiedKills(counted) => counted.words(&whereabouts),
            Occurrence::RefusedForks(refused) => {
                refused.words(&whereabouts, &refused.limit_of_pod())
            }
            Occurrence::Volume(trouble) => trouble.words(),
            Occurrence::Condition(change) => change_words(change),
            Occurrence::Boot(end) => end.words(),
            Occurrence::Gap(gap) => gap.words(),
        }
    }

    /// Returns the details that are not about the victims; `None` if there are none.
    pub(super) fn details(&self) -> Option<KillDetails> {
        let Occurrence::Kills(kills) = &self.occurred.occurrence else {
            return None;
        };
        let details = self.details.clone()?.without(&kills.findings);
        (!details.is_empty()).then_some(details)
    }

    /// Returns the pod and its container as an Event on the Node names them.
    fn place(&self) -> Option<String> {
        let at = self.occurred.pod.as_ref()?;
        let pod = match (&self.object.pod, &at.pod) {
            (Some(pod), _) => format!("pod {}/{}", pod.namespace, pod.name),
            (None, PodId::Uid(uid)) => format!("pod with UID {uid}"),
            (None, PodId::ConfigHash(hash)) => format!("static pod with hash {hash}"),
        };
        Some(match &at.container {
            Some(id) => format!("container {} of {pod}", id.get(..SHORT_ID).unwrap_or(id)),
            None => pod,
        })
    }

    /// Names the pod for readers that identify cgroups by their paths.
    fn of_pod(&self) -> String {
        let pod = self.occurred.pod.as_ref();
        pod.map_or_else(String::new, |at| format!(" of pod {}", at.pod.as_str()))
    }

    /// Returns the number of things that the message of an Event describes, and the first value of
    /// its `count`.
    fn numbers(&self) -> (u32, u32) {
        let many = |kills| u32::try_from(kills).unwrap_or(u32::MAX).max(1);
        match &self.occurred.occurrence {
            Occurrence::Kills(kills) => (many(kills.count()), 1),
            Occurrence::UnidentifiedKills(counted) => (many(counted.kills), many(counted.kills)),
            Occurrence::RefusedForks(_)
            | Occurrence::Volume(_)
            | Occurrence::Condition(_)
            | Occurrence::Boot(_)
            | Occurrence::Gap(_) => (1, 1),
        }
    }

    fn draft(&self, object: Involved, words: Words) -> Draft {
        let (of, times) = self.numbers();
        Draft {
            object,
            type_: EventType::Warning,
            is_transition: false,
            reason: words.reason.to_owned(),
            message: words.message,
            annotations: Annotations::new(),
            of,
            times,
            id: None,
            container: None,
            is_later: false,
            is_last: false,
            position: None,
            at: self.occurred.at,
            stamp: self.occurred.stamp,
        }
    }
}

impl Draft {
    /// Returns the Event about a change of a condition; `None` for a kubelet's condition.
    pub(super) fn about_change(mut self, change: &ConditionChange, node: &str) -> Option<Self> {
        (self.type_, self.message) = change.event(node)?;
        self.reason.clone_from(&change.reason);
        self.is_transition = true;
        let ended = change.ended.map(|id| id.to_string());
        self.annotations =
            ended.map_or_else(Annotations::new, |id| Annotations::one(ENDED_INCIDENT, &id));
        Some(self)
    }
}

fn change_words(change: &ConditionChange) -> Words {
    let (type_, status, reason) = (&change.type_, change.status.as_str(), &change.reason);
    let details = change.details.as_ref();
    let details = details.map_or_else(String::new, |details| format!("; {details}"));
    Words {
        reason: "ConditionChanged",
        message: format!(
            "{type_} is {status}: {reason} ({}){details}",
            change.message
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::incident::Occurred;
    use crate::kube_event::{
        Finding, Period, RefusedForks, ReportedKills, UnidentifiedKills, VictimOwner,
    };
    use crate::pods::{Container, ContainerList, Pod, PodRef};

    fn incident(pod: Option<PodRef>, occurrence: Occurrence) -> Incident {
        crate::tests::incident(Occurred {
            pod,
            at: SystemTime::UNIX_EPOCH,
            until: SystemTime::UNIX_EPOCH,
            stamp: None,
            kills: ReportedKills::default(),
            occurrence,
        })
    }

    fn pod_ref() -> PodRef {
        PodRef {
            pod: PodId::Uid("aa".to_owned()),
            container: None,
        }
    }

    fn unidentified(kills: u64) -> Occurrence {
        Occurrence::UnidentifiedKills(UnidentifiedKills {
            place: KillPlace::Cgroup("/kubepods/podaa".to_owned()),
            kills,
            period: Period::Now,
        })
    }

    fn refused(forks: u64) -> Occurrence {
        Occurrence::RefusedForks(RefusedForks {
            cgroup: "/kubepods/podaa/c".to_owned(),
            forks,
            limit: None,
            tasks: None,
        })
    }

    #[test]
    fn an_event_on_a_pod_names_the_container_as_far_as_it_is_known() {
        let id = "0123456789abcdef".to_owned();
        let named = |list| Some(ContainerLabel::Name(Container::new(list, "web").unwrap()));
        //  container, its part of the message, fieldPath
        #[rustfmt::skip]
        let rows = [
            (None, "", None),
            (Some(ContainerLabel::Id(id)), " in container 0123456789ab", None),
            (named(Some(ContainerList::Containers)), " in container web", Some("spec.containers{web}")),
            (named(None), " in container web", None),
        ];
        let pod = Pod::new("shop", "web-0", "aa", None).unwrap();
        for (container, whereabouts, field_path) in rows {
            let mut incident = incident(Some(pod_ref()), refused(1));
            incident.object.pod = Some(pod.clone());
            incident.object.container = container;
            let draft = incident.on_pod().unwrap();
            let expected = format!("1 fork refused{whereabouts}: the limit is not known");
            assert_eq!(draft.message, expected);
            assert_eq!(draft.reason, "PIDLimitReached");
            let expected = Involved::Pod {
                namespace: "shop".to_owned(),
                name: "web-0".to_owned(),
                uid: "aa".to_owned(),
                field_path: field_path.map(Into::into),
            };
            assert_eq!(draft.object, expected);
        }
    }

    #[test]
    fn without_its_pod_an_incident_is_reported_on_the_node_with_the_cgroup_and_the_uid() {
        let in_pod = incident(Some(pod_ref()), refused(2));
        assert_eq!(in_pod.on_node(NodeEvents::Kubelet, "n"), None);
        let draft = in_pod.on_node_instead();
        assert_eq!(draft.object, Involved::Node);
        let expected =
            "2 forks refused in cgroup /kubepods/podaa/c of pod aa: its limit is not known";
        assert_eq!(draft.message, expected);

        let in_no_pod = incident(None, refused(2));
        for node_events in [NodeEvents::Kubelet, NodeEvents::Companion, NodeEvents::Off] {
            let on_node = in_no_pod.on_node(node_events, "n");
            assert_eq!(on_node, Some(in_no_pod.on_node_instead()), "always");
        }
    }

    #[test]
    fn kills_outside_the_pods_are_an_event_on_the_node_unless_another_program_reports_them() {
        let rows = [
            (
                KillPlace::NoPod,
                "OOM kills outside the pods: the victims are unknown; the count of this Event is the \
                 number of kills",
            ),
            (
                KillPlace::Unknown,
                "OOM kills that the kernel counted, whose records were not received and whose cgroups \
                 are not known: the victims are unknown; the count of this Event is the number of kills",
            ),
        ];
        for (place, expected) in rows {
            let Occurrence::UnidentifiedKills(counted) = unidentified(3) else {
                unreachable!()
            };
            let outside = Occurrence::UnidentifiedKills(UnidentifiedKills { place, ..counted });
            let incident = incident(None, outside);
            let draft = incident.on_node(NodeEvents::Companion, "n").unwrap();
            assert_eq!((draft.message.as_str(), draft.of), (expected, 3));
            assert_eq!(incident.on_node(NodeEvents::Off, "n"), None);
        }
    }

    #[test]
    fn an_event_on_the_node_names_the_pod_of_the_victim() {
        use crate::pressure::oom::{Doubt, KillVerdict};
        use crate::reading::oom::OomScope;

        let id = "0123456789abcdef".to_owned();
        let at = |pod, container: Option<&String>| PodRef {
            pod,
            container: container.cloned(),
        };
        let uid = || PodId::Uid("aa".to_owned());
        let hash = PodId::ConfigHash("bb".to_owned());
        let name = || Pod::new("shop", "web-0", "aa", None);
        #[rustfmt::skip]
        let rows = [
            (at(uid(), Some(&id)), name(), "container 0123456789ab of pod shop/web-0"),
            (at(uid(), None), name(), "pod shop/web-0"),
            (at(uid(), Some(&id)), None, "container 0123456789ab of pod with UID aa"),
            (at(hash, None), None, "static pod with hash bb"),
        ];
        for (pod, known, expected) in rows {
            let finding = Finding {
                cgroup: Some("/kubepods/podaa/c".to_owned()),
                owner: VictimOwner::Pod(pod.clone()),
                scope: OomScope::Global,
                verdict: KillVerdict::EventOnly {
                    why: Doubt::MemoryLeft,
                },
                ..crate::tests::finding(7)
            };
            let mut incident = incident(Some(pod), Occurrence::Kills(vec![finding].into()));
            incident.object.pod = known;
            let start = format!("Process 7 (p7) in {expected} was killed because memory ran out");
            for draft in [
                incident.on_node(NodeEvents::Companion, "n").unwrap(),
                incident.on_node_instead(),
            ] {
                assert!(draft.message.starts_with(&start), "{}", draft.message);
                assert!(!draft.message.contains("kubepods"), "{}", draft.message);
            }
        }
    }

    #[test]
    fn the_count_of_an_event_about_unidentified_kills_is_their_number() {
        //  what; things in the message, first value of `count`, kills
        let rows = [(unidentified(7), 7, 7, 7), (refused(9), 1, 1, 0)];
        for (occurrence, of, times, kills) in rows {
            let incident = incident(None, occurrence);
            let draft = incident.on_node_instead();
            assert_eq!((draft.of, draft.times), (of, times), "{incident:?}");
            assert_eq!(incident.occurred.killed(), kills, "{incident:?}");
        }
    }
}
