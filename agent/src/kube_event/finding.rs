//! What is known about one OOM kill, and the wording of Events about kills.

use serde::{Deserialize, Serialize};

use super::{KillOwner, Words};
use crate::clock::Stamp;
use crate::pods::{CgroupKind, PodRef};
use crate::pressure::oom::{Doubt, Grounds, KillVerdict};
use crate::reading::oom::{LimitOwner, OomScope};
use crate::units::{Bytes, Pid};

/// Victims that a message names. It has 1024 bytes, and two paths of cgroups take half of it.
const NAMED: usize = 24;

/// What a message has instead of a limit that is unknown.
const NO_LIMIT: &str = "no limit is known";

/// Reason of Events about kills in pods.
pub(super) const IN_POD: &str = "OOMKilled";

/// What is known about one OOM kill. All text in it is escaped. What is unknown is `None`, never zero.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// When the kernel recorded it, and when the agent read the record.
    pub stamp: Stamp,
    /// Process id of the victim.
    pub victim: Pid,
    /// Name of the victim.
    pub comm: String,
    /// User id of the victim.
    pub uid: Option<u32>,
    /// Path of its memory cgroup, or the last names of the path if the cgroup was removed.
    pub cgroup: Option<String>,
    /// Which pod that cgroup belongs to.
    pub owner: VictimOwner,
    /// Which of the kernel's counters includes it. `None`: no counter of pods.
    pub counter: Option<KillOwner>,
    /// Whose memory ran out, by the record.
    pub scope: OomScope<Limiting>,
    /// Resident memory of the victim: anonymous, file, shared.
    pub resident: Option<[Bytes; 3]>,
    /// The process that requested the memory.
    pub trigger: Option<String>,
    /// What it means for the node.
    pub verdict: KillVerdict,
}

/// The cgroup that was at its limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limiting {
    /// What it is for.
    pub owner: LimitOwner,
    /// Its path. `None`: the log did not name it.
    pub path: Option<String>,
    /// An ancestor that may have been at its limit instead, since both had exactly as little room
    /// left: what it is for, and its path.
    pub tied: Option<(LimitOwner, String)>,
    /// Its usage and its limit.
    pub usage: Option<(Bytes, Bytes)>,
}

/// The pod of a victim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum VictimOwner {
    /// This pod.
    Pod(PodRef),
    /// Some pod. The last names of the cgroup claim which, but a tenant may have chosen them.
    UnknownPod,
    /// No pod.
    NoPod,
}

impl VictimOwner {
    /// By the place of the victim's cgroup.
    pub fn of(place: CgroupKind) -> Self {
        PodRef::of(place).map_or(Self::NoPod, Self::Pod)
    }

    /// The counter that includes a kill in the cgroup at `path`, where `pods` is the cgroup of all
    /// pods. A kill in an unknown pod is in the counter of all pods.
    pub fn counter(&self, path: Option<&str>, pods: &str) -> Option<KillOwner> {
        let below = |path: &str| {
            let rest = path.strip_prefix(pods)?;
            (rest.is_empty() || rest.starts_with('/')).then_some(KillOwner::Pods)
        };
        match self {
            Self::Pod(at) => Some(KillOwner::Pod(at.pod.clone())),
            Self::UnknownPod => Some(KillOwner::Pods),
            Self::NoPod => path.filter(|_| !pods.is_empty()).and_then(below),
        }
    }
}

/// Who records Events on the Node for kills outside pods, and for kills because the node is out of
/// memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeEvents {
    /// This agent, in a kubelet's words.
    Kubelet,
    /// This agent, alongside a kubelet.
    Companion,
    /// Another program, such as node-problem-detector.
    Off,
}

/// Reason and message of the Event on the Node. `None`: another program records it.
pub(super) fn on_node(group: &[Finding], node_events: NodeEvents) -> Option<Words> {
    let unsure = |first: &Finding| !first.is_global() && first.owner == VictimOwner::UnknownPod;
    let reason = match node_events {
        _ if group.first().is_some_and(unsure) => IN_POD,
        NodeEvents::Off => return None,
        NodeEvents::Companion => "OOMKilling",
        NodeEvents::Kubelet => "SystemOOM",
    };
    let message = match (node_events, group) {
        (NodeEvents::Kubelet, [one]) if one.is_global() => format!(
            "System OOM encountered, victim process: {}, pid: {}",
            one.comm, one.victim
        ),
        _ => in_cgroup(group, ""),
    };
    Some(Words { reason, message })
}

