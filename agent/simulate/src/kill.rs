//! An OOM kill in a simulated pod, in the words of the agent's Events.

use nodepulse_core::clock::{Now, Stamp};
use nodepulse_core::incident::{BootId, Incident, IncidentIds, Object, by_cause};
use nodepulse_core::kube_event::{
    Cause, ContainerLabel, Draft, EventWords, Finding, KillOwner, Limiting, NodeEvents, VictimOwner,
};
use nodepulse_core::pods::{self, Container, ContainerList, PodId, PodRef};
use nodepulse_core::pressure::oom::{Doubt, KillVerdict};
use nodepulse_core::reading::oom::{Consequence, LimitOwner, OomScope};
use nodepulse_core::units::{Bytes, Pid};

use crate::pod::Pod;

/// The memory limit that was reached.
const LIMIT: Bytes = Bytes::from_bytes(256 << 20);

/// Returns the Event about a child process that was killed at the limit of the pod's first
/// container; `None` if a name is invalid.
pub fn draft(pod: &Pod, now: Now) -> Option<Draft> {
    let uid = pod.uid.to_string();
    let id = PodId::Uid(uid.clone());
    let path = format!("/kubepods/pod{uid}/simulated");
    let stamp = Stamp {
        kernel: now.boot,
        read: now.boot,
    };
    let finding = Finding {
        stamp,
        cause: Cause::default(),
        victim: Pid(4242),
        comm: "simulated".to_owned(),
        uid: Some(0),
        uid_in_namespace: None,
        cgroup: Some(path.clone()),
        owner: VictimOwner::Pod(PodRef {
            pod: id.clone(),
            container: None,
        }),
        unit: None,
        counter: KillOwner::Pod(id),
        scope: OomScope::Memcg(Limiting {
            owner: LimitOwner::Container,
            path: Some(path),
            tied: None,
            usage: Some((LIMIT, LIMIT)),
            unit: None,
        }),
        resident: Some([LIMIT, Bytes::default(), Bytes::default()]),
        trigger: None,
        trigger_container: None,
        consequence: Some(Consequence::ChildProcess),
        group: None,
        verdict: KillVerdict::EventOnly {
            why: Doubt::LocalLimit(LimitOwner::Container),
        },
    };
    let occurred = by_cause(vec![finding], now).pop()?;
    let container = Container::new(
        Some(ContainerList::Containers),
        &pod.shape.containers.first()?.name,
    )?;
    let pod = pods::Pod::new(&pod.namespace, &pod.name, &uid, None)?;
    let boot = BootId(0);
    let incident = Incident {
        id: IncidentIds::new(boot).assign(now.boot),
        revision: 1,
        settled: true,
        added: 1,
        object: Object {
            pod: Some(pod),
            container: Some(ContainerLabel::Name(container)),
            is_resolved: true,
        },
        occurred,
        details: None,
    };
    EventWords::new("", NodeEvents::Off)
        .word(&incident, None)
        .pop()
}
