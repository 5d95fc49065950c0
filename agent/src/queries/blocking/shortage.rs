//! Evidence that the node reclaims memory while tasks wait for it, and the pods and cgroups that
//! wait. Between the readings the thread is free for other calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use nodepulse_core::pods::Owner;
use nodepulse_core::pressure::shortage::{
    MemoryUnit, Reclaim, ShortageEvidence, UnitSnapshot, UnitStalls,
};
use nodepulse_core::reading::reclaim::ReclaimCounts;
use nodepulse_linux::host::cgroup::{Hierarchy, Version, ancestors, memory_stall};
use nodepulse_linux::host::{HostError, vmstat};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};
use tracing::debug;

use super::units::{self, CgroupReader};

/// Minimum interval between the readings of `/proc/vmstat`, and between the last two of the units.
const INTERVAL: Duration = Duration::from_secs(1);

/// Number of intervals between the readings of `/proc/vmstat`.
const INTERVALS: usize = 10;

/// A task at `memory.high` sleeps at most this long between two hits
/// (`MEMCG_MAX_HIGH_DELAY_JIFFIES`), which is the time between the first two readings of the units.
const HIGH_DELAY: Duration = Duration::from_secs(2);

/// The interval after which the units can be read for the first time without a delay at the end.
const UNITS_AFTER: usize = 8;

impl CgroupReader {
    /// Takes ten seconds, and one to three more if the node reclaimed memory.
    pub(super) async fn read_shortage(self) -> ShortageEvidence {
        self.observe().await.unwrap_or_default()
    }

    /// Returns `None` if the host did not answer in time, or a file could not be read.
    async fn observe(&self) -> Option<ShortageEvidence> {
        let mut ticks = interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut readings = Vec::with_capacity(INTERVALS + 1);
        let mut earlier = None;
        for passed in 0..=INTERVALS {
            ticks.tick().await;
            let read = self.call(Self::reclaim).await;
            readings.push(ok_or_log!(
                debug,
                read,
                "reclaim and stalls of memory not read"
            )??);
            let rose = || Reclaim::between(&readings).is_some_and(|reclaim| reclaim.rose);
            if passed >= UNITS_AFTER && earlier.is_none() && rose() {
                earlier = Some(self.units().await);
            }
        }
        let reclaim = Reclaim::between(&readings);
        let units = match earlier {
            Some(earlier) => self.compare(earlier).await,
            None => UnitStalls::NotRead,
        };
        Some(ShortageEvidence { reclaim, units })
    }

    /// Reads the units twice more.
    async fn compare(&self, (earlier, at): (SnapshotRead, Instant)) -> UnitStalls {
        let earlier = match earlier {
            SnapshotRead::Units(units) => units,
            SnapshotRead::CgroupV1 => return UnitStalls::CgroupV1,
            SnapshotRead::Failed => return UnitStalls::NotRead,
        };
        sleep_until(at + HIGH_DELAY).await;
        let (before, at) = self.units().await;
        sleep_until(at + INTERVAL).await;
        let (after, now) = self.units().await;
        match (before, after) {
            (SnapshotRead::Units(before), SnapshotRead::Units(after)) => {
                UnitStalls::between(&earlier, &before, &after, now - at)
            }
            _ => UnitStalls::NotRead,
        }
    }

    async fn units(&self) -> (SnapshotRead, Instant) {
        let at = Instant::now();
        let read = self.call(Self::snapshot).await;
        let read = ok_or_log!(debug, read, "reclaim and stalls of memory not read");
        (read.unwrap_or(SnapshotRead::Failed), at)
    }

    fn reclaim(&self) -> Option<ReclaimCounts> {
        let read = vmstat::reclaim(&vmstat::file(&self.root), &mut Vec::new());
        ok_or_log!(debug, read, "reclaim and stalls of memory not read")
    }

    fn snapshot(&self) -> SnapshotRead {
        let memory = self.pods.layout().map(|layout| &layout.memory);
        let unified = match memory {
            Some(memory) if memory.version == Version::V2 => memory,
            Some(_) => return SnapshotRead::CgroupV1,
            None => return SnapshotRead::Failed,
        };
        let mut snapshot = Snapshot {
            unified,
            pods: self.pods.path(),
            buf: Vec::new(),
            classes: BTreeMap::new(),
            units: UnitSnapshot::new(),
        };
        let read = units::each(&self.pods, unified, |id, dir, path, owner| {
            let unit = snapshot.unit(dir, path, owner);
            let is_read = unit.is_some();
            snapshot.units.extend(unit.map(|unit| (id, unit)));
            is_read
        });
        read.map_or(SnapshotRead::Failed, |()| {
            SnapshotRead::Units(snapshot.units)
        })
    }
}

