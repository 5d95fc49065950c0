//! A simulated node: the little that is kept of it, and the status that is made of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nodepulse_core::clock::{BootNanos, Now};
use nodepulse_core::node_status::ledger::{Computed, Ledger};
use nodepulse_core::node_status::release::Release;
use nodepulse_core::node_status::report::ReportSchedule;
use nodepulse_core::node_status::setters::{SETTERS, condition_type, ready};
use nodepulse_core::node_status::{
    Allocation, AttachDetach, Condition, ContainerRuntime, Facts, NodeStatus, Registration,
    RuntimeCheck, Status, StoredNode, Taint,
};
use nodepulse_core::pressure::Pressure;
use nodepulse_core::reading::container_runtime::{RuntimeCondition, RuntimeStatus, RuntimeVersion};
use nodepulse_core::reading::{InterfaceAddress, Machine, Network, Resource};
use nodepulse_core::units::Bytes;
use nodepulse_kube::convert::initial_node;
use nodepulse_kube::register::Registrar;
use serde_json::{Value, json};

use crate::address;
use crate::arguments::Arguments;
use crate::pod::{Uid, at, seconds};

/// The label of simulated Nodes and their pods, and the key of the taints.
pub const SIMULATED: &str = "nodepulse.dev/simulated";

/// By this a Node differs from one that a kubelet has taken over, labels included.
pub const OS_IMAGE: &str = "nodepulse-simulate";

/// `nodeStatusReportFrequency`, as in a kubelet.
const REPORT_PERIOD: Duration = Duration::from_mins(5);

/// What is kept of a node, some 200 bytes: the rest is made when it is sent.
#[derive(Debug)]
pub struct Node {
    /// Zero until it is registered.
    pub uid: Uid,
    /// `resourceVersion` of the Lease; `None` before the first, or if it is no number.
    pub lease: Option<u64>,
    pub stored: StoredConditions,
    /// Resources under pressure, each with the time since which.
    pub pressures: BTreeMap<Resource, BootNanos>,
    pub report: ReportSchedule,
    /// Set until the Node is registered, except during an attempt.
    pub registrar: Option<Box<Registrar>>,
    /// 1 once it was deleted: its timers do nothing.
    pub epoch: u32,
    pub is_lease_busy: bool,
    pub is_status_busy: bool,
    /// The status is due again, and what is stored may differ from `stored`, so it must be read.
    pub is_stale: bool,
    /// The newest version that the watch sent while a status was written.
    pub seen: Option<StoredConditions>,
}

/// The conditions as the API server has them, of which no text is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredConditions {
    /// By position: the status, and the seconds since the epoch at which it changed; `None` if the
    /// Node does not have the condition.
    pub each: [Option<(Status, u32)>; CONDITIONS],
}

impl StoredConditions {
    /// Finds node mode's conditions in those of a Node.
    pub fn of(conditions: &[Condition]) -> Self {
        let mut stored = Self::default();
        for (type_, place) in types().zip(&mut stored.each) {
            if let Some(found) = conditions.iter().find(|found| found.type_ == type_) {
                *place = Some((found.status, seconds(found.last_transition_time)));
            }
        }
        stored
    }

    pub fn has_statuses_of(&self, other: &Self) -> bool {
        let statuses = |of: &Self| of.each.map(|stored| stored.map(|(status, _)| status));
        statuses(self) == statuses(other)
    }
}

/// Number of conditions of node mode.
const CONDITIONS: usize = 6;

/// The conditions of node mode, in their order.
fn types() -> impl Iterator<Item = &'static str> {
    let resources = Resource::ALL.into_iter().filter_map(condition_type);
    resources.chain([ready::TYPE])
}

impl Node {
    pub fn new() -> Self {
        Self {
            uid: Uid::default(),
            lease: None,
            stored: StoredConditions::default(),
            pressures: BTreeMap::new(),
            report: ReportSchedule::new(REPORT_PERIOD),
            registrar: Some(Box::new(Registrar::requiring((SIMULATED, "true")))),
            epoch: 0,
            is_lease_busy: false,
            is_status_busy: false,
            is_stale: false,
            seen: None,
        }
    }

    pub fn is_registered(&self) -> bool {
        self.uid != Uid::default()
    }

