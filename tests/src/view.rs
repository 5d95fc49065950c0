//! One Node of the API server, and the requests of its agent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::api_server::{ApiServer, Recorded};

/// Leases of nodes.
pub const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
/// Events of nodes.
pub const EVENTS: &str = "/api/v1/namespaces/default/events";
/// Where Nodes are created.
pub const NODES: &str = "/api/v1/nodes";

/// Reads one node.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    api: &'a ApiServer,
    name: &'a str,
}

impl<'a> View<'a> {
    /// Of the Node of this name.
    pub fn of(api: &'a ApiServer, name: &'a str) -> Self {
        Self { api, name }
    }

    /// The path of its Lease.
    pub fn lease_path(&self) -> String {
        format!("{LEASES}/{}", self.name)
    }

    /// Its path.
    pub fn path(&self) -> String {
        format!("{NODES}/{}", self.name)
    }

    /// The Node, if it is there.
    pub fn node(&self) -> Option<Value> {
        self.api.object(&self.path())
    }

    /// Its Lease, if it is there.
    pub fn lease(&self) -> Option<Value> {
        self.api.object(&self.lease_path())
    }

    /// Types of its conditions, in order.
    pub fn condition_types(&self) -> Vec<String> {
        let node = self.node().unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array();
        let types = conditions.into_iter().flatten();
        types
            .map(|condition| condition["type"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// One condition; `Null` if there is none.
    pub fn condition(&self, type_: &str) -> Value {
        let node = self.node().unwrap_or_default();
        let conditions = node["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        all.find(|condition| condition["type"] == type_)
            .cloned()
            .unwrap_or_default()
    }

    /// The status of one condition: `True`, `False`, `Unknown`, or nothing.
    pub fn status(&self, type_: &str) -> String {
        self.condition(type_)["status"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    }

    /// Waits until a condition has a status; returns the condition, and when the request that made
    /// it so came in.
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

    /// Waits for an Event with this reason; returns it.
    pub async fn event(&self, reason: &str, deadline: Duration) -> Value {
        let what = format!("an event {reason}");
        self.api
            .wait_for(deadline, &what, |_| {
                let events = self.api.list(EVENTS).into_iter();
                events.rev().find(|event| event["reason"] == reason)
            })
            .await
    }

    /// Reasons of its Events, sorted, as often as each was observed; without what the start of an
    /// agent and a new Node's first conditions cause.
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

    /// How often each reason was observed.
    pub fn event_counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for event in self.api.list(EVENTS) {
            let reason = event["reason"].as_str().unwrap_or_default().to_owned();
            let times = event["count"].as_u64().unwrap_or_default();
            *counts.entry(reason).or_default() += usize::try_from(times).expect("a small count");
        }
        counts
    }

    /// Messages of its Events with this reason.
    pub fn messages(&self, reason: &str) -> Vec<String> {
        let events = self.api.list(EVENTS).into_iter();
        events
            .filter(|event| event["reason"] == reason)
            .map(|event| event["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Count and message of its Events about OOM kills that were only counted, in order.
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

    /// Waits until the Node and its Lease are there.
    pub async fn settled(&self, deadline: Duration) {
        let there = |_: &ApiServer| self.node().and(self.lease()).map(drop);
        self.api
            .wait_for(deadline, "a node with a lease", there)
            .await;
    }

    /// Requests with this method to exactly this path.
    pub fn requests(&self, method: &str, path: &str) -> Vec<Recorded> {
        self.api
            .requests_where(|request| request.method == method && request.path == path)
    }

    /// Status patches, accepted or not.
    pub fn patches(&self) -> Vec<Recorded> {
        self.requests("PATCH", &format!("{}/status", self.path()))
    }

    /// Tries to create it.
    pub fn creates(&self) -> Vec<Recorded> {
        self.requests("POST", NODES)
    }

    /// Renewals of its Lease.
    pub fn renewals(&self) -> Vec<Recorded> {
        self.requests("PUT", &self.lease_path())
    }

    /// What wrote to the Node and was accepted.
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

/// Moments of requests.
pub fn moments(requests: &[Recorded]) -> Vec<Duration> {
    requests.iter().map(|request| request.at).collect()
}

/// The times between the requests.
pub fn gaps(requests: &[Recorded]) -> Vec<Duration> {
    let moments = moments(requests);
    moments
        .iter()
        .zip(moments.iter().skip(1))
        .map(|(one, next)| next.saturating_sub(*one))
        .collect()
}
