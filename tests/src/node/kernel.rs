//! Simulates the kernel: fills records like the probes, and sends them through the agent's decoder.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent_common::event::{
    COMM_LEN, CONSTRAINT_UNKNOWN, NAME_LEN, ORDER_UNKNOWN, SCOPE_GLOBAL, SCOPE_MEMCG, SOURCE_EXACT,
    SOURCE_INFERRED, UID_UNKNOWN, VIA_TASK,
};
use agent_common::settings::device_key;
use agent_common::{ABI_VERSION, DiskError, EventKind, Header, OomKill, PidCrossing, SlowWindow};
use nodepulse_core::record::decode::decode;
use nodepulse_core::record::{Received, Record, ScopeSource, Side};
use nodepulse_io::clock::Clock;
use tokio::sync::mpsc;
use zerocopy::{Immutable, IntoBytes};

use crate::host_root::MadeUpHost;

/// A process that the kernel OOM-kills.
#[derive(Debug, Clone, Copy)]
pub struct Kill<'a> {
    /// Name and process id of the victim.
    pub victim: (&'a str, u32),
    /// Its cgroup, below the top: `kubepods/pod1/ctr`. It may have been removed.
    pub cgroup: &'a str,
    pub limit: Limit<'a>,
    /// Source of the limit.
    pub source: ScopeSource,
}

/// The exhausted memory.
#[derive(Debug, Clone, Copy)]
pub enum Limit<'a> {
    /// The memory of the machine.
    Machine,
    /// The limit of this cgroup.
    Of(&'a str),
}

/// Writes records with the present time.
#[derive(Debug)]
pub struct Kernel {
    send: mpsc::Sender<Received>,
    clock: Clock,
    host: Arc<MadeUpHost>,
    seq: AtomicU64,
}

impl Kernel {
    pub(super) fn new(send: mpsc::Sender<Received>, clock: Clock, host: Arc<MadeUpHost>) -> Self {
        Self {
            send,
            clock,
            host,
            seq: AtomicU64::new(0),
        }
    }

    /// Reports that the count of pids crossed the level that the agent set.
    pub async fn pid_crossing(&self, side: Side, value: u32) {
        self.send(&PidCrossing {
            header: self.header::<PidCrossing>(EventKind::PidCrossing),
            value,
            state: u32::from(side == Side::Over),
            threshold: value,
            pad: 0,
        })
        .await;
    }

    /// Reports that a disk was slow for the last second, which is long enough with the settings of
    /// a test.
    pub async fn slow_window(&self, (major, minor): (u32, u32)) {
        self.send(&SlowWindow {
            header: self.header::<SlowWindow>(EventKind::SlowWindow),
            dev: device_key(major, minor),
            judged: 10,
            slow: 9,
            pad: 0,
            window_ns: 1_000_000_000,
            ago_ns: 0,
            max_ns: 800_000_000,
        })
        .await;
    }

    /// Kills a process that requested memory itself.
    pub async fn oom_kill(&self, kill: Kill<'_>) {
        self.oom_kill_by(kill, kill.victim).await;
    }

    /// Kills a process because another, given by its name and process id, requested memory.
    pub async fn oom_kill_by(&self, kill: Kill<'_>, (trigger, by): (&str, u32)) {
        self.oom_kill_with(kill, |record| {
            record.trigger_tgid = by;
            record.trigger_comm = field(trigger);
        })
        .await;
    }

    /// Kills a process; the test changes the record before it is sent.
    pub async fn oom_kill_with(&self, kill: Kill<'_>, change: impl FnOnce(&mut OomKill)) {
        let mut record = self.record(kill);
        change(&mut record);
        self.send(&record).await;
    }

    fn record(&self, kill: Kill<'_>) -> OomKill {
        let (scope, limiting) = match kill.limit {
            Limit::Machine => (SCOPE_GLOBAL, 0),
            Limit::Of(cgroup) => (SCOPE_MEMCG, self.cgroup_id(cgroup)),
        };
        let cgroup = self.cgroup_id(kill.cgroup);
        let mut names = kill.cgroup.rsplit('/');
        let mut name = || field::<NAME_LEN>(names.next().unwrap_or_default());
        let (comm, pid) = kill.victim;
        OomKill {
            header: self.header::<OomKill>(EventKind::OomKill),
            tgid: pid,
            pid,
            trigger_tgid: pid,
            uid: 1000,
            cg_default: cgroup,
            cg_memory: cgroup,
            cg_limiting: limiting,
            limit_usage_pages: 16_384,
            limit_max_pages: 16_384,
            total_vm_pages: 32_768,
            anon_pages: 16_000,
            file_pages: 100,
            shmem_pages: 0,
            pgtable_bytes: 65_536,
            total_pages: 0,
            oom_score_adj: 0,
            scope,
            scope_source: match kill.source {
                ScopeSource::Inferred => SOURCE_INFERRED,
                ScopeSource::Exact => SOURCE_EXACT,
                ScopeSource::Logged => panic!("no program records that"),
            },
            order: ORDER_UNKNOWN,
            comm: field::<COMM_LEN>(comm),
            trigger_comm: field::<COMM_LEN>(comm),
            leaf: name(),
            parent: name(),
            grandparent: name(),
            constraint: CONSTRAINT_UNKNOWN,
            via: VIA_TASK,
            pad: [0; 2],
            ns_tgid: 0,
            cg_tied: 0,
            cg_reference: 0,
            cg_group: 0,
            uid_in_namespace: UID_UNKNOWN,
            pad_uid: 0,
            cg_trigger: 0,
        }
    }

    /// Reports that reads of a disk failed.
    pub async fn disk_errors(&self, (major, minor): (u32, u32)) {
        self.send(&DiskError {
            header: self.header::<DiskError>(EventKind::DiskError),
            dev: device_key(major, minor),
            op: 0,
            errno: 5,
            pad: 0,
        })
        .await;
    }

    /// Sends a record from another source than a ring.
    pub async fn send_record(&self, record: Record) {
        let read = self.clock.now().boot;
        let record = Ok(record);
        let sent = self.send.send(Received { read, record }).await;
        sent.expect("the agent runs");
    }

    fn header<T>(&self, kind: EventKind) -> Header {
        Header {
            version: ABI_VERSION,
            kind: kind.raw(),
            size: u32::try_from(size_of::<T>()).expect("a record of a few hundred bytes"),
            time: self.clock.now().boot.0,
            seq: self.seq.fetch_add(1, Ordering::Relaxed),
            cpu: 0,
            pad: 0,
        }
    }

    /// Returns the inode of the cgroup's directory; a missing cgroup gets an unused id.
    fn cgroup_id(&self, cgroup: &str) -> u64 {
        let dir = self.host.path().join("sys/fs/cgroup").join(cgroup);
        fs::metadata(dir).map_or(u64::MAX, |found| found.ino())
    }

    async fn send(&self, record: &(impl IntoBytes + Immutable)) {
        let received = Received {
            read: self.clock.now().boot,
            record: decode(record.as_bytes()),
        };
        self.send.send(received).await.expect("the agent runs");
    }
}

fn field<const LEN: usize>(text: &str) -> [u8; LEN] {
    let mut field = [0; LEN];
    field
        .iter_mut()
        .take(LEN - 1)
        .zip(text.bytes())
        .for_each(|(to, from)| *to = from);
    field
}
