//! Days on which everything outside the agent misbehaves at random: how they are generated, and
//! what must be true of the agent's requests and of its process in the end.

use std::time::Duration;

use crate::api_server::{ApiServer, Fault, Recorded};
use crate::days::{Draws, MISHAPS};

pub mod attackers;
pub mod day;
pub mod footprint;

/// The longest time between two renewals while the server answers: ten seconds, jitter, and
/// what a busy machine adds.
const RENEWAL: Duration = Duration::from_millis(11_500);
/// The longest time to the first renewal of the Lease after a hostile spell: a request that was
/// never answered ends after ten seconds, and may have been the last attempt of its period.
const RECOVERY: Duration = Duration::from_secs(10).saturating_add(RENEWAL);

/// When the API server misbehaved. Between two spells it answers everything at once.
#[derive(Debug, Default)]
pub struct Spells(Vec<(Duration, Duration)>);

impl Spells {
    /// Lets the server misbehave for `time`: of a hundred requests `percent` meet a mishap.
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

    /// Lets every connection be silent for `time`.
    pub async fn silence(&mut self, api: &ApiServer, time: Duration) {
        let silent = async {
            api.freeze_all();
            tokio::time::sleep(time).await;
            api.thaw();
            // What was frozen is answered late or not at all.
            api.reset_connections();
        };
        self.during(api, silent).await;
    }

    /// Counts the time that `spell` takes as one at which the Lease may be late.
    pub async fn during(&mut self, api: &ApiServer, spell: impl Future<Output = ()>) {
        let began = api.now();
        spell.await;
        self.0.push((began, api.now()));
    }

    /// Adds others.
    pub fn extend(&mut self, others: Spells) {
        self.0.extend(others.0);
        self.0.sort();
    }

    /// Whether `moment` is in a spell, or within `margin` of one.
    pub fn covers(&self, moment: Duration, margin: Duration) -> bool {
        let mut all = self.0.iter();
        all.any(|(began, ended)| *began <= moment + margin && moment <= *ended + margin)
    }

    /// The times between the spells, from the first of them until `end`.
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

    /// Renewals of the Lease that came late although the server answered, in words.
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

/// The most requests within any `window`.
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
