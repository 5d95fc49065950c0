//! Saves what the next agent needs: the kills that are reported, and the time at which each
//! condition was last exceeded, so that a restart does not change its end.
//!
//! While a condition is exceeded, the saved time is in the future, so that not every sample
//! requires a write. After a crash, a condition may therefore stay True longer by up to that lead,
//! but never end early. An orderly exit saves exact times.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::Effect;
use super::kill_counters::{AcknowledgedKills, CountedKills, PreviousAgent};
use crate::clock::BootNanos;
use crate::pressure::Exceeded;
use crate::pressure::sample::LONGEST;

#[cfg(test)]
mod tests;

/// The lead of a saved time while a condition is exceeded. Also the minimum interval between writes
/// that only correct a time that is too late.
const LEAD: Duration = Duration::from_secs(30);

/// A saved time must be in the future until after the next sample.
const MIN_LEAD: Duration = LONGEST.saturating_add(Duration::from_secs(2));

/// The last excess of each condition of this mode, by type.
pub(super) type Times = BTreeMap<&'static str, Exceeded>;

/// The time in the file; `None` if the condition is not exceeded.
type SavedTime = Option<BootNanos>;

/// The part of the state file that changes during a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Saved {
    /// The kills that the API server acknowledged.
    pub kills: AcknowledgedKills,
    /// Kills could not be counted so far: a cgroup that is not in `kills` may have had some.
    pub uncounted: bool,
    /// The last excess of each condition, by its type; `None` if it was not within the transition
    /// period. A missing type is unknown.
    pub exceeded: BTreeMap<String, SavedTime>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Previous {
    /// There is no state that can be used.
    Unknown,
    OtherBoot,
    SameBoot(Saved),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum StateInput {
    /// The answer to [`super::BlockingQuery::Recall`].
    Recalled {
        previous: Previous,
        /// The counters of kills at start; `None` if they could not be read.
        counted: Option<CountedKills>,
    },
    /// The Node was read for the first time: the types of conditions that are True in it, and the
    /// times of their last reports. A missing time is the epoch.
    TrueOnNode(Vec<(String, SystemTime)>),
    /// These kills are to be saved.
    Acknowledged(AcknowledgedKills),
    /// The file is to be written if it is due.
    Check,
    /// A write has ended, with or without success.
    Written,
    /// The agent stops: exact times are to be saved.
    Stopped,
}

/// The precision of a time that is saved while a condition is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Precision {
    /// The time is [`LEAD`] from now.
    WithLead,
    Exact,
}

/// ```text
/// Unread ──recalled──► Known ──write──► Known
///
/// Unwritable: this boot cannot be distinguished from others.
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum File {
    /// The file has not been read yet, and must not be overwritten.
    Unread,
    /// The content as last written.
    Known(Saved),
    Unwritable,
}

/// The saved times of the conditions, and the rest of the state file.
#[derive(Debug, Serialize, Deserialize)]
pub struct SavedState {
    file: File,
    /// Every type is known, from the file or from the Node.
    adopted: bool,
    precision: Precision,
    written_at: BootNanos,
    writing: usize,
}

impl SavedState {
    /// `boot_known`: this boot can be distinguished from others.
    pub const fn new(boot_known: bool) -> Self {
        Self {
            file: if boot_known {
                File::Unread
            } else {
                File::Unwritable
            },
            adopted: false,
            precision: Precision::WithLead,
            written_at: BootNanos(0),
            writing: 0,
        }
    }

    pub const fn is_writing(&self) -> bool {
        self.writing > 0
    }

    pub(super) const fn written(&mut self) {
        self.writing = self.writing.saturating_sub(1);
    }

    /// Continues from the file that the previous agent of this boot wrote, and returns the times in
    /// it. If there is none, a new file is begun, even if kills cannot be counted.
    ///
    /// Only the first call has an effect: later the file is written by this agent.
    pub(super) fn recall(&mut self, previous: &Previous) -> Vec<(String, BootNanos)> {
        if self.file != File::Unread {
            return Vec::new();
        }
        let Previous::SameBoot(saved) = previous else {
            self.file = File::Known(Saved {
                uncounted: true,
                ..Saved::default()
            });
            return Vec::new();
        };
        self.file = File::Known(saved.clone());
        let times = saved.exceeded.iter();
        times
            .filter_map(|(type_, at)| Some((type_.clone(), (*at)?)))
            .collect()
    }

    /// Takes the types of the conditions that are True on the Node, and returns those that have no
    /// time in the file. Each stays True for a whole transition period after the first sample below
    /// the threshold. From now on, every time is known.
    pub(super) fn adopt(&mut self, types: Vec<String>) -> Vec<String> {
        let types = types.into_iter();
        let adopted = types.filter(|type_| !self.knows(type_)).collect();
        self.adopted = true;
        adopted
    }

