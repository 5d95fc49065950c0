//! What comes of what is told and found about disks.

use tracing::info;

use super::App;
use super::blocking::Question;
use crate::clock::{Now, Stamp};
use crate::pressure::disks::Health;
use crate::pressure::sample::DiskStates;
use crate::reading::Resource;
use crate::record::DiskChange;
use crate::units::DeviceNumber;

impl App {
    /// Asks whether the kernel's word counts.
    pub(super) fn ask_disk(&mut self, device: DeviceNumber, stamp: Stamp) {
        if let Some(name) = self.probes.disk_name(device) {
            self.blocking.ask(Question::SlowDisk {
                device,
                name: name.to_owned(),
                stamp,
            });
        }
    }

    /// The kernel says how a disk is. Errors need no start times.
    pub(super) fn disk_told(
        &mut self,
        device: DeviceNumber,
        health: Health,
        stamp: Stamp,
        now: Now,
    ) {
        let news = self.probes.disk_told(device, health, now.boot);
        self.disks_changed(news, Some(stamp), now);
    }

    pub(super) fn disk_announced(&mut self, change: DiskChange, now: Now) {
        info!(disk = change.name.as_str(), device = %change.device, what = ?change.action, "disk");
        match self.probes.disk_announced(change, now.boot) {
            Ok(question) => self.blocking.ask(question),
            // Also where it was well: it may have been the last one that could be watched.
            Err(_) => self.disks_changed(true, None, now),
        }
    }

    /// What is due about disks is asked.
    pub(super) fn ask_disks(&mut self, now: Now) {
        let soon = now.boot.plus(crate::reporting::ALIGN);
        for question in self.probes.due(now.boot, soon) {
            self.blocking.ask(question);
        }
    }

    /// Once the file system was looked at, which is done on the same helper thread.
    pub(super) fn check_statistics(&mut self, now: Now) {
        let soon = now.boot.plus(crate::reporting::ALIGN);
        if let Some(question) = self.probes.check_statistics(now.boot, soon) {
            self.blocking.ask(question);
        }
    }

    /// Takes what is known of the disks now.
    pub(super) fn disks_changed(&mut self, news: bool, stamp: Option<Stamp>, now: Now) {
        if !news {
            return;
        }
        self.facts.disks = self.probes.unwell();
        let unwatched = self.probes.unwatched();
        let ended = unwatched.map(|of| self.evaluator.unwatch_disks(of.others));
        let mut changes = ended.unwrap_or_default();
        let disks = &self.facts.disks;
        let look = if self.probes.blind_to_disks() {
            DiskStates::Unavailable
        } else {
            DiskStates::Known {
                slow: &disks.slow,
                stalled: &disks.stalled,
                failing: &disks.failing,
            }
        };
        changes.extend(self.evaluator.observe_disks(look, now.boot));
        self.changed(&changes, stamp.map(|stamp| (Resource::DiskIo, stamp)), now);
    }
}
