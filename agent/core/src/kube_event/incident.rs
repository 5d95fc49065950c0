//! Incidents, and the Events that report them: on the Pod if it is known, on the Node if not.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::container_label::{ContainerLabel, SHORT_ID};
use super::finding::{Finding, NodeEvents};
use super::{
    Annotations, Draft, Involved, KillDetails, KillPlace, Kills, RefusedForks, ReportedKills,
    UnidentifiedKills, VictimOwner, Words,
};
use super::{annotations, kill_text};
use crate::clock::{Now, Stamp};
use crate::escape::quote;
use crate::node_status::transition::EventType;
use crate::pods::{Pod, PodId, PodRef};

/// The place of an Event about an incident, which decides its wording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventPlace {
    /// On the Node, in any case: see [`Incident::on_node`].
    Node,
    /// On the Node, because the Pod is unknown.
    NodeInstead,
    /// On the Pod, with the container in which it happened, if in one.
    Pod(Option<ContainerLabel>),
}

/// An occurrence that is to be reported.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// `None` if it happened in no pod, or in one that cannot be known.
    pub pod: Option<PodRef>,
    /// Namespace and name of the pod, if they were known when it happened. Used for an Event on the
    /// Node.
    #[serde(default)]
    pub pod_name: Option<String>,
    pub at: SystemTime,
    /// Set if the kernel recorded the occurrence.
    pub stamp: Option<Stamp>,
    /// The kills that it reports, by the kernel's counters that include them. The first Event about
    /// it carries them.
    pub kills: ReportedKills,
    pub occurrence: Occurrence,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Occurrence {
    Kills(Kills),
    UnidentifiedKills(UnidentifiedKills),
    RefusedForks(RefusedForks),
}

/// Groups `findings` into incidents by their causes, in order.
pub fn incidents(findings: Vec<Finding>, now: Now) -> Vec<Incident> {
    let mut groups: Vec<Vec<Finding>> = Vec::new();
    for finding in findings {
        let same = |group: &&mut Vec<Finding>| {
            let first = group.first();
            first.is_some_and(|first| first.cause.number == finding.cause.number)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(finding),
            None => groups.push(vec![finding]),
        }
    }
    let incident = |group: Vec<Finding>| {
        let first = group.first()?;
        Some(Incident {
            pod_name: None,
            pod: match &first.owner {
                VictimOwner::Pod(pod) => Some(pod.clone()),
                VictimOwner::UnknownPod | VictimOwner::NoPod => None,
            },
            at: now.wall_at(first.stamp.kernel),
            stamp: Some(first.stamp),
            kills: reported(&group),
            occurrence: Occurrence::Kills(group.into()),
        })
    };
    groups.into_iter().filter_map(incident).collect()
}

fn reported(group: &[Finding]) -> ReportedKills {
    let mut kills = ReportedKills::default();
    for finding in group {
        kills.add(finding.counter.clone(), 1);
    }
    kills
}

impl Incident {
    /// Returns the Event on the Node that the incident needs in any case: for kills because the
    /// node is out of memory, and for what happened in no pod. Returns `None` if it needs none.
    pub fn on_node(&self, node_events: NodeEvents) -> Option<Draft> {
        let kills = match &self.occurrence {
            Occurrence::Kills(kills) => kills,
            // Another program reports them.
            Occurrence::UnidentifiedKills(counted)
                if !matches!(counted.place, KillPlace::Cgroup(_))
                    && node_events == NodeEvents::Off =>
            {
                return None;
            }
            Occurrence::UnidentifiedKills(_) | Occurrence::RefusedForks(_) => {
                return self.pod.is_none().then(|| self.on_node_instead());
            }
        };
        let first = kills.first()?;
        if !first.is_global() && self.pod.is_some() {
            return None;
        }
        let words = kill_text::words_on_node(kills, self.place().as_deref(), node_events)?;
        let mut draft = self.draft(Involved::Node, words);
        if node_events != NodeEvents::Kubelet {
            draft.annotations = self.annotations(None);
        }
        Some(draft)
    }

    /// Returns the Event on the Node for an incident whose Pod is unknown.
    pub fn on_node_instead(&self) -> Draft {
        let of_pod = self.of_pod();
        let words = match &self.occurrence {
            Occurrence::Kills(kills) => Words {
                reason: kill_text::IN_POD,
                message: kill_text::on_node(kills, self.place().as_deref(), None),
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
                let cgroup = quote(&refused.cgroup);
                let limit = refused.limit_of_cgroup();
                refused.words(&format!(" in cgroup {cgroup}{of_pod}"), &limit)
            }
        };
        Draft {
            annotations: self.annotations(None),
            ..self.draft(Involved::Node, words)
        }
    }