/// For readers who identify cgroups by their paths; `of_pod` follows the path of the victim's.
pub(super) fn in_cgroup(group: &[Finding], of_pod: &str) -> String {
    match group {
        [one] => {
            let cgroup = one.cgroup.as_deref();
            let cgroup = cgroup.map_or_else(
                || " in an unknown cgroup".to_owned(),
                |cgroup| format!(" in cgroup {cgroup}"),
            );
            one.message(&format!("{cgroup}{of_pod}"), &one.limit())
        }
        many => group_message(many, of_pod, Finding::limit),
    }
}

/// For readers who identify pods. `whereabouts`: in which container.
pub(super) fn in_pod(group: &[Finding], whereabouts: &str) -> String {
    match group {
        [one] => one.message(whereabouts, &one.limit_of_pod()),
        many => group_message(many, whereabouts, Finding::limit_of_pod),
    }
}

fn group_message(all: &[Finding], whereabouts: &str, limit: impl Fn(&Finding) -> String) -> String {
    let mut victims: Vec<_> = all
        .iter()
        .take(NAMED)
        .map(|one| format!("{} ({})", one.victim, one.comm))
        .collect();
    if all.len() > NAMED {
        victims.push(format!("and {} more", all.len() - NAMED));
    }
    let (limit, cause) = all
        .first()
        .map(|first| (limit(first), first.cause()))
        .unwrap_or_default();
    format!(
        "Killed {} processes together{whereabouts}: {limit}, {cause}; pids {}",
        all.len(),
        victims.join(", ")
    )
}

impl Finding {
    /// Whether no cgroup's limit was the cause, as far as is known.
    pub fn is_global(&self) -> bool {
        let why = Grounds::ConfirmedGlobal;
        self.scope == OomScope::Global || self.verdict == KillVerdict::NodePressure { why }
    }

    /// Path of the cgroup that was at its limit.
    pub fn limiting(&self) -> Option<&str> {
        self.scope.as_ref().memcg()?.path.as_deref()
    }

    /// Whether both kills have one cause, as far as is known.
    pub fn has_the_cause_of(&self, other: &Self) -> bool {
        !self.is_global()
            && !other.is_global()
            && self.limiting().is_some()
            && self.trigger.is_some()
            && self.limiting() == other.limiting()
            && self.trigger == other.trigger
            && self.owner == other.owner
    }

    fn message(&self, whereabouts: &str, limit: &str) -> String {
        let uid = self
            .uid
            .map_or_else(String::new, |uid| format!(" of uid {uid}"));
        let memory = match self.resident {
            Some([anon, file, shmem]) => {
                format!("the process had anon {anon}, file {file}, shmem {shmem}")
            }
            None => "how much memory the process had is not known".to_owned(),
        };
        format!(
            "Killed process {} ({}){uid}{whereabouts}: {limit}; {memory}; {}",
            self.victim,
            self.comm,
            self.cause(),
        )
    }

    fn limit(&self) -> String {
        if self.is_global() {
            return self.no_limit();
        }
        match &self.scope {
            OomScope::Unknown | OomScope::Global => NO_LIMIT.to_owned(),
            OomScope::Memcg(limiting) => limiting.by_path(),
        }
    }

    fn limit_of_pod(&self) -> String {
        if self.is_global() {
            return self.no_limit();
        }
        match &self.scope {
            OomScope::Unknown | OomScope::Global => NO_LIMIT.to_owned(),
            OomScope::Memcg(limiting) => limiting.by_owner(),
        }
    }

    /// What was short if no cgroup was at its limit, as far as is known.
    fn no_limit(&self) -> String {
        let text = match self.verdict {
            KillVerdict::NodePressure { .. } => "the node was out of memory",
            KillVerdict::EventOnly { why } => match why {
                Doubt::Sysrq => "it was requested by SysRq",
                Doubt::Cpuset => "the memory nodes of its cpuset were full",
                Doubt::MemoryPolicy => "the memory nodes that its memory policy allows were full",
                Doubt::LocalLimit(_)
                | Doubt::Contradictory
                | Doubt::LimitCounterMoved
                | Doubt::LimitCountersUnknown
                | Doubt::LimitCountersStill
                | Doubt::MemoryLeft
                | Doubt::MemoryUnread => "no cgroup is known to have been at its limit",
            },
        };
        text.to_owned()
    }

