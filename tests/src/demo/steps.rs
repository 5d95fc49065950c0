//! Implements one function for each step: provokes, waits for the API server, checks what it
//! received.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::time::{ClockId, clock_gettime};
use serde_json::Value;

use super::cluster::Cluster;
use super::report::{DemoStep, StepOutcome, StepTimes};
use super::{DemoStage, NODE, PATIENCE, condition};
use crate::pod::Pod;

/// A pod with a memory limit, and a container in it without one.
pub const LIMITED_POD: &str = "kubepods/burstable/pod6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11";
pub const LIMITED_CONTAINER: &str = concat!(
    "kubepods/burstable/pod6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11/",
    "3b5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c"
);
/// A container in a pod without a limit.
pub const FREE_CONTAINER: &str = concat!(
    "kubepods/besteffort/pod9c0f5d8a-11aa-4c3d-8e6f-2d8a4d2e1f4b/",
    "8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c"
);
pub const POD_LIMIT: u64 = 32 << 20;
/// Limit of the pods cgroup, set for the second step.
const PODS_LIMIT: u64 = 48 << 20;
/// Slightly more than the minimum interval between two patches that are sent at once.
const EDGE_SPACING: Duration = Duration::from_millis(1200);
/// The file of the pod that writes as much as the disk can complete.
pub const DATA: &str = "data";
/// The file of the pod that waits.
pub const TABLE: &str = "table";
/// Size in bytes that exceeds both files.
const MORE: u64 = 256 << 20;

/// Provokes a kill at a pod's limit: an Event, and no pressure on the node.
pub async fn container_kill(stage: &mut DemoStage<'_>) -> DemoStep {
    let name = "OOM kill at a pod's limit";
    let kill = DemoKill {
        pod: "limited",
        container: LIMITED_CONTAINER,
        limit: LIMITED_POD,
        words: "in container app was killed because the pod reached its memory limit",
        pressure: "False",
    };
    DemoStep::from(name, kill_in(stage, kill).await)
}

/// Provokes a kill at the limit of all pods: the node itself is short of memory.
pub async fn pods_kill(stage: &mut DemoStage<'_>) -> DemoStep {
    let name = "OOM kill at the limit of all pods";
    let limited = match &stage.cgroups {
        Ok(cgroups) => cgroups
            .limit("kubepods", PODS_LIMIT)
            .context("cannot limit the pods cgroup"),
        Err(_) => Ok(()),
    };
    let outcome = match limited {
        Ok(()) => {
            let kill = DemoKill {
                pod: "free",
                container: FREE_CONTAINER,
                limit: "kubepods",
                words: "in container app was killed because all pods on the node together reached their memory",
                pressure: "True",
            };
            kill_in(stage, kill).await
        }
        Err(err) => Err(err),
    };
    DemoStep::from(name, outcome)
}

/// Returns the pods of the API server.
pub fn pods() -> [Pod; 2] {
    let pod = |name, container: &str| {
        let mut names = container.rsplit('/');
        let id = names.next().unwrap_or_default();
        let uid = names.next().and_then(|name| name.strip_prefix("pod"));
        Pod::new("default", name, uid.unwrap_or_default())
            .on(NODE)
            .container("app", id)
    };
    [
        pod("limited", LIMITED_CONTAINER),
        pod("free", FREE_CONTAINER),
    ]
}

/// A kill, and its expected report.
struct DemoKill {
    pod: &'static str,
    container: &'static str,
    limit: &'static str,
    words: &'static str,
    pressure: &'static str,
}

async fn kill_in(stage: &mut DemoStage<'_>, kill: DemoKill) -> Result<StepOutcome> {
    let DemoKill {
        pod,
        container,
        limit,
        words,
        pressure,
    } = kill;
    let cgroups = match &stage.cgroups {
        Ok(cgroups) => cgroups,
        Err(why) => return Ok(StepOutcome::Skipped(why.clone())),
    };
    let (victim_path, limit_path) = (cgroups.path(container), cgroups.path(limit));
    let dir = cgroups.dir(container);
    let began = stage.begin().await?;
    let provoke = stage.options.provoke.clone();
    let (pid, status) = tokio::task::spawn_blocking(move || provoke.eat_in(&dir, MORE))
        .await?
        .with_context(|| format!("cannot fill the memory of {victim_path}"))?;
    ensure!(
        !status.success(),
        "process {pid} was not killed with {MORE} bytes"
    );
    let rungs = ["oom_victim", "oom_fentry", "oom_exit"];
    if !rungs.iter().any(|rung| stage.attached(rung)) {
        return Ok(StepOutcome::Skipped(
            "no probe for kills is attached".to_owned(),
        ));
    }
    let event = stage.event(pid).await?;
    // A given server does not have these pods: there the Event is on the Node.
    let (pod, words) = match stage.api {
        Cluster::Embedded(_) => (pod, words),
        Cluster::Given(_) => (NODE, limit_path.as_str()),
    };
    let message = event
        .pointer("/message")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    ensure!(
        message.contains(words),
        "unexpected message of the Event: {message}"
    );
    let about = event.pointer("/involvedObject/name");
    ensure!(
        about.and_then(Value::as_str) == Some(pod),
        "unexpected object of the Event: {event}"
    );
    let times = stage
        .times(began, "event reported", "reason", "OOMKilled")
        .await?;
    let memory = stage.settled("MemoryPressure", pressure).await?;
    Ok(StepOutcome::Kill {
        pid,
        cgroup: victim_path,
        limiting: limit_path,
        event: message,
        condition: memory,
        times,
        condition_times: match pressure {
            "True" => Some(
                stage
                    .times(began, "condition reported", "resource", "memory")
                    .await?,
            ),
            _ => None,
        },
    })
}

