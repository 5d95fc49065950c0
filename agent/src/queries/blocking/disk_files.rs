//! Queries about disks: files of `/sys/block`.

use std::collections::BTreeSet;
use std::time::Duration;

use nodepulse_core::pressure::disks::{DiskSample, DiskTotals};
use nodepulse_core::reading::{Disk, DiskRole};
use nodepulse_core::subjects::disks::{CountersRead, DiskCounters};
use nodepulse_core::subjects::{DiskInput, DiskQuery};
use nodepulse_core::units::DeviceNumber;
use nodepulse_linux::host::mounts::Mounts;
use nodepulse_linux::host::{HostError, HostRoot, block, node_disks};
use tracing::{debug, warn};

use super::nodefs::Directories;

/// Reads the answer, without the data of the probe, which is not available on this thread.
pub(super) fn answer(directories: &Directories, query: DiskQuery) -> DiskInput {
    let root = directories.root();
    match query {
        DiskQuery::List => DiskInput::Listed(list(directories)),
        DiskQuery::Filesystems => DiskInput::FilesystemsRead(directories.filesystems()),
        DiskQuery::Find(change) => {
            let found = logged(block::disk(root, change.name.clone())).flatten();
            let found = found.map(|disk| with_role(disk, of_node(directories).as_ref()));
            // The name may belong to another disk by now.
            let disk = found.filter(|disk| disk.device == change.device);
            DiskInput::Found { change, disk }
        }
        DiskQuery::Statistics {
            device,
            name,
            window,
            stamp,
        } => DiskInput::Confirmed {
            device,
            valid: matches!(block::iostats(root, &name), Ok(Some(true))),
            window,
            totals: DiskTotals {
                bytes: block::counters(root, &name)
                    .ok()
                    .flatten()
                    .map(|counters| counters.bytes),
                judged: None,
            },
            stamp,
        },
        DiskQuery::Counters(disks) => {
            let read = |(device, name): (_, String)| DiskCounters {
                device,
                counters: counters(root, &name),
                last_completion: None,
            };
            DiskInput::Sampled(disks.into_iter().map(read).collect())
        }
        DiskQuery::Switched(known) => {
            let is_switched = |(name, on): &(String, bool)| {
                // A removed disk is announced.
                matches!(block::iostats(root, name), Ok(Some(now)) if now != *on)
            };
            let switched = known.iter().any(is_switched);
            DiskInput::StatisticsChecked { switched }
        }
    }
}

fn list(directories: &Directories) -> Option<Vec<Disk>> {
    let found = logged(block::disks(directories.root()))?;
    let of_node = of_node(directories);
    let disks = found
        .into_iter()
        .map(|disk| with_role(disk, of_node.as_ref()));
    Some(disks.collect())
}

/// Returns the disks that the node depends on, or `None` if every disk may be one.
fn of_node(directories: &Directories) -> Option<BTreeSet<DeviceNumber>> {
    let root = directories.root();
    let found = node_disks::find(root, &directories.on_node());
    let Some(mut found) = found else {
        debug!("the disks below the node's file systems are not known; every disk sets conditions");
        return None;
    };
    if !directories.has_pods()
        && let Ok(mounts) = Mounts::of_host(root)
    {
        let mounted = node_disks::mounted(root, &mounts).into_iter();
        found.extend(mounted.flat_map(|(_, disks)| disks));
    }
    Some(found)
}

fn with_role(disk: Disk, of_node: Option<&BTreeSet<DeviceNumber>>) -> Disk {
    let is_other = |all: &BTreeSet<DeviceNumber>| !all.contains(&disk.device);
    let role = if of_node.is_some_and(is_other) {
        DiskRole::Volume
    } else {
        DiskRole::Node
    };
    Disk { role, ..disk }
}

