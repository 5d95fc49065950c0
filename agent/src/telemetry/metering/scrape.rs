//! Counters of the kernel, the API client and the process, read for a scrape.

use agent_common::DropReason;
use nodepulse_core::clock::{BootNanos, Now};
use nodepulse_core::explanation::ExplainedSink;
use nodepulse_kube::Client;
use nodepulse_linux::host::self_process;
use nodepulse_linux::kernel::counters::ProbeCounters;
use tracing::debug;

use super::Metering;
use crate::config::SinkConfig;
use crate::metrics::{Label, SetTotal as _};

impl Metering {
    /// Returns why there are no credentials for the API server; empty if there are.
    pub fn missing_credentials(&self) -> String {
        let missing = self.client.as_ref().map(Client::missing_credentials);
        let missing = missing.and_then(|missing| missing.borrow().clone());
        missing.unwrap_or_default()
    }

    pub fn sinks(&self, config: &SinkConfig) -> Vec<ExplainedSink> {
        let explained = |name: &'static str| {
            let series = self.sink_series(name);
            ExplainedSink {
                name: name.to_owned(),
                lag: series.lag.get(),
                failing: series.failing.get() != 0,
            }
        };
        config.names().map(explained).collect()
    }

    pub(super) fn counted_by_the_kernel(&self, figures: &ProbeCounters) {
        let kernel = &self.metrics.kernel;
        for (reason, count) in &figures.losses {
            let labels = match reason {
                DropReason::CritFull => ["crit", "full"],
                DropReason::BulkFull => ["bulk", "full"],
                DropReason::Unreadable | DropReason::NoStartTime => ["none", reason.as_str()],
            };
            kernel.events_lost.of(labels).set_total(*count);
        }
        for (probe, time, count) in &figures.runs {
            let labels = [probe.program()];
            kernel
                .bpf_run_seconds
                .of(labels)
                .set_total(time.as_secs_f64());
            kernel.bpf_runs.of(labels).set_total(*count);
        }
    }

    pub(super) fn counted_by_the_client(&self) {
        let requests = self.client.as_ref().map(Client::requests);
        for (request, count) in requests.into_iter().flatten() {
            let labels = [
                Label::from(request.verb),
                request.resource.into(),
                request.end.to_string().into(),
            ];
            self.metrics.api.requests.of(labels).set_total(count);
        }
    }

    pub(super) fn process(&self, now: Now) {
        for lane in self.lanes.all() {
            let blocked = self
                .metrics
                .process
                .blocked_calls
                .of([lane.purpose().as_str()]);
            blocked.set(i64::from(lane.is_blocked()));
        }
        let usage = self_process::read();
        let usage = ok_or_log!(debug, usage, "resource usage of this process not read");
        let Some(usage) = usage else {
            return;
        };
        let process = &self.metrics.process;
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        process.cpu.set_total(usage.cpu.as_secs_f64());
        process.resident_memory.set(number(usage.resident));
        process.virtual_memory.set(number(usage.virtual_memory));
        let open = u64::try_from(usage.open_fds).unwrap_or(u64::MAX);
        process.open_fds.set(number(open));
        process.max_fds.set(usage.max_fds.map_or(0, number));
        let started = now.wall_at(BootNanos(0).plus(usage.started));
        let since_epoch = started.duration_since(std::time::UNIX_EPOCH);
        process
            .start_time
            .set(since_epoch.unwrap_or_default().as_secs_f64());
    }
}
