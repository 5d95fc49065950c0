//! Handles records from the kernel.

use tokio::sync::mpsc;
use tracing::warn;

use super::App;
use crate::clock::{Now, Stamp};
use crate::record::{Received, Record, Side};
use crate::subjects::disks::{DiskReport, Window};
use crate::subjects::{DiskInput, Input, KillCounterInput, KillInput, PidInput};
use crate::units::DeviceNumber;

/// Maximum number of records in a batch that contains kills.
const MAX_BATCH: usize = 256;

impl App {
    /// Handles a record, and after a kill all records that are already queued, so that related
    /// kills are reported together. Returns whether there were kills.
    pub(super) fn kernel_records(
        &mut self,
        first: Received,
        records: &mut mpsc::Receiver<Received>,
        now: Now,
    ) -> bool {
        let mut killed = false;
        let mut next = Some(first);
        for _ in 0..MAX_BATCH {
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
        self.metering.record_received(&received.record);
        let record = match received.record {
            Ok(record) => record,
            Err(err) => {
                warn!(err = &err as &dyn std::error::Error, "malformed record");
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