    /// `container` is the container of the pod in which it happened, if in one.
    pub fn on_pod(&self, pod: &Pod, container: Option<&ContainerLabel>) -> Draft {
        let whereabouts = container.map_or_else(String::new, ContainerLabel::whereabouts);
        let words = match &self.occurrence {
            Occurrence::Kills(kills) => Words {
                reason: kill_text::IN_POD,
                message: kill_text::in_pod(kills, container.map(ContainerLabel::called), None),
            },
            Occurrence::UnidentifiedKills(counted) => counted.words(&whereabouts),
            Occurrence::RefusedForks(refused) => {
                refused.words(&whereabouts, &refused.limit_of_pod())
            }
        };
        let object = Involved::Pod {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
            field_path: container.and_then(ContainerLabel::field_path),
        };
        let unspecified = |label: &&ContainerLabel| label.field_path().is_none();
        Draft {
            annotations: self.annotations(container),
            container: container.filter(unspecified).cloned(),
            ..self.draft(object, words)
        }
    }

    fn annotations(&self, container: Option<&ContainerLabel>) -> Annotations {
        match &self.occurrence {
            Occurrence::Kills(kills) => {
                annotations::of_kills(kills, container.map(|container| container.called().0))
            }
            Occurrence::UnidentifiedKills(_) | Occurrence::RefusedForks(_) => Annotations::new(),
        }
    }

    /// Returns the message of the Event at `place` with details, and the annotations that are
    /// added; `None` if there are no details to add.
    pub fn with_details(
        &self,
        place: &EventPlace,
        details: &KillDetails,
    ) -> Option<(String, Annotations)> {
        let Occurrence::Kills(kills) = &self.occurrence else {
            return None;
        };
        let details = details.clone().without(&kills.findings);
        if details.is_empty() {
            return None;
        }
        let added = annotations::of_details(&details);
        Some((self.message(kills, place, Some(&details)), added))
    }

    /// Returns the message and the annotations of the Event at `place`, with details if there are
    /// any; `None` if it is not about kills.
    pub fn described(
        &self,
        place: &EventPlace,
        details: Option<&KillDetails>,
    ) -> Option<(String, Annotations)> {
        if let Some((message, mut added)) = details.and_then(|all| self.with_details(place, all)) {
            added.add_all(self.annotations(place.container()));
            return Some((message, added));
        }
        let Occurrence::Kills(kills) = &self.occurrence else {
            return None;
        };
        let annotations = self.annotations(place.container());
        Some((self.message(kills, place, None), annotations))
    }

    fn message(&self, kills: &Kills, place: &EventPlace, details: Option<&KillDetails>) -> String {
        match place {
            EventPlace::Node | EventPlace::NodeInstead => {
                kill_text::on_node(kills, self.place().as_deref(), details)
            }
            EventPlace::Pod(container) => {
                let container = container.as_ref().map(ContainerLabel::called);
                kill_text::in_pod(kills, container, details)
            }
        }
    }

    /// Names the container of the process that requested memory, if only its id is known.
    pub fn name_trigger(&mut self, name: impl FnOnce(&str) -> ContainerLabel) {
        if let Occurrence::Kills(kills) = &mut self.occurrence
            && let Some(first) = kills.findings.first_mut()
            && let Some(ContainerLabel::Id(id)) = &first.trigger_container
        {
            first.trigger_container = Some(name(id));
        }
    }

    /// Returns the kills if the kernel killed a whole container.
    pub fn group(&self) -> Option<&Kills> {
        match &self.occurrence {
            Occurrence::Kills(kills) if kills.first().is_some_and(Finding::is_of_group) => {
                Some(kills)
            }
            _ => None,
        }
    }

    /// Returns true if `later` is about other processes of the container that the kernel killed as
    /// a whole.
    pub fn is_group_of(&self, later: &Self) -> bool {
        let first = self.group().and_then(Kills::first);
        let later = later.group().and_then(Kills::first);
        let both = first.zip(later);
        both.is_some_and(|(first, later)| first.cause.number == later.cause.number)
    }

    /// Adds other processes of the group. The kills that the next Event reports do not change.
    pub fn add_to_group(&mut self, later: &Self) {
        if let (Occurrence::Kills(kills), Some(later)) = (&mut self.occurrence, later.group()) {
            kills.add(later);
        }
    }

