//! What each record from the kernel leads to.

use tokio::sync::mpsc;
use tracing::warn;

use super::App;
use crate::clock::{Now, Stamp};
use crate::record::{Received, Record, Side};
use crate::subjects::disks::{DiskReport, Window};
use crate::subjects::{DiskInput, Input, KillCounterInput, KillInput, PidInput};
use crate::units::DeviceNumber;

/// Most records that are taken together if there are kills among them.
const TOGETHER: usize = 256;

impl App {
    /// Takes a record, and after a kill all that are there already: what belongs together is reported
    /// together, and nothing is waited for. Returns whether there were kills.
    pub(super) fn kernel_records(
        &mut self,
        first: Received,
        records: &mut mpsc::Receiver<Received>,
        now: Now,
    ) -> bool {
        let mut killed = false;
        let mut next = Some(first);
        for _ in 0..TOGETHER {
            let Some(received) = next else {
                break;
            };
            killed |= self.kernel_record(received, now);
            next = if killed {
                records.try_recv().ok()
            } else {
                None
            };
        }
        if killed {
            self.feed(Input::Kill(KillInput::BatchRead), now);
        }
        killed
    }

    /// Returns whether it was a kill.
    fn kernel_record(&mut self, received: Received, now: Now) -> bool {
        let read = received.read;
        self.metering.received(&received.record);
        let record = match received.record {
            Ok(record) => record,
            Err(err) => {
                warn!(
                    err = &err as &dyn std::error::Error,
                    "record not understood"
                );
                self.feed(Input::KillCounter(KillCounterInput::RecordsLost), now);
                return false;
            }
        };
        match record {
            Record::OomKill(kill) => {
                let pods = self.cgroups.pods();
                self.feed(Input::Kill(KillInput::Recorded { kill, read, pods }), now);
                return true;
            }
            Record::LoggedKill(kill) => {
                let pods = self.cgroups.pods();
                self.feed(Input::Kill(KillInput::Logged { kill, read, pods }), now);
                return true;
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
                self.feed(Input::KillCounter(KillCounterInput::RecordsLost), now);
            }
        }
        false
    }

    fn disk_reported(&mut self, device: DeviceNumber, report: DiskReport, stamp: Stamp, now: Now) {
        let reported = DiskInput::Reported {
            device,
            report,
            stamp,
        };
        self.feed(Input::Disk(reported), now);
    }
}