    /// Records that another client has deleted the Node. Like a kubelet's, it is not created again.
    pub fn deleted(&mut self) {
        *self = Self {
            epoch: 1,
            registrar: None,
            ..Self::new()
        };
    }
}

/// What all nodes share.
#[derive(Debug)]
pub struct Template {
    facts: Facts,
    labels: BTreeMap<String, String>,
    /// The beginning of the names, or the whole name of the only node.
    prefix: String,
    is_numbered: bool,
}

impl Template {
    pub fn new(arguments: &Arguments, api_server: Option<Release>) -> Self {
        let ready = RuntimeCondition {
            is_true: true,
            ..RuntimeCondition::default()
        };
        let memory = u64::try_from(arguments.memory.value()).unwrap_or_default();
        let fixed = [
            SIMULATED,
            "node.kubernetes.io/exclude-from-external-load-balancers",
        ]
        .map(|key| (key.to_owned(), "true".to_owned()));
        Self {
            labels: arguments.labels.iter().cloned().chain(fixed).collect(),
            prefix: arguments
                .node_name
                .as_ref()
                .unwrap_or(&arguments.prefix)
                .clone(),
            is_numbered: arguments.node_name.is_none(),
            facts: Facts {
                network: Network {
                    default_v4: Some(vec!["eth0".to_owned()]),
                    ..Network::default()
                },
                machine: Machine {
                    kernel_version: "simulated".to_owned(),
                    os_image: OS_IMAGE.to_owned(),
                    cpus: arguments.cpus,
                    memory: Bytes::from_bytes(memory),
                    ..Machine::default()
                },
                ephemeral_storage: Some(Bytes::from_bytes(1 << 40)),
                allocation: Allocation {
                    max_pods: arguments.max_pods,
                    ..Allocation::default()
                },
                api_server,
                container_runtime: Some(ContainerRuntime {
                    checked: RuntimeCheck::Recently,
                    status: Some(RuntimeStatus {
                        runtime: Some(ready.clone()),
                        network: Some(ready),
                        ..RuntimeStatus::default()
                    }),
                    version: Some(RuntimeVersion {
                        name: "simulated".to_owned(),
                        version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                    }),
                    ..ContainerRuntime::default()
                }),
                pressures: Resource::ALL
                    .map(|resource| (resource, Pressure::Normal))
                    .into(),
                ..Facts::default()
            },
        }
    }

    pub fn name(&self, node: u32) -> String {
        if self.is_numbered {
            format!("{}-{node}", self.prefix)
        } else {
            self.prefix.clone()
        }
    }

    /// Returns the number of a node that may be one of these.
    pub fn number(&self, name: &str) -> Option<u32> {
        let last = name.rsplit('-').next()?;
        let number = if self.is_numbered {
            last.parse().ok()?
        } else {
            0
        };
        (self.name(number) == name).then_some(number)
    }

    pub fn registration(&self, node: u32) -> Registration {
        let taint = |effect: &str| Taint {
            key: SIMULATED.to_owned(),
            value: String::new(),
            effect: effect.to_owned(),
        };
        let name = self.name(node);
        Registration::new(
            name.clone(),
            self.labels.clone(),
            vec![taint("NoSchedule"), taint("NoExecute")],
            Some(format!("nodepulse-simulate://{name}")),
            AttachDetach::Node,
        )
    }

    /// Computes the status of a node, by the setters of node mode.
    pub fn computed(
        &self,
        node: u32,
        pressures: &BTreeMap<Resource, BootNanos>,
        now: Now,
    ) -> Arc<Computed> {
        let name = self.name(node);
        let mut facts = self.facts.clone();
        facts.machine.machine_id.clone_from(&name);
        facts.machine.system_uuid.clone_from(&name);
        facts.machine.boot_id.clone_from(&name);
        facts.hostname = name;
        facts.network.addresses = vec![InterfaceAddress {
            interface: "eth0".to_owned(),
            up: true,
            loopback: false,
            point_to_point: false,
            ip: address::of_node(node).into(),
        }];
        for (resource, since) in pressures {
            let under = Pressure::UnderPressure {
                last_exceeded: *since,
            };
            facts.pressures.insert(*resource, under);
        }
        Ledger::new(SETTERS, &facts, now).computed()
    }

