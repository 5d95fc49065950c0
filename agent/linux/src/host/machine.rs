//! Properties that do not change while the machine is up: ids, processors, memory, huge pages,
//! system names. Read once at start-up.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use nodepulse_core::reading::{HugePages, Machine};
use nodepulse_core::units::Bytes;

use super::{HostError, HostRoot, meminfo, parse_u64};

/// Limit on counted processors; the largest kernel build supports 8192.
const MAX_CPUS: usize = 65_536;

/// Cold. Fails only without a usable `/proc/meminfo`; see [`Machine`] for the other defaults.
pub fn read(root: &HostRoot) -> Result<Machine, HostError> {
    let meminfo = meminfo::MeminfoFile::new(root).read(&mut Vec::new())?;
    Ok(Machine {
        machine_id: first(root, &["etc/machine-id", "var/lib/dbus/machine-id"]),
        system_uuid: first(root, SYSTEM_UUID),
        boot_id: first(root, &["proc/sys/kernel/random/boot_id"]),
        kernel_version: kernel_version(root),
        os_image: os_image(root),
        cpus: cpus(root),
        memory: meminfo.total,
        swap: meminfo.swap_total,
        huge_pages: huge_pages(root),
    })
}

/// Files with the system UUID. The first is readable only by root; the next two are for ARM and
/// POWER. Without a UUID of the firmware, a kubelet reports the machine ID.
const SYSTEM_UUID: &[&str] = &[
    "sys/class/dmi/id/product_uuid",
    "proc/device-tree/system-id",
    "proc/device-tree/vm,uuid",
    "etc/machine-id",
];

/// Returns the first readable file without surrounding whitespace and NULs, or an empty string.
fn first(root: &HostRoot, files: &[&str]) -> String {
    files
        .iter()
        .find_map(|rel| root.read_string(rel).ok())
        .unwrap_or_default()
        .trim_matches(|c: char| c == '\0' || c.is_whitespace())
        .to_owned()
}

fn kernel_version(root: &HostRoot) -> String {
    let file = root.read_string("proc/sys/kernel/osrelease").ok();
    let release = file.filter(|text| !text.is_empty()).or_else(|| {
        // uname(2) refers to the running kernel, independent of the root.
        let uname = nix::sys::utsname::uname().ok()?;
        root.is_this_machine()
            .then(|| uname.release().to_string_lossy().into_owned())
    });
    release.unwrap_or_else(|| "Unknown".to_owned())
}

fn os_image(root: &HostRoot) -> String {
    let text = ["etc/os-release", "usr/lib/os-release"]
        .iter()
        .find_map(|rel| root.read_string(rel).ok());
    match text {
        Some(text) => pretty_name(&text).unwrap_or("Linux").to_owned(),
        None => "Unknown".to_owned(),
    }
}

/// Returns the value of `PRETTY_NAME` without double quotes.
fn pretty_name(os_release: &str) -> Option<&str> {
    let value = os_release
        .lines()
        .find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?
        .trim();
    let unquoted = value.strip_prefix('"').and_then(|v| v.strip_suffix('"'));
    Some(unquoted.unwrap_or(value))
}

/// Returns the number of online logical processors; zero if `/sys` lists none.
fn cpus(root: &HostRoot) -> u32 {
    // Without the file, processors cannot be offline.
    let online = root.read_string("sys/devices/system/cpu/online").ok();
    let online = online.as_deref().map(ranges);
    let is_online = |id: u32| {
        online
            .as_ref()
            .is_none_or(|ranges| ranges.iter().any(|&(from, to)| from <= id && id <= to))
    };
    let nodes = numbered(root.path("sys/devices/system/node"), "node");
    let of_nodes: BTreeSet<u32> = nodes
        .flat_map(|(_, dir)| numbered(dir, "cpu"))
        .map(|(id, _)| id)
        .take(MAX_CPUS)
        .collect();
    let ids = if of_nodes.is_empty() {
        numbered(root.path("sys/devices/system/cpu"), "cpu")
            .map(|(id, _)| id)
            .take(MAX_CPUS)
            .collect()
    } else {
        of_nodes
    };
    let count = ids.into_iter().filter(|&id| is_online(id)).count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Iterates over the entries named `prefix` and a number, such as `cpu12` but not `cpufreq`.
fn numbered(dir: PathBuf, prefix: &'static str) -> impl Iterator<Item = (u32, PathBuf)> {
    fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(move |entry| {
            let entry = entry.ok()?;
            let name = entry.file_name();
            let number = parse_u64(name.to_str()?.strip_prefix(prefix)?.as_bytes())?;
            Some((number.try_into().ok()?, entry.path()))
        })
}

/// Parses `0-3,8` into pairs of first and last. Malformed entries are skipped.
fn ranges(list: &str) -> Vec<(u32, u32)> {
    list.split(',')
        .filter_map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            Some((from.trim().parse().ok()?, to.trim().parse().ok()?))
        })
        .collect()
}

