//! CSI volumes mounted under the kubelet's directory.

use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::MountInfo;
use serde_json::Value;

use super::{HostError, HostFile, HostRoot, present};

/// Staging directory of the kubelet: `<driver>/<hash>/globalmount`.
const STAGED: &str = "plugins/kubernetes.io/csi";
const MOUNT: &str = "globalmount";
/// The kubelet's metadata file of a volume.
const DATA: &str = "vol_data.json";

/// Maximum number of drivers, and of volumes per driver.
const MAX_ENTRIES: usize = 4096;
/// Maximum length of driver names and volume handles. CSI limits them to 63 and 128.
const MAX_LENGTH: usize = 1024;

/// Returns the volumes mounted below `directory`, with their names in `volumesInUse`:
/// `kubernetes.io/csi/<driver>^<handle>`. Sorted and unique.
///
/// Cold. Fails if the name of a mounted volume is unknown: an incomplete list would release a
/// volume in use.
pub fn mounted(root: &HostRoot, directory: &Path) -> Result<Vec<String>, HostError> {
    let staged = directory.join(STAGED);
    let mut volumes = Vec::new();
    for driver in listed(&staged)? {
        volumes.extend(listed(&driver)?);
    }
    if volumes.is_empty() {
        return Ok(Vec::new());
    }
    let mounts = mount_points(root)?;
    let is_mounted = |volume: &PathBuf| {
        let mount = volume.join(MOUNT);
        let points = mounts.iter();
        points
            .map(PathBuf::as_path)
            .any(|point| point == mount || root.path(point) == mount)
    };
    volumes.retain(is_mounted);
    let names = volumes.iter().map(|volume| name(volume));
    let mut names: Vec<String> = names.collect::<Result<_, _>>()?;
    names.sort();
    names.dedup();
    Ok(names)
}

/// Returns the entries of a directory; empty if it does not exist.
fn listed(directory: &Path) -> Result<Vec<PathBuf>, HostError> {
    let failed = HostError::of_read(directory);
    let Some(entries) = present(fs::read_dir(directory).map_err(failed))? else {
        return Ok(Vec::new());
    };
    let mut paths = Vec::new();
    for entry in entries {
        if paths.len() == MAX_ENTRIES {
            return Err(HostError::Malformed {
                path: directory.to_owned(),
                want: "complete list of CSI volumes",
            });
        }
        paths.push(entry.map_err(failed)?.path());
    }
    Ok(paths)
}

/// Returns the mount points of staged volumes. Parses no others: there can be thousands.
fn mount_points(root: &HostRoot) -> Result<Vec<PathBuf>, HostError> {
    let mounts = root.read_list("proc/self/mountinfo")?;
    Ok(mounts
        .split('\n')
        .filter(|line| line.contains(STAGED))
        .filter_map(|line| MountInfo::from_line(line).ok())
        .map(|info| info.mount_point)
        .collect())
}

/// Returns the name of a volume, from the kubelet's metadata file.
fn name(volume: &Path) -> Result<String, HostError> {
    let file = HostFile::at(volume.join(DATA));
    let mut buf = Vec::new();
    file.read(&mut buf)?;
    parse(&buf).ok_or_else(|| file.malformed("name of a CSI driver and handle of a volume"))
}

