//! A model of a pod: the phases that a kubelet reports, without containers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nodepulse_core::units::duration;
use nodepulse_kube::convert::{entries, parse_time, time};
use serde_json::{Value, json};

use crate::address;

/// The annotation with the time after which the containers exit.
const RUN_FOR: &str = "/metadata/annotations/nodepulse.dev~1simulated-run-for";
/// The annotation with the exit code of the containers.
const EXIT_CODE: &str = "/metadata/annotations/nodepulse.dev~1simulated-exit-code";

const LOADED: &str = "/metadata/labels/nodepulse.dev~1simulated-load";

/// Exit code of a process that SIGTERM ended.
const TERMINATED: u8 = 143;

/// The first and the longest wait before a restart, as in a kubelet. Each is twice the one before.
const BACK_OFF: [Duration; 2] = [Duration::from_secs(10), Duration::from_mins(5)];

/// The part of a pod that many pods share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Shape {
    init: Box<[Init]>,
    pub containers: Box<[Container]>,
    policy: RestartPolicy,
    is_on_host_network: bool,
    run_for: Option<Duration>,
    exit_code: u8,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Container {
    pub name: Box<str>,
    image: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Init {
    container: Container,
    /// Its restart policy is Always: it runs as long as the pod.
    is_sidecar: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

/// What was reported last.
///
/// ```text
/// Bound ─► Init(0) ─► … ─► Running ─► Succeeded or Failed ─► removed, once deleted
///                           │   ▲
///                           ▼   │
///                          BackOff
/// ```
///
/// A deleted pod goes from any of them to Failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Bound,
    /// This init container runs.
    Init(u8),
    Running,
    /// All containers have exited and will restart.
    BackOff,
    Succeeded,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Report(Stage),
    /// Deletes the pod, which has been reported as terminated.
    Remove,
}

#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Until a pod has started, and of each init container.
    pub start: Duration,
    /// Until containers exit that run to completion.
    pub run: Duration,
    /// Until a deleted pod has stopped.
    pub stop: Duration,
}

#[derive(Debug, Clone)]
pub struct Pod {
    pub uid: Uid,
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub node: u32,
    pub shape: Arc<Shape>,
    /// Its place among the pods, which decides its address.
    pub slot: u32,
    pub stage: Stage,
    /// Seconds since the epoch at which the stage was reported.
    pub since: u32,
    pub restarts: u16,
    /// The grace period in seconds, of a deleted pod.
    pub deleted: Option<u32>,
    /// The condition `PodScheduled` exists.
    pub is_scheduled: bool,
}

/// `metadata.uid`, a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uid(pub u128);

impl Uid {
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        let is_uuid = digits.len() == 32 && text.len() == 36;
        let uid = u128::from_str_radix(&digits, 16).ok().filter(|_| is_uuid);
        uid.map(Self)
    }
}

impl std::fmt::Display for Uid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = format!("{:032x}", self.0);
        for place in [20, 16, 12, 8] {
            text.insert(place, '-');
        }
        f.write_str(&text)
    }
}

/// A pod as the API server has it.
#[derive(Debug)]
pub struct StoredPod {
    /// Without the numbers of its node and of its place.
    pub pod: Pod,
    /// `spec.nodeName`.
    pub node: String,
    /// It is of `--pods-per-node`.
    pub is_load: bool,
}

