//! The bytes that a cgroup of version 2 transferred to and from disks, and the wait of its tasks.

use std::path::Path;

use nodepulse_core::pressure::io_wait::IoCounts;
use nodepulse_core::reading::StallKind;
use nodepulse_core::units::DeviceNumber;

use crate::host::{HostError, HostFile, parse_u64, present, psi};

/// Reads `io.stat` of the cgroup at `dir`. Returns `None` if the io controller is not enabled for
/// it, or if it was removed.
///
/// The kernel counts a request at each device that it passes: at a device-mapper or md device, and
/// at the disk below. Md can submit requests on behalf of the root cgroup, which are then missing
/// at the disk. So the devices are given in levels, and the level with most bytes counts.
pub fn stat(
    dir: &Path,
    levels: &[Vec<DeviceNumber>],
    buf: &mut Vec<u8>,
) -> Result<Option<IoCounts>, HostError> {
    let file = HostFile::at(dir.join("io.stat"));
    if present(file.read(buf))?.is_none() {
        return Ok(None);
    }
    let text = str::from_utf8(buf).map_err(|_| file.malformed("text"))?;
    let sum = |level: &Vec<DeviceNumber>| {
        let lines = text.lines().filter_map(parse_line);
        let of_level = lines.filter(|(device, _)| level.contains(device));
        of_level.fold(IoCounts::default(), |sum, (_, stat)| IoCounts {
            read: sum.read.saturating_add(stat.read),
            written: sum.written.saturating_add(stat.written),
            requests: sum.requests.saturating_add(stat.requests),
        })
    };
    let bytes = |stat: &IoCounts| stat.read.saturating_add(stat.written);
    let largest = levels.iter().map(sum).max_by_key(bytes);
    Ok(Some(largest.unwrap_or_default()))
}

/// Reads `some avg10` of `io.pressure` of the cgroup at `dir`, in percent. Returns `None` if the
/// kernel has no PSI, if it is disabled for the cgroup, or if the cgroup was removed.
pub fn stall(dir: &Path, buf: &mut Vec<u8>) -> Result<Option<f32>, HostError> {
    let read = psi::read(&psi::cgroup_file(dir, StallKind::Io), buf)?;
    Ok(read.map(|psi| psi.avg10))
}

/// Parses `8:0 rbytes=… wbytes=… rios=… wios=… …`. Some kernels leave the numbers of devices
/// without counters at the start of the line of the next one.
fn parse_line(line: &str) -> Option<(DeviceNumber, IoCounts)> {
    let mut device = None;
    let mut stat = None::<IoCounts>;
    for word in line.split_ascii_whitespace() {
        let Some((key, value)) = word.split_once('=') else {
            device = DeviceNumber::parse(word);
            continue;
        };
        let stat = stat.get_or_insert_default();
        // Values of other controllers, such as io.latency, need not be numbers.
        let value = parse_u64(value.as_bytes()).unwrap_or(0);
        match key {
            "rbytes" => stat.read = value,
            "wbytes" => stat.written = value,
            "rios" | "wios" => stat.requests = stat.requests.saturating_add(value),
            _ => {}
        }
    }
    device.zip(stat)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const fn device(major: u32, minor: u32) -> DeviceNumber {
        DeviceNumber { major, minor }
    }

    #[test]
    fn only_the_devices_in_question_are_summed_and_each_request_once() {
        let text = "8:16 rbytes=1000 wbytes=20000 rios=1 wios=2 dbytes=7 dios=1\n\
                    259:0 8:0 rbytes=100 wbytes=200 rios=3 wios=4 dbytes=0 dios=0 cost.usage=1 use_delay=x\n\
                    8:3 \n\
                    253:0 rbytes=90 wbytes=150 rios=3 wios=4\n\
                    253:1 rbytes=500 wbytes=600 rios=30 wios=40\n\
                    8:0x rbytes=77777 wbytes=0 rios=1 wios=0\n\
                    junk\n";
        let (disk, lv, md) = (device(8, 0), device(253, 0), device(253, 1));
        let stat_of = |read, written, requests| IoCounts {
            read,
            written,
            requests,
        };
        #[rustfmt::skip]
        let rows = [
            (vec![vec![disk]], stat_of(100, 200, 7), "a disk"),
            (vec![vec![disk], vec![lv]], stat_of(100, 200, 7), "what passed a device above is not counted again"),
            (vec![vec![disk], vec![lv, md]], stat_of(590, 750, 77),
                "what only a device above attributes to the cgroup"),
            (vec![vec![device(8, 3)]], IoCounts::default(), "no counters"),
            (vec![], IoCounts::default(), "no device"),
        ];
        let dir = Scratch::new();
        dir.write("pod/io.stat", text);
        for (levels, expected, name) in rows {
            let found = stat(&dir.path().join("pod"), &levels, &mut Vec::new());
            assert_eq!(found.unwrap(), Some(expected), "{name}");
        }
    }

    #[test]
    fn a_cgroup_without_the_files_has_no_values() {
        let dir = Scratch::new();
        let mut buf = Vec::new();
        let removed = dir.path().join("removed");
        assert_eq!(stat(&removed, &[], &mut buf).unwrap(), None);
        assert_eq!(stall(&removed, &mut buf).unwrap(), None);
        dir.write(
            "pod/io.pressure",
            "some avg10=12.34 avg60=1.00 avg300=0.00 total=9\n",
        );
        let share = stall(&dir.path().join("pod"), &mut buf).unwrap();
        assert!(share.is_some_and(|share| (share - 12.34).abs() < 0.001));
        dir.write("pod/io.pressure", "some\n");
        assert!(stall(&dir.path().join("pod"), &mut buf).is_err());
    }
}