    pub(super) fn save_kills(
        &mut self,
        kills: AcknowledgedKills,
        times: &Times,
        now: BootNanos,
    ) -> Option<Effect> {
        if self.file == File::Unwritable {
            return None;
        }
        Some(self.write(kills, false, times, now))
    }

    pub(super) fn check(&mut self, times: &Times, now: BootNanos) -> Option<Effect> {
        let is_due = self.is_due(times, now);
        is_due.then(|| self.rewrite(times, now)).flatten()
    }

    pub(super) const fn be_exact(&mut self) {
        self.precision = Precision::Exact;
    }

    /// Writes the file even if it is not due.
    pub(super) fn rewrite(&mut self, times: &Times, now: BootNanos) -> Option<Effect> {
        let saved = self.known()?;
        let (kills, uncounted) = (saved.kills.clone(), saved.uncounted);
        Some(self.write(kills, uncounted, times, now))
    }

    const fn known(&self) -> Option<&Saved> {
        match &self.file {
            File::Known(saved) => Some(saved),
            File::Unread | File::Unwritable => None,
        }
    }

    fn saved(&self, type_: &str) -> Option<SavedTime> {
        self.known()?.exceeded.get(type_).copied()
    }

    /// Returns true if the last excess of a condition is known. If so, its status on the Node is
    /// not used.
    fn knows(&self, type_: &str) -> bool {
        self.adopted || self.saved(type_).is_some()
    }

    fn write(
        &mut self,
        kills: AcknowledgedKills,
        uncounted: bool,
        times: &Times,
        now: BootNanos,
    ) -> Effect {
        let saved = Saved {
            kills,
            uncounted,
            exceeded: self.times_to_save(times, now),
        };
        self.file = File::Known(saved.clone());
        self.written_at = now;
        self.writing = self.writing.saturating_add(1);
        Effect::Save(saved)
    }

    /// Returns the new times of the file. A condition that is neither exceeded nor known is left
    /// out.
    fn times_to_save(&self, times: &Times, now: BootNanos) -> BTreeMap<String, SavedTime> {
        let known = |(type_, exceeded): &(&&str, &Exceeded)| {
            self.knows(type_) || **exceeded != Exceeded::Never
        };
        let entry = |(type_, exceeded): (&&str, &Exceeded)| {
            let at = match (*exceeded, self.precision) {
                (Exceeded::Never, _) => None,
                (Exceeded::At(at), Precision::Exact) => Some(at),
                (Exceeded::At(at), Precision::WithLead) => Some(self.extended(type_, at, now)),
                (Exceeded::Now, Precision::Exact) => Some(now),
                (Exceeded::Now, Precision::WithLead) => Some(now.plus(LEAD)),
            };
            ((*type_).to_owned(), at)
        };
        times.iter().filter(known).map(entry).collect()
    }

    /// Returns the time to save for a condition that was last exceeded at `at`: exact, unless the
    /// file was written recently. Each kill of a storm extends the condition, and must not cause a
    /// write.
    fn extended(&self, type_: &str, at: BootNanos, now: BootNanos) -> BootNanos {
        match self.saved(type_).flatten() {
            Some(saved) if !self.may_correct(now) && at <= saved => saved,
            Some(_) if !self.may_correct(now) => at.plus(LEAD),
            Some(_) | None => at,
        }
    }

    /// Returns true if the last write was long enough ago for a correction, which is not urgent.
    fn may_correct(&self, now: BootNanos) -> bool {
        self.written_at.plus(LEAD) <= now
    }

    /// Returns true if the file must be written: at once if a saved time is too early, and later if
    /// one is too late.
    fn is_due(&self, times: &Times, now: BootNanos) -> bool {
        let may_correct = self.may_correct(now);
        times.iter().any(|(type_, exceeded)| {
            let Some(saved) = self.saved(type_) else {
                return *exceeded != Exceeded::Never || self.adopted;
            };
            match *exceeded {
                Exceeded::Now => saved < Some(now.plus(MIN_LEAD)),
                Exceeded::At(at) => saved < Some(at) || (may_correct && saved != Some(at)),
                Exceeded::Never => may_correct && saved.is_some(),
            }
        })
    }
}

impl Previous {
    /// Converts the state for the counters of kills.
    pub(super) fn for_counters(&self) -> PreviousAgent {
        match self {
            Self::Unknown => PreviousAgent::Unknown,
            Self::OtherBoot => PreviousAgent::OtherBoot,
            Self::SameBoot(saved) if saved.uncounted => PreviousAgent::Uncounted,
            Self::SameBoot(saved) => PreviousAgent::Acknowledged(saved.kills.clone()),
        }
    }
}
