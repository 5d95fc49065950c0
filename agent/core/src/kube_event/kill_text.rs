//! The wording of Events about OOM kills: one sentence for each fact, the most important first. A
//! reader is to learn what failed, why, and what caused it, without access to the node.

use std::cmp::Reverse;
use std::fmt::Display;

use super::{
    ContainerLabel, Finding, KillDetails, Kills, Limiting, NodeEvents, VictimOwner, Words,
};
use crate::escape::quoted;
use crate::incident::{JsonIncident, JsonKill, JsonPod};
use crate::pods::{Container, ContainerList, Owner};
use crate::pressure::oom::{Doubt, KillVerdict};
use crate::reading::oom::{Consequence, LimitOwner, OomScope};
use crate::units::Bytes;

/// The number of victims that a message names.
const NAMED: usize = 5;

/// Reason of Events about kills in pods.
pub(super) const IN_POD: &str = "OOMKilled";

/// The advice if the limit of all pods was reached.
const PODS_ARE_SHORT: &str = "Raise the requests of pods that use more memory than they request, or limit \
                              them.";
/// The advice if the node was out of memory.
const NODE_IS_SHORT: &str = "Raise the requests of pods that use more memory than they request, limit them, or \
                             reserve more memory for the system.";

/// The cause if no limit is known.
const NO_LIMIT: &str = "memory ran out at a limit that is not known";

/// Returns reason and message of the Event on the Node; `None` if another program records it.
pub(super) fn words_on_node(
    kills: &Kills,
    place: Option<&str>,
    details: Option<&KillDetails>,
    node_events: NodeEvents,
) -> Option<Words> {
    let unsure = |first: &Finding| !first.is_global() && first.owner == VictimOwner::UnknownPod;
    let reason = match node_events {
        _ if kills.first().is_some_and(unsure) => IN_POD,
        NodeEvents::Off => return None,
        NodeEvents::Companion => "OOMKilling",
        NodeEvents::Kubelet => "SystemOOM",
    };
    let message = match (node_events, kills.first()) {
        (NodeEvents::Kubelet, Some(first)) if first.is_global() => {
            system_oom(&first.comm, first.victim)
        }
        (NodeEvents::Kubelet, _) => on_node(kills, place, None),
        (NodeEvents::Companion | NodeEvents::Off, _) => on_node(kills, place, details),
    };
    Some(Words { reason, message })
}

/// Like [`words_on_node`], for kills from the history: global ones, and those outside of pods.
pub(super) fn again_on_node(
    json: &JsonIncident,
    kill: &JsonKill,
    node_events: NodeEvents,
) -> Option<Words> {
    let is_global = kill.is_global();
    let message = || match &json.object.pod {
        Some(JsonPod {
            namespace: Some(namespace),
            name: Some(name),
            ..
        }) => format!("Pod {namespace}/{name}: {}", json.message),
        _ => json.message.clone(),
    };
    let (reason, message) = match (node_events, kill.victims.first()) {
        // In a pod, but it is not known in which.
        _ if !is_global && json.reason == IN_POD => (IN_POD, message()),
        (NodeEvents::Off, _) => return None,
        (NodeEvents::Companion, _) => ("OOMKilling", message()),
        (NodeEvents::Kubelet, Some(first)) if is_global => {
            ("SystemOOM", system_oom(&first.name, first.pid))
        }
        (NodeEvents::Kubelet, _) => ("SystemOOM", message()),
    };
    Some(Words { reason, message })
}

/// A kubelet, too, names the first process of a group.
fn system_oom(comm: &str, pid: impl Display) -> String {
    format!("System OOM encountered, victim process: {comm}, pid: {pid}")
}

/// Words the message for readers of the Node's Events. `place` is the pod in which the kills were;
/// without it, the systemd unit is named, or else the cgroup.
pub(super) fn on_node(kills: &Kills, place: Option<&str>, details: Option<&KillDetails>) -> String {
    let Some(first) = kills.first() else {
        return String::new();
    };
    let cgroup = first.cgroup.as_deref();
    let cgroup = || {
        cgroup.map_or_else(
            || "an unknown cgroup".to_owned(),
            |cgroup| format!("cgroup {}", quoted(cgroup)),
        )
    };
    let unit = of_systemd(first.unit.as_ref());
    let unit = unit.map(ToString::to_string);
    let whose = place.map(str::to_owned).or(unit).unwrap_or_else(cgroup);
    let limit = first.limit(
        |limiting| match (place, of_systemd(limiting.unit.as_ref())) {
            (Some(_), _) => limiting.by_owner(false),
            (None, Some(unit)) if limiting.tied.is_none() => {
                format!("{unit} reached its memory limit{}", limiting.usage())
            }
            (None, _) => limiting.by_path(first.cgroup.as_deref()),
        },
    );
    let killed = match kills.only() {
        Some(one) => format!("Process {} in {whose} was killed", one.process()),
        None => format!("The kernel killed {} together in {whose}", processes(kills)),
    };
    let facts = [
        Some(format!(
            "{killed} because {limit}{}.",
            consequence(kills, None)
        )),
        first.advice_on_node(kills, details),
        details.map(|details| details.sentences(place.is_some())),
        Some(victims(kills)),
        Some(request(kills)),
    ];
    sentences(facts)
}