/// The answer if the call timed out. A report on a disk that cannot even be queried counts.
pub(super) fn timed_out(query: &DiskQuery) -> DiskInput {
    match query {
        DiskQuery::List => DiskInput::Listed(None),
        DiskQuery::Find(change) => DiskInput::Found {
            change: change.clone(),
            disk: None,
        },
        DiskQuery::Filesystems => DiskInput::FilesystemsRead(Vec::new()),
        DiskQuery::Statistics {
            device,
            window,
            stamp,
            ..
        } => DiskInput::Confirmed {
            device: *device,
            valid: true,
            window: *window,
            totals: DiskTotals::default(),
            stamp: *stamp,
        },
        DiskQuery::Counters(disks) => {
            let failed = |(device, _): &(_, String)| DiskCounters {
                device: *device,
                counters: CountersRead::Failed,
                last_completion: None,
            };
            DiskInput::Sampled(disks.iter().map(failed).collect())
        }
        DiskQuery::Switched(_) => DiskInput::StatisticsChecked { switched: false },
    }
}

fn counters(root: &HostRoot, name: &str) -> CountersRead {
    match block::counters(root, name) {
        Ok(Some(now)) => CountersRead::Read(DiskSample {
            completed: now
                .reads
                .saturating_add(now.writes)
                .saturating_add(now.others),
            reads: now.reads,
            read_time: Duration::from_millis(now.read_ms),
            bytes: now.bytes,
            in_flight: now.in_flight,
        }),
        Ok(None) => CountersRead::Removed,
        Err(_) => CountersRead::Failed,
    }
}

fn logged<T>(read: Result<T, HostError>) -> Option<T> {
    ok_or_log!(warn, read, "disks not read")
}

#[cfg(test)]
mod tests {
    use nodepulse_core::clock::{BootNanos, Stamp};
    use nodepulse_core::reading::{NodeFilesystem, SlowWindow};
    use nodepulse_core::record::{DiskAction, DiskChange};
    use nodepulse_linux::host::scratch::Scratch;

    use super::*;

    const VDA: DeviceNumber = DeviceNumber {
        major: 254,
        minor: 0,
    };
    const OTHER: DeviceNumber = DeviceNumber {
        major: 254,
        minor: 16,
    };
    const STAMP: Stamp = Stamp {
        kernel: BootNanos(1),
        read: BootNanos(2),
    };

    const WINDOW: SlowWindow = SlowWindow {
        judged: 9,
        slow: 5,
        length: Duration::from_secs(1),
        longest: Duration::from_millis(30),
    };

    fn directories(host: &Scratch) -> Directories {
        Directories::below(host.root(), "/var/lib/kubelet")
    }

    #[test]
    fn a_disk_below_no_file_system_of_the_node_is_that_of_a_volume() {
        let dir = host("1\n");
        let listed = || list(&directories(&dir)).map(|disks| disks[0].role);
        assert_eq!(listed(), Some(DiskRole::Node), "the mounts cannot be read");
        dir.write("proc/1/mountinfo", "1 0 0:9 / / rw - tmpfs tmpfs rw\n");
        assert_eq!(listed(), Some(DiskRole::Volume));
        std::fs::create_dir_all(dir.path().join("sys/dev/block")).unwrap();
        let number = dir.path().join("sys/dev/block/254:0");
        std::os::unix::fs::symlink(dir.path().join("sys/block/vda"), number).unwrap();
        let mounts = "1 0 0:9 / / rw - tmpfs tmpfs rw\n2 1 254:0 / /var rw - ext4 /dev/vda rw\n";
        dir.write("proc/1/mountinfo", mounts);
        assert_eq!(listed(), Some(DiskRole::Node));
        dir.write("proc/1/mountinfo", mounts.replace("/var", "/srv"));
        assert_eq!(listed(), Some(DiskRole::Volume));
        let plain = directories(&dir).without_pods();
        let listed = list(&plain).map(|disks| disks[0].role);
        assert_eq!(listed, Some(DiskRole::Node));
        let read = plain.filesystems().into_iter();
        let places: Vec<_> = read.map(|one| (one.filesystem, one.place)).collect();
        let srv = NodeFilesystem::Mounted("/srv".into());
        let expected = [(NodeFilesystem::Root, "/ on tmpfs"), (srv, "/srv on vda")];
        assert_eq!(places, expected.map(|(of, place)| (of, place.to_owned())));
    }

