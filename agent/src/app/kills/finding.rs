//! What is said of kills: one Event each, and one for those of one cause that came together.

use crate::api::recorder::{KillOwner, ReportedKills};
use crate::app::pod_events::{About, Notice, What};
use crate::clock::{Now, Stamp};
use crate::config::{Config, Mode};
use crate::pods::CgroupKind;
use crate::pressure::oom::{Doubt, KillVerdict, LimitOwner, Scope};
use crate::units::{Bytes, Pid};

/// Victims that a message names. It holds 1024 bytes, and two paths of cgroups take half of it.
const NAMED: usize = 24;

/// What was found out about one kill. All text in it is escaped. What is not known is `None`, never
/// zero.
#[derive(Debug, Clone)]
pub(in crate::app) struct Finding {
    pub(in crate::app) stamp: Stamp,
    pub(in crate::app) victim: Pid,
    /// Name of the victim.
    pub(in crate::app) comm: String,
    pub(in crate::app) uid: Option<u32>,
    /// Path of its memory cgroup, or its last names where the cgroup is gone.
    pub(in crate::app) cgroup: Option<String>,
    /// Whose cgroup that is.
    pub(in crate::app) whose: Whose,
    /// Whose counter of the kernel it is in; `None`: of no pod's.
    pub(in crate::app) owner: Option<KillOwner>,
    /// Path of the cgroup that was at its limit.
    pub(in crate::app) limiting: Option<String>,
    /// Whose memory ran out; `None`: not told.
    pub(in crate::app) scope: Option<Scope>,
    /// An ancestor of that cgroup that may have been at its limit instead: what it is for, and its
    /// path. Both had exactly as little room left.
    pub(in crate::app) tied: Option<(LimitOwner, String)>,
    /// What that cgroup used, and its limit.
    pub(in crate::app) usage: Option<(Bytes, Bytes)>,
    /// No cgroup's limit was to blame, as far as is known.
    pub(in crate::app) global: bool,
    /// Resident memory of the victim: anonymous, file, shared.
    pub(in crate::app) resident: Option<[Bytes; 3]>,
    /// Who asked for the memory.
    pub(in crate::app) trigger: Option<String>,
    /// What it means for the node.
    pub(in crate::app) verdict: KillVerdict,
}

/// Whose process was killed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::app) enum Whose {
    Pod(About),
    /// Some pod's: which, its cgroup's last names only claim, and a tenant may have chosen them.
    SomePod,
    /// No pod's.
    Nobody,
}

impl Whose {
    pub(in crate::app) fn of(place: CgroupKind) -> Self {
        About::of(place).map_or(Self::Nobody, Self::Pod)
    }

    /// Whose counter a kill in the cgroup at `path` is in, where `pods` is that of all pods. One that
    /// only claims to be in some pod is in that of all.
    pub(in crate::app) fn owner(&self, path: Option<&str>, pods: &str) -> Option<KillOwner> {
        let below = |path: &str| {
            let rest = path.strip_prefix(pods)?;
            (rest.is_empty() || rest.starts_with('/')).then_some(KillOwner::Pods)
        };
        match self {
            Self::Pod(about) => Some(KillOwner::Pod(about.pod.clone())),
            Self::SomePod => Some(KillOwner::Pods),
            Self::Nobody => path.filter(|_| !pods.is_empty()).and_then(below),
        }
    }
}

/// Who tells the Node of kills that are no pod's, and of those for want of the node's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::app) enum NodeEvents {
    /// We do, as a kubelet does.
    Kubelet,
    /// We do, beside a kubelet.
    Own,
    /// Somebody else.
    Off,
}

impl NodeEvents {
    pub(in crate::app) fn new(config: &Config) -> Self {
        match config.mode {
            _ if !config.oom_node_events => Self::Off,
            Mode::Node => Self::Kubelet,
            Mode::Companion => Self::Own,
        }
    }
}

/// What is to be told of `findings`, in order. Kills in one container at one limit that one process
/// brought about are told together: a group that goes together.
pub(in crate::app) fn notices(findings: Vec<Finding>, now: Now) -> Vec<Notice> {
    let mut causes: Vec<(Finding, Vec<Finding>)> = Vec::new();
    for finding in findings {
        let same = causes
            .iter_mut()
            .find(|(first, _)| first.is_one_with(&finding));
        match same {
            Some((_, known)) => known.push(finding),
            None => causes.push((finding.clone(), vec![finding])),
        }
    }
    let notice = |(first, all): (Finding, Vec<Finding>)| Notice {
        about: match first.whose {
            Whose::Pod(about) => Some(about),
            Whose::SomePod | Whose::Nobody => None,
        },
        at: now.wall_at(first.stamp.kernel),
        stamp: Some(first.stamp),
        kills: reported(&all),
        what: What::Kills(all),
    };
    causes.into_iter().map(notice).collect()
}