/// Returns the huge page pools, the smallest page size first.
fn huge_pages(root: &HostRoot) -> Vec<HugePages> {
    let entries = fs::read_dir(root.path("sys/kernel/mm/hugepages"));
    let mut pools: Vec<HugePages> = entries
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let name = name.to_str()?;
            let kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            let pages = format!("sys/kernel/mm/hugepages/{name}/nr_hugepages");
            Some(HugePages {
                page_size: Bytes::from_kib(parse_u64(kib.as_bytes())?),
                pages: parse_u64(root.read_string(pages).ok()?.as_bytes())?,
            })
        })
        .collect();
    pools.sort_unstable_by_key(|pool| pool.page_size);
    pools
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    fn node(files: &[(&str, &str)]) -> Scratch {
        let dir = Scratch::new();
        for (rel, text) in files {
            dir.write(rel, text);
        }
        dir
    }

    #[test]
    fn a_whole_machine() {
        let dir = node(&[
            ("proc/meminfo", "MemTotal: 4 kB\nSwapTotal: 2 kB\n"),
            ("etc/machine-id", "abc\n"),
            ("var/lib/dbus/machine-id", "other\n"),
            ("proc/device-tree/vm,uuid", "1234\0"),
            ("proc/sys/kernel/random/boot_id", "boot\n"),
            ("proc/sys/kernel/osrelease", "6.18.44\n"),
            ("etc/os-release", "NAME=x\nPRETTY_NAME=\"Debian 12\"\n"),
            ("sys/devices/system/cpu/online", "0-1"),
            (
                "sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages",
                "0\n",
            ),
            (
                "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
                "8\n",
            ),
            ("sys/kernel/mm/hugepages/hugepages-xkB/nr_hugepages", "8\n"),
        ]);
        for rel in ["node0/cpu0", "node0/cpu1", "node1/cpu2", "node1/cpumap"] {
            dir.mkdir(&format!("sys/devices/system/node/{rel}"));
        }
        let pool = |kib, pages| HugePages {
            page_size: Bytes::from_kib(kib),
            pages,
        };
        let expected = Machine {
            machine_id: "abc".into(),
            system_uuid: "1234".into(),
            boot_id: "boot".into(),
            kernel_version: "6.18.44".into(),
            os_image: "Debian 12".into(),
            cpus: 2,
            memory: Bytes::from_kib(4),
            swap: Bytes::from_kib(2),
            huge_pages: vec![pool(2048, 8), pool(1_048_576, 0)],
        };
        assert_eq!(read(&dir.root()).unwrap(), expected);
    }

    #[test]
    fn the_system_uuid_is_the_firmwares_or_the_machine_id() {
        let id = ("etc/machine-id", "machine\n");
        let firmware = ("sys/class/dmi/id/product_uuid", "firmware\n");
        for (files, expected) in [
            (&[id, firmware][..], "firmware"),
            (&[id][..], "machine"),
            (&[][..], ""),
        ] {
            assert_eq!(first(&node(files).root(), SYSTEM_UUID), expected);
        }
    }

    #[test]
    fn missing_properties_have_defaults() {
        let dir = node(&[("proc/meminfo", "MemTotal: 4 kB\n")]);
        let expected = Machine {
            kernel_version: "Unknown".into(),
            os_image: "Unknown".into(),
            memory: Bytes::from_kib(4),
            ..Machine::default()
        };
        assert_eq!(read(&dir.root()).unwrap(), expected);
        assert!(read(&Scratch::new().root()).unwrap_err().is_absent());
    }

    #[test]
    fn names_of_the_system() {
        let rows = [
            ("PRETTY_NAME=\"Debian 12\"", "Debian 12", "quoted"),
            ("PRETTY_NAME=Alpine", "Alpine", "not quoted"),
            ("PRETTY_NAME=\"half", "\"half", "an unpaired quote"),
            ("PRETTY_NAME=\"\"", "", "empty"),
            ("NAME=x\n", "Linux", "no such key"),
            ("", "Linux", "an empty file"),
        ];
        for (text, expected, why) in rows {
            let dir = node(&[("usr/lib/os-release", text)]);
            assert_eq!(os_image(&dir.root()), expected, "{why}");
        }
    }

    #[test]
    fn online_processors() {
        //    online       directories                     count
        #[rustfmt::skip]
        let rows: [(Option<&str>, &[&str], u32, &str); 6] = [
            (Some("0-3"), &["cpu/cpu0", "cpu/cpu1"], 2, "no NUMA nodes"),
            (Some("0,2-3"), &["node/node0/cpu0", "node/node0/cpu1", "node/node1/cpu3"], 2, "lists"),
            (None, &["cpu/cpu0", "cpu/cpu7", "cpu/cpufreq"], 2, "no hot-plug: all are online"),
            (Some("0-3"), &["node/node0/cpu0", "cpu/cpu0", "cpu/cpu1"], 1, "NUMA nodes take precedence"),
            (Some("junk,4-"), &["cpu/cpu0"], 0, "a malformed list"),
            (Some("0-4294967295"), &["cpu/cpu0", "cpu/cpu99999999999"], 1, "huge numbers"),
        ];
        for (online, dirs, expected, why) in rows {
            let dir = Scratch::new();
            for rel in dirs {
                dir.mkdir(&format!("sys/devices/system/{rel}"));
            }
            if let Some(online) = online {
                dir.write("sys/devices/system/cpu/online", online);
            }
            assert_eq!(cpus(&dir.root()), expected, "{why}");
        }
    }
}
