//! The names of containers from the links that a kubelet makes for their logs: on the node itself,
//! before the API server has them.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::BootNanos;
use crate::pods::LinkedContainer;
use crate::subjects::BlockingQuery;

/// How long an answer is waited for before it counts as missing. A read takes less than a
/// millisecond on most nodes.
const READ: Duration = Duration::from_millis(50);
/// Shortest time until the directory is read again. A kubelet makes the link a few milliseconds
/// after the container has started, so a container that is killed at once has none yet.
const READ_AGAIN: Duration = Duration::from_millis(25);
/// Most containers that are remembered, the latest ones.
const MAX_FOUND: usize = 512;

/// The result of reading the names of the links.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinksRead {
    /// The containers that have a link, by id.
    Found(Vec<(Box<str>, LinkedContainer)>),
    /// The directory does not exist, or cannot be read.
    Unavailable,
}

/// Whether the link of an incident's container may still be found.
///
/// ```text
/// Unread ── no link, or no answer in time ──► Missing ─┐ read again,
///    │                                          │  ▲   │ after twice the time
///    │ found, or no directory                   │  └───┘
///    └────────────────► Settled ◄───────────────┘
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum LinkWait {
    /// Not yet read.
    Unread { since: BootNanos },
    /// It did not exist.
    Missing { since: BootNanos, again: BootNanos },
    /// Nothing more will be known.
    Settled,
}

impl LinkWait {
    /// Takes a read that has no answer in time as one that found nothing.
    pub(super) fn at(self, now: BootNanos) -> Self {
        match self {
            Self::Unread { since } if since.plus(READ) <= now => Self::missing(since, now),
            Self::Unread { .. } | Self::Missing { .. } | Self::Settled => self,
        }
    }

    fn missing(since: BootNanos, now: BootNanos) -> Self {
        let again = now.plus(now.since(since).max(READ_AGAIN));
        Self::Missing { since, again }
    }

    /// When the incident happened. `None`: no link is waited for.
    pub(super) const fn since(self) -> Option<BootNanos> {
        match self {
            Self::Unread { since } | Self::Missing { since, .. } => Some(since),
            Self::Settled => None,
        }
    }

    /// When it is wanted. `None`: no more.
    const fn wanted(self) -> Option<BootNanos> {
        match self {
            Self::Unread { since } => Some(since),
            Self::Missing { again, .. } => Some(again),
            Self::Settled => None,
        }
    }

    fn answered(self, is_found: bool, now: BootNanos) -> Self {
        match self {
            Self::Unread { since } | Self::Missing { since, .. } if !is_found => {
                Self::missing(since, now)
            }
            Self::Unread { .. } | Self::Missing { .. } | Self::Settled => Self::Settled,
        }
    }
}

/// The links that were found, and the read that is under way: at most one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Links {
    /// The latest is last.
    found: VecDeque<(Box<str>, LinkedContainer)>,
    /// The containers that the read is for; empty: none is under way.
    asked: BTreeSet<Box<str>>,
}

impl Links {
    pub(super) const fn new() -> Self {
        Self {
            found: VecDeque::new(),
            asked: BTreeSet::new(),
        }
    }

    /// What the link of the container with this id has in its name.
    pub(super) fn get(&self, id: &str) -> Option<&LinkedContainer> {
        let known = self.found.iter().find(|(known, _)| **known == *id);
        known.map(|(_, link)| link)
    }

    /// The state of a new incident in the container with this id.
    pub(super) fn wait(&self, id: Option<&str>, now: BootNanos) -> LinkWait {
        match id {
            Some(id) if self.get(id).is_none() => LinkWait::Unread { since: now },
            Some(_) | None => LinkWait::Settled,
        }
    }

    /// Reads the directory for every container that wants it now, unless a read is under way.
    pub(super) fn ask<'a>(
        &mut self,
        waiting: impl Iterator<Item = (&'a str, LinkWait)>,
        now: BootNanos,
    ) -> Option<BlockingQuery> {
        if !self.asked.is_empty() {
            return None;
        }
        let wants = |link: LinkWait| link.wanted().is_some_and(|at| at <= now);
        let wanted = waiting.filter(|(_, link)| wants(*link));
        self.asked = wanted.map(|(id, _)| id.into()).collect();
        (!self.asked.is_empty()).then(|| BlockingQuery::ContainerLinks(self.asked.clone()))
    }

    /// Takes the answer. Returns the containers that it is for.
    pub(super) fn read(&mut self, read: &LinksRead) -> BTreeSet<Box<str>> {
        if let LinksRead::Found(found) = read {
            for (id, link) in found {
                if self.get(id).is_none() {
                    self.found.push_back((id.clone(), link.clone()));
                }
            }
            let excess = self.found.len().saturating_sub(MAX_FOUND);
            self.found.drain(..excess);
        }
        std::mem::take(&mut self.asked)
    }

    /// The state of an incident in the container `id` after an answer.
    pub(super) fn answered(
        &self,
        link: LinkWait,
        id: &str,
        read: &LinksRead,
        now: BootNanos,
    ) -> LinkWait {
        match read {
            LinksRead::Unavailable => LinkWait::Settled,
            LinksRead::Found(_) => link.answered(self.get(id).is_some(), now),
        }
    }

    /// When an incident with this state needs attention next.
    pub(super) fn due(&self, link: LinkWait) -> Option<BootNanos> {
        match link {
            LinkWait::Unread { since } => Some(since.plus(READ)),
            LinkWait::Missing { again, .. } => self.asked.is_empty().then_some(again),
            LinkWait::Settled => None,
        }
    }
}