enum SnapshotRead {
    Units(UnitSnapshot),
    CgroupV1,
    Failed,
}

struct Snapshot<'a> {
    unified: &'a Hierarchy,
    pods: &'a str,
    buf: Vec<u8>,
    /// Number of times that each cgroup between the pods cgroup and pods was at its own limit.
    classes: BTreeMap<String, Option<u64>>,
    units: UnitSnapshot,
}

impl Snapshot<'_> {
    /// Returns `None` if the tasks of the unit are not measured, or it was removed.
    fn unit(&mut self, dir: &Path, path: &str, owner: Owner) -> Option<MemoryUnit> {
        let stalled = memory_stall::stalled(dir, &mut self.buf).ok().flatten()?;
        let limit_hits = if owner.is_of_pods() {
            let of_pod = hits(memory_stall::limit_hits_of_tree(dir, &mut self.buf));
            let of_class = self.class_hits(path);
            of_pod
                .zip(of_class)
                .map(|(of_pod, of_class)| of_pod + of_class)
        } else {
            hits(memory_stall::limit_hits(dir, &mut self.buf))
        };
        Some(MemoryUnit {
            owner,
            path: path.to_owned(),
            stalled,
            limit_hits,
        })
    }

    /// Sums the limit hits between the pods cgroup, whose limit is the node's, and a pod.
    fn class_hits(&mut self, pod: &str) -> Option<u64> {
        let above = ancestors(pod).take_while(|path| *path != self.pods);
        let mut sum = 0_u64;
        for class in above.filter(|path| *path != pod) {
            let known = self.classes.get(class).copied();
            let of_class = known.unwrap_or_else(|| {
                let dir = self.unified.dir(class);
                let read = hits(memory_stall::limit_hits(&dir, &mut self.buf));
                self.classes.insert(class.to_owned(), read);
                read
            });
            sum = sum.saturating_add(of_class?);
        }
        Some(sum)
    }
}

fn hits(read: Result<u64, HostError>) -> Option<u64> {
    ok_or_log!(debug, read, "hits of a memory limit not read")
}

#[cfg(test)]
mod tests {
    use nodepulse_core::pressure::io_wait::StallShare;
    use nodepulse_core::pressure::shortage::ShortageVerdict;
    use nodepulse_io::lane::{Lane, Purpose};
    use nodepulse_linux::host::cgroup::Layout;
    use nodepulse_linux::host::cgroup::pods::PodsPath;
    use nodepulse_linux::host::scratch::Scratch;

    use super::super::super::fixture::{CGROUPS, node};
    use super::super::super::signals::pods_path;
    use super::*;
    use crate::config::Config;

    const POD: &str = "kubepods/burstable/pod11111111-1f4b-4a62-9b0e-0f7c0f5d8a11";
    const CLASS: &str = "kubepods/burstable";
    const SERVICE: &str = "system.slice/ssh.service";
    const GONE: &str = "kubepods/pod22222222-1f4b-4a62-9b0e-0f7c0f5d8a11";

    fn reader(dir: &Scratch, config: &Config) -> CgroupReader {
        CgroupReader {
            root: dir.root(),
            pods: pods_path(config),
            lane: Lane::new(Purpose::KillDetails),
        }
    }

    fn vmstat(dir: &Scratch, direct: u64, kswapd: u64) {
        let text = format!("allocstall_normal {direct}\npgscan_kswapd {kswapd}\n");
        dir.write("proc/vmstat", text);
    }

    /// Writes the limit hits of a cgroup itself and with those below it, and the time for which its
    /// tasks have waited.
    fn write(dir: &Scratch, cgroup: &str, local: u64, tree: u64, millis: u64) {
        let at = format!("{CGROUPS}/{cgroup}");
        for (name, hits) in [("events.local", local), ("events", tree)] {
            let text = format!("low 0\nhigh {hits}\nmax 0\noom 0\n");
            dir.write(&format!("{at}/memory.{name}"), text);
        }
        let total = millis * 1000;
        let text = format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n");
        dir.write(&format!("{at}/memory.pressure"), text);
    }

    fn quiet_node() -> (Scratch, Config) {
        let (dir, config) = node(&[("@kubepods/cgroup.events", "populated 1\n")]);
        vmstat(&dir, 5, 9);
        for cgroup in [POD, CLASS, SERVICE, GONE] {
            write(&dir, cgroup, 3, 3, 1000);
        }
        (dir, config)
    }

