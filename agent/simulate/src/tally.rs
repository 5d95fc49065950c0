//! What was done and how long it took: a line of progress, and a summary.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use nodepulse_core::units::latency::{self, Buckets, Millis};
use nodepulse_kube::Client;

/// A Lease that was renewed later than this is counted.
const LATE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct Operations {
    buckets: Buckets,
    longest: Duration,
    failures: u64,
}

#[derive(Debug, Default)]
pub struct Tally {
    /// By what was done: a verb and its object.
    operations: BTreeMap<&'static str, Operations>,
    /// A failure of these was printed since the last line of progress.
    printed: BTreeSet<&'static str>,
    /// The longest time from when a renewal was due until it was sent.
    latest_lease: Duration,
    late_leases: u64,
    /// Requests as of the last line of progress.
    requests: u64,
}

impl Tally {
    pub fn succeeded(&mut self, operation: &'static str, took: Duration) {
        let counts = self.operations.entry(operation).or_default();
        counts.longest = counts.longest.max(took);
        let bucket = (0..counts.buckets.len())
            .find(|bucket| latency::bucket_end(*bucket).is_none_or(|end| took < end));
        if let Some(count) = bucket.and_then(|bucket| counts.buckets.get_mut(bucket)) {
            *count += 1;
        }
    }

    pub fn has_succeeded(&self, operation: &'static str) -> bool {
        let counts = self.operations.get(&operation);
        counts.is_some_and(|counts| latency::total(&counts.buckets) > 0)
    }

    /// Returns a line to print, for the first failure since the last line of progress.
    pub fn failed(&mut self, operation: &'static str, error: &str) -> Option<String> {
        self.operations.entry(operation).or_default().failures += 1;
        let is_first = self.printed.insert(operation);
        is_first.then(|| format!("cannot {operation}: {error}"))
    }

    pub fn renewed(&mut self, late: Duration) {
        self.latest_lease = self.latest_lease.max(late);
        self.late_leases += u64::from(LATE < late);
    }

    /// Returns the line of progress after `period`, about `state`.
    pub fn progress(&mut self, state: &str, period: Duration, clients: &[Client]) -> String {
        let requests = requests(clients).values().sum::<u64>();
        let new = requests.saturating_sub(self.requests);
        self.requests = requests;
        self.printed.clear();
        let failures: u64 = self.operations.values().map(|counts| counts.failures).sum();
        format!(
            "{state}, {} requests/s, latest Lease {}, {failures} failures",
            new / period.as_secs().max(1),
            Millis(self.latest_lease),
        )
    }

    pub fn summary(&self, elapsed: Duration, clients: &[Client]) -> String {
        let mut text = String::new();
        let mut line = |line: std::fmt::Arguments<'_>| {
            // Writing to a String cannot fail.
            let _written: std::fmt::Result = writeln!(text, "{line}");
        };
        line(format_args!("{:<40}{:>12}", "requests", "count"));
        for ((verb, resource, end), count) in requests(clients) {
            let kind = format!("{verb} {resource} {end}");
            line(format_args!("{kind:<40}{count:>12}"));
        }
        let [sent, received] = clients
            .iter()
            .map(Client::traffic)
            .fold([0; 2], |sums, of| [sums[0] + of[0], sums[1] + of[1]]);
        line(format_args!(
            "bodies, without watches: {} KiB sent, {} KiB received",
            sent >> 10,
            received >> 10
        ));
        for (operation, counts) in &self.operations {
            let done = latency::total(&counts.buckets);
            let [median, most, nearly_all] = [500, 900, 990].map(|per_mille| {
                let quantile = latency::quantile(&counts.buckets, per_mille);
                Millis(quantile.unwrap_or_default().min(counts.longest))
            });
            let (longest, failures) = (Millis(counts.longest), counts.failures);
            line(format_args!(
                "{operation}: {done} done, 50 % within {median}, 90 % {most}, 99 % {nearly_all}, all \
                 {longest}; {failures} failures"
            ));
        }
        line(format_args!(
            "latest Lease {}; {} later than {} s",
            Millis(self.latest_lease),
            self.late_leases,
            LATE.as_secs()
        ));
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let memory = memory.unwrap_or("?").trim();
        let seconds = elapsed.as_secs();
        line(format_args!("{seconds} s, at most {memory} of memory"));
        text
    }
}

fn requests(clients: &[Client]) -> BTreeMap<(&'static str, &'static str, String), u64> {
    let mut all = BTreeMap::new();
    for (request, count) in clients.iter().flat_map(Client::requests) {
        let kind = (request.verb, request.resource, request.end.to_string());
        *all.entry(kind).or_default() += count;
    }
    all
}
