//! What is said of kills: one Event each, and one for those of one cause that came together.

use crate::api::recorder::{EventInput, Involved};
use crate::clock::{Now, Stamp};
use crate::node_status::transition::EventType;
use crate::pressure::oom::{Scope, Verdict};
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
    /// The same path as it is, where it is known.
    pub(in crate::app) path: Option<String>,
    /// Path of the cgroup that was at its limit.
    pub(in crate::app) limiting: Option<String>,
    /// Whose memory ran out; `None`: not told.
    pub(in crate::app) scope: Option<Scope>,
    /// What that cgroup used, and its limit.
    pub(in crate::app) usage: Option<(Bytes, Bytes)>,
    /// No cgroup's limit was to blame, as far as is known.
    pub(in crate::app) global: bool,
    /// Resident memory of the victim: anonymous, file, shared.
    pub(in crate::app) resident: Option<[Bytes; 3]>,
    /// Who asked for the memory.
    pub(in crate::app) trigger: Option<String>,
    /// What it means for the node.
    pub(in crate::app) verdict: Verdict,
}

/// The Events that tell of `findings`, in order. Kills at one limit that one process brought about
/// are one Event: a group that goes together.
pub(in crate::app) fn events(findings: &[Finding], now: Now) -> Vec<EventInput> {
    let mut causes: Vec<Vec<&Finding>> = Vec::new();
    for finding in findings {
        let same = causes.iter_mut().find(|known| {
            known
                .first()
                .is_some_and(|first| first.is_one_with(finding))
        });
        match same {
            Some(known) => known.push(finding),
            None => causes.push(vec![finding]),
        }
    }
    let events = causes.iter().filter_map(|cause| event(cause, now));
    events.collect()
}

fn event(cause: &[&Finding], now: Now) -> Option<EventInput> {
    let first = cause.first()?;
    let (reason, message) = match cause {
        [one] if one.global => (
            "SystemOOM",
            format!(
                "System OOM encountered, victim process: {}, pid: {}",
                one.comm, one.victim
            ),
        ),
        [one] => ("OOMKilled", one.message()),
        many => ("OOMKilled", group_message(first, many)),
    };
    Some(EventInput {
        object: Involved::Node,
        type_: EventType::Warning,
        reason: reason.to_owned(),
        message,
        at: now.wall_at(first.stamp.kernel),
        stamp: Some(first.stamp),
    })
}

fn group_message(first: &Finding, all: &[&Finding]) -> String {
    let mut victims: Vec<_> = all
        .iter()
        .take(NAMED)
        .map(|one| format!("{} ({})", one.victim, one.comm))
        .collect();
    if all.len() > NAMED {
        victims.push(format!("and {} more", all.len() - NAMED));
    }
    format!(
        "Killed {} processes together: {}, {}; pids {}",
        all.len(),
        first.limit(),
        first.cause(),
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
    }

    fn message(&self) -> String {
        let uid = self
            .uid
            .map_or_else(String::new, |uid| format!(" of uid {uid}"));
        let memory = match self.resident {
            Some([anon, file, shmem]) => {
                format!("it had anon {anon}, file {file}, shmem {shmem}")
            }
            None => "how much memory it had is not known".to_owned(),
        };
        format!(
            "Killed process {} ({}){uid} in cgroup {}: {}; {memory}; {}",
            self.victim,
            self.comm,
            self.cgroup.as_deref().unwrap_or("not known"),
            self.limit(),
            self.cause(),
        )
    }

    fn limit(&self) -> String {
        let Some(limiting) = &self.limiting else {
            return "no limit is known".to_owned();
        };
        match self.usage {
            Some((usage, max)) => format!("{limiting} was at its limit ({usage} of {max})"),
            None => format!("{limiting} was at its limit"),
        }
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
            path: None,
            limiting: limiting.map(str::to_owned),
            scope: None,
            usage: None,
            global: false,
            resident: None,
            trigger: trigger.map(str::to_owned),
            verdict: Verdict::EventOnly {
                why: Doubt::OwnLimit(LimitOwner::Other),
            },
        }
    }

    fn told(findings: &[Finding]) -> Vec<String> {
        let now = Now {
            boot: BootNanos(1_000),
            wall: UNIX_EPOCH + Duration::from_secs(1),
        };
        let events = events(findings, now).into_iter();
        events.map(|event| event.message).collect()
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
    fn what_is_not_known_is_not_made_up() {
        let expected = "Killed process 7 (p7) in cgroup not known: no limit is known; how much \
                        memory it had is not known; what triggered it is not known";
        assert_eq!(told(&[finding(7, None, None)]), [expected]);
    }
}