    /// Returns what is read while `change` is called after each second, and the elapsed time.
    async fn observe(
        reader: CgroupReader,
        mut change: impl FnMut(u64),
    ) -> (ShortageEvidence, Duration) {
        let start = Instant::now();
        let read = reader.read_shortage();
        tokio::pin!(read);
        for second in 1.. {
            // Half a second later than the readings.
            let at = start + Duration::from_millis(500 + 1000 * (second - 1));
            tokio::select! {
                read = &mut read => return (read, start.elapsed()),
                () = sleep_until(at) => change(second),
            }
        }
        unreachable!("it ends")
    }

    #[tokio::test(start_paused = true)]
    async fn without_reclaim_of_the_node_no_cgroup_is_read() {
        let (dir, config) = quiet_node();
        let reader = reader(&dir, &config);
        let change = |second| write(&dir, POD, 3, 3, 1000 * second);
        let (evidence, took) = observe(reader, change).await;
        let expected = ShortageEvidence {
            reclaim: Some(Reclaim {
                rose: false,
                intervals: 10,
                direct: 0,
            }),
            units: UnitStalls::NotRead,
        };
        assert_eq!(evidence, expected);
        assert_eq!(took, Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn the_waiting_units_are_read_if_the_node_reclaims_memory() {
        //  hits in the last seconds: of the pod, with its containers, of its class; at its limit?
        let rows = [
            ([0, 0, 0], false, "no limit"),
            ([0, 1, 0], true, "the limit of a container"),
            ([0, 0, 1], true, "the limit of the class"),
        ];
        for ([local, tree, class], at_its_limit, name) in rows {
            let (dir, config) = quiet_node();
            let change = |second: u64| {
                vmstat(&dir, 5 + second, 9);
                // One hit after the first reading of the cgroups, none in the last second.
                let hit = u64::from(second > 9);
                write(&dir, POD, 3 + hit * local, 3 + hit * tree, 970 * second);
                write(&dir, CLASS, 3 + hit * class, 3, 0);
                write(&dir, SERVICE, 3, 3 + hit, 200 * second);
                if second == 11 {
                    std::fs::remove_dir_all(dir.path().join(CGROUPS).join(GONE)).unwrap();
                }
            };
            let (evidence, took) = observe(reader(&dir, &config), change).await;
            assert_eq!(took, Duration::from_secs(11), "{name}");
            let direct = evidence.reclaim.map(|reclaim| reclaim.direct);
            assert_eq!(direct, Some(10), "{name}");
            let [pod, service] = evidence.units.units() else {
                panic!("{name}: {evidence:?}");
            };
            assert_eq!(pod.share, StallShare::from_percent(97.0), "{name}");
            assert_eq!(pod.at_its_limit, at_its_limit, "{name}");
            assert_eq!(service.share, StallShare::from_percent(20.0), "{name}");
            assert!(!service.at_its_limit, "{name}: a limit below it");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reclaim_in_the_last_second_only_makes_it_longer() {
        let (dir, config) = quiet_node();
        let change = |second| vmstat(&dir, 5, if second < 10 { 9 } else { 10 });
        let (evidence, took) = observe(reader(&dir, &config), change).await;
        assert!(evidence.reclaim.is_some_and(|reclaim| reclaim.rose));
        assert_eq!(took, Duration::from_secs(13));
        assert!(matches!(evidence.units, UnitStalls::Read { .. }));
    }

    #[tokio::test(start_paused = true)]
    async fn version_1_attributes_no_stall() {
        let (dir, config) = quiet_node();
        let mut reader = reader(&dir, &config);
        let mut layout = Layout::detect(&dir.root()).unwrap();
        layout.memory.version = Version::V1;
        reader.pods = PodsPath::new(Some(layout), &["/kubepods".into()]);
        let (evidence, took) = observe(reader, |second| vmstat(&dir, 5, 9 + second)).await;
        assert_eq!(evidence.units, UnitStalls::CgroupV1);
        assert_eq!(evidence.judge(None, 15.0), ShortageVerdict::Short);
        assert_eq!(took, Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn files_that_cannot_be_read_prove_nothing() {
        let (dir, config) = node(&[("@kubepods/cgroup.events", "populated 1\n")]);
        let (evidence, _) = observe(reader(&dir, &config), |_| ()).await;
        assert_eq!(evidence, ShortageEvidence::default());

        let (dir, config) = quiet_node();
        let mut reader = reader(&dir, &config);
        reader.pods = PodsPath::new(None, &["/kubepods".into()]);
        let (evidence, _) = observe(reader, |second| vmstat(&dir, 5 + second, 9)).await;
        assert_eq!(evidence.units, UnitStalls::NotRead);
        assert!(evidence.reclaim.is_some());
    }
}