fn reported(all: &[Finding]) -> ReportedKills {
    let mut kills = ReportedKills::default();
    for owner in all.iter().filter_map(|finding| finding.owner.clone()) {
        kills.add(owner, 1);
    }
    kills
}

/// Reason and message of the Event on the Node; `None` where somebody else tells it.
pub(in crate::app) fn of_node(
    cause: &[Finding],
    node_events: NodeEvents,
) -> Option<(&'static str, String)> {
    let unsure = |first: &Finding| !first.global && first.whose == Whose::SomePod;
    let reason = match node_events {
        _ if cause.first().is_some_and(unsure) => "OOMKilled",
        NodeEvents::Off => return None,
        NodeEvents::Own => "OOMKilling",
        NodeEvents::Kubelet => "SystemOOM",
    };
    let message = match (node_events, cause) {
        (NodeEvents::Kubelet, [one]) if one.global => format!(
            "System OOM encountered, victim process: {}, pid: {}",
            one.comm, one.victim
        ),
        _ => in_cgroup(cause, ""),
    };
    Some((reason, message))
}

/// For whoever knows cgroups by their paths; `whose` follows that of the victim.
pub(in crate::app) fn in_cgroup(cause: &[Finding], whose: &str) -> String {
    match cause {
        [one] => {
            let cgroup = one.cgroup.as_deref().unwrap_or("not known");
            one.message(&format!(" in cgroup {cgroup}{whose}"), &one.limit())
        }
        many => group_message(many, whose, Finding::limit),
    }
}

