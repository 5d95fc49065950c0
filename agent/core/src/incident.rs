//! PURE: incidents, each of which is one thing that happened, and what is still to be delivered of
//! them.
//!
//! ```text
//! decided: an id, revision 1 ──► recorded: Change::Revision ──► a sink: History::next
//!             later revisions ──┘                                  │
//!                                  Change::Receipt ◄── answer ─────┘
//! ```

mod facts;
mod history;
mod id;
mod json;
#[cfg(test)]
mod tests;

pub use facts::{Incident, Object, Occurred, Occurrence, by_cause};
pub use history::{Change, History, Owed, Position, Receipt, Revision, Sink, Sinks, Undelivered};
pub use id::{BootId, IncidentId, IncidentIds};
pub use json::{API_VERSION, JsonFacts, JsonIncident, JsonObject, JsonPod};
