//! PURE: the wording of Kubernetes Events, and the object that each Event is about.
//!
//! ```text
//! Incident ──► EventWords ──► Draft on the Pod, on the Node, or on both
//! ```
//!
//! A [`Draft`] is complete: the recorder combines, limits and writes drafts, and words nothing.

use std::time::SystemTime;

use crate::clock::Stamp;
use crate::incident::{IncidentId, Position};
use crate::node_status::Shutdown;
use crate::node_status::transition::EventType;

mod annotations;
mod container_label;
mod event_words;
mod finding;
mod incident;
mod kill_details;
mod kill_text;
mod kills;
mod refused_forks;
mod reported_kills;
mod settled;
mod unidentified_kills;
mod volume;

pub use annotations::Annotations;
pub use container_label::ContainerLabel;
pub use event_words::EventWords;
pub use finding::{Cause, Finding, Limiting, NodeEvents, VictimOwner};
pub use kill_details::KillDetails;
pub use kills::Kills;
pub use refused_forks::RefusedForks;
pub use reported_kills::{KillOwner, ReportedKills};
pub use settled::Settled;
pub use unidentified_kills::{
    KillPlace, Period, SOME_VICTIMS_UNKNOWN, UnidentifiedKills, VICTIMS_UNKNOWN,
};
pub use volume::{DiskTrouble, VolumeTrouble};

/// The object that an Event is about: `involvedObject`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Involved {
    /// The Node of this agent. Its Events are in namespace `default`.
    Node,
    /// A pod of this node. Its Events are in its namespace.
    Pod {
        namespace: String,
        name: String,
        uid: String,
        /// The part of the pod, such as `spec.containers{web}`.
        field_path: Option<Box<str>>,
    },
}

impl Involved {
    /// Rate limits apply to the object as a whole, whatever part of it an Event is about.
    #[must_use]
    pub fn whole(&self) -> Self {
        let mut whole = self.clone();
        if let Self::Pod { field_path, .. } = &mut whole {
            *field_path = None;
        }
        whole
    }
}

/// Identifies an Event about an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    pub incident: IncidentId,
    /// It is the Event on the Node that the incident has in any case, besides the one on its Pod.
    pub on_node: bool,
}

impl EventId {
    /// Returns a number for the name of the Event, which no other Event of this object has.
    pub fn number(self) -> u64 {
        let IncidentId { boot, number } = self.incident;
        let (high, low) = boot.into();
        let number = high ^ low ^ number;
        if self.on_node { !number } else { number }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    pub object: Involved,
    pub type_: EventType,
    /// The Event is about a change of the Node's status, such as a condition. Such Events have a
    /// separate rate limit, and kills never delay them.
    pub is_transition: bool,
    /// A CamelCase token.
    pub reason: String,
    /// Text for people, cut after 1024 bytes.
    pub message: String,
    /// The same facts for programs; may be empty.
    pub annotations: Annotations,
    /// The number of things that the message describes, such as processes that were killed
    /// together. If a newer message replaces this one, the count includes them.
    pub of: u32,
    /// The number of observations: the first value of its `count`.
    pub times: u32,
    /// The container of the pod, if its `fieldPath` is not known. An Event that waited for the API
    /// server reads it before it is sent.
    pub container: Option<ContainerLabel>,
    /// Set if it is about an incident. The name of the Event is made of it.
    pub id: Option<EventId>,
    /// A later revision of the incident is the reason: this replaces the message of that Event and
    /// adds annotations. `of` is the number of kills that the Event did not report yet. If the
    /// Event is not known any more, those become a separate Event.
    pub is_later: bool,
    /// The incident is settled, so that no later version follows.
    pub is_last: bool,
    /// The revision of the incident, whose delivery is reported to the sink.
    pub position: Option<Position>,
    /// The time of the occurrence: the kernel's if the kernel recorded one.
    pub at: SystemTime,
    /// Set if the kernel recorded the occurrence.
    pub stamp: Option<Stamp>,
}

impl Draft {
    /// Returns a kubelet's Event about a change of the Node's status.
    pub fn transition(type_: EventType, reason: &str, message: String, at: SystemTime) -> Self {
        Self {
            object: Involved::Node,
            type_,
            is_transition: true,
            reason: reason.to_owned(),
            message,
            annotations: Annotations::new(),
            of: 1,
            times: 1,
            id: None,
            container: None,
            is_later: false,
            is_last: false,
            position: None,
            at,
            stamp: None,
        }
    }

    /// Returns the kubelet's Event on the Node about an announced or cancelled shutdown of the
    /// machine.
    pub fn shutdown(shutdown: Shutdown, at: SystemTime) -> Self {
        let message = match shutdown {
            Shutdown::Announced => "Shutdown manager detected shutdown event",
            Shutdown::NotAnnounced => "Shutdown manager detected shutdown cancellation",
        };
        Self::transition(EventType::Normal, "Shutdown", message.to_owned(), at)
    }
}

/// Reason and message of an Event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Words {
    pub reason: &'static str,
    pub message: String,
}
