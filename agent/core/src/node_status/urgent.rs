//! The changes of conditions that are patched at once.
//!
//! A condition that becomes True is urgent. Each status write goes to every watcher of Nodes, so
//! each condition may cause one urgent patch in ten seconds, and all together one in a second.
//! There is no other limit: a condition that flaps never delays the first True of another. Every
//! other change (False, Unknown, another text) is sent with the next regular computation.
//!
//! A True that waits, because its condition caused a patch less than ten seconds ago, is carried by
//! any other status write. If it ends before that, nothing is urgent any more, and the next regular
//! computation records both transitions as Events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::clock::BootNanos;

/// Minimum interval between two urgent patches that one condition causes.
const PER_CONDITION: Duration = Duration::from_secs(10);
/// Minimum interval between two urgent patches.
const SPACING: Duration = Duration::from_secs(1);

/// The conditions that became True, by type, and the times at which they may be patched.
#[derive(Debug, Clone, Default)]
pub struct UrgentPatches {
    /// Conditions that became True since the last status was sent.
    waiting: BTreeSet<String>,
    /// The time at which each condition caused its last urgent patch, for as long as that matters.
    caused: BTreeMap<String, BootNanos>,
    last: Option<BootNanos>,
}

impl UrgentPatches {
    pub const fn new() -> Self {
        Self {
            waiting: BTreeSet::new(),
            caused: BTreeMap::new(),
            last: None,
        }
    }

    /// Records that the condition became True.
    pub fn began(&mut self, type_: &str) {
        self.waiting.insert(type_.to_owned());
    }

    /// Records that the condition is not True any more, or that the API server has it as True.
    pub fn settled(&mut self, type_: &str) {
        self.waiting.remove(type_);
    }

    /// Returns the time at which the next urgent patch is due; `None` if no condition waits.
    pub fn due(&self) -> Option<BootNanos> {
        let first = self.waiting.iter().map(|type_| self.allowed(type_)).min()?;
        let spaced = self.last.map_or(first, |last| last.plus(SPACING));
        Some(first.max(spaced))
    }

    /// Records that the whole status is sent at `now`, with every condition that waits. `urgent` is
    /// true if they are the cause.
    pub fn sent(&mut self, urgent: bool, now: BootNanos) {
        let waiting = std::mem::take(&mut self.waiting);
        if !urgent {
            return;
        }
        self.caused.retain(|_, at| now < at.plus(PER_CONDITION));
        for type_ in waiting {
            // A condition that had to wait longer is carried, and caused nothing.
            self.caused.entry(type_).or_insert(now);
        }
        self.last = Some(now);
    }

    /// Records that the API server already had what was sent last.
    pub fn nothing_sent(&mut self) {
        let Some(last) = self.last.take() else {
            return;
        };
        self.caused.retain(|_, at| *at != last);
    }

    /// Returns the time from which this condition may cause a patch.
    fn allowed(&self, type_: &str) -> BootNanos {
        let caused = self.caused.get(type_);
        caused.map_or(BootNanos(0), |at| at.plus(PER_CONDITION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> BootNanos {
        BootNanos(millis * 1_000_000)
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Began(&'static str),
        Settled(&'static str),
        /// A status is sent; true if a condition that waits is the cause.
        Sent(bool),
        NothingSent,
    }

    #[test]
    fn a_condition_waits_ten_seconds_after_its_last_patch_and_one_after_any_other() {
        use Step::{Began, NothingSent, Sent, Settled};

        let mut urgent = UrgentPatches::new();
        //  at ms, step, due at ms after it, why
        #[rustfmt::skip]
        let script = [
            (100, Began("a"), Some(0), "the first goes at once"),
            (100, Sent(true), None, "none waits"),
            (200, Began("b"), Some(1_100), "a second after another one"),
            (300, Began("c"), Some(1_100), "together"),
            (1_100, Sent(true), None, "both"),
            (2_000, Settled("a"), None, "it ends"),
            (3_000, Began("a"), Some(10_100), "ten seconds after its last"),
            (3_500, Began("d"), Some(2_100), "another one does not wait"),
            (3_500, Sent(true), None, "with the one that waits"),
            (4_000, Began("a"), Some(10_100), "which was only carried"),
            (4_500, Settled("a"), None, "it ends before its turn"),
            (5_000, Began("a"), Some(10_100), "again"),
            (9_000, Sent(false), None, "carried by a regular one"),
            (10_000, Began("b"), Some(11_100), "its last was at 1.1 s"),
            (10_050, Began("a"), Some(10_100), "its last was at 0.1 s"),
            (10_100, Sent(true), None, "with b, which is carried"),
            (10_500, Began("b"), Some(11_100), "the later of its limits"),
            (11_100, Sent(true), None, "its turn"),
            (11_101, NothingSent, None, "the server had it"),
            (11_102, Began("b"), Some(0), "it may cause a patch again"),
        ];
        for (millis, step, due, why) in script {
            match step {
                Began(type_) => urgent.began(type_),
                Settled(type_) => urgent.settled(type_),
                Sent(is_urgent) => urgent.sent(is_urgent, at(millis)),
                NothingSent => urgent.nothing_sent(),
            }
            assert_eq!(urgent.due(), due.map(at), "at {millis} ms: {why}");
        }
    }
}
