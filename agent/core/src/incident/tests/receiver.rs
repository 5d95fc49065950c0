//! The receiver of a sink.

use std::collections::BTreeMap;

use super::super::{Entry, JsonIncident, JsonObject, Position};

/// What a sink sends at a time.
#[derive(Debug, Clone)]
pub enum Sending {
    Entry(Box<Entry>),
    Summary(Box<JsonIncident>),
}

#[derive(Debug, Default)]
pub struct Receiver {
    /// The latest revision of each incident and summary, and its kills.
    latest: BTreeMap<String, (u8, u64)>,
    times: BTreeMap<(String, u8), u32>,
    /// How many times more than once a revision may come.
    repeatable: BTreeMap<(String, u8), u32>,
    /// The kills in revisions of which the agent does not know that they came: also in a summary.
    pub doubtful: u64,
    /// The kills in revisions that were removed when the agent did not know whether they came.
    pub missing: u64,
    /// The last position by object.
    order: Vec<(JsonObject, Position)>,
}

impl Receiver {
    pub fn receive(&mut self, sending: &Sending) {
        match sending {
            Sending::Entry(entry) => {
                let object = &entry.incident.object;
                match self.order.iter_mut().find(|(known, _)| known == object) {
                    Some((_, last)) => {
                        assert!(*last <= entry.position, "{entry:?} came out of order");
                        *last = entry.position;
                    }
                    None => self.order.push((object.clone(), entry.position)),
                }
                self.take(&entry.incident);
            }
            Sending::Summary(summary) => self.take(summary),
        }
    }

    fn take(&mut self, incident: &JsonIncident) {
        let key = (incident.id.clone(), incident.revision);
        let repeatable = self.repeatable.get(&key).copied().unwrap_or(0);
        let times = self.times.entry(key).or_default();
        *times += 1;
        assert!(*times <= 1 + repeatable, "{incident:?} came again");
        let latest = self.latest.entry(incident.id.clone()).or_default();
        *latest = (incident.revision, incident.kills()).max(*latest);
    }

    /// The agent does not know that this came.
    pub fn doubt(&mut self, sending: &Sending) {
        match sending {
            Sending::Entry(entry) => self.may_come_again(&entry.incident),
            Sending::Summary(summary) => self.may_come_again(summary),
        }
    }

    fn may_come_again(&mut self, incident: &JsonIncident) {
        let key = (incident.id.clone(), incident.revision);
        *self.repeatable.entry(key).or_default() += 1;
        self.doubtful += incident.kills();
    }

    /// The agent was killed when it had not added these to a summary.
    pub fn miss(&mut self, removed: &[Entry]) {
        self.missing += removed
            .iter()
            .map(|entry| entry.incident.kills())
            .sum::<u64>();
    }

    /// The power failed, and with it the positions.
    pub fn everything_may_come_again(&mut self) {
        self.order.clear();
        for key in self.times.keys() {
            *self.repeatable.entry(key.clone()).or_default() += 1;
        }
        self.doubtful += self.latest.values().map(|(_, kills)| kills).sum::<u64>();
    }

    /// Returns the kills of summaries, and of incidents that are `recorded`.
    pub fn kills(&self, recorded: impl Fn(&str) -> bool) -> u64 {
        let is_summary = |id: &str| id.starts_with("ffffffff-");
        let mut kills = 0;
        for (id, (_, of)) in &self.latest {
            if is_summary(id) || recorded(id) {
                kills += of;
            }
        }
        kills
    }
}