impl StoredPod {
    /// Returns `None` if the pod is bound to no node.
    pub fn of(pod: &Value) -> Option<Self> {
        let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
        let number = |pointer: &str| u32::try_from(pod.pointer(pointer)?.as_u64()?).ok();
        let ended = entries(pod, "/status/initContainerStatuses")
            .filter(|status| status.pointer("/state/terminated").is_some())
            .count();
        let shape = Shape::of(pod);
        let stage = match text("/status/phase") {
            Some("Running") => Stage::Running,
            Some("Succeeded") => Stage::Succeeded,
            Some("Failed") => Stage::Failed,
            _ if ended > 0 => shape.after_init(ended),
            _ => Stage::Bound,
        };
        let started = parse_time(pod.pointer("/status/startTime"));
        let restarts = entries(pod, "/status/containerStatuses")
            .filter_map(|status| status.get("restartCount")?.as_u64())
            .max();
        let is_deleted = text("/metadata/deletionTimestamp").is_some();
        let stored = Pod {
            uid: Uid::parse(text("/metadata/uid")?)?,
            namespace: text("/metadata/namespace")?.into(),
            name: text("/metadata/name")?.into(),
            node: 0,
            slot: 0,
            shape: Arc::new(shape),
            stage,
            since: started.map_or(0, seconds),
            restarts: restarts.map_or(0, |count| u16::try_from(count).unwrap_or(u16::MAX)),
            deleted: is_deleted
                .then(|| number("/metadata/deletionGracePeriodSeconds").unwrap_or_default()),
            is_scheduled: entries(pod, "/status/conditions")
                .any(|condition| condition.get("type") == Some(&json!("PodScheduled"))),
        };
        Some(Self {
            pod: stored,
            node: text("/spec/nodeName")?.to_owned(),
            is_load: text(LOADED).is_some(),
        })
    }
}

/// Returns seconds since the epoch, until 2106.
pub fn seconds(at: SystemTime) -> u32 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH);
    u32::try_from(since.unwrap_or_default().as_secs()).unwrap_or(u32::MAX)
}

pub fn at(seconds: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds.into())
}

impl Shape {
    fn of(pod: &Value) -> Self {
        let text = |value: &Value, key: &str| {
            let text = value.get(key).and_then(Value::as_str);
            text.unwrap_or_default().into()
        };
        let container = |value: &Value| Container {
            name: text(value, "name"),
            image: text(value, "image"),
        };
        let annotation = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
        let policy = pod.pointer("/spec/restartPolicy").and_then(Value::as_str);
        Self {
            init: entries(pod, "/spec/initContainers")
                .map(|value| Init {
                    container: container(value),
                    is_sidecar: value.get("restartPolicy") == Some(&json!("Always")),
                })
                .collect(),
            containers: entries(pod, "/spec/containers").map(container).collect(),
            policy: match policy {
                Some("Never") => RestartPolicy::Never,
                Some("OnFailure") => RestartPolicy::OnFailure,
                _ => RestartPolicy::Always,
            },
            is_on_host_network: pod.pointer("/spec/hostNetwork") == Some(&Value::Bool(true)),
            run_for: annotation(RUN_FOR).and_then(|text| duration::parse(text).ok()),
            exit_code: annotation(EXIT_CODE)
                .and_then(|text| text.parse().ok())
                .unwrap_or_default(),
        }
    }

    /// Returns the stage after the init containers before `first`.
    fn after_init(&self, first: usize) -> Stage {
        let mut left = self.init.iter().enumerate().skip(first);
        let next = left.find(|(_, init)| !init.is_sidecar);
        next.and_then(|(index, _)| u8::try_from(index).ok())
            .map_or(Stage::Running, Stage::Init)
    }

    fn after_exit(&self) -> Stage {
        match (self.policy, self.exit_code) {
            (RestartPolicy::Always, _) | (RestartPolicy::OnFailure, 1..) => Stage::BackOff,
            (RestartPolicy::OnFailure | RestartPolicy::Never, 0) => Stage::Succeeded,
            (RestartPolicy::Never, 1..) => Stage::Failed,
        }
    }
}

impl Stage {
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// Returns the status and the reason of each condition that changes with the stage.
    fn conditions(self) -> [(&'static str, bool, &'static str); 4] {
        let (has_network, initialized, ready) = match self {
            Self::Bound => (
                (false, ""),
                (false, "ContainersNotInitialized"),
                (false, ""),
            ),
            Self::Init(_) => (
                (true, ""),
                (false, "ContainersNotInitialized"),
                (false, "ContainersNotReady"),
            ),
            Self::Running => ((true, ""), (true, ""), (true, "")),
            Self::BackOff => ((true, ""), (true, ""), (false, "ContainersNotReady")),
            Self::Succeeded => ((false, ""), (true, "PodCompleted"), (false, "PodCompleted")),
            Self::Failed => ((false, ""), (true, ""), (false, "PodFailed")),
        };
        [
            ("PodReadyToStartContainers", has_network.0, has_network.1),
            ("Initialized", initialized.0, initialized.1),
            ("Ready", ready.0, ready.1),
            ("ContainersReady", ready.0, ready.1),
        ]
    }
}

