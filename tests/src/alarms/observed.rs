//! Observes a run: conditions in the requests, PSI of the node, metrics of the agent.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_io::clock::Clock;
use serde_json::Value;

use super::site;
use crate::api_server::ApiServer;
use crate::http1::get;
use crate::openmetrics::Exposition;
use crate::view::View;

/// A condition that was True in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    pub condition: String,
    pub reason: String,
    pub message: String,
    /// Time since boot of the first request with it.
    pub at: Duration,
}

/// Returns all conditions that were ever True, in the order of the requests.
pub fn alarms(api: &ApiServer) -> Vec<Alarm> {
    let path = site::status_path();
    let mut alarms: Vec<Alarm> = Vec::new();
    for request in api.requests_where(|request| request.path == path) {
        let body = request.body.unwrap_or_default();
        let conditions = body["status"]["conditions"].as_array();
        for condition in conditions.into_iter().flatten() {
            let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
            let type_ = text("type");
            let is_new = alarms.iter().all(|known| known.condition != type_);
            if condition["status"] == "True" && is_new {
                alarms.push(Alarm {
                    condition: type_,
                    reason: text("reason"),
                    message: text("message"),
                    at: request.at,
                });
            }
        }
    }
    alarms
}

pub fn is_false(api: &ApiServer, condition: &str) -> bool {
    View::of(api, site::NODE).status(condition) == "False"
}

/// Returns when the first Event of this pod with this reason arrived, since boot, and its message.
pub fn pod_event(api: &ApiServer, pod: &str, reason: &str) -> Option<(Duration, String)> {
    let created = api.requests_where(|request| request.method == "POST");
    created.into_iter().find_map(|request| {
        let event = request.body?;
        let object = &event["involvedObject"];
        let is_it = object["kind"] == "Pod" && object["name"] == pod && event["reason"] == reason;
        let message = event["message"].as_str()?.to_owned();
        is_it.then_some((request.at, message))
    })
}

/// Returns the disks that the metrics report as unhealthy, with their states.
pub async fn unhealthy(address: &str) -> Vec<String> {
    const NAME: &str = "nodepulse_disk_unhealthy";
    let Ok(answer) = get(address, "/metrics").await else {
        return Vec::new();
    };
    let lines = answer.body.lines();
    let unhealthy = lines.filter(|line| line.starts_with(NAME) && line.ends_with(" 1"));
    unhealthy.map(str::to_owned).collect()
}

/// Returns the first message of an Event of the Node with this reason.
pub fn event_message(api: &ApiServer, reason: &str) -> Option<String> {
    let events = api.list(crate::view::EVENTS).into_iter();
    let mut of_reason = events.filter(|event| event["reason"] == reason);
    let message = |event: Value| event["message"].as_str().map(str::to_owned);
    of_reason.next().and_then(message)
}

/// Returns the number of windows with a slow disk that the agent has received.
pub async fn slow_windows(address: &str) -> Option<f64> {
    let answer = get(address, "/metrics").await.ok()?;
    let metrics = Exposition::parse(&answer.body).ok()?;
    let kinds = ["slow_window", "disk_state"];
    let counts =
        kinds.map(|kind| metrics.value("nodepulse_events_received_total", &[("kind", kind)]));
    Some(
        counts
            .into_iter()
            .flatten()
            .fold(0.0, |sum, count| sum + count),
    )
}

/// Samples the node's io PSI for its maximum over about a second.
pub struct IoPressure {
    ended: Arc<AtomicBool>,
    sampler: JoinHandle<Option<f64>>,
}

impl IoPressure {
    pub fn start() -> Self {
        let ended = Arc::new(AtomicBool::new(false));
        let sampler = {
            let ended = Arc::clone(&ended);
            thread::spawn(move || most(&ended))
        };
        Self { ended, sampler }
    }

    /// Returns the maximum in percent of the time; `None` without PSI.
    pub fn end(self) -> Option<f64> {
        self.ended.store(true, Ordering::Relaxed);
        self.sampler.thread().unpark();
        self.sampler.join().ok().flatten()
    }
}

fn most(ended: &AtomicBool) -> Option<f64> {
    let mut last = total()?;
    let mut most = 0.0_f64;
    while !ended.load(Ordering::Relaxed) {
        thread::park_timeout(Duration::from_secs(1));
        let now = total()?;
        let (waited, passed) = (now.0.saturating_sub(last.0), now.1.since(last.1));
        // The kernel updates the total every two seconds.
        if passed >= Duration::from_millis(500) {
            let share = waited.as_secs_f64() / passed.as_secs_f64();
            most = most.max((share * 100.0).min(100.0));
            last = now;
        }
    }
    Some(most)
}

/// Returns the time that some task has waited for I/O since boot, and the present time.
fn total() -> Option<(Duration, BootNanos)> {
    let text = fs::read_to_string("/proc/pressure/io").ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    let (_, micros) = some.rsplit_once("total=")?;
    let waited = Duration::from_micros(micros.parse().ok()?);
    Some((waited, Clock::kernel().now().boot))
}
