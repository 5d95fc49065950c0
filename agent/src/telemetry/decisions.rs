//! The log line of each decision of a subject.

use std::collections::BTreeMap;
use std::time::SystemTime;

use nodepulse_core::escape::quote;
use nodepulse_core::kube_event::Finding;
use nodepulse_core::reading::oom::Consequence;
use nodepulse_core::reading::{DiskError, DiskReport, DiskRole, Resource, Signal, SlowWindow};
use nodepulse_core::record::{DiskAction, Side};
use nodepulse_core::subjects::disks::{ComputedLimit, UnwatchReason};
use nodepulse_core::subjects::{Decision, DiskDecision, RuntimeDecision, StallDecision};
use nodepulse_core::units::DeviceNumber;
use tracing::{debug, info, warn};

use super::certificate;

/// `now` is the wall clock.
pub fn log(decision: Decision, now: SystemTime) {
    match decision {
        Decision::PidLevelCrossed { side, ids, tasks } => {
            let over = side == Side::Over;
            debug!(ids, tasks, over, "pid level crossed");
        }
        Decision::Disk(decision) => log_disk(decision),
        Decision::Runtime(decision) => log_runtime(&decision),
        Decision::Stall(StallDecision::Reported(stall)) => {
            debug!(
                of = stall.of.as_str(),
                kind = stall.kind.as_str(),
                "stall reported"
            );
        }
        Decision::Stall(StallDecision::Withheld(why)) => info!(
            reason = why.as_str(),
            "memory stall is not a condition of the node"
        ),
        Decision::Stall(StallDecision::Changed { change, sample }) => info!(
            of = change.stall.of.as_str(),
            kind = change.stall.kind.as_str(),
            from = %change.from,
            to = %change.to,
            some_avg10 = sample.map(|sample| sample.avg10),
            some_avg60 = sample.map(|sample| sample.avg60),
            "stall pressure changed"
        ),
        Decision::KillFound(finding) => log_kill(&finding),
        // Only in metrics and `explain`.
        Decision::PodKilled { .. } | Decision::PodRemoved { .. } | Decision::Sampled(_) => {}
        Decision::Certificate(notice) => certificate::log(&notice, now),
        Decision::PressureChanged(change) => info!(
            resource = change.resource.as_str(),
            from = %change.from,
            to = %change.to,
            reason = change.reason.as_str(),
            "pressure changed"
        ),
        Decision::SourcesLost { before, now } => log_lost_sources(&before, &now),
        Decision::FrequencyOfKills { from, to } => {
            info!(%from, %to, "FrequentOOMKills changed");
        }
        Decision::PodsCgroupFound(cgroup) => info!(cgroup, "pods cgroup found"),
        Decision::ContainersForbidden => {
            warn!(
                "Events contain container ids instead of names; grant this identity the verb get on \
                 pods"
            );
        }
        Decision::LargestOwners { resource, owners } => {
            info!(resource = resource.as_str(), %owners, "largest consumers");
        }
        Decision::NodeEventsBy {
            recorded_by_monitor: true,
        } => info!("node-problem-detector records OOM kills on the Node; nodepulse does not"),
        Decision::NodeEventsBy {
            recorded_by_monitor: false,
        } => info!("nodepulse records OOM kills on the Node; node-problem-detector does not run"),
        Decision::KillLogEnded => warn!(
            "kernel log ended; from now on OOM kills are counted by the cgroups' counters, without \
             their victims"
        ),
        Decision::KillCountersFailed => {
            warn!("the cgroups' counters of OOM kills cannot be read");
        }
        Decision::StateOfOtherBoot => {
            info!("state file ignored: it was written in another boot");
        }
    }
}

type LostSources = BTreeMap<Resource, Vec<Signal>>;