/// Words the message for readers that identify pods. `container` is the name of the container in
/// which the kills were, if in one, and its specification.
pub(super) fn in_pod(
    kills: &Kills,
    container: Option<(&str, Option<&Container>)>,
    details: Option<&KillDetails>,
) -> String {
    let Some(first) = kills.first() else {
        return String::new();
    };
    let (called, specified) = container.unzip();
    let specified = specified.flatten();
    let whole = !matches!(kills.consequence(), None | Some(Consequence::ChildProcess));
    let killed = match (called, kills.only()) {
        (Some(called), Some(_)) if whole => format!("Container {called} was killed"),
        (Some(called), None) if whole => {
            format!(
                "Container {called} was killed ({} together)",
                processes(kills)
            )
        }
        (Some(called), Some(_)) => format!("A process in container {called} was killed"),
        (None, Some(_)) => "A process in the pod was killed".to_owned(),
        (called, None) => {
            let called =
                called.map_or("the pod".to_owned(), |called| format!("container {called}"));
            format!(
                "The kernel killed {} together in {called}",
                processes(kills)
            )
        }
    };
    let limit = first.limit(|limiting| limiting.by_owner(whole && called.is_some()));
    let facts = [
        Some(format!(
            "{killed} because {limit}{}.",
            consequence(kills, specified)
        )),
        first.advice(kills, specified, details),
        details.map(|details| details.sentences(true)),
        Some(victims(kills)),
        Some(request(kills)),
    ];
    sentences(facts)
}

/// Returns an owner that people know by the name that systemd gives it.
fn of_systemd(owner: Option<&Owner>) -> Option<&Owner> {
    owner.filter(|owner| owner.systemd_name().is_some())
}

fn sentences<const N: usize>(facts: [Option<String>; N]) -> String {
    let facts = facts.into_iter().flatten().filter(|fact| !fact.is_empty());
    facts.collect::<Vec<_>>().join(" ")
}

fn consequence(kills: &Kills, container: Option<&Container>) -> String {
    let list = container.and_then(|container| container.list);
    let restarts = container.and_then(|container| container.restarts);
    let ended = match (list, restarts) {
        (Some(ContainerList::Ephemeral), _) => "so the container has ended",
        (_, Some(true)) => "so the container restarts",
        (_, Some(false)) => "and the container does not restart, because of restartPolicy Never",
        (_, None) => {
            "so the container restarts unless its restartPolicy is Never or it is ephemeral"
        }
    };
    match kills.consequence() {
        None => String::new(),
        Some(Consequence::MainProcess) => format!("; its main process died, {ended}"),
        Some(Consequence::ChildProcess) if kills.first().is_some_and(|it| it.unit.is_some()) => {
            "; its main process was not killed, but systemd stops the service unless its OOMPolicy= \
             is continue"
                .to_owned()
        }
        Some(Consequence::ChildProcess) => {
            "; the main process is alive, and the container continues to run".to_owned()
        }
        Some(Consequence::WholeContainer) => {
            format!("; all its processes were killed as a group (memory.oom.group), {ended}")
        }
    }
}

fn victims(kills: &Kills) -> String {
    if let Some(one) = kills.only() {
        return one.described();
    }
    let mut largest: Vec<_> = kills.findings.iter().collect();
    // Victims of the same or of an unknown size remain in the order in which they were killed.
    largest.sort_by_key(|one| Reverse(one.resident_sum()));
    let together = together(kills);
    let mut named: Vec<_> = largest.into_iter().take(NAMED).map(with_size).collect();
    let all = usize::try_from(kills.count()).unwrap_or(usize::MAX);
    let mut which = "";
    if all > named.len() {
        named.push(format!("and {} more", all - named.len()));
        which = if together.is_empty() { "" } else { "largest " };
    }
    format!("The {which}processes were {}{together}.", named.join(", "))
}