impl Pod {
    /// Returns the next step and the time until then; `None` if the pod stays as it is.
    pub fn next(&self, times: &Times) -> Option<(Duration, Step)> {
        if let Some(grace) = self.deleted {
            let grace = Duration::from_secs(grace.into());
            return Some(match self.stage {
                Stage::Succeeded | Stage::Failed => (Duration::ZERO, Step::Remove),
                Stage::Bound => (Duration::ZERO, Step::Report(Stage::Failed)),
                Stage::Init(_) | Stage::Running | Stage::BackOff => {
                    (times.stop.min(grace), Step::Report(Stage::Failed))
                }
            });
        }
        let shape = &self.shape;
        let (wait, stage) = match self.stage {
            Stage::Bound => (times.start, shape.after_init(0)),
            Stage::Init(index) => (times.start, shape.after_init(usize::from(index) + 1)),
            Stage::Running => {
                let ends = shape.policy != RestartPolicy::Always;
                let run_for = shape.run_for.or(ends.then_some(times.run));
                (run_for?, shape.after_exit())
            }
            Stage::BackOff => {
                let doublings = u32::from(self.restarts.min(5));
                let [first, longest] = BACK_OFF;
                let wait = first.saturating_mul(1 << doublings).min(longest);
                (wait, Stage::Running)
            }
            Stage::Succeeded | Stage::Failed => return None,
        };
        Some((wait, Step::Report(stage)))
    }

    /// Returns the patch of `status` with which the pod gets to `to`.
    pub fn patch(&self, to: Stage, now: SystemTime) -> Value {
        let mut status = json!({
            "phase": match to {
                Stage::Bound | Stage::Init(_) => "Pending",
                Stage::Running | Stage::BackOff => "Running",
                Stage::Succeeded => "Succeeded",
                Stage::Failed => "Failed",
            },
            "conditions": self.changed_conditions(to, now),
            "containerStatuses": self.container_statuses(to, now),
        });
        let mut set = |key: &str, value: Value| {
            status
                .as_object_mut()
                .map(|map| map.insert(key.to_owned(), value))
        };
        // Those that had ended stay as they were reported.
        let init = &self.shape.init;
        let is_starting = matches!(self.stage, Stage::Bound | Stage::Init(_));
        if (is_starting && !init.is_empty()) || init.iter().any(|init| init.is_sidecar) {
            set("initContainerStatuses", self.init_statuses(to, now));
        }
        if self.stage == Stage::Bound {
            let host = address::of_node(self.node);
            let address = if self.shape.is_on_host_network {
                host
            } else {
                address::of_pod(self.slot)
            };
            set("startTime", json!(time(now)));
            set("hostIP", json!(host));
            set("hostIPs", json!([{ "ip": host }]));
            set("podIP", json!(address));
            set("podIPs", json!([{ "ip": address }]));
        }
        json!({ "metadata": { "uid": self.uid.to_string() }, "status": status })
    }

    /// Lists that are merged by `type`: what is absent stays.
    fn changed_conditions(&self, to: Stage, now: SystemTime) -> Value {
        let is_first = self.stage == Stage::Bound;
        let scheduled = (is_first && !self.is_scheduled).then_some(("PodScheduled", true, ""));
        let pairs = self.stage.conditions().into_iter().zip(to.conditions());
        let changed = pairs.filter(|(before, after)| is_first || before != after);
        let changed = changed.map(|(_, after)| after).chain(scheduled);
        changed
            .map(|(type_, is_true, reason)| {
                let status = if is_true { "True" } else { "False" };
                // Null removes the reason of before.
                let reason = (!reason.is_empty()).then_some(reason);
                json!({ "type": type_, "status": status, "reason": reason,
                        "lastTransitionTime": time(now) })
            })
            .collect()
    }

