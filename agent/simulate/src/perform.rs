//! The requests of one step of a node or a pod. All JSON is made here, and dropped with the step.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::kube_event::Draft;
use nodepulse_core::node_status::StoredNode;
use nodepulse_core::reading::Resource;
use nodepulse_io::clock::Clock;
use nodepulse_kube::convert::stored_node;
use nodepulse_kube::lease::{Cycle, LeaseKeeper};
use nodepulse_kube::register::{self, DeviceCheckpoint, Registrar};
use nodepulse_kube::status::{Part, SendRule, StatusWriter, SyncOutcome};
use nodepulse_kube::{ApiError, Call, Client, Endpoint, recorder};
use serde_json::json;
use tokio::time::timeout;

use crate::cleanup::LOAD;
use crate::node::{SIMULATED, StoredConditions, Template};
use crate::pod::{Pod, Step, Uid, seconds};
use crate::watch::is_simulated;

/// `nodeLeaseDurationSeconds`, as in a kubelet.
pub const LEASE_DURATION: Duration = Duration::from_secs(40);

/// Connections, and the clients that use them.
pub const CONNECTIONS: usize = 4;

/// What all steps share.
#[derive(Debug)]
pub struct Shared {
    /// One connection each.
    pub clients: [Client; CONNECTIONS],
    pub clock: Clock,
    pub template: Template,
    pub impersonate: bool,
    pub namespace: String,
}

pub type Pressures = BTreeMap<Resource, BootNanos>;

#[derive(Debug)]
pub enum Task {
    Register(Box<Registrar>, Pressures),
    /// Renews a Lease of this version that is due at this time, of the UID and epoch.
    Lease((Uid, u32), Option<u64>, BootNanos),
    /// Reports the status against what is stored; `None`: which is read.
    Status((Uid, u32), Option<StoredConditions>, Pressures, SendRule),
    /// Does a step of the pod in this slot.
    Pod(u32, Box<Pod>, Step),
    CreatePod,
    /// Deletes a pod as a user does.
    DeletePod(Box<Pod>),
    Event(Box<Draft>),
}

#[derive(Debug)]
pub enum Outcome {
    /// The UID, the conditions, and whether the Node existed.
    Registered(
        Box<Registrar>,
        Result<(Uid, StoredConditions, bool), ApiError>,
    ),
    /// By epoch: the version of the Lease, and the time from when it was due; `None` if there is no
    /// Node.
    Renewed(u32, Result<Option<(Option<u64>, Duration)>, ApiError>),
    /// By epoch: the conditions, and whether a patch was sent.
    Synced(u32, SendRule, Result<(StoredConditions, bool), ApiError>),
    /// By slot and UID; and the seconds since the epoch in the patch.
    Pod((u32, Uid), (Step, u32), Result<(), ApiError>),
    /// A pod of `--pods-per-node`.
    Created(Result<(), ApiError>),
    Other(Result<(), ApiError>),
}

#[derive(Debug)]
pub struct Done {
    pub node: u32,
    pub operation: &'static str,
    pub took: Duration,
    pub outcome: Outcome,
}

impl Task {
    const fn operation(&self) -> &'static str {
        match self {
            Self::Register(..) => "register a node",
            Self::Lease(..) => "renew a Lease",
            Self::Status(..) => "report a node",
            Self::Pod(_, _, Step::Report(_)) => "report a pod",
            Self::Pod(_, _, Step::Remove) | Self::DeletePod(_) => "delete a pod",
            Self::CreatePod => "create a pod",
            Self::Event(_) => "report a kill",
        }
    }
}

pub async fn perform(shared: Rc<Shared>, node: u32, task: Task) -> Done {
    let operation = task.operation();
    let client = shared.client_of(node);
    let began = shared.clock.now().boot;
    let outcome = shared.outcome(&client, node, task).await;
    Done {
        node,
        operation,
        took: shared.clock.now().boot.since(began),
        outcome,
    }
}

impl Shared {
    /// Returns the client with which the requests of a node are sent.
    fn client_of(&self, node: u32) -> Client {
        let index = usize::try_from(node).unwrap_or_default() % CONNECTIONS;
        let client = self.clients.get(index).unwrap_or(self.user());
        if self.impersonate {
            client.as_node(&self.template.name(node))
        } else {
            client.clone()
        }
    }