    /// Returns the pod and its container as an Event on the Node names them.
    fn place(&self) -> Option<String> {
        let at = self.pod.as_ref()?;
        let pod = match (&self.pod_name, &at.pod) {
            (Some(name), _) => format!("pod {name}"),
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
        let pod = self.pod.as_ref();
        pod.map_or_else(String::new, |at| format!(" of pod {}", at.pod.as_str()))
    }

    /// Returns the number of killed processes for which no Event was recorded before.
    pub fn new_kills(&self) -> u64 {
        match &self.occurrence {
            Occurrence::Kills(kills) => kills.count(),
            Occurrence::UnidentifiedKills(counted) => counted.kills.saturating_sub(counted.again),
            Occurrence::RefusedForks(_) => 0,
        }
    }

    fn draft(&self, object: Involved, words: Words) -> Draft {
        let (of, times) = match &self.occurrence {
            Occurrence::Kills(kills) => (u32::try_from(kills.count()).unwrap_or(u32::MAX), 1),
            Occurrence::UnidentifiedKills(counted) => {
                let kills = u32::try_from(counted.kills).unwrap_or(u32::MAX);
                (kills, kills.max(1))
            }
            Occurrence::RefusedForks(_) => (1, 1),
        };
        Draft {
            object,
            type_: EventType::Warning,
            is_transition: false,
            reason: words.reason.to_owned(),
            message: words.message,
            annotations: Annotations::new(),
            of: of.max(1),
            times,
            id: None,
            container: None,
            version_of: None,
            kills: self.kills.clone(),
            at: self.at,
            stamp: self.stamp,
        }
    }
}

impl EventPlace {
    const fn container(&self) -> Option<&ContainerLabel> {
        match self {
            Self::Pod(container) => container.as_ref(),
            Self::Node | Self::NodeInstead => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kube_event::Period;
    use crate::pods::{Container, ContainerList};

    fn incident(pod: Option<PodRef>, occurrence: Occurrence) -> Incident {
        Incident {
            pod_name: None,
            pod,
            at: SystemTime::UNIX_EPOCH,
            stamp: None,
            kills: ReportedKills::default(),
            occurrence,
        }
    }

    fn pod_ref() -> PodRef {
        PodRef {
            pod: PodId::Uid("aa".to_owned()),
            container: None,
        }
    }

    fn unidentified(kills: u64, again: u64) -> Occurrence {
        Occurrence::UnidentifiedKills(UnidentifiedKills {
            place: KillPlace::Cgroup("/kubepods/podaa".to_owned()),
            kills,
            again,
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
            let draft = incident(Some(pod_ref()), refused(1)).on_pod(&pod, container.as_ref());
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
        assert_eq!(in_pod.on_node(NodeEvents::Kubelet), None);
        let draft = in_pod.on_node_instead();
        assert_eq!(draft.object, Involved::Node);
        let expected =
            "2 forks refused in cgroup /kubepods/podaa/c of pod aa: its limit is not known";
        assert_eq!(draft.message, expected);

        let in_no_pod = incident(None, refused(2));
        for node_events in [NodeEvents::Kubelet, NodeEvents::Companion, NodeEvents::Off] {
            let on_node = in_no_pod.on_node(node_events);
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
            let Occurrence::UnidentifiedKills(counted) = unidentified(3, 0) else {
                unreachable!()
            };
            let outside = Occurrence::UnidentifiedKills(UnidentifiedKills { place, ..counted });
            let incident = incident(None, outside);
            let draft = incident.on_node(NodeEvents::Companion).unwrap();
            assert_eq!((draft.message.as_str(), draft.of), (expected, 3));
            assert_eq!(incident.on_node(NodeEvents::Off), None);
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
        let name = || Some("shop/web-0".to_owned());
        #[rustfmt::skip]
        let rows = [
            (at(uid(), Some(&id)), name(), "container 0123456789ab of pod shop/web-0"),
            (at(uid(), None), name(), "pod shop/web-0"),
            (at(uid(), Some(&id)), None, "container 0123456789ab of pod with UID aa"),
            (at(hash, None), None, "static pod with hash bb"),
        ];
        for (pod, pod_name, expected) in rows {
            let finding = Finding {
                cgroup: Some("/kubepods/podaa/c".to_owned()),
                owner: VictimOwner::Pod(pod.clone()),
                scope: OomScope::Global,
                verdict: KillVerdict::EventOnly {
                    why: Doubt::MemoryLeft,
                },
                ..crate::tests::finding(7)
            };
            let incident = Incident {
                pod_name,
                ..incident(Some(pod), Occurrence::Kills(vec![finding].into()))
            };
            let start = format!("Process 7 (p7) in {expected} was killed because memory ran out");
            for draft in [
                incident.on_node(NodeEvents::Companion).unwrap(),
                incident.on_node_instead(),
            ] {
                assert!(draft.message.starts_with(&start), "{}", draft.message);
                assert!(!draft.message.contains("kubepods"), "{}", draft.message);
            }
        }
    }

    #[test]
    fn the_count_of_an_event_about_unidentified_kills_is_their_number() {
        //  what; things in the message, first value of `count`, kills that are new
        let rows = [
            (unidentified(7, 2), 7, 7, 5),
            (unidentified(1, 1), 1, 1, 0),
            (refused(9), 1, 1, 0),
        ];
        for (occurrence, of, times, new) in rows {
            let incident = incident(None, occurrence);
            let draft = incident.on_node_instead();
            assert_eq!((draft.of, draft.times), (of, times), "{incident:?}");
            assert_eq!(incident.new_kills(), new, "{incident:?}");
        }
    }
}