    /// The restarts once the pod is at `to`.
    pub fn restarts_at(&self, to: Stage) -> u16 {
        let is_restart = (self.stage, to) == (Stage::BackOff, Stage::Running);
        self.restarts.saturating_add(u16::from(is_restart))
    }

    fn container_statuses(&self, to: Stage, now: SystemTime) -> Value {
        let restarts = self.restarts_at(to);
        let has_run = !matches!(self.stage, Stage::Bound | Stage::Init(_));
        let code = self.deleted.map_or(self.shape.exit_code, |_| TERMINATED);
        let containers = self.shape.containers.iter().enumerate();
        containers
            .map(|(index, container)| {
                let run = |restarts| self.container_id(index, restarts);
                let ended = |code: u8, restarts| exited(code, at(self.since), now, &run(restarts));
                let state = match to {
                    Stage::Bound | Stage::Init(_) => waiting("PodInitializing"),
                    Stage::Running => json!({ "running": { "startedAt": time(now) } }),
                    Stage::BackOff => waiting("CrashLoopBackOff"),
                    Stage::Succeeded => ended(0, restarts),
                    Stage::Failed if has_run => ended(code, restarts),
                    Stage::Failed => json!({ "terminated": {
                        "exitCode": 137, "reason": "ContainerStatusUnknown",
                        "message": "The container could not be located when the pod was terminated",
                    } }),
                };
                let last = match to {
                    Stage::BackOff => ended(self.shape.exit_code, restarts),
                    Stage::Running if restarts > 0 => {
                        ended(self.shape.exit_code, restarts.saturating_sub(1))
                    }
                    _ => json!({}),
                };
                let id = (has_run || to == Stage::Running).then(|| run(restarts));
                let is_running = to == Stage::Running;
                status(
                    container,
                    (state, last),
                    id.as_deref(),
                    (is_running, restarts),
                )
            })
            .collect()
    }

    fn init_statuses(&self, to: Stage, now: SystemTime) -> Value {
        let current = match to {
            Stage::Bound => 0,
            Stage::Init(index) => usize::from(index),
            _ => usize::MAX,
        };
        let init = self.shape.init.iter().enumerate();
        init.map(|(index, init)| {
            let id = self.container_id(index + self.shape.containers.len(), 0);
            let is_over = to.is_terminal() || (index < current && !init.is_sidecar);
            let state = if is_over {
                exited(0, at(self.since), now, &id)
            } else if index <= current {
                json!({ "running": { "startedAt": time(now) } })
            } else {
                waiting("PodInitializing")
            };
            let is_ready = if init.is_sidecar { !is_over } else { is_over };
            let has_run = index <= current;
            let state = (state, json!({}));
            status(
                &init.container,
                state,
                has_run.then_some(&*id),
                (is_ready && has_run, 0),
            )
        })
        .collect()
    }

    /// Returns an identifier in the form of a runtime's: 64 hexadecimal digits.
    fn container_id(&self, index: usize, restarts: u16) -> String {
        format!("simulated://{:032x}{index:016x}{restarts:016x}", self.uid.0)
    }
}

fn waiting(reason: &str) -> Value {
    json!({ "waiting": { "reason": reason } })
}

fn exited(code: u8, from: SystemTime, to: SystemTime, id: &str) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({ "terminated": {
        "exitCode": code, "reason": reason, "containerID": id,
        "startedAt": time(from), "finishedAt": time(to),
    } })
}

/// Returns an entry of `containerStatuses` with its state and its last state.
fn status(
    container: &Container,
    (state, last): (Value, Value),
    id: Option<&str>,
    (is_ready, restarts): (bool, u16),
) -> Value {
    json!({
        "name": container.name,
        "image": container.image,
        "imageID": "",
        "started": state.get("running").is_some(),
        "state": state,
        "lastState": last,
        "ready": is_ready,
        "restartCount": restarts,
        // Null is as good as absent.
        "containerID": id,
    })
}

#[cfg(test)]
mod tests;