/// Logs one line for each resource whose condition becomes Unknown, or is known again.
fn log_lost_sources(before: &LostSources, now: &LostSources) {
    let names = |signals: &[Signal]| {
        let names: Vec<_> = signals.iter().map(|signal| signal.as_str()).collect();
        names.join(", ")
    };
    for (resource, signals) in now {
        if before.get(resource) != Some(signals) {
            let (resource, signals) = (resource.as_str(), names(signals));
            warn!(resource, %signals, "source lost; the condition is Unknown");
        }
    }
    for resource in before.keys().filter(|resource| !now.contains_key(resource)) {
        info!(resource = resource.as_str(), "source is available again");
    }
}

fn log_runtime(decision: &RuntimeDecision) {
    match decision {
        RuntimeDecision::Answers(of) => info!(
            runtime = %quote(&of.name),
            version = of.version.as_deref(),
            "container runtime answers"
        ),
        RuntimeDecision::Unavailable(why) => warn!(why, "container runtime does not answer"),
        RuntimeDecision::Stale => warn!("container runtime was not ready for 30 s"),
    }
}

fn log_disk(decision: DiskDecision) {
    match decision {
        DiskDecision::Announced(change) => {
            let action = match change.action {
                DiskAction::Added => "added",
                DiskAction::Removed => "removed",
                DiskAction::Changed => "changed",
            };
            info!(disk = %quote(&change.name), device = %change.device, action, "disk announced");
        }
        DiskDecision::Reported { device, report } => log_disk_report(device, report),
        DiskDecision::Watched(disk) => {
            let slow_us = disk.slow.as_micros();
            info!(disk = %quote(&disk.name), slow_us, "disk watched");
        }
        DiskDecision::TooMany { name } => {
            warn!(disk = %quote(&name), "too many disks; disk not watched");
        }
        DiskDecision::LimitComputed(computed) => {
            let ComputedLimit {
                name,
                limit,
                fixed,
                percentile,
                requests,
            } = computed;
            info!(
                disk = %quote(&name),
                limit_ms = limit.as_millis(),
                least_ms = fixed.as_millis(),
                p99_9_us = percentile.map(|usual| usual.as_micros()),
                requests,
                "limit of a disk computed from its latency of the last day"
            );
        }
        DiskDecision::StatisticsOff { name } => warn!(
            disk = %quote(&name),
            "I/O statistics are off, so the latency of this disk is unknown; write 1 to \
             /sys/block/<disk>/queue/iostats, which takes effect within a minute"
        ),
        DiskDecision::Unwatched {
            device,
            name,
            reason,
        } => {
            let reason = match reason {
                UnwatchReason::Removed => "removed",
                UnwatchReason::StatisticsOff => "I/O statistics are off",
            };
            info!(%device, disk = %quote(&name), reason, "disk no longer watched");
        }
        DiskDecision::HealthChanged {
            device,
            name,
            role,
            health,
            details,
        } => {
            let role = match role {
                DiskRole::Node => "node",
                DiskRole::Volume => "volume",
            };
            let health = health.as_str();
            info!(%device, disk = %quote(&name), role, health, %details, "disk health changed");
        }
        DiskDecision::ReadOnly {
            filesystem,
            read_only,
        } => {
            let filesystem = filesystem.as_str();
            info!(filesystem, read_only, "file system changed");
        }
        DiskDecision::FilesystemErrors { filesystem, failed } => {
            info!(%filesystem, failed, "errors of a file system changed");
        }
    }
}

fn log_kill(finding: &Finding) {
    let (effect, reason) = finding.verdict.as_strs();
    debug!(
        victim = finding.victim.0,
        comm = finding.comm,
        cgroup = finding.cgroup.as_deref(),
        limiting = finding.limiting(),
        consequence = finding.consequence.map(Consequence::as_str),
        effect,
        reason,
        "process OOM-killed"
    );
}

