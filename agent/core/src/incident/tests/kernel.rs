//! A kernel that kills and counts, with a ring of records.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use crate::clock::BootNanos;
use crate::reading::oom::{OomScope, ScopeSource};
use crate::record::{MemcgLimit, RecordedKill, Via};
use crate::subjects::kill_counters::{CgroupKills, CountedKills};
use crate::units::{CgroupId, Pid};

pub const PODS: &str = "/kubepods";
const ALL: CgroupId = CgroupId(1);
const SERVICE: (CgroupId, &str) = (CgroupId(2), "/system.slice/a.service");
const ALIVE: usize = 3;

#[derive(Debug)]
pub struct PodCgroup {
    id: CgroupId,
    pub uid: String,
    kills: u64,
    /// Of its container.
    container: CgroupId,
}

#[derive(Debug)]
pub struct Kernel {
    /// The counter of all pods contains those of each: version 2.
    pub nested: bool,
    pub now: BootNanos,
    pods: Vec<PodCgroup>,
    last_id: u64,
    last_pid: u32,
    all: u64,
    node: u64,
    pub ring: VecDeque<RecordedKill>,
    /// Records were lost, and the agent has not seen it.
    pub lost: bool,
    /// Processes that were killed since the boot.
    pub killed: u64,
    /// How many of them the agent may take for ones that were counted twice.
    pub ambiguous: u64,
    /// Processes that were counted twice, which the agent does not know after a crash.
    pub excess: u64,
    /// Processes that were counted twice since the agent started.
    twice: Vec<Pid>,
}

impl Kernel {
    pub fn new(nested: bool) -> Self {
        let mut kernel = Self {
            nested,
            now: BootNanos(1_000_000_000),
            pods: Vec::new(),
            last_id: 10,
            last_pid: 100,
            all: 0,
            node: 0,
            ring: VecDeque::new(),
            lost: false,
            killed: 0,
            ambiguous: 0,
            excess: 0,
            twice: Vec::new(),
        };
        for _ in 0..ALIVE {
            kernel.create_pod();
        }
        kernel
    }

    pub fn wait(&mut self, duration: Duration) {
        self.now = self.now.plus(duration);
    }

    fn create_pod(&mut self) {
        let [id, container] = [self.next_id(), self.next_id()];
        self.pods.push(PodCgroup {
            id,
            uid: format!("{:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11", id.0),
            kills: 0,
            container,
        });
    }

    fn next_id(&mut self) -> CgroupId {
        self.last_id += 1;
        CgroupId(self.last_id)
    }

    pub fn remove_pod(&mut self, place: u8) {
        let at = usize::from(place) % self.pods.len();
        self.pods.remove(at);
        self.create_pod();
    }

    /// The cgroup of a container in a pod, or of a service.
    pub fn place(&self, place: u8) -> Option<&PodCgroup> {
        self.pods.get(usize::from(place) % (ALIVE + 1))
    }

    pub fn kill(&mut self, place: u8, recorded: bool) {
        self.last_pid += 1;
        let trigger = self.last_pid;
        self.kill_one(place, trigger, recorded, false);
    }

    pub fn kill_group(&mut self, place: u8, processes: u8, twice: bool) {
        self.last_pid += 1;
        let trigger = self.last_pid;
        let first = Pid(trigger + 1);
        for _ in 0..processes {
            self.kill_one(place, trigger, true, true);
        }
        if twice {
            self.count(place);
            self.twice.push(first);
        } else {
            self.ambiguous += 1;
        }
        let restarted = self.next_id();
        if let Some(pod) = self.pods.get_mut(usize::from(place) % (ALIVE + 1)) {
            pod.container = restarted;
        }
    }

    fn kill_one(&mut self, place: u8, trigger: u32, recorded: bool, group: bool) {
        self.wait(Duration::from_micros(10));
        self.count(place);
        self.killed += 1;
        self.last_pid += 1;
        let (id, names) = match self.place(place) {
            Some(pod) => (
                pod.container,
                [
                    "c".to_owned(),
                    format!("pod{}", pod.uid),
                    "kubepods".to_owned(),
                ],
            ),
            None => (
                SERVICE.0,
                [
                    "a.service".to_owned(),
                    "system.slice".to_owned(),
                    String::new(),
                ],
            ),
        };
        if !recorded {
            self.lost = true;
            return;
        }
        self.ring.push_back(RecordedKill {
            at: self.now,
            victim: Pid(self.last_pid),
            comm: b"victim".to_vec(),
            uid: 0,
            uid_in_namespace: None,
            oom_score_adj: 0,
            trigger: Pid(trigger),
            trigger_comm: b"trigger".to_vec(),
            trigger_cgroup: None,
            cgroup: id,
            names: names.map(String::into_bytes),
            scope: if trigger.is_multiple_of(3) {
                OomScope::Global
            } else {
                OomScope::Memcg(MemcgLimit {
                    limiting: id,
                    usage_pages: 1,
                    max_pages: 1,
                    tied: None,
                })
            },
            source: ScopeSource::Exact,
            constraint: None,
            order: Some(0),
            via: Via::Task,
            namespace: None,
            group: group.then_some(id),
            anon_pages: 1,
            file_pages: 0,
            shmem_pages: 0,
        });
    }

    /// The process that read the ring is gone, and the ring with it. The next one does not know of
    /// groups of which nothing is `recorded`.
    pub fn lose_reader(&mut self, recorded: &BTreeSet<u32>) {
        self.ring.clear();
        self.lost = false;
        for first in self.twice.drain(..) {
            self.excess += u64::from(!recorded.contains(&first.0));
        }
    }

    fn count(&mut self, place: u8) {
        self.node += 1;
        let pod = self.pods.get_mut(usize::from(place) % (ALIVE + 1));
        if let Some(pod) = pod {
            pod.kills += 1;
            self.all += u64::from(self.nested);
        }
    }

    pub fn counted(&self) -> CountedKills {
        let pods = self.pods.iter().map(|pod| CgroupKills {
            id: pod.id,
            cgroup: format!("{PODS}/pod{}", pod.uid),
            kills: pod.kills,
        });
        let all = CgroupKills {
            id: ALL,
            cgroup: PODS.to_owned(),
            kills: self.all,
        };
        CountedKills {
            pods: PODS.to_owned(),
            cgroups: std::iter::once(all).chain(pods).collect(),
            node: Some(self.node),
        }
    }

    pub fn path(&self, id: CgroupId) -> Option<String> {
        if id == SERVICE.0 {
            return Some(SERVICE.1.to_owned());
        }
        let pod = self.pods.iter().find(|pod| pod.container == id)?;
        Some(format!("{PODS}/pod{}/{:064x}", pod.uid, pod.container.0))
    }

    /// The cgroups of containers, of which the kernel notifies the agent.
    pub fn containers(&self) -> Vec<(CgroupId, String)> {
        let ids = self.pods.iter().map(|pod| pod.container);
        ids.filter_map(|id| Some((id, self.path(id)?))).collect()
    }
}