    fn cause(&self) -> String {
        match &self.trigger {
            Some(trigger) => format!("triggered by {trigger}"),
            None => "what triggered it is not known".to_owned(),
        }
    }
}

impl Limiting {
    fn by_path(&self) -> String {
        let Some(path) = &self.path else {
            return NO_LIMIT.to_owned();
        };
        let or = self.tied.as_ref();
        let or = or.map_or_else(String::new, |(_, path)| format!(" or {path}"));
        format!("{path}{or} was at its limit{}", self.usage())
    }

    fn by_owner(&self) -> String {
        let tied = self.tied.as_ref().map(|(owner, _)| *owner);
        let subject = match (self.owner, tied.filter(|tied| *tied != self.owner)) {
            (LimitOwner::Other, _) | (_, Some(LimitOwner::Other)) => return self.by_path(),
            (LimitOwner::Container, Some(LimitOwner::Pod)) => "the container or its pod was",
            (LimitOwner::Container, Some(_)) => "the container or all pods together were",
            (LimitOwner::Pod, Some(_)) => "the pod or all pods together were",
            (LimitOwner::Container, None) => "the container was",
            (LimitOwner::Pod, None) => "the pod was",
            (LimitOwner::PodsCgroup, _) => "all pods on the node together were",
        };
        format!("{subject} at the memory limit{}", self.usage())
    }

