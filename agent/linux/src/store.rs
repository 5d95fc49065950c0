//! EDGE: the history of incidents on a disk: a directory of segments, to the last of which lines
//! are appended. The oldest segment is removed when there is no room.
//!
//! A line is JSON with a checksum, and names its own version. What a power cut leaves of one is not
//! repaired: readers skip it, and the next start begins another segment. Calls here can wait for a
//! disk.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::libc::{O_NOFOLLOW, O_NONBLOCK};
use nodepulse_core::checked_line::is_intact;
use nodepulse_io::file::{self, is_trusted_owner};

use crate::black_box;
use crate::state::{Claim, StateError};

#[cfg(test)]
mod tests;

/// The names of segments: this, a number of ten digits, and the suffix. Other formats will have
/// other names.
const PREFIX: &str = "incidents-";
const SUFFIX: &str = ".jsonl";

/// The sizes of a history in bytes. All segments together have at most `total`, except that the
/// last one remains whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    pub total: u64,
    pub segment: u64,
}

impl Default for Bounds {
    /// 4 MiB, which is about 1,500 incidents.
    fn default() -> Self {
        Self {
            total: 4 << 20,
            segment: 512 << 10,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Segment(u64);

impl Segment {
    fn parse(name: &OsStr) -> Option<Self> {
        let number = name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(SUFFIX)?;
        let segment = Self(number.parse().ok()?);
        (segment.name() == name.to_str()?).then_some(segment)
    }

    fn name(self) -> String {
        format!("{PREFIX}{:010}{SUFFIX}", self.0)
    }

    fn path(self, directory: &Path) -> PathBuf {
        directory.join(self.name())
    }

    const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// Returns the segments of a directory, the oldest first.
fn segments(directory: &Path) -> io::Result<Vec<Segment>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        found.extend(Segment::parse(&entry?.file_name()));
    }
    found.sort_unstable();
    Ok(found)
}

/// Appends to a history. No other process appends to the same one.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    bounds: Bounds,
    /// The segments and their sizes. The last is appended to, if it is open.
    segments: Vec<(Segment, u64)>,
    last: Option<File>,
    /// A segment was added or removed since the last [`Self::sync`].
    directory_changed: bool,
    _claim: Claim,
}

impl Store {
    /// Opens the history in `directory`, which is created if it is missing. Returns `None` if
    /// another process appends to it. Creates no segment before the first [`Self::append`].
    ///
    /// # Errors
    ///
    /// See [`Claim::take`].
    pub fn open(directory: &Path, bounds: Bounds) -> Result<Option<Self>, StateError> {
        let is_known = |name: &OsStr| Segment::parse(name).is_some() || name == black_box::FILE;
        let Some(claim) = Claim::take(directory, is_known)? else {
            return Ok(None);
        };
        let mut sizes = Vec::new();
        for segment in segments(directory)? {
            let found = fs::symlink_metadata(segment.path(directory))?;
            sizes.push((segment, found.len()));
        }
        Ok(Some(Self {
            directory: directory.to_owned(),
            bounds,
            segments: sizes,
            last: None,
            directory_changed: false,
            _claim: claim,
        }))
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Appends a line, which ends with a newline. After an error nothing of it remains, or a part
    /// that readers skip.
    ///
    /// # Errors
    ///
    /// Fails if the file system is full, read-only or faulty. The next call tries again.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        self.make_room(length)?;
        let mut file = match self.last.take() {
            Some(file) => file,
            None => self.begin_segment()?,
        };
        // Without the file, the next call begins another segment.
        if let Err(err) = file.write_all(line.as_bytes()) {
            if let Some((_, size)) = self.segments.last()
                && file.set_len(*size).is_ok()
            {
                self.last = Some(file);
            }
            return Err(err);
        }
        if let Some((_, size)) = self.segments.last_mut() {
            *size = size.saturating_add(length);
        }
        self.last = Some(file);
        Ok(())
    }