fn with_size(one: &Finding) -> String {
    let process = one.process();
    match one.resident_sum() {
        Some(size) => format!("{process} with {size}"),
        None => process,
    }
}

/// Sums up the anonymous memory only, since other pages can be shared between processes.
fn together(kills: &Kills) -> String {
    let known = || kills.findings.iter().filter_map(|one| one.resident);
    let anon: Bytes = known().map(|[anon, _, _]| anon).sum();
    let of = u64::try_from(known().count()).unwrap_or(u64::MAX);
    match of {
        0 => String::new(),
        _ if of < kills.count() => {
            format!("; together they had at least {anon} of anonymous memory")
        }
        _ => format!("; together they had {anon} of anonymous memory"),
    }
}

/// Returns the number of processes. Of a container that is killed as a whole, further ones may be
/// reported later, or not at all if their records are lost.
fn processes(kills: &Kills) -> String {
    let at_least = match kills.consequence() {
        Some(Consequence::WholeContainer) => "at least ",
        Some(Consequence::MainProcess | Consequence::ChildProcess) | None => "",
    };
    format!("{at_least}{} processes", kills.count())
}

fn request(kills: &Kills) -> String {
    let itself = |one: &Finding| format!("process {}", one.process());
    let first = kills.first();
    let trigger = first.and_then(|first| first.trigger.as_ref());
    let container = first.and_then(|first| first.trigger_container.as_ref());
    let container = container.map_or_else(String::new, ContainerLabel::whereabouts);
    match (trigger, kills.only()) {
        (Some(trigger), Some(one)) if *trigger == itself(one) => {
            "The process triggered the kill itself.".to_owned()
        }
        (Some(trigger), _) => format!("More memory was requested by {trigger}{container}."),
        (None, _) => "Which process requested more memory is not known.".to_owned(),
    }
}

/// Leaves out `.0` of a whole number of a unit, as limits are written.
fn size(bytes: Bytes) -> String {
    let text = bytes.to_string();
    let whole = [40, 30, 20, 10]
        .into_iter()
        .find(|bits| bytes.get() >> bits > 0);
    match whole {
        Some(bits) if bytes.get().is_multiple_of(1 << bits) => text.replace(".0", ""),
        _ => text,
    }
}

impl Finding {
    /// Returns `4321 (java)`, for example.
    fn process(&self) -> String {
        format!("{} ({})", self.victim, quoted(&self.comm))
    }

    fn described(&self) -> String {
        let uid = match (self.uid, self.uid_in_namespace) {
            (Some(host), Some(uid)) if uid != host => format!(" of UID {uid} ({host} on the host)"),
            (Some(uid), _) => format!(" of UID {uid}"),
            (None, _) => String::new(),
        };
        let memory = match self.resident {
            Some([anon, file, shmem]) => format!(
                " had {anon} of anonymous memory, {file} of file cache and {shmem} of shared memory"
            ),
            None => ": how much memory it had is not known".to_owned(),
        };
        format!("Process {}{uid}{memory}.", self.process())
    }

    /// Returns advice. If the limit is not the pod's, the text includes that.
    fn advice(
        &self,
        kills: &Kills,
        container: Option<&Container>,
        details: Option<&KillDetails>,
    ) -> Option<String> {
        let limits = container.and_then(|container| container.limits);
        if let Some(advice) = self.advice_on_node(kills, details) {
            return Some(format!(
                "The limit that was reached is not the pod's own. {advice}"
            ));
        }
        let limiting = self.scope.as_ref().memcg()?;
        let tied = limiting.tied.as_ref().map(|(owner, _)| *owner);
        let of_pod = limits.is_some_and(|limits| limits.pod);
        let only_pod = limits.is_some_and(|limits| limits.pod && !limits.container);
        let (what, limit) = match (limiting.owner, tied) {
            (LimitOwner::Container, None | Some(LimitOwner::Container)) if !only_pod => {
                ("container", "its limit (resources.limits.memory)")
            }
            (LimitOwner::Container | LimitOwner::Pod, _) if of_pod => {
                ("pod", "its limit (spec.resources.limits.memory)")
            }
            (LimitOwner::Container | LimitOwner::Pod, _) => (
                "pod",
                "the limits of its containers (resources.limits.memory)",
            ),
            (LimitOwner::PodsCgroup | LimitOwner::Other, _) => return None,
        };
        Some(format!("If the {what} needs more memory, raise {limit}."))
    }

