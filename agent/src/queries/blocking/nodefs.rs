//! Space and inodes of the root directory's file system.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tracing::debug;

use crate::host::{HostError, statfs};
use crate::pressure::sample::Sample;
use crate::subjects::StorageSample;
use crate::subjects::signals::STORAGE;

/// Reads space and inodes; `volumes` become part of the answer.
pub(super) fn storage(directory: &Path, volumes: Option<Vec<String>>) -> StorageSample {
    let usage = match existing(directory).and_then(|directory| statfs::read(&directory)) {
        Ok(usage) => usage,
        Err(err) => {
            debug!(err = &err as &dyn std::error::Error, "file system not read");
            return StorageSample::missing();
        }
    };
    let readings: Vec<_> = usage.nodefs_readings().collect();
    let sample = |signal| {
        let reading = readings.iter().find(|reading| reading.signal == signal);
        // A file system may have no inodes to count.
        reading.map_or(Sample::Absent(signal), |reading| Sample::Read(*reading))
    };
    StorageSample {
        samples: STORAGE.map(sample).to_vec(),
        capacity: Some(usage.capacity),
        volumes,
    }
}

/// The directory, or its nearest existing ancestor, on whose file system the directory would be
/// created. If a directory exists but cannot be read, no ancestor is tried.
fn existing(directory: &Path) -> Result<PathBuf, HostError> {
    for dir in directory.ancestors() {
        match dir.metadata() {
            Ok(found) if found.is_dir() => return Ok(dir.to_owned()),
            Ok(_) => {}
            Err(source)
                if matches!(
                    source.kind(),
                    ErrorKind::NotFound | ErrorKind::NotADirectory
                ) => {}
            Err(source) => {
                let path = dir.to_owned();
                return Err(HostError::Read { path, source });
            }
        }
    }
    Ok(PathBuf::from("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    #[test]
    fn a_missing_directory_is_on_the_file_system_of_its_nearest_ancestor() {
        let dir = Scratch::new();
        dir.mkdir("var/lib");
        dir.write("var/lib/file", "");
        let rows = [
            ("var/lib", "var/lib"),
            ("var/lib/kubelet", "var/lib"),
            ("var/lib/kubelet/pods", "var/lib"),
            // A file in the way.
            ("var/lib/file/pods", "var/lib"),
            ("opt/kubelet", ""),
        ];
        for (directory, expected) in rows {
            let found = existing(&dir.path().join(directory));
            let found = found.unwrap_or_else(|err| panic!("{directory}: {err}"));
            assert_eq!(found, dir.path().join(expected), "{directory}");
        }
        assert_eq!(existing(Path::new("relative")).unwrap(), Path::new("/"));
    }

    #[test]
    fn a_directory_that_cannot_be_read_has_no_sample() {
        let dir = Scratch::new();
        let link = dir.path().join("loop");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        let sample = storage(&link.join("kubelet"), Some(Vec::new()));
        assert_eq!(sample, StorageSample::missing());
        let sample = storage(dir.path(), Some(vec!["a".to_owned()]));
        assert!(sample.capacity.is_some());
        assert_eq!(sample.volumes, Some(vec!["a".to_owned()]));
        let signals: Vec<_> = sample.samples.iter().map(Sample::signal).collect();
        assert_eq!(signals, STORAGE);
    }
}