    async fn outcome(&self, client: &Client, node: u32, task: Task) -> Outcome {
        match task {
            Task::Register(mut registrar, pressures) => {
                let result = self
                    .register(client, node, &mut registrar, &pressures)
                    .await;
                Outcome::Registered(registrar, result)
            }
            Task::Lease((uid, epoch), version, due) => {
                Outcome::Renewed(epoch, self.renew(client, node, (uid, version), due).await)
            }
            Task::Status((uid, epoch), stored, pressures, rule) => {
                let stored = (uid, stored.as_ref());
                let result = self.sync(client, node, stored, (&pressures, rule)).await;
                Outcome::Synced(epoch, rule, result)
            }
            Task::Pod(slot, pod, step) => {
                let now = self.clock.now().wall;
                let result = match step {
                    Step::Report(stage) => {
                        let status = Endpoint::pod_status(&pod.namespace, &pod.name);
                        let patch = pod.patch(stage, now).to_string();
                        client.patch(&status, patch.as_bytes()).await.map(drop)
                    }
                    Step::Remove => delete(client, &pod, Some(0)).await,
                };
                Outcome::Pod((slot, pod.uid), (step, seconds(now)), result)
            }
            // As the user of the simulation: a node may not create pods.
            Task::CreatePod => Outcome::Created(self.create_pod(node).await),
            Task::DeletePod(pod) => Outcome::Other(delete(self.user(), &pod, None).await),
            Task::Event(draft) => {
                let now = self.clock.now().boot.0;
                let name = self.template.name(node);
                Outcome::Other(recorder::write_once(client, &draft, &name, now).await)
            }
        }
    }

    /// Returns the client of the user.
    pub fn user(&self) -> &Client {
        let [first, ..] = &self.clients;
        first
    }

    async fn register(
        &self,
        client: &Client,
        node: u32,
        registrar: &mut Registrar,
        pressures: &Pressures,
    ) -> Result<(Uid, StoredConditions, bool), ApiError> {
        let now = self.clock.now();
        let status = self.template.computed(node, pressures, now);
        let status = status.at(&StoredNode::default(), now);
        let registration = self.template.registration(node);
        let checkpoint = DeviceCheckpoint::Present;
        let registered = registrar
            .attempt(client, &registration, &status, checkpoint)
            .await?;
        let (stored, existed) = match registered {
            register::Registered::Created(stored) => (stored, false),
            register::Registered::Adopted(stored) if is_simulated(&stored) => (stored, true),
            register::Registered::Adopted(_) => {
                let node = registration.name;
                return Err(ApiError::OtherNode { node });
            }
        };
        let stored = stored_node(&stored);
        let uid = Uid::parse(&stored.uid).unwrap_or_default();
        Ok((uid, StoredConditions::of(&stored.conditions), existed))
    }

    async fn renew(
        &self,
        client: &Client,
        node: u32,
        (uid, version): (Uid, Option<u64>),
        due: BootNanos,
    ) -> Result<Option<(Option<u64>, Duration)>, ApiError> {
        let uid = uid.to_string();
        let name = self.template.name(node);
        let mut keeper = LeaseKeeper::new(name.clone(), LEASE_DURATION).requiring_node(uid.clone());
        if let Some(version) = version {
            keeper = keeper.resumed(&uid, &version.to_string());
        }
        // It would retry reads without limit, in the place of others.
        let limit = LEASE_DURATION / 4;
        let cycle = timeout(limit, keeper.cycle(client, &self.clock, Some(&uid))).await;
        let (verb, object) = ("PUT".to_owned(), format!("lease {name}"));
        let late = |_| ApiError::Deadline {
            call: Call { verb, object },
            limit,
        };
        Ok(match cycle.map_err(late)?? {
            Cycle::Renewed(renewed) => {
                let version = keeper.version().and_then(|version| version.parse().ok());
                Some((version, renewed.sent.since(due)))
            }
            Cycle::NoNode => None,
        })
    }

    async fn sync(
        &self,
        client: &Client,
        node: u32,
        (uid, stored): (Uid, Option<&StoredConditions>),
        (pressures, rule): (&Pressures, SendRule),
    ) -> Result<(StoredConditions, bool), ApiError> {
        let now = self.clock.now();
        let computed = self.template.computed(node, pressures, now);
        let name = self.template.name(node);
        let mut writer =
            StatusWriter::new(name, self.clock, Part::Whole).requiring_uid(uid.to_string());
        if let Some(stored) = stored {
            writer.observe(self.template.stored(node, (uid, stored), &computed, now));
        }
        let outcome = writer.sync(client, |stored| (computed.at(stored, now), rule));
        let is_sent = match outcome.await? {
            SyncOutcome::Sent(_) => true,
            SyncOutcome::Unchanged => false,
        };
        let stored = writer.stored().unwrap_or_default();
        Ok((StoredConditions::of(&stored.conditions), is_sent))
    }

    async fn create_pod(&self, node: u32) -> Result<(), ApiError> {
        let name = self.template.name(node);
        let collection = Endpoint::new_pod(&self.namespace, &name);
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": format!("{name}-"),
                "namespace": self.namespace,
                "labels": { SIMULATED: "true", LOAD: "true" },
            },
            "spec": {
                "nodeName": name,
                "automountServiceAccountToken": false,
                "tolerations": [{ "operator": "Exists" }],
                "containers": [{ "name": "main", "image": "simulated" }],
            },
        });
        self.user().create(&collection, &pod).await.map(drop)
    }
}

async fn delete(client: &Client, pod: &Pod, grace: Option<u32>) -> Result<(), ApiError> {
    let endpoint = Endpoint::stored_pod(&pod.namespace, &pod.name);
    client
        .delete(&endpoint, Some(&pod.uid.to_string()), grace)
        .await
}