    /// Returns the Node as the API server has it, made of what is kept.
    pub fn stored(
        &self,
        node: u32,
        (uid, stored): (Uid, &StoredConditions),
        computed: &Computed,
        now: Now,
    ) -> Value {
        let status: NodeStatus = computed.at(&StoredNode::default(), now);
        let conditions = status.conditions.iter().zip(stored.each);
        let conditions = conditions.filter_map(|(computed, stored_as)| {
            let (status, since) = stored_as?;
            Some(Condition {
                status,
                last_transition_time: at(since),
                // Both are replaced in any case: the heartbeat, and the text of another status.
                last_heartbeat_time: SystemTime::UNIX_EPOCH,
                ..computed.clone()
            })
        });
        let status = NodeStatus {
            conditions: conditions.collect(),
            ..status.clone()
        };
        let mut value = initial_node(&self.registration(node), &status);
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("uid".to_owned(), json!(uid.to_string()));
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use nodepulse_kube::convert::{desired_node, stored_node};

    fn now(seconds: u64) -> Now {
        Now {
            boot: BootNanos(seconds * 1_000_000_000),
            wall: SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds),
        }
    }

    fn template(flags: &str) -> Template {
        Template::new(&Arguments::parse_from(flags.split(' ')), None)
    }

    #[test]
    fn a_name_is_that_of_one_number_only() {
        let numbered = template("s --nodes 5 --prefix a");
        assert_eq!(numbered.number("a-3"), Some(3));
        for other in ["a-03", "a-", "a", "b-3", "a-3-1", "a--3", "a-+3"] {
            assert_eq!(numbered.number(other), None, "{other}");
        }
        let one = template("s --nodes 1 --node-name a-3");
        assert_eq!((one.number("a-3"), one.number("a-0")), (Some(0), None));
    }

    #[test]
    fn the_kept_conditions_make_the_node_that_was_sent() {
        let template = template("s --nodes 5 --cpus 4 --memory 8Gi --labels pool=a");
        let none = BTreeMap::new();
        let computed = template.computed(3, &none, now(0));
        let status = computed.at(&StoredNode::default(), now(0));
        let sent = initial_node(&template.registration(3), &status);
        assert_eq!(sent["status"]["addresses"][0]["address"], "198.18.0.3");
        let types = sent["status"]["conditions"].as_array().unwrap().iter();
        let types: Vec<_> = types
            .map(|condition| condition["type"].as_str().unwrap())
            .collect();
        assert_eq!(
            types,
            [
                "MemoryPressure",
                "DiskPressure",
                "PIDPressure",
                "DiskIOPressure",
                "DiskFailing",
                "Ready",
            ]
        );
        assert_eq!(sent["status"]["conditions"][5]["status"], "True");
        assert_eq!(sent["status"]["capacity"]["memory"], "8Gi");
        assert_eq!(sent["spec"]["taints"].as_array().unwrap().len(), 2);
        let uid = Uid(7);
        let kept = StoredConditions::of(&stored_node(&sent).conditions);
        let mut made = template.stored(3, (uid, &kept), &computed, now(100));
        assert_eq!(made["metadata"]["uid"], uid.to_string());
        let mut sent = sent;
        made["metadata"].as_object_mut().unwrap().remove("uid");
        for condition in sent["status"]["conditions"].as_array_mut().unwrap() {
            condition["lastHeartbeatTime"] = json!("1970-01-01T00:00:00Z");
        }
        assert_eq!(made, sent);

        let short = BTreeMap::from([(Resource::Memory, BootNanos(1))]);
        let computed = template.computed(3, &short, now(100));
        let status = computed.at(&stored_node(&made), now(100));
        let desired = desired_node(&made, &status);
        let memory = &desired["status"]["conditions"][0];
        assert_eq!(memory["status"], "True");
        assert_eq!(memory["reason"], "KubeletHasInsufficientMemory");
        let changed = StoredConditions::of(&status.conditions);
        assert!(!changed.has_statuses_of(&kept));
        assert_eq!(changed.each[1], kept.each[1], "the others did not change");
    }
}