    fn usage(&self) -> String {
        self.usage
            .map_or_else(String::new, |(usage, max)| format!(" ({usage} of {max})"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::clock::{BootNanos, Now};
    use crate::kube_event::incidents;

    fn at(path: &str) -> Limiting {
        Limiting {
            owner: LimitOwner::Other,
            path: Some(path.to_owned()),
            tied: None,
            usage: None,
        }
    }

    fn finding(pid: u32, limiting: Option<&str>, trigger: Option<&str>) -> Finding {
        let time = BootNanos(u64::from(pid));
        Finding {
            stamp: Stamp {
                kernel: time,
                read: time,
            },
            victim: Pid(pid),
            comm: format!("p{pid}"),
            uid: None,
            cgroup: None,
            owner: VictimOwner::NoPod,
            counter: None,
            scope: limiting.map_or(OomScope::Unknown, |path| OomScope::Memcg(at(path))),
            resident: None,
            trigger: trigger.map(str::to_owned),
            verdict: KillVerdict::EventOnly {
                why: Doubt::LocalLimit(LimitOwner::Other),
            },
        }
    }

    fn messages(findings: &[Finding]) -> Vec<String> {
        let now = Now {
            boot: BootNanos(1_000),
            wall: UNIX_EPOCH + Duration::from_secs(1),
        };
        let incidents = incidents(findings.to_vec(), now).into_iter();
        let drafts = incidents.filter_map(|incident| incident.on_node(NodeEvents::Kubelet));
        drafts.map(|draft| draft.message).collect()
    }

    #[test]
    fn kills_of_one_cause_are_one_event_and_each_is_accounted_for() {
        let (a, b) = (Some("/a"), Some("/b"));
        let x = Some("process 1 (x)");
        let y = Some("process 2 (y)");
        let global = Finding {
            scope: OomScope::Global,
            ..finding(9, None, x)
        };
        #[rustfmt::skip]
        let rows = [
            ("a group", vec![finding(1, a, x), finding(2, a, x), finding(3, a, x)], 1),
            ("two limits, mixed", vec![finding(1, a, x), finding(2, b, x), finding(3, a, x)], 2),
            ("two triggers", vec![finding(1, a, x), finding(2, a, y)], 2),
            ("no limit known", vec![finding(1, None, x), finding(2, None, x)], 2),
            ("no trigger known", vec![finding(1, a, None), finding(2, a, None)], 2),
            ("the machine's", vec![global.clone(), global], 2),
            ("nothing", vec![], 0),
        ];
        for (name, findings, expected) in rows {
            let messages = messages(&findings);
            assert_eq!(messages.len(), expected, "{name}: {messages:?}");
            let all = messages.join("\n");
            for finding in findings {
                let known = all.contains(&format!("p{}", finding.victim));
                assert!(known, "{name}: {} is missing in {all}", finding.victim);
            }
        }
    }

    #[test]
    fn two_limits_that_cannot_be_distinguished_are_both_named() {
        use LimitOwner::{Container, Other, Pod, PodsCgroup};
        let full = Some((Bytes::from_kib(20 << 10), Bytes::from_kib(20 << 10)));
        #[rustfmt::skip]
        let rows = [
            (Container, None, "the container was at the memory limit (20.0Mi of 20.0Mi)"),
            (Pod, None, "the pod was at the memory limit (20.0Mi of 20.0Mi)"),
            (Container, Some(Pod), "the container or its pod was at the memory limit (20.0Mi of 20.0Mi)"),
            (Container, Some(Container), "the container was at the memory limit (20.0Mi of 20.0Mi)"),
            (Pod, Some(PodsCgroup), "the pod or all pods together were at the memory limit (20.0Mi of 20.0Mi)"),
            (Container, Some(Other), "/a or /b was at its limit (20.0Mi of 20.0Mi)"),
        ];
        for (owner, tied, expected) in rows {
            let limiting = Limiting {
                owner,
                tied: tied.map(|owner| (owner, "/b".to_owned())),
                usage: full,
                ..at("/a")
            };
            let finding = Finding {
                scope: OomScope::Memcg(limiting),
                ..finding(1, None, None)
            };
            assert_eq!(finding.limit_of_pod(), expected, "{owner:?}, {tied:?}");
        }
    }

    #[test]
    fn a_large_group_is_counted_and_a_part_of_it_named() {
        let all: Vec<_> = (100..200)
            .map(|pid| finding(pid, Some("/a"), Some("process 1 (x)")))
            .collect();
        let messages = messages(&all);
        assert!(messages[0].starts_with("Killed 100 processes together: /a was at its limit"));
        assert!(
            messages[0].ends_with("123 (p123), and 76 more"),
            "{messages:?}"
        );
    }

    #[test]
    fn an_event_on_the_node_has_the_words_of_the_mode_or_is_left_to_another_program() {
        use NodeEvents::{Companion, Kubelet, Off};

        let why = crate::pressure::oom::Grounds::ConfirmedGlobal;
        let global = Finding {
            scope: OomScope::Global,
            verdict: KillVerdict::NodePressure { why },
            ..finding(9, None, None)
        };
        let of = |why| Finding {
            verdict: KillVerdict::EventOnly { why },
            ..global.clone()
        };
        let some_pods = Finding {
            owner: VictimOwner::UnknownPod,
            ..finding(9, Some("/a"), None)
        };
        let outside = finding(9, Some("/a"), None);
        let kubelet = "System OOM encountered, victim process: p9, pid: 9";
        let (none, reason) = ("SystemOOM", "OOMKilling");
        #[rustfmt::skip]
        let rows = [
            (&global, Kubelet, Some((none, kubelet))),
            (&global, Companion, Some((reason, "the node was out of memory"))),
            (&of(Doubt::Sysrq), Companion, Some((reason, "it was requested by SysRq"))),
            (&of(Doubt::Cpuset), Companion, Some((reason, "the memory nodes of its cpuset were full"))),
            (&of(Doubt::MemoryLeft), Companion, Some((reason, "no cgroup is known to have been"))),
            (&outside, Kubelet, Some((none, "/a was at its limit"))),
            (&outside, Companion, Some((reason, "/a was at its limit"))),
            (&global, Off, None),
            (&outside, Off, None),
            (&some_pods, Off, Some(("OOMKilled", "/a was at its limit"))),
        ];
        for (finding, events, expected) in rows {
            let words = on_node(std::slice::from_ref(finding), events);
            let Some((reason, part)) = expected else {
                assert_eq!(words, None, "{finding:?}");
                continue;
            };
            let words = words.unwrap();
            assert_eq!(words.reason, reason, "{finding:?}");
            assert!(words.message.contains(part), "{part}: {}", words.message);
        }
    }

    #[test]
    fn what_is_unknown_is_reported_as_unknown() {
        let expected = "Killed process 7 (p7) in an unknown cgroup: no limit is known; how much \
                        memory the process had is not known; what triggered it is not known";
        assert_eq!(messages(&[finding(7, None, None)]), [expected]);
    }
}
