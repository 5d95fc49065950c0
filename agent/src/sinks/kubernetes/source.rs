//! The input of the sink, from the loop and from the recorder.

use nodepulse_core::incident::{Incident, Occurrence, Position};
use nodepulse_core::kube_event::NodeEvents;
use nodepulse_kube::recorder::{EventSink, Outcome};
use tokio::sync::{mpsc, watch};

/// A revision, before it is in the JSON form.
pub type Fresh = (Position, Box<Incident>);

/// The loop's side.
pub struct Source {
    pub(super) fresh: mpsc::Sender<Fresh>,
    pub(super) conditions: mpsc::Sender<Fresh>,
    pub node_events: watch::Sender<NodeEvents>,
    /// The recorder has the Events about all revisions up to here.
    pub handed_over: watch::Receiver<Position>,
}

impl Source {
    /// Passes on a revision. If there is no room, it is read later.
    pub fn record(&self, position: Position, incident: &Incident) {
        let room = match incident.occurred.occurrence {
            Occurrence::Condition(_) => &self.conditions,
            _ => &self.fresh,
        };
        let _full = room.try_send((position, Box::new(incident.clone())));
    }
}

/// The recorder's side.
pub struct Reported {
    pub events: EventSink,
    pub outcomes: mpsc::UnboundedReceiver<Outcome>,
    /// The API server has all changes of conditions up to here.
    pub written: watch::Receiver<Position>,
}
