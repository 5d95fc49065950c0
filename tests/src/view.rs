//! Reads one Node of the API server, and the requests of its agent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::api_server::{ApiServer, Recorded};

pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
pub const EVENTS: &str = "/api/v1/namespaces/default/events";
pub const NODES: &str = "/api/v1/nodes";

#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    api: &'a ApiServer,
    name: &'a str,
}

impl<'a> View<'a> {
    pub fn of(api: &'a ApiServer, name: &'a str) -> Self {
        Self { api, name }
    }

    pub fn lease_path(&self) -> String {
        format!("{LEASES}/{}", self.name)
    }

    pub fn path(&self) -> String {
        format!("{NODES}/{}", self.name)
    }

    pub fn node(&self) -> Option<Value> {
        self.api.object(&self.path())
    }

    pub fn lease(&self) -> Option<Value> {
        self.api.object(&self.lease_path())
    }

    /// Returns the types of its conditions, in order.
    pub fn condition_types(&self) -> Vec<String> {
        let node = self.node().unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array();
        let types = conditions.into_iter().flatten();
        types
            .map(|condition| condition["type"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Returns one condition; `Null` if there is none.
    pub fn condition(&self, type_: &str) -> Value {
        let node = self.node().unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        all.find(|condition| condition["type"] == type_)
            .cloned()
            .unwrap_or_default()
    }

    /// Returns the status of one condition: `True`, `False`, `Unknown`, or an empty string.
    pub fn status(&self, type_: &str) -> String {
        self.condition(type_)["status"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Waits until a condition has a status; returns the condition, and when the request that set
    /// it arrived.
    pub async fn becomes(
        &self,
        type_: &str,
        status: &str,
        deadline: Duration,
    ) -> (Value, Duration) {
        let what = format!("{type_} {status}");
        self.api
            .wait_for(deadline, &what, |_| {
                let condition = self.condition(type_);
                if condition["status"] != status {
                    return None;
                }
                let last = self.writes().into_iter().next_back()?;
                Some((condition, last.at))
            })
            .await
    }

    /// Waits for an Event with this reason, and returns it.
    pub async fn event(&self, reason: &str, deadline: Duration) -> Value {
        let what = format!("an event {reason}");
        self.api
            .wait_for(deadline, &what, |_| {
                let events = self.api.list(EVENTS).into_iter();
                events.rev().find(|event| event["reason"] == reason)
            })
            .await
    }

    /// Returns reasons of its Events, sorted, as often as each was observed; without those that the
    /// start of an agent and a new Node's first conditions cause.
    pub fn event_reasons(&self) -> Vec<String> {
        let mut counts = self.event_counts();
        counts.remove("Starting");
        let of_new_node = [
            "NodeHasSufficientMemory",
            "NodeHasNoDiskPressure",
            "NodeHasSufficientPID",
            "DisksResponsive",
        ];
        for reason in of_new_node {
            counts
                .entry(reason.to_owned())
                .and_modify(|count| *count -= 1);
        }
        let all = counts.into_iter();
        all.flat_map(|(reason, count)| std::iter::repeat_n(reason, count))
            .collect()
    }

    /// Returns how often each reason was observed.
    pub fn event_counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for event in self.api.list(EVENTS) {
            let reason = event["reason"].as_str().unwrap_or_default().to_owned();
            let times = event["count"].as_u64().unwrap_or_default();
            *counts.entry(reason).or_default() += usize::try_from(times).expect("a small count");
        }
        counts
    }

    pub fn messages(&self, reason: &str) -> Vec<String> {
        let events = self.api.list(EVENTS).into_iter();
        events
            .filter(|event| event["reason"] == reason)
            .map(|event| event["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Returns count and message of its Events about OOM kills that were only counted, in order.
    pub fn counted_kills(&self) -> Vec<(u64, String)> {
        let events = self.api.list(EVENTS).into_iter();
        let message = |event: &Value| event["message"].as_str().unwrap_or_default().to_owned();
        let mut counted: Vec<_> = events
            .map(|event| (event["count"].as_u64().unwrap_or_default(), message(&event)))
            .filter(|(_, message)| message.contains("the victims are unknown"))
            .collect();
        counted.sort();
        counted
    }

    /// Waits until the Node and its Lease exist.
    pub async fn settled(&self, deadline: Duration) {
        let there = |_: &ApiServer| self.node().and(self.lease()).map(drop);
        self.api
            .wait_for(deadline, "a node with a lease", there)
            .await;
    }

    /// Returns requests with this method to exactly this path.
    pub fn requests(&self, method: &str, path: &str) -> Vec<Recorded> {
        self.api
            .requests_where(|request| request.method == method && request.path == path)
    }

    /// Returns status patches, accepted or not.
    pub fn patches(&self) -> Vec<Recorded> {
        self.requests("PATCH", &format!("{}/status", self.path()))
    }

    /// Returns attempts to create it.
    pub fn creates(&self) -> Vec<Recorded> {
        self.requests("POST", NODES)
    }

    /// Returns renewals of its Lease.
    pub fn renewals(&self) -> Vec<Recorded> {
        self.requests("PUT", &self.lease_path())
    }

    /// Returns accepted writes to the Node.
    fn writes(&self) -> Vec<Recorded> {
        let mut writes = self.creates();
        writes.extend(self.patches());
        writes.retain(answered_well);
        writes
    }
}

fn answered_well(request: &Recorded) -> bool {
    request
        .status
        .is_some_and(|code| (200..300).contains(&code))
}

pub fn moments(requests: &[Recorded]) -> Vec<Duration> {
    requests.iter().map(|request| request.at).collect()
}

pub fn gaps(requests: &[Recorded]) -> Vec<Duration> {
    let moments = moments(requests);
    moments
        .iter()
        .zip(moments.iter().skip(1))
        .map(|(one, next)| next.saturating_sub(*one))
        .collect()
}
