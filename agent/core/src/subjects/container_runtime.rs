//! Queries the container runtime, and decides for how long its last answer counts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BlockingQuery, Decision, Effect, Input, SignalInput, pass_on};
use crate::clock::{ALIGN, BootNanos, Now};
use crate::node_status::largest_images::same_images;
use crate::node_status::{ContainerRuntime, FactChange, RuntimeCheck};
use crate::reading::container_runtime::{NodeImage, RuntimeStatus, RuntimeVersion};

/// The interval between checks: that of the other samples of a node far from its thresholds, with
/// which they share a wake-up.
const INTERVAL: Duration = Duration::from_secs(10);

/// The interval between lists of images, as in the kubelet.
const LIST_INTERVAL: Duration = Duration::from_secs(30);

/// A check by which the runtime was ready counts for this time, as in the kubelet.
const STALE_AFTER: Duration = Duration::from_secs(30);

/// The minimum interval between two log lines about a runtime that does not answer.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// For this time after the start, a required runtime that was not ready yet is checked often, so
/// that the node becomes Ready as soon as the runtime is.
const STARTUP: Duration = Duration::from_mins(2);

/// The interval between checks in the time of [`STARTUP`].
const STARTUP_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuntimeUse {
    /// No runtime is configured, or the kubelet uses it.
    Unused,
    Optional,
    /// The runtime is queried, and the node is not Ready without it.
    Required,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum RuntimeInput {
    Starting,
    Tick {
        /// Work that is due until then is done in the same wake-up: see [`ALIGN`].
        soon: BootNanos,
    },
    /// The answer to [`BlockingQuery::RuntimeStatus`], or the reason for which there is none.
    Checked(Result<RuntimeAnswer, String>),
    /// The answer to [`BlockingQuery::RuntimeImages`].
    Listed(RuntimeList),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeAnswer {
    /// The version when the connection was opened. A restart of the runtime ends the connection.
    pub version: RuntimeVersion,
    pub status: RuntimeStatus,
}

/// The images of a runtime, and their place.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RuntimeList {
    /// The images to report; `None` if they could not be listed.
    pub images: Option<Vec<NodeImage>>,
    /// A directory on the file system of the images; `None` if unknown.
    pub imagefs: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RuntimeDecision {
    /// The runtime answers, for the first time or again.
    Answers(RuntimeVersion),
    Unavailable(String),
    /// The last answer no longer counts.
    Stale,
}

/// ```text
///          due                 answered, images due
/// Idle ──────────► Checking ───────────────────────► Listing
///   ▲                 │                                 │
///   └────answered─────┴──────────────listed─────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Progress {
    Idle,
    Checking,
    Listing,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct RuntimeWatch {
    used: RuntimeUse,
    started: BootNanos,
    progress: Progress,
    due: BootNanos,
    /// Time of the next list of images.
    list_due: BootNanos,
    /// Time of the last check by which the runtime was ready.
    ready_at: Option<BootNanos>,
    answers: bool,
    /// The last reason that was logged for a missing answer, and its time.
    logged: Option<(String, BootNanos)>,
    /// The place of the images, as last reported.
    imagefs: Option<PathBuf>,
    /// Storage was sampled since the first answer, or since there was none.
    storage_sampled: bool,
    known: ContainerRuntime,
}

impl RuntimeWatch {
    pub fn new(used: RuntimeUse, now: BootNanos) -> Self {
        Self {
            used,
            started: now,
            progress: Progress::Idle,
            due: now,
            list_due: now,
            ready_at: None,
            answers: false,
            logged: None,
            imagefs: None,
            storage_sampled: false,
            known: ContainerRuntime::default(),
        }
    }

    pub fn is_used(&self) -> bool {
        self.used != RuntimeUse::Unused
    }

    /// Returns the time at which the runtime must be checked, or its last answer ceases to count.
    pub fn due(&self) -> Option<BootNanos> {
        let check = (self.is_used() && self.progress == Progress::Idle).then_some(self.due);
        check.into_iter().chain(self.stale_at()).min()
    }

    /// Returns the time at which the last answer ceases to count; `None` if none counts.
    fn stale_at(&self) -> Option<BootNanos> {
        let ready_at = self.ready_at.map(|at| at.plus(STALE_AFTER));
        ready_at.filter(|_| self.known.checked == RuntimeCheck::Recently)
    }

    pub fn on(&mut self, input: RuntimeInput, now: Now) -> Vec<Effect> {
        match input {
            RuntimeInput::Starting => self.check(),
            RuntimeInput::Tick { soon } => self.tick(soon, now.boot),
            RuntimeInput::Checked(Ok(answer)) => self.answered(answer, now.boot),
            RuntimeInput::Checked(Err(why)) => self.unanswered(why, now.boot),
            RuntimeInput::Listed(list) => self.listed(list),
        }
    }

    fn check(&mut self) -> Vec<Effect> {
        if !self.is_used() || self.progress != Progress::Idle {
            return Vec::new();
        }
        self.progress = Progress::Checking;
        vec![Effect::BlockingQuery(BlockingQuery::RuntimeStatus)]
    }

    fn tick(&mut self, soon: BootNanos, now: BootNanos) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.stale_at().is_some_and(|at| at <= now) {
            self.known.checked = RuntimeCheck::Stale;
            if let Some(version) = &mut self.known.version {
                version.version = None;
            }
            effects.push(Effect::Log(Decision::Runtime(RuntimeDecision::Stale)));
            effects.extend(self.publish());
        }
        if self.due <= soon {
            effects.extend(self.check());
        }
        effects
    }

    fn answered(&mut self, answer: RuntimeAnswer, now: BootNanos) -> Vec<Effect> {
        let RuntimeAnswer { version, status } = answer;
        let mut effects = Vec::new();
        if !std::mem::replace(&mut self.answers, true) {
            self.logged = None;
            let answers = RuntimeDecision::Answers(version.clone());
            effects.push(Effect::Log(Decision::Runtime(answers)));
        }
        let is_ready = status
            .runtime
            .as_ref()
            .is_some_and(|runtime| runtime.is_true);
        let before = self.known.clone();
        if is_ready {
            self.ready_at = Some(now);
            self.known.checked = RuntimeCheck::Recently;
            self.known.handlers = Some(status.handlers.clone());
            let policy = status.supplemental_groups_policy;
            self.known.supplemental_groups_policy = policy.or(before.supplemental_groups_policy);
        }
        self.known.version = Some(version);
        self.known.status = Some(status);
        if self.known != before {
            effects.extend(self.publish());
        }
        if self.list_due <= now.plus(ALIGN) {
            self.progress = Progress::Listing;
            self.list_due = now.plus(LIST_INTERVAL);
            effects.push(Effect::BlockingQuery(BlockingQuery::RuntimeImages));
        } else {
            self.progress = Progress::Idle;
        }
        self.due = now.plus(self.interval(now));
        effects
    }

    fn unanswered(&mut self, why: String, now: BootNanos) -> Vec<Effect> {
        self.progress = Progress::Idle;
        self.due = now.plus(self.interval(now));
        // The runtime may have other images when it answers again.
        self.list_due = now;
        self.answers = false;
        let mut effects = Vec::new();
        let is_known =
            |(logged, at): &(String, BootNanos)| *logged == why || now < at.plus(LOG_INTERVAL);
        if !self.logged.as_ref().is_some_and(is_known) {
            self.logged = Some((why.clone(), now));
            let unavailable = RuntimeDecision::Unavailable(why);
            effects.push(Effect::Log(Decision::Runtime(unavailable)));
        }
        effects.extend(self.images_at(None));
        effects
    }

    fn listed(&mut self, list: RuntimeList) -> Vec<Effect> {
        self.progress = Progress::Idle;
        let RuntimeList { images, imagefs } = list;
        let mut effects = Vec::new();
        if let Some(images) = images {
            let known = self.known.images.as_ref();
            // An equal list remains the same value, which is compared and sent by reference.
            if !known.is_some_and(|known| same_images(known, &images)) {
                self.known.images = Some(Arc::new(images));
                effects.extend(self.publish());
            }
        }
        effects.extend(self.images_at(imagefs));
        effects
    }

    /// Requests a sample of storage for the first time, or if the place of the images has changed.
    /// An unknown directory changes nothing.
    fn images_at(&mut self, directory: Option<PathBuf>) -> Option<Effect> {
        let moved = directory.is_some() && directory != self.imagefs;
        self.imagefs = directory.or_else(|| self.imagefs.take());
        let first = !std::mem::replace(&mut self.storage_sampled, true);
        (first || moved).then(|| pass_on(Input::Signal(SignalInput::StorageRequested)))
    }

    fn interval(&self, now: BootNanos) -> Duration {
        let awaited = self.used == RuntimeUse::Required && self.ready_at.is_none();
        if awaited && now < self.started.plus(STARTUP) {
            STARTUP_INTERVAL
        } else {
            INTERVAL
        }
    }

    fn publish(&self) -> [Effect; 2] {
        let known = Box::new(self.known.clone());
        [
            Effect::Fact(FactChange::ContainerRuntime(known)),
            Effect::Publish,
        ]
    }
}

#[cfg(test)]
mod tests;
