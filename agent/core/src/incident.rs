//! PURE: incidents, each of which is one thing that happened, and what sinks have delivered of
//! them.
//!
//! ```text
//! decided: an id, revision 1 ──► history ──► sinks, each with a Cursor
//!             later revisions ──┘
//! ```

mod cursor;
mod facts;
mod id;
mod json;
#[cfg(test)]
mod tests;

pub use cursor::{Cursor, Entry, Position, Revision};
pub use facts::{Incident, Object, Occurred, Occurrence, by_cause};
pub use id::{BootId, IncidentId, IncidentIds};
pub use json::{
    API_VERSION, JsonCondition, JsonFacts, JsonIncident, JsonKill, JsonObject, JsonPod,
};

/// The number of incidents that can be open at the same time.
pub const MAX_OPEN: usize = 512;
