//! What is at the other side of a sink.

use std::collections::BTreeMap;

use super::super::{IncidentId, Position, Revision};

#[derive(Debug, Default)]
pub struct Receiver {
    /// The latest revision of each incident, and its kills.
    pub latest: BTreeMap<IncidentId, (u8, u64)>,
    times: BTreeMap<(IncidentId, u8), u32>,
    /// How many times more than once a revision may come.
    repeatable: BTreeMap<(IncidentId, u8), u32>,
    /// The kills in revisions of which the agent does not know that they came.
    pub doubtful: u64,
    /// The last position by object.
    order: BTreeMap<u64, Position>,
}

impl Receiver {
    pub fn receive(&mut self, position: Position, revision: Revision) {
        let Revision {
            id,
            revision: number,
            kills,
            object,
            ..
        } = revision;
        let key = (id, number);
        let times = self.times.entry(key).or_default();
        *times += 1;
        let repeatable = self.repeatable.get(&key).copied().unwrap_or(0);
        assert!(*times <= 1 + repeatable, "{id} {number} came again");
        let before = self.order.insert(object, position);
        assert!(before <= Some(position), "{id} {number} came out of order");
        let latest = self.latest.entry(id).or_default();
        *latest = (number, kills).max(*latest);
    }

    /// The agent does not know that this revision came.
    pub fn doubt(&mut self, id: IncidentId, revision: u8, kills: u64) {
        *self.repeatable.entry((id, revision)).or_default() += 1;
        self.doubtful += kills;
    }

    /// The next positions may be smaller: those of entries that a power cut took.
    pub fn forget_order(&mut self) {
        self.order.clear();
    }
}
