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
    let readings: Vec<_> = usage.readings(statfs::FilesystemRole::Nodefs).collect();
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