/// Returns the name of the volume in a `vol_data.json`; `None` if it is malformed.
pub fn parse(data: &[u8]) -> Option<String> {
    let data: Value = serde_json::from_slice(data).ok()?;
    let text = |key: &str| {
        let text = data.get(key)?.as_str()?;
        let is_valid =
            !text.is_empty() && text.len() <= MAX_LENGTH && !text.contains(char::is_control);
        is_valid.then_some(text)
    };
    let (driver, handle) = (text("driverName")?, text("volumeHandle")?);
    Some(format!("kubernetes.io/csi/{driver}^{handle}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const KUBELET: &str = "var/lib/kubelet";

    /// A staged volume: its directory, and the text of its metadata file.
    type Staged = (&'static str, Option<&'static str>);

    /// Name, staged volumes, mounts with their prefix, expected result.
    type Row<'a> = (
        &'a str,
        &'a [Staged],
        &'a [(&'a str, &'a str)],
        &'a [&'a str],
    );

    const A: Staged = (
        "d.example.com/1a",
        Some(r#"{"driverName": "d.example.com", "volumeHandle": "vol-a", "more": {}}"#),
    );
    const B: Staged = (
        "d.example.com/0b",
        Some(r#"{"driverName": "d.example.com", "volumeHandle": "vol-b"}"#),
    );

    /// Creates a node with these staged volumes and mounts.
    fn node(staged: &[Staged], mounts: &[(&str, &str)]) -> Scratch {
        let dir = Scratch::new();
        let lines = mounts.iter().map(|(prefix, volume)| {
            let point = format!("{prefix}/{KUBELET}/{STAGED}/{volume}/{MOUNT}");
            format!("90 27 8:16 / {point} rw shared:1 - ext4 /dev/sdb rw\n")
        });
        let others = "22 27 0:21 / /proc rw - proc proc rw\nnonsense \n".to_owned();
        let table: String = std::iter::once(others).chain(lines).collect();
        dir.write("proc/self/mountinfo", table);
        for (volume, data) in staged {
            let at = |name: &str| format!("{KUBELET}/{STAGED}/{volume}/{name}");
            dir.mkdir(&at(MOUNT));
            if let Some(data) = data {
                dir.write(&at(DATA), data);
            }
        }
        dir
    }

    fn found(dir: &Scratch) -> Result<Vec<String>, HostError> {
        mounted(&dir.root(), &dir.path().join(KUBELET))
    }

    #[test]
    fn mounted_volumes_are_listed_in_order() {
        let (a, b) = (
            "kubernetes.io/csi/d.example.com^vol-a",
            "kubernetes.io/csi/d.example.com^vol-b",
        );
        let broken = ("d.example.com/2c", Some("{"));
        #[rustfmt::skip]
        let rows: [Row<'_>; 5] = [
            ("no driver", &[], &[], &[]),
            ("staged but not mounted", &[A], &[], &[]),
            ("two", &[A, B], &[("", A.0), ("", B.0)], &[a, b]),
            ("listed twice, in a container", &[A], &[("/host", A.0), ("", A.0)], &[a]),
            ("a broken one that is not mounted", &[A, broken], &[("", A.0)], &[a]),
        ];
        for (name, staged, mounts, expected) in rows {
            assert_eq!(found(&node(staged, mounts)).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn a_mounted_volume_without_a_name_is_an_error() {
        let rows = [
            None,
            Some(""),
            Some("[]"),
            Some(r#"{"driverName": "d"}"#),
            Some(r#"{"driverName": "d", "volumeHandle": 7}"#),
            Some(r#"{"driverName": "d", "volumeHandle": ""}"#),
            Some("{\"driverName\": \"d\", \"volumeHandle\": \"a\\u001bb\"}"),
        ];
        for data in rows {
            let dir = node(&[A, ("d/9", data)], &[("", A.0), ("", "d/9")]);
            let err = found(&dir).unwrap_err().to_string();
            assert!(err.contains("d/9/vol_data.json"), "{data:?}: {err}");
        }
        let long = format!(
            r#"{{"driverName": "d", "volumeHandle": "{}"}}"#,
            "x".repeat(MAX_LENGTH + 1)
        );
        let dir = node(&[], &[("", "d/9")]);
        dir.mkdir(&format!("{KUBELET}/{STAGED}/d/9/{MOUNT}"));
        dir.write(&format!("{KUBELET}/{STAGED}/d/9/{DATA}"), long);
        found(&dir).unwrap_err();
    }

    #[test]
    fn a_missing_mount_table_is_an_error() {
        let dir = node(&[A], &[]);
        fs::remove_file(dir.path().join("proc/self/mountinfo")).unwrap();
        assert!(found(&dir).unwrap_err().is_absent());
    }
}
