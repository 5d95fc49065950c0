//! Series in which tasks other than the main loop count.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use crate::metrics::ProcessMetrics;

/// Counters of revisions of incidents.
#[derive(Debug, Clone)]
pub struct HistoryCounters {
    pub recorded: Counter,
    /// There was no room in the queue, or the disk refused them.
    pub lost: Counter,
}

/// Series of a sink.
#[derive(Debug, Clone)]
pub struct SinkSeries {
    pub delivered: Counter,
    pub refused: Counter,
    pub expired: Counter,
    pub removed: Counter,
    pub unrecorded: Counter,
    pub lag: Gauge,
    pub failing: Gauge,
}

impl HistoryCounters {
    pub fn new(metrics: &ProcessMetrics) -> Self {
        let revisions = &metrics.history_revisions;
        Self {
            recorded: revisions.of(["recorded"]),
            lost: revisions.of(["lost"]),
        }
    }
}

impl SinkSeries {
    pub fn new(metrics: &ProcessMetrics, sink: &'static str) -> Self {
        let lost = |reason| metrics.sink_lost.of([sink, reason]);
        Self {
            delivered: metrics.sink_delivered.of([sink]),
            refused: lost("refused"),
            expired: lost("expired"),
            removed: lost("removed"),
            unrecorded: lost("unrecorded"),
            lag: metrics.sink_lag.of([sink]),
            failing: metrics.sink_failing.of([sink]),
        }
    }

    /// Sets the number of revisions that are not delivered.
    pub fn set_lag(&self, revisions: u64) {
        self.lag.set(i64::try_from(revisions).unwrap_or(i64::MAX));
    }
}
