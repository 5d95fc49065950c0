//! Space and inodes of the file system that holds the root directory.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tracing::debug;

use super::{Answer, Question, STORAGE, Storage};
use crate::host::{HostError, statfs};
use crate::pressure::sample::Sample;

/// Space and inodes there, beside the volumes that were found.
pub(super) fn storage(directory: &Path, volumes: Option<Vec<String>>) -> Answer {
    let usage = match existing(directory).and_then(|directory| statfs::read(&directory)) {
        Ok(usage) => usage,
        Err(err) => {
            debug!(err = &err as &dyn std::error::Error, "file system not read");
            return Answer::missing(&Question::Storage);
        }
    };
    let seen: Vec<_> = usage.readings(statfs::FilesystemRole::Nodefs).collect();
    let look = |signal| {
        let reading = seen.iter().find(|reading| reading.signal == signal);
        // A file system may have no inodes to count.
        reading.map_or(Sample::Absent(signal), |reading| Sample::Read(*reading))
    };
    Answer::Storage(Storage {
        looks: STORAGE.map(look).to_vec(),
        capacity: Some(usage.capacity),
        volumes,
    })
}

/// The directory, or the nearest one above it that exists: its file system is where the directory
/// would be made. One that is there and cannot be asked is no reason to ask about another.
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