/// For whoever knows pods. `whereabouts` says in which container.
pub(in crate::app) fn in_pod(cause: &[Finding], whereabouts: &str) -> String {
    match cause {
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
    fn is_one_with(&self, other: &Self) -> bool {
        !self.global
            && !other.global
            && self.limiting.is_some()
            && self.trigger.is_some()
            && self.limiting == other.limiting
            && self.trigger == other.trigger
            && self.whose == other.whose
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
        if self.global {
            return self.no_limit();
        }
        match &self.limiting {
            Some(limiting) => {
                let or = self.tied.as_ref();
                let or = or.map_or_else(String::new, |(_, path)| format!(" or {path}"));
                format!("{limiting}{or} was at its limit{}", self.usage())
            }
            None => "no limit is known".to_owned(),
        }
    }

    fn limit_of_pod(&self) -> String {
        let owner = match self.scope {
            _ if self.global => return self.no_limit(),
            None | Some(Scope::Global) => return self.limit(),
            Some(Scope::Memcg { limiting_is }) => limiting_is,
        };
        let tied = self.tied.as_ref().map(|(owner, _)| *owner);
        let whose = match (owner, tied.filter(|tied| *tied != owner)) {
            (LimitOwner::Other, _) | (_, Some(LimitOwner::Other)) => return self.limit(),
            (LimitOwner::Container, Some(LimitOwner::Pod)) => "the container or its pod was",
            (LimitOwner::Container, Some(_)) => "the container or all pods together were",
            (LimitOwner::Pod, Some(_)) => "the pod or all pods together were",
            (LimitOwner::Container, None) => "the container was",
            (LimitOwner::Pod, None) => "the pod was",
            (LimitOwner::PodsCgroup, _) => "all pods on the node together were",
        };
        format!("{whose} at the memory limit{}", self.usage())
    }

    fn usage(&self) -> String {
        self.usage
            .map_or_else(String::new, |(usage, max)| format!(" ({usage} of {max})"))
    }

    /// What was short where no cgroup was at its limit, as far as is known.
    fn no_limit(&self) -> String {
        let text = match self.verdict {
            KillVerdict::NodePressure { .. } => "the node was out of memory",
            KillVerdict::EventOnly { why } => match why {
                Doubt::Sysrq => "somebody asked for it (sysrq)",
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::clock::BootNanos;
    use crate::pressure::oom::{Doubt, LimitOwner};

    fn finding(pid: u32, limiting: Option<&str>, trigger: Option<&str>) -> Finding {
        let at = BootNanos(u64::from(pid));
        Finding {
            stamp: Stamp {
                kernel: at,
                read: at,
            },
            victim: Pid(pid),
            comm: format!("p{pid}"),
            uid: None,
            cgroup: None,
            whose: Whose::Nobody,
            owner: None,
            limiting: limiting.map(str::to_owned),
            scope: None,
            tied: None,
            usage: None,
            global: false,
            resident: None,
            trigger: trigger.map(str::to_owned),
            verdict: KillVerdict::EventOnly {
                why: Doubt::LocalLimit(LimitOwner::Other),
            },
        }
    }

    fn told(findings: &[Finding]) -> Vec<String> {
        let now = Now {
            boot: BootNanos(1_000),
            wall: UNIX_EPOCH + Duration::from_secs(1),
        };
        let notices = notices(findings.to_vec(), now).into_iter();
        let told = notices.filter_map(|notice| notice.of_node(NodeEvents::Kubelet));
        told.map(|event| event.message).collect()
    }

    #[test]
    fn kills_of_one_cause_are_one_event_and_each_is_accounted_for() {
        let (a, b) = (Some("/a"), Some("/b"));
        let x = Some("process 1 (x)");
        let y = Some("process 2 (y)");
        let global = Finding {
            global: true,
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
            let messages = told(&findings);
            assert_eq!(messages.len(), expected, "{name}: {messages:?}");
            let all = messages.join("\n");
            for finding in findings {
                let known = all.contains(&format!("p{}", finding.victim));
                assert!(known, "{name}: {} is missing in {all}", finding.victim);
            }
        }
    }

    #[test]
    fn two_limits_that_cannot_be_told_apart_are_both_named() {
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
        for (limiting_is, tied, expected) in rows {
            let finding = Finding {
                scope: Some(Scope::Memcg { limiting_is }),
                tied: tied.map(|owner| (owner, "/b".to_owned())),
                usage: full,
                ..finding(1, Some("/a"), None)
            };
            assert_eq!(
                finding.limit_of_pod(),
                expected,
                "{limiting_is:?}, {tied:?}"
            );
        }
    }

    #[test]
    fn a_large_group_is_counted_and_a_part_of_it_named() {
        let all: Vec<_> = (100..200)
            .map(|pid| finding(pid, Some("/a"), Some("process 1 (x)")))
            .collect();
        let messages = told(&all);
        assert!(messages[0].starts_with("Killed 100 processes together: /a was at its limit"));
        assert!(
            messages[0].ends_with("123 (p123), and 76 more"),
            "{messages:?}"
        );
    }

    #[test]
    fn the_node_is_told_in_the_words_of_the_mode_or_by_somebody_else() {
        use NodeEvents::{Kubelet, Off, Own};

        let why = crate::pressure::oom::Grounds::ConfirmedGlobal;
        let global = Finding {
            global: true,
            verdict: KillVerdict::NodePressure { why },
            ..finding(9, None, None)
        };
        let of = |why| Finding {
            verdict: KillVerdict::EventOnly { why },
            ..global.clone()
        };
        let some_pods = Finding {
            whose: Whose::SomePod,
            ..finding(9, Some("/a"), None)
        };
        let outside = finding(9, Some("/a"), None);
        let kubelet = "System OOM encountered, victim process: p9, pid: 9";
        let (none, own) = ("SystemOOM", "OOMKilling");
        #[rustfmt::skip]
        let rows = [
            (&global, Kubelet, Some((none, kubelet))),
            (&global, Own, Some((own, "the node was out of memory"))),
            (&of(Doubt::Sysrq), Own, Some((own, "somebody asked for it (sysrq)"))),
            (&of(Doubt::Cpuset), Own, Some((own, "the memory nodes of its cpuset were full"))),
            (&of(Doubt::MemoryLeft), Own, Some((own, "no cgroup is known to have been"))),
            (&outside, Kubelet, Some((none, "/a was at its limit"))),
            (&outside, Own, Some((own, "/a was at its limit"))),
            (&global, Off, None),
            (&outside, Off, None),
            (&some_pods, Off, Some(("OOMKilled", "/a was at its limit"))),
        ];
        for (finding, events, expected) in rows {
            let told = of_node(std::slice::from_ref(finding), events);
            let Some((reason, words)) = expected else {
                assert_eq!(told, None, "{finding:?}");
                continue;
            };
            let (told, message) = told.unwrap();
            assert_eq!(told, reason, "{finding:?}");
            assert!(message.contains(words), "{words}: {message}");
        }
    }

    #[test]
    fn what_is_not_known_is_not_made_up() {
        let expected = "Killed process 7 (p7) in cgroup not known: no limit is known; how much \
                        memory the process had is not known; what triggered it is not known";
        assert_eq!(told(&[finding(7, None, None)]), [expected]);
    }
}
