//! CSI volumes that are mounted under the kubelet's directory, whoever mounted them.

use std::fs;
use std::path::{Path, PathBuf};

use procfs::process::MountInfo;
use serde_json::Value;

use super::{HostError, HostFile, HostRoot, LIST_FILE, present, read_at};

/// Where a kubelet stages volumes: `<driver>/<hash>/globalmount`.
const STAGED: &str = "plugins/kubernetes.io/csi";
const MOUNT: &str = "globalmount";
/// What a kubelet writes beside a volume, so that it knows it again.
const DATA: &str = "vol_data.json";

/// Drivers of one node, and volumes of one driver. The kernel's limits on disks are lower.
const MOST: usize = 4096;
/// Bytes of a driver's name and of a volume's handle. CSI limits them to 63 and 128.
const LONGEST: usize = 1024;

/// The volumes that are mounted below `directory`, which is a path as we see it, in the names that
/// `volumesInUse` has for them: `kubernetes.io/csi/<driver>^<handle>`. Sorted, each once.
///
/// Cold, and cheap where there is no CSI driver: one directory that is not there.
///
/// # Errors
///
/// Where anything that is mounted cannot be named: a list with a gap would let go of a volume that
/// is in use.
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

/// What is in a directory; nothing where there is none.
fn listed(directory: &Path) -> Result<Vec<PathBuf>, HostError> {
    let failed = |source| HostError::Read {
        path: directory.to_owned(),
        source,
    };
    let Some(entries) = present(fs::read_dir(directory).map_err(failed))? else {
        return Ok(Vec::new());
    };
    let mut paths = Vec::new();
    for entry in entries {
        if paths.len() == MOST {
            return Err(HostError::Malformed {
                path: directory.to_owned(),
                want: "list of CSI volumes that ends",
            });
        }
        paths.push(entry.map_err(failed)?.path());
    }
    Ok(paths)
}

/// Mount points of staged volumes. The others are not even parsed: there can be thousands.
fn mount_points(root: &HostRoot) -> Result<Vec<PathBuf>, HostError> {
    let mut buf = Vec::new();
    read_at(&root.path("proc/self/mountinfo"), LIST_FILE, &mut buf)?;
    let lines = buf.split(|&b| b == b'\n').map(String::from_utf8_lossy);
    Ok(lines
        .filter(|line| line.contains(STAGED))
        .filter_map(|line| MountInfo::from_line(&line).ok())
        .map(|info| info.mount_point)
        .collect())
}

/// By what the kubelet wrote beside it.
fn name(volume: &Path) -> Result<String, HostError> {
    let file = HostFile::at(volume.join(DATA));
    let mut buf = Vec::new();
    file.read(&mut buf)?;
    parse(&buf).ok_or_else(|| file.malformed("name of a CSI driver and handle of a volume"))
}

/// The volume that a `vol_data.json` tells of. `None`: it tells of none, or in text that nobody
/// could mean.
#[must_use]
pub fn parse(data: &[u8]) -> Option<String> {
    let data: Value = serde_json::from_slice(data).ok()?;
    let text = |key: &str| {
        let text = data.get(key)?.as_str()?;
        let sound = !text.is_empty() && text.len() <= LONGEST && !text.contains(char::is_control);
        sound.then_some(text)
    };
    let (driver, handle) = (text("driverName")?, text("volumeHandle")?);
    Some(format!("kubernetes.io/csi/{driver}^{handle}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    const KUBELET: &str = "var/lib/kubelet";

    /// One staged volume: its directory below the drivers', and the text beside it.
    type Staged = (&'static str, Option<&'static str>);

    /// What it is, what is staged, what is mounted behind which prefix, and what is found.
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

    /// A node with these volumes staged; those of `mounts` are in its mount table.
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
    fn what_is_staged_and_mounted_is_named_in_order() {
        let (a, b) = (
            "kubernetes.io/csi/d.example.com^vol-a",
            "kubernetes.io/csi/d.example.com^vol-b",
        );
        let broken = ("d.example.com/2c", Some("{"));
        let rows: [Row<'_>; 5] = [
            ("no driver at all", &[], &[], &[]),
            ("staged, and not mounted yet", &[A], &[], &[]),
            ("two", &[A, B], &[("", A.0), ("", B.0)], &[a, b]),
            (
                "seen twice, from a container",
                &[A],
                &[("/host", A.0), ("", A.0)],
                &[a],
            ),
            (
                "a broken one that is not mounted",
                &[A, broken],
                &[("", A.0)],
                &[a],
            ),
        ];
        for (name, staged, mounts, expected) in rows {
            assert_eq!(found(&node(staged, mounts)).unwrap(), expected, "{name}");
        }
    }

    #[test]
    fn a_mounted_volume_without_a_name_is_an_error_and_not_a_gap() {
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
            "x".repeat(LONGEST + 1)
        );
        let dir = node(&[], &[("", "d/9")]);
        dir.mkdir(&format!("{KUBELET}/{STAGED}/d/9/{MOUNT}"));
        dir.write(&format!("{KUBELET}/{STAGED}/d/9/{DATA}"), long);
        found(&dir).unwrap_err();
    }

    #[test]
    fn without_a_mount_table_nothing_is_known() {
        let dir = node(&[A], &[]);
        fs::remove_file(dir.path().join("proc/self/mountinfo")).unwrap();
        assert!(found(&dir).unwrap_err().is_absent());
    }
}
