//! Generates days on which everything outside the agent fails at random, and checks the agent's
//! requests and its process in the end.

use std::time::Duration;

use crate::api_server::{ApiServer, Fault, Recorded};
use crate::days::{Draws, MISHAPS};

pub mod attackers;
pub mod day;
pub mod footprint;

/// Maximum time between two renewals while the server answers: ten seconds, jitter, and the delays
/// of a busy machine.
const RENEWAL: Duration = Duration::from_millis(11_500);
/// Maximum time to the first renewal of the Lease after a hostile spell: a request that was never
/// answered ends after ten seconds, and may have been the last attempt of its period.
const RECOVERY: Duration = Duration::from_secs(10).saturating_add(RENEWAL);

/// The times at which the API server misbehaved. Between two spells it answers at once.
#[derive(Debug, Default)]
pub struct Spells(Vec<(Duration, Duration)>);

impl Spells {
    /// Makes `percent` of a hundred requests fail for `time`.
    pub async fn rage(&mut self, api: &ApiServer, draws: &Draws, percent: u64, time: Duration) {
        let raging = async {
            for effect in &MISHAPS {
                let drawn = Draws::new(draws.next());
                let share = 100 * MISHAPS.len() as u64;
                let hit = move |_: &Recorded| drawn.next() % share < percent;
                api.faults().push(Fault::when(hit, effect.clone()).always());
            }
            tokio::time::sleep(time).await;
            api.faults().clear();
        };
        self.during(api, raging).await;
    }

    /// Freezes every connection for `time`.
    pub async fn silence(&mut self, api: &ApiServer, time: Duration) {
        let silent = async {
            api.freeze_all();
            tokio::time::sleep(time).await;
            api.thaw();
            // Frozen requests are answered late or not at all.
            api.reset_connections();
        };
        self.during(api, silent).await;
    }

    /// Adds the duration of `spell` as a time at which the Lease may be late.
    pub async fn during(&mut self, api: &ApiServer, spell: impl Future<Output = ()>) {
        let began = api.now();
        spell.await;
        self.0.push((began, api.now()));
    }

    pub fn extend(&mut self, others: Spells) {
        self.0.extend(others.0);
        self.0.sort();
    }

    /// Returns whether `moment` is in a spell, or within `margin` of one.
    pub fn covers(&self, moment: Duration, margin: Duration) -> bool {
        let mut all = self.0.iter();
        all.any(|(began, ended)| *began <= moment + margin && moment <= *ended + margin)
    }

    /// Returns the times between the spells, from the first of them until `end`.
    fn calm(&self, end: Duration) -> Vec<(Duration, Duration)> {
        let mut calm = Vec::new();
        let mut until: Option<Duration> = None;
        for (began, ended) in self.0.iter().copied().chain([(end, end)]) {
            calm.extend(
                until
                    .filter(|until| *until < began)
                    .map(|until| (until, began)),
            );
            until = until.max(Some(ended));
        }
        calm
    }

    /// Describes renewals of the Lease that were late although the server answered.
    pub fn late(&self, renewals: &[Recorded], end: Duration) -> Vec<String> {
        let good = renewals.iter().filter(|put| put.status == Some(200));
        let good: Vec<Duration> = good.map(|put| put.at).collect();
        let mut late = Vec::new();
        for (from, to) in self.calm(end) {
            let within = good.iter().filter(|at| from <= **at && **at < to);
            let mut due = from + RECOVERY;
            for at in within.copied().chain([to]) {
                if due < at {
                    late.push(format!("due by {due:?}, none before {at:?}"));
                }
                due = at + RENEWAL;
            }
        }
        late
    }
}

/// Returns the maximum number of requests within any `window`.
pub fn busiest(requests: &[Recorded], window: Duration) -> usize {
    let at: Vec<Duration> = requests.iter().map(|request| request.at).collect();
    let mut first = 0;
    let mut most = 0;
    for (last, moment) in at.iter().enumerate() {
        while at[first] + window <= *moment {
            first += 1;
        }
        most = most.max(last + 1 - first);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn overlapping_disturbances_are_one_and_between_them_is_calm() {
        let mut spells = Spells(vec![(at(10), at(60)), (at(90), at(100))]);
        spells.extend(Spells(vec![(at(20), at(22)), (at(95), at(110))]));
        assert_eq!(spells.calm(at(200)), [(at(60), at(90)), (at(110), at(200))]);
        assert!(spells.covers(at(61), at(1)) && !spells.covers(at(62), at(1)));
    }
}