    /// Returns advice if all pods together, a unit outside of pods, or the node were short of
    /// memory. On the node, it depends on the largest user of memory: until that was read, it is
    /// the victim, if that is outside of pods, because the kernel prefers to kill in pods.
    fn advice_on_node(&self, kills: &Kills, details: Option<&KillDetails>) -> Option<String> {
        if self.is_global() {
            let is_short = matches!(self.verdict, KillVerdict::NodePressure { .. });
            let largest = match details.filter(|details| details.memory.first().is_some()) {
                Some(details) => details.advice_on_node(&kills.findings),
                None => self.unit.as_ref().and_then(Owner::memory_advice),
            };
            return is_short.then(|| largest.unwrap_or_else(|| NODE_IS_SHORT.to_owned()));
        }
        let limiting = self.scope.as_ref().memcg()?;
        match (limiting.owner, &limiting.tied) {
            (LimitOwner::PodsCgroup, _) => Some(PODS_ARE_SHORT.to_owned()),
            (LimitOwner::Other, None) => limiting.unit.as_ref().and_then(Owner::limit_advice),
            (LimitOwner::Other, Some(_)) | (LimitOwner::Container | LimitOwner::Pod, _) => None,
        }
    }

    /// Returns the cause as a part of a sentence.
    fn limit(&self, of: impl Fn(&Limiting) -> String) -> String {
        if self.is_global() {
            return self.no_limit().to_owned();
        }
        match &self.scope {
            OomScope::Unknown | OomScope::Global => NO_LIMIT.to_owned(),
            OomScope::Memcg(limiting) => of(limiting),
        }
    }

    /// Returns the cause if no cgroup was at its limit, as far as is known.
    const fn no_limit(&self) -> &'static str {
        match self.verdict {
            KillVerdict::NodePressure { .. } => "the node was out of memory",
            KillVerdict::EventOnly { why } => match why {
                Doubt::Sysrq => "an administrator requested an OOM kill (SysRq)",
                Doubt::Cpuset => "the NUMA memory nodes of its cpuset were full",
                Doubt::MemoryPolicy => {
                    "the NUMA memory nodes that its memory policy allows were full"
                }
                Doubt::LocalLimit(_)
                | Doubt::Contradictory
                | Doubt::LimitCounterMoved
                | Doubt::LimitCountersUnknown
                | Doubt::LimitCountersStill
                | Doubt::MemoryLeft
                | Doubt::MemoryUnread => {
                    "memory ran out, but no cgroup is known to have been at its limit"
                }
            },
        }
    }
}

impl Limiting {
    /// `victim` is the path of the victim's cgroup, if the sentence names it.
    fn by_path(&self, victim: Option<&str>) -> String {
        let Some(path) = &self.path else {
            return NO_LIMIT.to_owned();
        };
        if self.tied.is_none() && victim == Some(path) {
            return format!("that cgroup reached its memory limit{}", self.usage());
        }
        let or = self.tied.as_ref();
        let or = or.map_or_else(String::new, |(_, path)| format!(" or {}", quoted(path)));
        let path = quoted(path);
        format!("cgroup {path}{or} reached its memory limit{}", self.usage())
    }

    /// `is_subject` means that the sentence is about the container.
    fn by_owner(&self, is_subject: bool) -> String {
        let tied = self.tied.as_ref().map(|(owner, _)| *owner);
        let subject = match (self.owner, tied.filter(|tied| *tied != self.owner)) {
            (LimitOwner::Other, _) | (_, Some(LimitOwner::Other)) => return self.by_path(None),
            (LimitOwner::Container, Some(LimitOwner::Pod)) => {
                "the container or its pod reached the"
            }
            (LimitOwner::Container, Some(_)) => "the container or all pods together reached the",
            (LimitOwner::Pod, Some(_)) => "the pod or all pods together reached the",
            (LimitOwner::Container, None) if is_subject => "it reached its",
            (LimitOwner::Container, None) => "the container reached its",
            (LimitOwner::Pod, None) => "the pod reached its",
            (LimitOwner::PodsCgroup, _) => "all pods on the node together reached their",
        };
        format!("{subject} memory limit{}", self.usage())
    }

    fn usage(&self) -> String {
        self.usage.map_or_else(String::new, |(usage, max)| {
            format!(" of {} ({} in use)", size(max), size(usage))
        })
    }
}

#[cfg(test)]
mod tests;
