//! Advice about what happened to a pod.

use nodepulse_core::kill_annotation::MemoryUser;

use super::Story;
use crate::age;
use crate::health::AgentState;
use crate::kills::{KillEvent, largest, limit};
use crate::objects::ContainerStatus;
use crate::screen::safe;

/// Returns at least one sentence.
pub fn of(story: &Story) -> Vec<String> {
    let mut all = Vec::new();
    let kills: Vec<KillEvent> = story.events.iter().filter_map(KillEvent::of).collect();
    for kill in newest_of_each(&kills) {
        all.extend(of_kill(story, kill));
    }
    for event in &story.events {
        let advice = event.reason.as_deref().and_then(of_reason);
        all.extend(advice.map(str::to_owned));
    }
    all.extend(of_containers(story, &kills));
    all.extend(of_node(story));
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|advice| seen.insert(advice.clone()));
    if all.is_empty() {
        all.push("nothing: nodepulse has not reported any problem of this pod".to_owned());
    }
    all
}

/// Returns the newest of the kills in one container at one limit with the same consequence.
fn newest_of_each(kills: &[KillEvent]) -> Vec<&KillEvent> {
    let mut newest: Vec<&KillEvent> = Vec::new();
    for kill in kills.iter().rev() {
        let is_known = |other: &&KillEvent| {
            let (a, b) = (&kill.kill, &other.kill);
            a.container == b.container && a.limit == b.limit && a.consequence == b.consequence
        };
        if !newest.iter().any(is_known) {
            newest.push(kill);
        }
    }
    newest
}

fn of_kill(story: &Story, event: &KillEvent) -> Vec<String> {
    let kill = &event.kill;
    let container = kill.container.as_deref();
    let container = container.map_or("a container".to_owned(), |name| {
        format!("container {}", safe(name))
    });
    let victim = kill.victim_bytes.map(|bytes| MemoryUser {
        name: kill.victim.clone(),
        bytes,
    });
    let largest = match largest(&event.users, victim.as_ref()) {
        dash if dash == "-" => String::new(),
        largest => format!(" (largest: {largest})"),
    };
    let what = limit(kill.limit.as_deref(), kill.limit_bytes);
    let mut advice = vec![match kill.limit.as_deref() {
        Some("container" | "pod") => format!(
            "{container} reached its memory limit ({what}): raise resources.limits.memory, or find out \
             what grows{largest}"
        ),
        Some("pods") => format!(
            "all pods of the node together used more memory than is allocatable: raise the requests of \
             pods that use more than they request, or limit them{largest}"
        ),
        Some("node") => format!(
            "the node was out of memory, which is not a limit of this pod: raise requests, or reserve more \
             memory for the system{largest}"
        ),
        _ => format!("processes in {container} were OOM-killed; the limit is not known{largest}"),
    }];
    if kill.consequence.as_deref() == Some("child_process") {
        advice.push(if has_ended(story, kill.container.as_deref()) {
            format!(
                "{container} continued to run without the process that was killed, and ended later: the \
                 reason OOMKilled in its status can be that kill, whatever its exit code is"
            )
        } else {
            format!(
                "{container} continued to run without the process that was killed, and Kubernetes \
                 restarts nothing: check that it still works"
            )
        });
    }
    advice
}

/// Returns `true` if the container has ended and was not restarted.
fn has_ended(story: &Story, container: Option<&str>) -> bool {
    let is_ended = |status: &ContainerStatus| {
        Some(&*status.name) == container && status.state.terminated.is_some()
    };
    containers(story).any(is_ended)
}

/// Returns the init containers and the containers of the pod.
fn containers(story: &Story) -> impl Iterator<Item = &ContainerStatus> {
    let status = story.pod.iter().map(|pod| &pod.status);
    status.flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten())
    })
}

fn of_reason(reason: &str) -> Option<&'static str> {
    Some(match reason {
        "PIDLimitReached" => {
            "forks fail at a PID limit: search for a process or thread leak, or raise the limit \
             (podPidsLimit of the kubelet)"
        }
        "SlowVolume" => "a disk below a volume is slow: compare with other pods on this storage",
        "VolumeErrors" => {
            "a disk below a volume returns errors: check the storage, and back up the data"
        }
        _ => return None,
    })
}

fn of_containers(story: &Story, kills: &[KillEvent]) -> Vec<String> {
    let is_reported = |name: &str| {
        let of_kills = kills.iter().map(|kill| kill.kill.container.as_deref());
        // The container of an Event without annotations is not known.
        of_kills
            .into_iter()
            .any(|of| of.is_none_or(|of| of == name))
    };
    containers(story)
        .filter_map(|status| of_container(story, status, is_reported(&status.name)))
        .collect()
}

fn of_container(story: &Story, status: &ContainerStatus, is_reported: bool) -> Option<String> {
    /// Seconds for which an API server keeps Events by default.
    const KEPT: u64 = 60 * 60;

    let now = status.state.terminated.as_ref();
    let ended = now.or(status.last_state.terminated.as_ref())?;
    let previous = if now.is_none() { " --previous" } else { "" };
    let name = safe(&status.name);
    match ended.reason.as_deref() {
        Some("OOMKilled") if is_reported => None,
        Some("OOMKilled") => Some(format!(
            "the kubelet reports that container {name} was OOM-killed, and there is no Event of nodepulse \
             about it: the API server keeps Events for an hour by default, and the node needs an agent"
        )),
        // The kill can be the reason for the end.
        _ if ended.exit_code == 0 || is_reported => None,
        _ => {
            let at = age::parse(ended.finished_at.as_deref());
            let is_recent = at.is_some_and(|at| age::seconds(at, story.present.now) < KEPT);
            let why = if is_recent && is_observed(story) {
                ", not because of memory"
            } else {
                ", without an Event about an OOM kill (Events expire, by default after an hour)"
            };
            Some(format!(
                "container {name} ended with exit code {}{why}: kubectl logs {} --namespace {} \
                 --container {name}{previous}",
                ended.exit_code,
                safe(&story.name),
                safe(&story.namespace)
            ))
        }
    }
}

/// Returns `true` if an agent reports on the pod's node.
fn is_observed(story: &Story) -> bool {
    let node = story.node.as_ref().and_then(|node| node.as_ref().ok());
    node.is_some_and(|node| node.agent(story.present) == AgentState::Reports)
}

fn of_node(story: &Story) -> Vec<String> {
    let Some(Ok(node)) = &story.node else {
        return Vec::new();
    };
    let name = safe(&node.name);
    let mut advice: Vec<String> = Vec::new();
    if !node.problems.is_empty() {
        let problems: Vec<_> = node
            .problems
            .iter()
            .map(crate::health::Problem::title)
            .collect();
        advice.push(format!(
            "the node is not well ({}): kubectl nodepulse {name}",
            problems.join(", ")
        ));
    }
    if !is_observed(story) {
        advice.push(format!(
            "no agent reports on node {name}: problems of its pods are not observed"
        ));
    }
    advice
}