    /// A host with the disk vda.
    fn host(iostats: &str) -> Scratch {
        let dir = Scratch::new();
        dir.mkdir("sys/block/vda/mq/0");
        dir.write("sys/block/vda/dev", "254:0\n");
        dir.write("sys/block/vda/queue/rotational", "0\n");
        dir.write("sys/block/vda/queue/iostats", iostats);
        let stat = "10 0 80 200 20 0 160 300 2 400 500 3 0 0 0 4 50\n";
        dir.write("sys/block/vda/stat", stat);
        dir
    }

    #[test]
    fn an_announced_disk_is_found_only_under_its_number() {
        for (name, device, expected) in [
            ("vda", VDA, true),
            ("vda", OTHER, false),
            ("vdb", OTHER, false),
        ] {
            let change = DiskChange {
                action: DiskAction::Added,
                device,
                name: name.to_owned(),
            };
            let found = answer(&directories(&host("1\n")), DiskQuery::Find(change.clone()));
            let DiskInput::Found { change: of, disk } = found else {
                panic!("{found:?}");
            };
            assert_eq!(of, change);
            assert_eq!(disk.is_some(), expected, "{name} {device}");
        }
    }

    #[test]
    fn a_report_counts_only_while_statistics_are_on() {
        let bytes = Some((80 + 160) * 512);
        for (iostats, name, valid, bytes) in [
            ("1\n", "vda", true, bytes),
            ("0\n", "vda", false, bytes),
            ("2\n", "vda", false, bytes),
            ("1\n", "vdb", false, None),
        ] {
            let query = DiskQuery::Statistics {
                device: VDA,
                name: name.to_owned(),
                window: WINDOW,
                stamp: STAMP,
            };
            let expected = DiskInput::Confirmed {
                device: VDA,
                valid,
                window: WINDOW,
                totals: DiskTotals {
                    bytes,
                    judged: None,
                },
                stamp: STAMP,
            };
            assert_eq!(
                answer(&directories(&host(iostats)), query),
                expected,
                "{name}"
            );
        }
    }

    #[test]
    fn counters_of_a_removed_disk_differ_from_those_that_cannot_be_read() {
        let dir = host("1\n");
        dir.write("sys/block/bad/stat", "many\n");
        let disks = ["vda", "gone", "bad"].map(|name| (VDA, name.to_owned()));
        let answer = answer(&directories(&dir), DiskQuery::Counters(disks.to_vec()));
        let DiskInput::Sampled(disks) = answer else {
            panic!("{answer:?}");
        };
        let counters: Vec<_> = disks.into_iter().map(|disk| disk.counters).collect();
        let read = CountersRead::Read(DiskSample {
            completed: 10 + 20 + 3 + 4,
            reads: 10,
            read_time: Duration::from_millis(200),
            bytes: (80 + 160) * 512,
            in_flight: 2,
        });
        assert_eq!(
            counters,
            [read, CountersRead::Removed, CountersRead::Failed]
        );
    }

    #[test]
    fn switched_statistics_are_noticed_and_a_removed_disk_is_not_a_switch() {
        for (known, expected) in [
            (&[("vda", true)][..], false),
            (&[("vda", false)], true),
            (&[("vdb", false)], false),
            (&[("vdb", true), ("vda", false)], true),
        ] {
            let all = known.iter().map(|(name, on)| ((*name).to_owned(), *on));
            let found = answer(
                &directories(&host("1\n")),
                DiskQuery::Switched(all.collect()),
            );
            let expected = DiskInput::StatisticsChecked { switched: expected };
            assert_eq!(found, expected, "{known:?}");
        }
    }
}
