//! Queries about disks: files of `/sys/block`.

use std::time::Duration;

use tracing::warn;

use crate::host::{HostError, HostRoot, block};
use crate::pressure::disks::DiskSample;
use crate::reading::Disk;
use crate::subjects::disks::{CountersRead, DiskCounters};
use crate::subjects::{DiskInput, DiskQuery};

/// Reads the answer. The probe's state of a disk is not available on this thread.
pub(super) fn answer(root: &HostRoot, query: DiskQuery) -> DiskInput {
    match query {
        DiskQuery::List => DiskInput::Listed(list(root)),
        DiskQuery::Find(change) => {
            let found = logged(block::disk(root, change.name.clone())).flatten();
            // The name may belong to another disk by now.
            let disk = found.filter(|disk| disk.device == change.device);
            DiskInput::Found { change, disk }
        }
        DiskQuery::Statistics {
            device,
            name,
            stamp,
        } => DiskInput::Confirmed {
            device,
            valid: matches!(block::iostats(root, &name), Ok(Some(true))),
            probe: None,
            stamp,
        },
        DiskQuery::Counters(disks) => {
            let read = |(device, name): (_, String)| DiskCounters {
                device,
                counters: counters(root, &name),
                probe: None,
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

/// All disks; `None` if they could not be read.
pub fn list(root: &HostRoot) -> Option<Vec<Disk>> {
    logged(block::disks(root))
}

/// The answer if the call timed out. A report on a disk that cannot even be queried counts.
pub(super) fn timed_out(query: &DiskQuery) -> DiskInput {
    match query {
        DiskQuery::List => DiskInput::Listed(None),
        DiskQuery::Find(change) => DiskInput::Found {
            change: change.clone(),
            disk: None,
        },
        DiskQuery::Statistics { device, stamp, .. } => DiskInput::Confirmed {
            device: *device,
            valid: true,
            probe: None,
            stamp: *stamp,
        },
        DiskQuery::Counters(disks) => {
            let failed = |(device, _): &(_, String)| DiskCounters {
                device: *device,
                counters: CountersRead::Failed,
                probe: None,
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
            answered: now.reads.saturating_add(now.writes),
            waited: Duration::from_millis(now.read_ms.saturating_add(now.write_ms)),
            in_flight: now.in_flight,
        }),
        Ok(None) => CountersRead::Removed,
        Err(_) => CountersRead::Failed,
    }
}

fn logged<T>(read: Result<T, HostError>) -> Option<T> {
    read.inspect_err(|err| warn!(err = err as &dyn std::error::Error, "disks not read"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{BootNanos, Stamp};
    use crate::host::scratch::Scratch;
    use crate::record::{DiskAction, DiskChange};
    use crate::units::DeviceNumber;

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
            let found = answer(&host("1\n").root(), DiskQuery::Find(change.clone()));
            let DiskInput::Found { change: of, disk } = found else {
                panic!("{found:?}");
            };
            assert_eq!(of, change);
            assert_eq!(disk.is_some(), expected, "{name} {device}");
        }
    }

    #[test]
    fn a_report_counts_only_while_statistics_are_on() {
        for (iostats, name, valid) in [
            ("1\n", "vda", true),
            ("0\n", "vda", false),
            ("2\n", "vda", false),
            ("1\n", "vdb", false),
        ] {
            let query = DiskQuery::Statistics {
                device: VDA,
                name: name.to_owned(),
                stamp: STAMP,
            };
            let expected = DiskInput::Confirmed {
                device: VDA,
                valid,
                probe: None,
                stamp: STAMP,
            };
            assert_eq!(answer(&host(iostats).root(), query), expected, "{name}");
        }
    }

    #[test]
    fn counters_of_a_removed_disk_differ_from_those_that_cannot_be_read() {
        let dir = host("1\n");
        dir.write("sys/block/bad/stat", "many\n");
        let disks = ["vda", "gone", "bad"].map(|name| (VDA, name.to_owned()));
        let answer = answer(&dir.root(), DiskQuery::Counters(disks.to_vec()));
        let DiskInput::Sampled(disks) = answer else {
            panic!("{answer:?}");
        };
        let counters: Vec<_> = disks.into_iter().map(|disk| disk.counters).collect();
        let read = CountersRead::Read(DiskSample {
            completed: 10 + 20 + 3 + 4,
            answered: 30,
            waited: Duration::from_millis(500),
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
            let found = answer(&host("1\n").root(), DiskQuery::Switched(all.collect()));
            let expected = DiskInput::StatisticsChecked { switched: expected };
            assert_eq!(found, expected, "{known:?}");
        }
    }
}
