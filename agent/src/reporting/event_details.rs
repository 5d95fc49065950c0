//! Details for the Events of conditions that become True: numbers, and the pods that cause it. They
//! may be read while the condition is written; its Event waits for them, but never for long.

use std::collections::BTreeMap;
use std::time::Duration;

use nodepulse_core::reading::Ground;
use tokio::sync::watch;

/// Time limit for details. Several hundred pods are read in a few milliseconds.
const LIMIT: Duration = Duration::from_millis(50);

/// The details of each condition; `None` while they are read.
type Known = BTreeMap<Ground, Option<String>>;

#[derive(Debug, Default)]
pub(super) struct EventDetails(watch::Sender<Known>);

impl EventDetails {
    /// Records that details are being read (`None`), or known.
    pub(super) fn set(&self, of: Ground, details: Option<String>) {
        self.0.send_modify(|known| {
            known.insert(of, details);
        });
    }

    pub(super) fn reader(&self) -> DetailsReader {
        DetailsReader(self.0.subscribe())
    }
}

/// The side of the status writer.
#[derive(Debug, Clone)]
pub(super) struct DetailsReader(watch::Receiver<Known>);

impl DetailsReader {
    /// Returns the details, which are empty if there are none; `None` while they are read.
    pub(super) fn known(&self, of: Ground) -> Option<String> {
        let known = self.0.borrow().get(&of).cloned();
        known.unwrap_or_else(|| Some(String::new()))
    }

    /// The details; empty if they take longer than [`LIMIT`], or if the agent stops.
    pub(super) async fn wait(mut self, of: Ground) -> String {
        let is_known = |known: &Known| known.get(&of).is_none_or(Option::is_some);
        let waited = tokio::time::timeout(LIMIT, self.0.wait_for(is_known)).await;
        let known = waited.ok().and_then(Result::ok);
        let details = known.and_then(|known| known.get(&of).cloned().flatten());
        details.unwrap_or_default()
    }
}

pub(super) fn with_details(message: &str, details: &str) -> String {
    if details.is_empty() {
        message.to_owned()
    } else {
        format!("{message}; {details}")
    }
}

#[cfg(test)]
mod tests {
    use nodepulse_core::reading::Resource;
    use tokio::time::Instant;

    use super::*;

    const MEMORY: Ground = Ground::Resource(Resource::Memory);
    const PIDS: Ground = Ground::Resource(Resource::Pids);
    const READ: Duration = Duration::from_millis(3);

    #[tokio::test(start_paused = true)]
    async fn an_event_waits_for_details_that_are_being_read_and_for_nothing_else() {
        let details = EventDetails::default();
        let reader = details.reader();
        assert_eq!(reader.known(PIDS), Some(String::new()));

        details.set(MEMORY, Some("b".to_owned()));
        details.set(PIDS, Some("of the last time".to_owned()));
        details.set(PIDS, None);
        assert_eq!(reader.known(MEMORY), Some("b".to_owned()));
        assert_eq!(reader.known(PIDS), None);

        let start = Instant::now();
        let answer = async {
            tokio::time::sleep(READ).await;
            details.set(MEMORY, None);
            details.set(PIDS, Some("a".to_owned()));
        };
        let (text, ()) = tokio::join!(reader.clone().wait(PIDS), answer);
        assert_eq!((text.as_str(), start.elapsed()), ("a", READ));
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_does_not_wait_longer_than_the_limit() {
        let details = EventDetails::default();
        details.set(PIDS, None);
        let start = Instant::now();
        assert_eq!(details.reader().wait(PIDS).await, "");
        assert_eq!(start.elapsed(), LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_does_not_wait_for_an_agent_that_stops() {
        let details = EventDetails::default();
        details.set(PIDS, None);
        let reader = details.reader();
        let start = Instant::now();
        drop(details);
        assert_eq!(reader.wait(PIDS).await, "");
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[test]
    fn details_follow_the_message() {
        assert_eq!(with_details("a (b)", ""), "a (b)");
        assert_eq!(with_details("a (b)", "c"), "a (b); c");
    }
}
