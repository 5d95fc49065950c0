//! What is known of the root directory's file system, and of the volumes below it.

use std::time::Duration;

use super::App;
use super::blocking::{Question, Storage};
use crate::clock::Now;
use crate::pressure::deadline;
use crate::subjects::{DiskInput, Input};

/// The kubelet's grace for a node that comes up, during which it looks often whether it is ready.
pub(super) const SETTLES: Duration = Duration::from_mins(2);

impl App {
    pub(super) fn ask_storage(&mut self) {
        if !self.storage_asked {
            self.storage_asked = true;
            self.blocking.ask(Question::Storage);
        }
    }

    pub(super) fn storage_answered(&mut self, found: Storage, now: Now) {
        let Storage {
            looks,
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
        self.looked(&looks, now);
        let changes = self.evaluator.evaluate(&looks, now.boot);
        self.storage.next(&looks, &self.evaluator, now.boot);
        self.changed(&changes, None, now);
        self.ready_soon(known, now);
        // On the same helper thread, which is awake.
        let soon = now.boot.plus(crate::reporting::ALIGN);
        self.feed(Input::Disk(DiskInput::StorageSampled { soon }), now);
    }

    /// A node whose storage is not known is not ready. At the start that is looked at often, and
    /// told as soon as it has changed; later there is time until the next tick.
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