    /// Waits until everything appended survives a power cut.
    ///
    /// # Errors
    ///
    /// Fails if the disk does. Lines since the last successful call may be lost in a power cut.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(file) = &self.last {
            file.sync_data()?;
        }
        if self.directory_changed {
            File::open(&self.directory)?.sync_all()?;
            self.directory_changed = false;
        }
        Ok(())
    }

    /// Closes a segment that would become too large, and removes the oldest ones as necessary.
    fn make_room(&mut self, length: u64) -> io::Result<()> {
        let is_full = |size: u64| 0 < size && self.bounds.segment < size.saturating_add(length);
        if let Some(file) = &self.last
            && self.segments.last().is_some_and(|(_, size)| is_full(*size))
        {
            file.sync_data()?;
            self.last = None;
        }
        while let Some((oldest, _)) = self.segments.first().copied() {
            let total: u64 = self.segments.iter().map(|(_, size)| size).sum();
            let is_last = self.last.is_some() && self.segments.len() == 1;
            if is_last || total.saturating_add(length) <= self.bounds.total {
                break;
            }
            file::remove(&oldest.path(&self.directory))?;
            self.directory_changed = true;
            self.segments.remove(0);
        }
        Ok(())
    }

    fn begin_segment(&mut self) -> io::Result<File> {
        let newest = self.segments.last();
        let segment = newest.map_or(Segment(1), |(segment, _)| segment.next());
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(segment.path(&self.directory))?;
        self.segments.push((segment, 0));
        self.directory_changed = true;
        Ok(file)
    }
}

/// Reads a history, also while it is appended to.
#[derive(Debug)]
pub struct Reader {
    directory: PathBuf,
    /// The segment and the offset in it up to which lines were returned.
    read: Option<(Segment, u64)>,
    damaged: u64,
}

impl Reader {
    pub const fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            read: None,
            damaged: 0,
        }
    }

    /// Returns the lines that were not returned before, in order and without their ends.
    ///
    /// # Errors
    ///
    /// Fails if the directory or a segment cannot be read, or if a segment is not a file of root or
    /// of this process's user.
    pub fn next_lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        let segments = segments(&self.directory)?;
        let newest = segments.last().copied();
        for segment in segments {
            let offset = match self.read {
                Some((read, _)) if segment < read => continue,
                Some((read, offset)) if segment == read => offset,
                Some(_) | None => 0,
            };
            let bytes = match self.bytes(segment, offset) {
                // Removed since the directory was read.
                Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
                bytes => bytes?,
            };
            let end = bytes.iter().rposition(|byte| *byte == b'\n');
            let whole = bytes
                .get(..end.map_or(0, |end| end + 1))
                .unwrap_or_default();
            // The rest of the newest segment may be a line that is being written.
            if whole.len() < bytes.len() && Some(segment) != newest {
                self.damaged = self.damaged.saturating_add(1);
            }
            let length = u64::try_from(whole.len()).unwrap_or_default();
            self.read = Some((segment, offset.saturating_add(length)));
            for line in whole.split_inclusive(|byte| *byte == b'\n') {
                let text = str::from_utf8(line).unwrap_or_default();
                // Blocks that were not written, before the line after them.
                let rest = text.trim_start_matches('\0');
                let line = rest.strip_suffix('\n').filter(|line| is_intact(line));
                lines.extend(line.map(str::to_owned));
                if line.is_none() || rest.len() < text.len() {
                    self.damaged = self.damaged.saturating_add(1);
                }
            }
        }
        Ok(lines)
    }

    /// Returns the number of places so far that a power cut or a faulty disk has damaged.
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    fn bytes(&self, segment: Segment, offset: u64) -> io::Result<Vec<u8>> {
        let path = segment.path(&self.directory);
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
        let mut file = options.open(&path)?;
        let found = file.metadata()?;
        if !found.is_file() || !is_trusted_owner(found.uid()) {
            let why = format!("{} is not a file of root", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        file.take(MAX_READ).read_to_end(&mut bytes)?;
        Ok(bytes)
    }
}

/// Maximum number of bytes that are read of a segment.
const MAX_READ: u64 = 64 << 20;
