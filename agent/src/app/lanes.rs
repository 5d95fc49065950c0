//! The lanes of all purposes.

use crate::api::Client;
use crate::lane::{Lane, Purpose};
use crate::names::Names;

/// One lane for each purpose.
#[derive(Debug, Clone)]
pub(super) struct Lanes(Vec<Lane>);

impl Lanes {
    /// Shares the client's lane for credentials and the resolver's for names.
    pub(super) fn new(client: Option<&Client>) -> Self {
        let of_client = client.and_then(Client::lane);
        let shared = [of_client, Some(Names::system().lane())];
        let lane = |purpose| {
            let mut shared = shared.iter().flatten();
            let shared = shared.find(|lane| lane.purpose() == purpose);
            shared.map_or_else(|| Lane::new(purpose), Lane::clone)
        };
        Self(Purpose::ALL.map(lane).to_vec())
    }

    pub(super) fn of(&self, purpose: Purpose) -> Lane {
        let known = self.0.iter().find(|lane| lane.purpose() == purpose);
        known.map_or_else(|| Lane::new(purpose), Lane::clone)
    }

    pub(super) fn all(&self) -> &[Lane] {
        &self.0
    }

    /// The purposes with a call that exceeded its limit and has not returned.
    pub(super) fn blocked(&self) -> Vec<&'static str> {
        let blocked = self.0.iter().filter(|lane| lane.is_blocked());
        blocked.map(|lane| lane.purpose().as_str()).collect()
    }
}
