//! A limit on log lines of one kind, for everything that others can cause in any number: requests,
//! device events, frames of a connection.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, info};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Maximum number of lines of one statement within [`PERIOD`]; more are only counted.
const LINES: u32 = 100;
/// The same at the levels that are logged by default, where each OOM kill has a line: a storm of a
/// thousand in a minute is logged completely.
const LINES_BY_DEFAULT: u32 = 2_000;
/// Interval at which the counts are logged, with the next line of any kind.
const PERIOD: Duration = Duration::from_mins(1);
/// The target of lines with a count, which have no limit.
const TARGET: &str = "nodepulse::log";

/// Passes on a limited number of lines of each statement.
#[derive(Debug, Default)]
pub struct LineLimit {
    /// Shared, because every thread of the agent logs.
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    begun: Option<Instant>,
    /// At most one entry per statement in the program.
    kinds: HashMap<Identifier, Kind>,
}

#[derive(Debug, Default)]
struct Kind {
    lines: u32,
    suppressed: u64,
    /// Message of the first suppressed line.
    message: String,
}

impl Counts {
    /// Returns `true` if a line may be logged, and the kinds of a period that has ended.
    fn admit(
        &mut self,
        of: Identifier,
        lines: u32,
        message: impl FnOnce() -> String,
        now: Instant,
    ) -> (bool, Vec<Kind>) {
        let begun = *self.begun.get_or_insert(now);
        let mut ended = Vec::new();
        if PERIOD <= now.saturating_duration_since(begun) {
            self.begun = Some(now);
            ended.extend(self.kinds.drain().map(|(_, kind)| kind));
            ended.retain(|kind| kind.suppressed > 0);
        }
        let kind = self.kinds.entry(of).or_default();
        if kind.lines < lines {
            kind.lines += 1;
            return (true, ended);
        }
        if kind.suppressed == 0 {
            kind.message = message();
        }
        kind.suppressed += 1;
        (false, ended)
    }
}

impl<S: Subscriber> Layer<S> for LineLimit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if metadata.target() == TARGET {
            return true;
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = if *metadata.level() <= Level::INFO {
            LINES_BY_DEFAULT
        } else {
            LINES
        };
        let message = || Message::of(event);
        let admitted = counts.admit(metadata.callsite(), lines, message, Instant::now());
        // Logging below comes back here.
        drop(counts);
        let (is_allowed, ended) = admitted;
        for Kind {
            suppressed,
            message,
            ..
        } in ended
        {
            info!(target: TARGET, suppressed, message_of = message, "similar log lines suppressed");
        }
        is_allowed
    }
}

#[derive(Default)]
struct Message(String);

impl Message {
    fn of(event: &Event<'_>) -> String {
        let mut message = Self::default();
        event.record(&mut message);
        message.0
    }
}

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing::debug;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// Collects the message of each event that reaches it.
    #[derive(Clone, Default)]
    struct Passed(std::sync::Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Passed {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().unwrap().push(Message::of(event));
        }
    }

    #[test]
    fn a_statement_that_is_repeated_does_not_suppress_others() {
        let passed = Passed::default();
        let subscriber = tracing_subscriber::registry()
            .with(passed.clone())
            .with(LineLimit::default());
        tracing::subscriber::with_default(subscriber, || {
            for n in 0..10_000 {
                debug!(n, "flood");
            }
            for n in 0..10_000 {
                info!(n, "kill");
            }
            debug!("other");
        });
        let lines = passed.0.lock().unwrap();
        let number = |message| lines.iter().filter(|line| *line == message).count();
        assert_eq!((number("flood"), number("kill")), (100, 2_000));
        assert_eq!(lines.last().map(String::as_str), Some("other"));
    }

    /// Returns the identifiers of two statements.
    fn kinds() -> [Identifier; 2] {
        #[derive(Clone, Default)]
        struct Found(std::sync::Arc<Mutex<Vec<Identifier>>>);

        impl<S: Subscriber> Layer<S> for Found {
            fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
                self.0.lock().unwrap().push(event.metadata().callsite());
            }
        }
        let found = Found::default();
        let subscriber = tracing_subscriber::registry().with(found.clone());
        tracing::subscriber::with_default(subscriber, || {
            debug!("flood");
            debug!("other");
        });
        let found = found.0.lock().unwrap();
        [found[0].clone(), found[1].clone()]
    }

    #[test]
    fn suppressed_lines_are_counted_once_a_minute() {
        let [flood, other] = kinds();
        let start = Instant::now();
        let mut counts = Counts::default();
        let mut admit = |of: &Identifier, seconds| {
            let now = start + Duration::from_secs(seconds);
            let (allowed, ended) = counts.admit(of.clone(), LINES, || "m".to_owned(), now);
            let ended = ended
                .into_iter()
                .map(|kind| (kind.suppressed, kind.message));
            (allowed, ended.collect::<Vec<_>>())
        };
        for n in 0..150 {
            assert_eq!(admit(&flood, 0), (n < 100, vec![]), "{n}");
        }
        assert_eq!(admit(&other, 59), (true, vec![]), "not yet");
        assert_eq!(admit(&other, 60), (true, vec![(50, "m".to_owned())]));
        assert_eq!(admit(&flood, 61), (true, vec![]), "another minute");
        assert_eq!(admit(&flood, 120), (true, vec![]), "nothing was suppressed");
    }
}
