//! What each record from the kernel leads to.

use tracing::{debug, info, warn};

use super::App;
use super::blocking::Question;
use crate::clock::{Now, Stamp};
use crate::event::{Event, OomKill, Received, Side};
use crate::pressure::look::DiskLook;
use crate::pressure::oom::Verdict;
use crate::reading::Resource;
use crate::units::DeviceNumber;

impl App {
    pub(super) fn kernel_event(&mut self, received: Received, now: Now) {
        let read = received.read;
        self.metering.received(&received.event);
        let event = match received.event {
            Ok(event) => event,
            Err(err) => {
                warn!(
                    err = &err as &dyn std::error::Error,
                    "record not understood"
                );
                return;
            }
        };
        match event {
            Event::OomKill(kill) => {
                let stamp = Stamp {
                    kernel: kill.at,
                    read,
                };
                self.killed(&kill, stamp, now);
            }
            Event::PidCrossing { at, side, value } => {
                self.sample(now, Some(Stamp { kernel: at, read }));
                let tasks = self.observe.tasks();
                debug!(
                    ids = value,
                    tasks,
                    over = side == Side::Over,
                    "pid level crossed"
                );
                self.probes.pids_crossed(side, value, tasks, now.boot);
            }
            Event::PidTrend { at, value } => {
                self.sample(now, Some(Stamp { kernel: at, read }));
                self.probes.pids_counted(value, self.observe.tasks());
            }
            Event::DiskState {
                at,
                device,
                side,
                total,
                slow,
                max,
            } => {
                let stamp = Stamp { kernel: at, read };
                info!(%device, side = ?side, total, slow, max_ms = max.as_millis(), "disk state");
                match side {
                    Side::Over => self.ask_disk(device, stamp),
                    Side::Under => {
                        let news = self.probes.disk_quick(device, now.boot);
                        self.disks_changed(news, Some(stamp), now);
                    }
                }
            }
            Event::Unknown { kind } => warn!(kind, "record of an unknown kind"),
        }
    }

    fn ask_disk(&mut self, device: DeviceNumber, stamp: Stamp) {
        if let Some(name) = self.probes.disk_name(device) {
            self.blocking.ask(Question::SlowDisk {
                device,
                name: name.to_owned(),
                stamp,
            });
        }
    }

    fn killed(&mut self, kill: &OomKill, stamp: Stamp, now: Now) {
        // Taken before the sample, which would find the memory free again.
        let memory = self.observe.memory();
        let finding = self
            .kills
            .examine(kill, memory, &self.config.policy, now.boot);
        self.metering.killed(&kill.scope, finding.scope);
        info!(
            victim = kill.victim.0,
            comm = finding.comm.as_str(),
            cgroup = finding.cgroup.as_str(),
            limiting = finding.limiting.as_deref(),
            verdict = ?finding.verdict,
            "process killed for want of memory"
        );
        if let Some(reporting) = &mut self.reporting {
            reporting.record(finding.event(kill, stamp, now));
        }
        if let Verdict::NodePressure { why } = finding.verdict {
            let changes = self
                .evaluator
                .force(Resource::Memory, why, kill.at.min(now.boot));
            self.changed(&changes, Some((Resource::Memory, stamp)), now);
        }
        self.hot.hint(now.boot);
    }

    pub(super) fn disks_changed(&mut self, news: bool, stamp: Option<Stamp>, now: Now) {
        if !news {
            return;
        }
        self.facts.disks = self.probes.unwell();
        let disks = &self.facts.disks;
        let look = DiskLook::Seen {
            slow: &disks.slow,
            stalled: &disks.stalled,
        };
        let changes = self.evaluator.observe_disks(look, now.boot);
        self.changed(&changes, stamp.map(|stamp| (Resource::DiskIo, stamp)), now);
    }
}
