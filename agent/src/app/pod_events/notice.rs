//! What is told of pods, in words: of the Pod where it is known, of the Node where it is not.

use std::time::SystemTime;

use crate::api::recorder::{EventInput, Involved, ReportedKills};
use crate::app::kills::{Finding, NodeEvents, finding};
use crate::clock::Stamp;
use crate::escape::escape;
use crate::node_status::transition::EventType;
use crate::pods::{Container, Place, Pod, PodId};

/// As much of a container's id as runtimes show.
const SHORT_ID: usize = 12;

/// Which pod a cgroup is of, and which of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::app) struct About {
    pub(in crate::app) pod: PodId,
    /// The container's id.
    pub(in crate::app) container: Option<String>,
}

impl About {
    /// `None`: no pod.
    pub(in crate::app) fn of(place: Place) -> Option<Self> {
        match place {
            Place::Pod { pod } => Some(Self {
                pod,
                container: None,
            }),
            Place::Container { pod, container } => Some(Self { pod, container }),
            Place::Pods | Place::Other => None,
        }
    }
}

/// What a container is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::app) enum Called {
    Name(Container),
    /// The name is not known.
    Id(String),
}

/// Something to be told.
#[derive(Debug, Clone)]
pub(in crate::app) struct Notice {
    pub(in crate::app) about: Option<About>,
    pub(in crate::app) at: SystemTime,
    /// Its way so far, where the kernel saw it.
    pub(in crate::app) stamp: Option<Stamp>,
    /// The kills that it reports, by the kernel's counters that they are in. The first Event about it
    /// takes them along.
    pub(in crate::app) kills: ReportedKills,
    pub(in crate::app) what: What,
}

/// What happened.
#[derive(Debug, Clone)]
pub(in crate::app) enum What {
    /// Kills of one cause; at least one.
    Kills(Vec<Finding>),
    /// Kills that were only counted.
    Counted(Counted),
    /// Forks that a limit refused.
    Refused(Refused),
}

/// Kills whose victims nobody knows.
#[derive(Debug, Clone)]
pub(in crate::app) struct Counted {
    /// Path of the cgroup that counted them.
    pub(in crate::app) cgroup: String,
    pub(in crate::app) kills: u64,
    /// Those of them that an Event was recorded for before, which was dropped.
    pub(in crate::app) again: u64,
    pub(in crate::app) when: When,
}

#[derive(Debug, Clone, Copy)]
pub(in crate::app) enum When {
    /// Since the last look.
    Now,
    /// Before the agent was started; or the last one could not report them.
    WhileDown,
}

/// Forks refused.
#[derive(Debug, Clone)]
pub(in crate::app) struct Refused {
    /// Path of the cgroup that counted them.
    pub(in crate::app) cgroup: String,
    pub(in crate::app) forks: u64,
    /// The cgroup whose limit it was, what that is for, and the limit.
    pub(in crate::app) limit: Option<(String, Place, u64)>,
}

/// Text for a person, whatever it is told of.
struct Words {
    reason: &'static str,
    message: String,
}

impl Notice {
    /// What of it is the node's own business, if anything: kills for want of the node's memory, and
    /// those outside any pod.
    pub(in crate::app) fn of_node(&self, node_events: NodeEvents) -> Option<EventInput> {
        let What::Kills(kills) = &self.what else {
            return self.about.is_none().then(|| self.instead());
        };
        let first = kills.first()?;
        if !first.global && self.about.is_some() {
            return None;
        }
        let (reason, message) = finding::of_node(kills, node_events)?;
        Some(self.event(Involved::Node, Words { reason, message }))
    }

    /// Of the Node, since its pod is not known.
    pub(in crate::app) fn instead(&self) -> EventInput {
        let whose = self.about.as_ref().map_or_else(String::new, |about| {
            format!(" of pod {}", about.pod.as_str())
        });
        let words = match &self.what {
            What::Kills(kills) => Words {
                reason: "OOMKilled",
                message: finding::in_cgroup(kills, &whose),
            },
            What::Counted(counted) => {
                let cgroup = escape(&counted.cgroup);
                counted.words(&format!(" in cgroup {cgroup}"))
            }
            What::Refused(refused) => {
                let cgroup = escape(&refused.cgroup);
                let limit = refused.limit_of_cgroup();
                refused.words(&format!(" in cgroup {cgroup}{whose}"), &limit)
            }
        };
        self.event(Involved::Node, words)
    }