fn log_disk_report(device: DeviceNumber, report: DiskReport) {
    match report {
        DiskReport::SlowWindow(window) => {
            let SlowWindow {
                judged,
                slow,
                length,
                longest,
            } = window;
            let (length_ms, max_ms) = (length.as_millis(), longest.as_millis());
            debug!(%device, judged, slow, length_ms, max_ms, "slow window of a disk");
        }
        DiskReport::Error(DiskError { write, errno }) => {
            let operation = if write { "write" } else { "read" };
            info!(%device, operation, errno, "disk error reported");
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use nodepulse_core::clock::BootNanos;
    use nodepulse_core::pressure::Pressure;
    use nodepulse_core::pressure::change::{PressureChange, PressureReason};
    use nodepulse_core::pressure::disks::Health;
    use nodepulse_core::pressure::stall::{StallChange, StallSample};
    use nodepulse_core::reading::{Stall, StallKind, StallOf};
    use nodepulse_core::record::DiskChange;
    use tracing::subscriber::with_default;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(decision: Decision) -> String {
        logged_by(|| log(decision, SystemTime::UNIX_EPOCH))
    }

    /// Returns what is logged at the levels that are on by default.
    pub fn logged_by(log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .with_target(false)
            .without_time()
            .finish();
        with_default(subscriber, log);
        let text = lines.0.lock().unwrap().clone();
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn a_decision_is_one_line_of_plain_fields() {
        let device = DeviceNumber { major: 8, minor: 0 };
        let disk = |report| Decision::Disk(DiskDecision::Reported { device, report });
        let pressed = Pressure::UnderPressure {
            last_exceeded: BootNanos(7),
        };
        let window = SlowWindow {
            judged: 65,
            slow: 61,
            length: Duration::from_secs(1),
            longest: Duration::from_millis(120),
        };
        let error = DiskError {
            write: true,
            errno: 5,
        };
        let health = DiskDecision::HealthChanged {
            device,
            name: "sd\na".to_owned(),
            role: DiskRole::Node,
            health: Health::Slow,
            details: "61 of 65".to_owned(),
        };
        #[rustfmt::skip]
        let rows = [
            (disk(DiskReport::SlowWindow(window)), ""),
            (disk(DiskReport::Error(error)), "INFO disk error reported device=8:0 operation=\"write\" errno=5"),
            (
                Decision::Disk(health),
                "INFO disk health changed device=8:0 disk=sd\\na role=\"node\" health=\"slow\" \
                 details=61 of 65",
            ),
            (
                Decision::Disk(DiskDecision::Announced(DiskChange {
                    action: DiskAction::Removed,
                    device,
                    name: "sd\n\u{202e}a".to_owned(),
                })),
                "INFO disk announced disk=\"sd\\n\\u{202e}a\" device=8:0 action=\"removed\"",
            ),
            (
                Decision::PressureChanged(PressureChange {
                    resource: Resource::DiskIo,
                    from: Pressure::Normal,
                    to: pressed,
                    reason: PressureReason::SlowDisk,
                }),
                "INFO pressure changed resource=\"diskIO\" from=False to=True reason=\"SlowDisk\"",
            ),
            (
                Decision::Stall(StallDecision::Changed {
                    change: StallChange {
                        stall: Stall::new(StallOf::Pods, StallKind::Memory),
                        from: Pressure::Normal,
                        to: pressed,
                    },
                    sample: Some(StallSample {
                        avg10: 41.5,
                        avg60: 12.0,
                    }),
                }),
                "INFO stall pressure changed of=\"pods\" kind=\"memory\" from=False to=True \
                 some_avg10=41.5 some_avg60=12.0",
            ),
            (Decision::LargestOwners { resource: Resource::Pids, owners: "most tasks: pod a/b (64)".to_owned() },
                "INFO largest consumers resource=\"pids\" owners=most tasks: pod a/b (64)"),
            (
                Decision::SourcesLost {
                    before: BTreeMap::new(),
                    now: BTreeMap::from([(Resource::Memory, vec![Signal::MemoryAvailable])]),
                },
                "WARN source lost; the condition is Unknown resource=\"memory\" \
                 signals=memory.available",
            ),
            (Decision::Sampled(Vec::new()), ""),
        ];
        for (decision, expected) in rows {
            let kind = format!("{decision:?}");
            assert_eq!(logged(decision).trim(), expected, "{kind}");
        }
    }
}
