//! The root directory's file system, and the volumes below it.

use std::time::Duration;

use super::App;
use crate::clock::Now;
use crate::pressure::deadline;
use crate::queries::blocking::{Question, Storage};
use crate::subjects::{DiskInput, Input};

/// For this time after its start the kubelet checks often whether the node is ready.
pub(super) const STARTUP_GRACE: Duration = Duration::from_mins(2);

impl App {
    pub(super) fn ask_storage(&mut self) {
        if !self.storage_asked {
            self.storage_asked = true;
            self.blocking.ask(Question::Storage);
        }
    }

    pub(super) fn storage_answered(&mut self, found: Storage, now: Now) {
        let Storage {
            samples,
            capacity,
            volumes,
        } = found;
        self.storage_asked = false;
        let known = self.facts.ephemeral_storage.is_some();
        if capacity.is_some() {
            self.facts.ephemeral_storage = capacity;
        }
        if volumes.is_some() {
            self.facts.volumes = volumes;
        }
        self.record_samples(&samples, now);
        let changes = self.evaluator.evaluate(&samples, now.boot);
        self.storage.next(&samples, &self.evaluator, now.boot);
        self.changed(&changes, None, now);
        self.ready_soon(known, now);
        // In the same wake-up.
        let soon = now.boot.plus(crate::reporting::ALIGN);
        self.feed(Input::Disk(DiskInput::StorageSampled { soon }), now);
    }

    /// A node is not ready until its storage is known. After the start the storage is sampled
    /// often, and the change is reported at once; later both wait for the next tick.
    fn ready_soon(&mut self, known: bool, now: Now) {
        match (known, self.facts.ephemeral_storage) {
            (false, Some(_)) => {
                if let Some(reporting) = &mut self.reporting {
                    reporting.edge(now.boot);
                }
            }
            (false, None) if now.boot < self.settled_at => {
                self.storage.hint(now.boot.plus(deadline::SHORTEST));
            }
            (false, None) | (true, _) => {}
        }
    }
}
