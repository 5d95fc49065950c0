//! Pods and cgroups that use a disk, and those that wait for it: two reads of the cgroups, a moment
//! apart. Between them the thread is free for other calls.

use std::collections::BTreeMap;
use std::time::Duration;

use nodepulse_core::pressure::io_wait::{CgroupIo, IoSnapshot, IoWait, StallRead, StallShare};
use nodepulse_core::reading::StallKind;
use nodepulse_core::units::{CgroupId, DeviceNumber};
use nodepulse_linux::host::cgroup::{Version, io};
use nodepulse_linux::host::{block, psi};
use tokio::time::Instant;
use tracing::debug;

use super::units::{self, CgroupReader};

const INTERVAL: Duration = Duration::from_secs(1);

impl CgroupReader {
    /// Reads the wait for one disk. Only the node's is known if the host does not answer in time.
    pub(super) async fn read_io_wait(self, disk: DeviceNumber) -> IoWait {
        match self.read_cgroups(disk).await {
            Some(read) => read,
            // One file that waits for no disk.
            None => IoWait::without_cgroups(self.node()),
        }
    }

    async fn read_cgroups(&self, disk: DeviceNumber) -> Option<IoWait> {
        let first = Instant::now();
        let read = self.call(move |reader| {
            let levels = block::stack::above(&reader.root, &[disk]);
            let snapshot = reader.io_snapshot(&levels);
            (levels, snapshot)
        });
        let (levels, before) = ok_or_log!(debug, read.await, "cgroups' I/O not read")?;
        let before = before?;
        if before.cgroups.is_empty() {
            return Some(IoWait::between(&before, &before, INTERVAL));
        }
        tokio::time::sleep(INTERVAL).await;
        let elapsed = first.elapsed();
        let read = self.call(move |reader| reader.io_snapshot(&levels));
        let after = ok_or_log!(debug, read.await, "cgroups' I/O not read")??;
        Some(IoWait::between(&before, &after, elapsed))
    }

    fn node(&self) -> StallRead {
        let node = psi::read(&psi::node_file(&self.root, StallKind::Io), &mut Vec::new());
        match ok_or_log!(debug, node, "io PSI of the node not read") {
            Some(Some(psi)) => StallRead::Share(StallShare::from_percent(psi.avg10)),
            Some(None) => StallRead::NoPsi,
            None => StallRead::Failed,
        }
    }

    /// Returns `None` if the cgroups cannot be read.
    fn io_snapshot(&self, levels: &[Vec<DeviceNumber>]) -> Option<IoSnapshot> {
        Some(IoSnapshot {
            cgroups: self.cgroups(levels)?,
            node: self.node(),
        })
    }

    /// Returns an empty map on cgroup v1, which attributes neither writes nor waiting to a cgroup,
    /// and `None` if no cgroup can be read.
    fn cgroups(&self, levels: &[Vec<DeviceNumber>]) -> Option<BTreeMap<CgroupId, CgroupIo>> {
        let memory = self.pods.layout().map(|layout| &layout.memory);
        let Some(unified) = memory.filter(|memory| memory.version == Version::V2) else {
            return Some(BTreeMap::new());
        };
        let mut cgroups = BTreeMap::new();
        let mut buf = Vec::new();
        units::each(&self.pods, unified, |id, dir, path, owner| {
            let io = io::stat(dir, levels, &mut buf).ok().flatten();
            let stall = io::stall(dir, &mut buf).ok().flatten();
            let is_read = io.is_some() || stall.is_some();
            if is_read {
                let cgroup = CgroupIo {
                    owner,
                    path: path.to_owned(),
                    io,
                    stall: stall.map(StallShare::from_percent),
                };
                cgroups.insert(id, cgroup);
            }
            is_read
        })?;
        Some(cgroups)
    }
}

#[cfg(test)]
mod tests {
    use nodepulse_core::pods::Owner;
    use nodepulse_core::pressure::io_wait::OthersStall;
    use nodepulse_io::lane::{Lane, Purpose};
    use nodepulse_linux::host::cgroup::Layout;
    use nodepulse_linux::host::cgroup::pods::PodsPath;
    use nodepulse_linux::host::scratch::Scratch;

    use super::super::super::fixture::{CGROUPS, node};
    use super::super::super::signals::pods_path;
    use super::super::LIMIT;
    use super::super::units::{MAX_CGROUPS, OTHER_CGROUPS};
    use super::*;
    use crate::config::Config;

    const SDA: DeviceNumber = DeviceNumber { major: 8, minor: 0 };
    const WRITER: &str = "kubepods/burstable/pod11111111-1f4b-4a62-9b0e-0f7c0f5d8a11";
    const WAITER: &str = "kubepods/pod22222222-1f4b-4a62-9b0e-0f7c0f5d8a11";
    const SERVICE: &str = "system.slice/ssh.service";
    const EVIL: &str = "kubepods/burstable/not a pod";
    const MIB: u64 = 1 << 20;

