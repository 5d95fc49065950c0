//! What each record from the kernel leads to.

use tokio::sync::mpsc;
use tracing::{info, warn};

use super::App;
use super::blocking::Question;
use crate::clock::{Now, Stamp};
use crate::pressure::disks::Health;
use crate::record::{Received, Record, Side};
use crate::subjects::{Input, KillCounterInput, KillInput, PidInput};

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
                let stamp = Stamp { kernel: at, read };
                info!(%device, side = ?side, total, slow, max_ms = max.as_millis(), "disk state");
                match side {
                    Side::Over => self.ask_disk(device, stamp),
                    Side::Under => self.disk_told(device, Health::Healthy, stamp, now),
                }
            }
            Record::CgroupsChanged { .. } => self.cgroups_changed(now),
            Record::DiskErrors { at, device } => {
                let stamp = Stamp { kernel: at, read };
                info!(%device, "disk errors");
                self.disk_told(device, Health::Failing, stamp, now);
            }
            Record::Disk(change) => self.disk_announced(change, now),
            Record::DisksMissed => self.blocking.ask(Question::Disks),
            Record::Stall { stall, .. } => self.stalled(stall, now),
            Record::Unknown { kind } => {
                warn!(kind, "record of an unknown kind");
                self.feed(Input::KillCounter(KillCounterInput::RecordsLost), now);
            }
        }
        false
    }
}
