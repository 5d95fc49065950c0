//! What each record from the kernel leads to.

use tokio::sync::mpsc;
use tracing::{info, warn};

use super::App;
use super::counts::Seen;
use super::kills::Around;
use super::observe::Observe;
use crate::clock::{BootNanos, Now, Stamp};
use crate::config::Config;
use crate::kube_event::{Finding, incidents};
use crate::pressure::oom::KillVerdict;
use crate::reading::Resource;
use crate::record::{Received, Record, Side};
use crate::subjects::disks::{DiskReport, Window};
use crate::subjects::{DiskInput, Input, PidInput};
use crate::units::DeviceNumber;

/// Records that are taken together at most, where kills are among them.
const TOGETHER: usize = 256;

impl App {
    /// Takes a record, and after a kill all that is there already: what goes together is told
    /// together, and nothing is waited for. Says whether there were kills.
    pub(super) fn kernel_records(
        &mut self,
        first: Received,
        records: &mut mpsc::Receiver<Received>,
        now: Now,
    ) -> bool {
        let mut killed = Vec::new();
        let mut next = Some(first);
        for _ in 0..TOGETHER {
            let Some(received) = next else {
                break;
            };
            killed.extend(self.kernel_event(received, now));
            next = if killed.is_empty() {
                None
            } else {
                records.try_recv().ok()
            };
        }
        let any = !killed.is_empty();
        killed.retain(|finding| {
            let owner = finding.counter.as_ref();
            self.counts.seen(owner, finding.stamp.kernel) == Seen::New
        });
        self.tell(incidents(killed, now), now);
        any
    }

    fn kernel_event(&mut self, received: Received, now: Now) -> Option<Finding> {
        let read = received.read;
        self.metering.received(&received.record);
        let record = match received.record {
            Ok(record) => record,
            Err(err) => {
                warn!(
                    err = &err as &dyn std::error::Error,
                    "record not understood"
                );
                self.counts.lost();
                return None;
            }
        };
        match record {
            Record::OomKill(kill) => {
                let around = around(&mut self.observe, &self.config, read, now);
                let finding = self.kills.examine(&kill, around);
                return Some(self.killed(finding, now));
            }
            Record::LoggedKill(kill) => {
                let around = around(&mut self.observe, &self.config, read, now);
                let finding = self.kills.examine_logged(&kill, around);
                return Some(self.killed(finding, now));
            }
            Record::LogEnded => self.log_ended(now),
            Record::PidCrossing { at, side, value } => {
                self.sample(now, Some(Stamp { kernel: at, read }));
                let crossed = PidInput::Crossed {
                    side,
                    ids: value,
                    tasks: self.observe.tasks(),
                };
                self.feed(Input::Pid(crossed), now);
            }
            Record::PidTrend { at, value } => {
                self.sample(now, Some(Stamp { kernel: at, read }));
                let counted = PidInput::Counted {
                    ids: value,
                    tasks: self.observe.tasks(),
                };
                self.feed(Input::Pid(counted), now);
            }
            Record::DiskState {
                at,
                device,
                side,
                total,
                slow,
                max,
            } => {
                let window = Window { total, slow, max };
                let report = match side {
                    Side::Over => DiskReport::Slow(window),
                    Side::Under => DiskReport::Healthy(window),
                };
                self.disk_reported(device, report, Stamp { kernel: at, read }, now);
            }
            Record::CgroupsChanged { .. } => self.cgroups_changed(now),
            Record::DiskErrors { at, device } => {
                let stamp = Stamp { kernel: at, read };
                self.disk_reported(device, DiskReport::Errors, stamp, now);
            }
            Record::Disk(change) => self.feed(Input::Disk(DiskInput::Announced(change)), now),
            Record::DisksMissed => self.feed(Input::Disk(DiskInput::AnnouncementsLost), now),
            Record::Stall { stall, .. } => self.stalled(stall, now),
            Record::Unknown { kind } => {
                warn!(kind, "record of an unknown kind");
                self.counts.lost();
            }
        }
        None
    }

    fn disk_reported(&mut self, device: DeviceNumber, report: DiskReport, stamp: Stamp, now: Now) {
        let reported = DiskInput::Reported {
            device,
            report,
            stamp,
        };
        self.feed(Input::Disk(reported), now);
    }

    fn killed(&mut self, finding: Finding, now: Now) -> Finding {
        self.metering.killed(&finding.scope);
        info!(
            victim = finding.victim.0,
            comm = finding.comm.as_str(),
            cgroup = finding.cgroup.as_deref(),
            limiting = finding.limiting(),
            verdict = ?finding.verdict,
            "process killed for want of memory"
        );
        if let KillVerdict::NodePressure { why } = finding.verdict {
            let at = finding.stamp.kernel.min(now.boot);
            let changes = self.evaluator.force(Resource::Memory, why, at);
            self.changed(&changes, Some((Resource::Memory, finding.stamp)), now);
        }
        self.pod_killed(&finding.owner, finding.stamp.kernel, now);
        self.hot.hint(now.boot);
        finding
    }
}

fn around<'a>(
    observe: &'a mut Observe,
    config: &'a Config,
    read: BootNanos,
    now: Now,
) -> Around<'a> {
    Around {
        observe,
        policy: &config.policy,
        read,
        now: now.boot,
    }
}