    /// Writes the bytes that a cgroup wrote to sda, and the share of time that its tasks waited.
    fn write(dir: &Scratch, cgroup: &str, mib: u64, percent: &str) {
        let bytes = mib * MIB;
        let stat = format!("8:0 rbytes=0 wbytes={bytes} rios=0 wios={mib} dbytes=0 dios=0\n");
        dir.write(&format!("{CGROUPS}/{cgroup}/io.stat"), stat);
        let psi = format!("some avg10={percent} avg60=0.00 avg300=0.00 total=1\n");
        dir.write(&format!("{CGROUPS}/{cgroup}/io.pressure"), psi);
    }

    fn reader(dir: &Scratch, config: &Config) -> CgroupReader {
        CgroupReader {
            root: dir.root(),
            pods: pods_path(config),
            lane: Lane::new(Purpose::Disks),
        }
    }

    const NODE_PSI: &str = "some avg10=66.00 avg60=0.00 avg300=0.00 total=1\n";

    #[tokio::test(start_paused = true)]
    async fn two_reads_find_the_users_and_the_lane_is_free_between_them() {
        let (dir, config) = node(&[("@kubepods/cgroup.events", "populated 1\n")]);
        for cgroup in [WRITER, WAITER, SERVICE, EVIL] {
            write(&dir, cgroup, 10, "1.00");
        }
        let inside = format!("{WRITER}/container");
        write(&dir, &inside, 10, "99.00");
        write(&dir, "kubepods/podnoid/x", 10, "98.00");
        let reader = reader(&dir, &config);
        let lane = reader.lane.clone();
        let start = Instant::now();
        let meanwhile = async {
            tokio::time::sleep(INTERVAL / 2).await;
            lane.run(LIMIT, || ()).await.unwrap();
            assert_eq!(start.elapsed(), INTERVAL / 2, "the lane was occupied");
            write(&dir, WRITER, 210, "90.00");
            write(&dir, WAITER, 11, "35.00");
            write(&dir, SERVICE, 10, "2.00");
            write(&dir, EVIL, 900, "97.00");
            std::fs::remove_dir_all(dir.path().join(CGROUPS).join(EVIL)).unwrap();
        };
        let (wait, ()) = tokio::join!(reader.read_io_wait(SDA), meanwhile);
        let expected = "used most by pod with id 11111111-1f4b-4a62-9b0e-0f7c0f5d8a11 (210 MB/s written), \
                        pod with id 22222222-1f4b-4a62-9b0e-0f7c0f5d8a11 (1.0 MB/s written); \
                        waiting most: pod with id 11111111-1f4b-4a62-9b0e-0f7c0f5d8a11 (90% of the time), \
                        pod with id 22222222-1f4b-4a62-9b0e-0f7c0f5d8a11 (35% of the time), \
                        ssh.service (2.0% of the time)";
        assert_eq!(wait.to_string(), expected);
        assert_eq!(
            wait.others,
            OthersStall::Share(StallShare::from_percent(35.0))
        );
        assert_eq!(start.elapsed(), INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn on_version_1_the_wait_of_the_node_counts_and_no_cgroup_is_named() {
        let (dir, config) = node(&[("proc/pressure/io", NODE_PSI)]);
        write(&dir, WRITER, 10, "99.00");
        let mut reader = reader(&dir, &config);
        let mut layout = Layout::detect(&dir.root()).unwrap();
        layout.memory.version = Version::V1;
        reader.pods = PodsPath::new(Some(layout), &["/kubepods".into()]);
        let wait = reader.read_io_wait(SDA).await;
        let expected = IoWait {
            others: OthersStall::Share(StallShare::from_percent(66.0)),
            ..IoWait::default()
        };
        assert_eq!(wait, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn many_cgroups_of_pods_leave_room_for_others_and_there_is_a_limit() {
        let (dir, config) = node(&[("@kubepods/cgroup.events", "populated 1\n")]);
        for n in 0..MAX_CGROUPS {
            write(
                &dir,
                &format!("kubepods/pod{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11"),
                1,
                "5.00",
            );
            write(&dir, &format!("system.slice/s{n}"), 1, "5.00");
        }
        let read = reader(&dir, &config)
            .io_snapshot(&[vec![SDA]])
            .unwrap()
            .cgroups;
        let pods = read
            .values()
            .filter(|of| matches!(of.owner, Owner::Pod { .. }));
        assert_eq!(pods.count(), MAX_CGROUPS - OTHER_CGROUPS);
        assert_eq!(read.len(), MAX_CGROUPS);
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_host_that_does_not_answer_only_the_wait_of_the_node_is_known() {
        let (dir, config) = node(&[("proc/pressure/io", NODE_PSI)]);
        let reader = reader(&dir, &config);
        let (release, released) = std::sync::mpsc::channel::<()>();
        let lane = reader.lane.clone();
        let hanging = tokio::spawn(async move {
            let call = move || released.recv().is_ok();
            lane.run(LIMIT, call).await
        });
        tokio::task::yield_now().await;
        // A thread that runs keeps the paused clock from advancing.
        tokio::time::advance(LIMIT).await;
        let node = Some(StallShare::from_percent(66.0));
        let others = reader.read_io_wait(SDA).await.others;
        assert_eq!(others, OthersStall::Unread { node });
        assert!(hanging.await.unwrap().is_err());
        drop(release);
    }
}