/// Forks until the threshold on pids is crossed.
pub async fn pids(stage: &mut DemoStage<'_>) -> DemoStep {
    DemoStep::from("forks above the PID threshold", forks(stage).await)
}

async fn forks(stage: &mut DemoStage<'_>) -> Result<StepOutcome> {
    let (provoke, count) = (stage.options.provoke.clone(), stage.pids.crowd);
    let began = stage.begin().await?;
    let crowd = tokio::task::spawn_blocking(move || provoke.crowd(count)).await??;
    let condition = stage.settled("PIDPressure", "True").await?;
    let times = match stage.attached("pid_fork") {
        true => Some(
            stage
                .times(began, "condition reported", "resource", "pids")
                .await?,
        ),
        false => None,
    };
    drop(crowd);
    let what = format!(
        "{count} processes, threshold pid.available<{}",
        stage.pids.available
    );
    Ok(StepOutcome::Condition {
        what,
        condition,
        times,
    })
}

/// Writes as much as the disk can complete in one pod, while the commits of another wait for it.
pub async fn disk(stage: &mut DemoStage<'_>) -> DemoStep {
    DemoStep::from(
        "a saturated disk for which another pod waits",
        slow_io(stage).await,
    )
}

async fn slow_io(stage: &mut DemoStage<'_>) -> Result<StepOutcome> {
    let disk = match &stage.disk {
        Ok(disk) => disk,
        Err(why) => return Ok(StepOutcome::Skipped(why.clone())),
    };
    let cgroups = match &stage.cgroups {
        Ok(cgroups) => cgroups,
        Err(why) => return Ok(StepOutcome::Skipped(why.clone())),
    };
    if !stage.attached("disk_complete") {
        return Ok(StepOutcome::Skipped(
            "the probe for disks is not attached".to_owned(),
        ));
    }
    let mut began = stage.begin().await?;
    let before = stage.api.node().await;
    let before = before.and_then(|node| condition(&node, "DiskIOPressure"));
    let already = before.is_some_and(|before| before["status"] == "True");
    if already {
        // Other I/O exceeded the limit before; its time is reported.
        began = Duration::ZERO;
    }
    let load = |container, load: &[&str]| {
        let dir = cgroups.dir(container);
        stage.options.provoke.load(&dir, load)
    };
    let writers = load(
        LIMITED_CONTAINER,
        &["saturate", &disk.path(DATA), "16", "60"],
    )?;
    let database = load(FREE_CONTAINER, &["database", &disk.path(TABLE), "60"])?;
    let condition = stage.settled("DiskIOPressure", "True").await?;
    drop((writers, database));
    let message = condition
        .pointer("/message")
        .and_then(Value::as_str)
        .unwrap_or_default();
    ensure!(
        message.contains(&disk.name),
        "the condition names another disk: {message}"
    );
    let times = stage.times(began, "condition reported", "resource", "diskIO");
    let times = Some(times.await?);
    let others = if already {
        " (other I/O exceeded it before)"
    } else {
        ""
    };
    let slow = disk.slow.as_micros();
    let what = format!(
        "large writes and small commits on {}, limit {slow} us{others}",
        disk.name
    );
    Ok(StepOutcome::Condition {
        what,
        condition,
        times,
    })
}

impl DemoStage<'_> {
    /// Waits until the next condition that becomes True is sent at once, and returns the time: the
    /// agent sends at most one such patch per second.
    async fn begin(&self) -> Result<Duration> {
        tokio::time::sleep(EDGE_SPACING).await;
        Ok(clock_gettime(ClockId::CLOCK_BOOTTIME)?.into())
    }

    fn attached(&self, program: &str) -> bool {
        let probes = self.agent.probes();
        probes
            .iter()
            .any(|(name, state)| name == program && state.starts_with("attached"))
    }

    /// Waits for the Event that names process `pid`.
    async fn event(&self, pid: u32) -> Result<Value> {
        let naming = format!("rocess {pid} ");
        let named = |event: &Value| {
            let message = event.pointer("/message").and_then(Value::as_str);
            message.is_some_and(|message| message.contains(&naming))
        };
        match self.api.event_where(PATIENCE, named).await {
            Some(event) => Ok(event),
            None => bail!(
                "no Event names process {pid}; log of the agent:\n{}",
                self.agent.log()
            ),
        }
    }

    /// Waits until the Node's condition has `status`.
    async fn settled(&self, type_: &str, status: &str) -> Result<Value> {
        let settled = |node: &Value| {
            let found = condition(node, type_)?;
            let matches = found.pointer("/status").and_then(Value::as_str) == Some(status);
            matches.then_some(found)
        };
        match self.api.node_where(PATIENCE, settled).await {
            Some(found) => Ok(found),
            None => bail!(
                "{type_} is not {status}; log of the agent:\n{}",
                self.agent.log()
            ),
        }
    }

    /// Returns the logged times of the kernel, the read, the request and the answer, from the first
    /// line of its kind about an event after `began`.
    async fn times(
        &self,
        began: Duration,
        line: &str,
        key: &str,
        value: &str,
    ) -> Result<StepTimes> {
        let seen = self.agent.line(PATIENCE, |logged| {
            let fields = logged.get("fields")?;
            let is =
                fields.get("message")?.as_str()? == line && fields.get(key)?.as_str()? == value;
            let at = |key| fields.get(key)?.as_u64().map(Duration::from_nanos);
            let is = is && at("kernel_ns")? >= began;
            is.then_some(StepTimes {
                kernel: at("kernel_ns")?,
                read: at("read_ns")?,
                sent: at("sent_ns")?,
                acked: at("acked_ns")?,
            })
        });
        seen.await
            .with_context(|| format!("the agent logged no times; its log:\n{}", self.agent.log()))
    }
}