    /// Of the Pod.
    pub(in crate::app) fn of_pod(&self, pod: &Pod, container: Option<&Called>) -> EventInput {
        let (whereabouts, field_path) = match container {
            None => (String::new(), None),
            Some(Called::Name(container)) => (
                format!(" in container {}", container.name),
                Some(container.field_path().into()),
            ),
            Some(Called::Id(id)) => {
                let short = id.get(..SHORT_ID).unwrap_or(id);
                (format!(" in container {short}"), None)
            }
        };
        let words = match &self.what {
            What::Kills(kills) => Words {
                reason: "OOMKilled",
                message: finding::in_pod(kills, &whereabouts),
            },
            What::Counted(counted) => counted.words(&whereabouts),
            What::Refused(refused) => refused.words(&whereabouts, &refused.limit_of_pod()),
        };
        let object = Involved::Pod {
            namespace: pod.namespace.to_string(),
            name: pod.name.to_string(),
            uid: pod.uid.to_string(),
            field_path,
        };
        self.event(object, words)
    }

    /// Processes that were killed, and not counted in the metrics yet.
    pub(in crate::app) fn new_kills(&self) -> u64 {
        match &self.what {
            What::Kills(kills) => u64::try_from(kills.len()).unwrap_or(u64::MAX),
            What::Counted(counted) => counted.kills.saturating_sub(counted.again),
            What::Refused(_) => 0,
        }
    }

    fn event(&self, object: Involved, words: Words) -> EventInput {
        let kills = match &self.what {
            What::Kills(kills) => u64::try_from(kills.len()).unwrap_or(u64::MAX),
            What::Counted(counted) => counted.kills,
            What::Refused(_) => 1,
        };
        let of = u32::try_from(kills.max(1)).unwrap_or(u32::MAX);
        EventInput {
            object,
            type_: EventType::Warning,
            reason: words.reason.to_owned(),
            message: words.message,
            of,
            times: match &self.what {
                What::Counted(_) => of,
                What::Kills(_) | What::Refused(_) => 1,
            },
            kills: self.kills.clone(),
            at: self.at,
            stamp: self.stamp,
        }
    }
}

impl Counted {
    /// Without the number, which is the Event's `count`: so more of the same raise it.
    fn words(&self, whereabouts: &str) -> Words {
        let when = match self.when {
            When::Now => "",
            When::WhileDown => " while the agent was down or could not report it",
        };
        Words {
            reason: "OOMKilled",
            message: format!(
                "OOM-killed processes{whereabouts}{when}: victims not known, the count of this Event is \
                 their number"
            ),
        }
    }
}

impl Refused {
    fn words(&self, whereabouts: &str, limit: &str) -> Words {
        let forks = self.forks;
        let what = if forks == 1 { "fork" } else { "forks" };
        Words {
            reason: "PIDLimitReached",
            message: format!("{forks} {what} refused{whereabouts}: {limit}"),
        }
    }

    /// For whoever knows cgroups by their paths.
    pub(in crate::app) fn limit_of_cgroup(&self) -> String {
        match &self.limit {
            Some((at, _, max)) if *at == self.cgroup => format!("its limit is {max} tasks"),
            Some((at, _, max)) => format!("the limit of {} is {max} tasks", escape(at)),
            None => "its limit is not known".to_owned(),
        }
    }

    fn limit_of_pod(&self) -> String {
        let Some((at, place, max)) = &self.limit else {
            return "the limit is not known".to_owned();
        };
        match place {
            Place::Container { .. } => format!("the container's limit is {max} tasks"),
            Place::Pod { .. } => format!("the pod's limit is {max} tasks"),
            Place::Pods => format!("the limit of all pods on the node is {max} tasks"),
            Place::Other => format!("the limit of {} is {max} tasks", escape(at)),
        }
    }
}
