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
use nodepulse_io::file::{self, FileError, Links, is_trusted_owner};

use crate::black_box;
use crate::state::{Claim, StateError};

pub mod write_ahead;

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

/// Reads a file that only nodepulse writes. `None`: there is none.
fn load(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, FileError> {
    let mut bytes = Vec::new();
    match file::read_with_metadata(path, limit, Links::Refused, &mut bytes) {
        Ok(found) if is_trusted_owner(found.uid()) => Ok(Some(bytes)),
        Ok(_) => Err(io::Error::from(io::ErrorKind::PermissionDenied).into()),
        Err(FileError::Io(err)) if err.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(err) => Err(err),
    }
}

/// Appends to a history. No other process appends to the same one.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    bounds: Bounds,
    /// The segments and their sizes. The last is appended to, if it is open.
    segments: Vec<(Segment, u64)>,
    last: Option<File>,
    /// The next segment has at least this number.
    next: Segment,
    /// A segment was added or removed since the last [`Self::sync`].
    directory_changed: bool,
    /// A segment was closed whose lines may not survive a power cut.
    unsynced: Option<io::Error>,
    _claim: Claim,
}

impl Store {
    /// Opens the history in `directory`, which is created if it is missing. Returns `None` if
    /// another process appends to it. Creates no segment before the first [`Self::append`].
    ///
    /// Segments that are created from now on have numbers of at least `first`, and larger ones than
    /// those that exist. `is_known`: the other files that may be in the directory.
    ///
    /// # Errors
    ///
    /// See [`Claim::take`].
    pub fn open(
        directory: &Path,
        bounds: Bounds,
        first: u64,
        is_known: fn(&OsStr) -> bool,
    ) -> Result<Option<Self>, StateError> {
        let is_known = |name: &OsStr| {
            Segment::parse(name).is_some() || name == black_box::FILE || is_known(name)
        };
        let Some(claim) = Claim::take(directory, is_known)? else {
            return Ok(None);
        };
        let mut store = Self {
            directory: directory.to_owned(),
            bounds,
            segments: Vec::new(),
            last: None,
            next: Segment(first),
            directory_changed: false,
            unsynced: None,
            _claim: claim,
        };
        store.list()?;
        Ok(Some(store))
    }

    /// Returns the number of the next segment.
    pub const fn next_segment(&self) -> u64 {
        self.next.0
    }

    /// Returns a reader of all segments.
    pub fn all(&self) -> Reader {
        Reader::new(self.directory.clone())
    }

    /// Returns a reader of the newest two segments.
    pub fn newest(&self) -> Reader {
        let second = self.segments.len().saturating_sub(2);
        let first = self.segments.get(second);
        let first = first.map_or(self.next, |(segment, _)| *segment);
        Reader::new(self.directory.clone()).starting_at(first.0)
    }

    /// Finds the segments of the directory. The next line begins another one.
    fn list(&mut self) -> io::Result<()> {
        self.last = None;
        self.segments.clear();
        for segment in segments(&self.directory)? {
            let found = fs::symlink_metadata(segment.path(&self.directory))?;
            self.segments.push((segment, found.len()));
            self.next = self.next.max(segment.next());
        }
        Ok(())
    }

    /// Appends a line, which ends with a newline. After an error nothing of it remains, or a part
    /// that readers skip.
    ///
    /// # Errors
    ///
    /// Fails if the file system is full, read-only or faulty. The next call tries again.
    pub fn append(&mut self, line: &str) -> io::Result<()> {
        let length = u64::try_from(line.len()).unwrap_or(u64::MAX);
        let mut file = self.segment_for(length)?;
        let (segment, size) = self.segments.pop().unwrap_or((self.next, 0));
        let written = file.write_all(line.as_bytes());
        let size = if written.is_ok() {
            size.saturating_add(length)
        } else if file.set_len(size).is_err() {
            // The next call begins another segment, whose name must be free.
            let path = segment.path(&self.directory);
            if size == 0 && file::remove(&path).is_ok() {
                return written;
            }
            let size = fs::symlink_metadata(&path).map_or(size, |found| found.len());
            self.unsynced = file.sync_data().err().or(self.unsynced.take());
            self.segments.push((segment, size));
            return written;
        } else {
            size
        };
        self.segments.push((segment, size));
        self.last = Some(file);
        written
    }

    /// Waits until everything appended survives a power cut.
    ///
    /// # Errors
    ///
    /// Fails if the disk does. Lines since the last successful call may be lost in a power cut.
    pub fn sync(&mut self) -> io::Result<()> {
        if let Some(file) = self.last.take() {
            // The kernel reports an error once. The segment is closed, since its pages may be lost.
            file.sync_data()?;
            self.last = Some(file);
        }
        if self.directory_changed {
            File::open(&self.directory)?.sync_all()?;
            self.directory_changed = false;
        }
        self.unsynced.take().map_or(Ok(()), Err)
    }

    /// Reads another file of the directory. `None`: there is none.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or is not one of root or of this process's user.
    pub fn load(&self, name: &str) -> Result<Option<Vec<u8>>, FileError> {
        load(&self.directory.join(name), file::LIMIT)
    }

    /// Replaces another file of the directory. After a power cut it may be the former one, or
    /// damaged.
    ///
    /// # Errors
    ///
    /// Fails if the file system is full, read-only or faulty.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = self.directory.join(format!("{name}.new"));
        file::write_private(&new, bytes)?;
        fs::rename(&new, self.directory.join(name))
    }

    /// Returns the number of the oldest segment if it must be removed before `length` bytes are
    /// appended.
    pub fn excess(&self, length: usize) -> Option<u64> {
        let length = u64::try_from(length).unwrap_or(u64::MAX);
        let total: u64 = self.segments.iter().map(|(_, size)| size).sum();
        let (oldest, size) = self.segments.first()?;
        let is_last = self.last.is_some() && self.segments.len() == 1;
        let is_used = is_last && !self.is_full(*size, length);
        (!is_used && self.bounds.total < total.saturating_add(length)).then_some(oldest.0)
    }

    /// Returns true if a line of this length belongs in another segment.
    const fn is_full(&self, size: u64, length: u64) -> bool {
        0 < size && self.bounds.segment < size.saturating_add(length)
    }

    /// Removes the oldest segment. One that cannot be removed no longer counts.
    pub fn remove_oldest(&mut self) {
        if self.segments.is_empty() {
            return;
        }
        let (oldest, _) = self.segments.remove(0);
        if self.segments.is_empty() {
            self.last = None;
        }
        self.directory_changed |= file::remove(&oldest.path(&self.directory)).is_ok();
    }

    /// Returns the segment to append to: the last one, unless it would become too large or was
    /// removed.
    fn segment_for(&mut self, length: u64) -> io::Result<File> {
        if let Some(file) = self.last.take() {
            if file.metadata()?.nlink() == 0 {
                self.list()?;
            } else if self
                .segments
                .last()
                .is_some_and(|(_, size)| self.is_full(*size, length))
            {
                self.unsynced = file.sync_data().err().or(self.unsynced.take());
            } else {
                return Ok(file);
            }
        }
        match self.begin_segment() {
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {
                self.list()?;
                self.begin_segment()
            }
            begun => begun,
        }
    }

    fn begin_segment(&mut self) -> io::Result<File> {
        let segment = self.next;
        let file = OpenOptions::new()
            .append(true)
            .create_new(true)
            .mode(0o600)
            .open(segment.path(&self.directory))?;
        self.next = segment.next();
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
    fault: Option<io::Error>,
}

impl Reader {
    pub const fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            read: None,
            damaged: 0,
            fault: None,
        }
    }

    /// Begins with the segment of number `first`, or the next one.
    #[must_use]
    pub const fn starting_at(mut self, first: u64) -> Self {
        self.read = Some((Segment(first), 0));
        self
    }

    /// Returns the number of the segment that is being read.
    pub fn segment(&self) -> Option<u64> {
        self.read.map(|(segment, _)| segment.0)
    }

    /// Returns the lines that were not returned before, in order and without their ends.
    ///
    /// # Errors
    ///
    /// See [`Self::next_chunk`].
    pub fn next_lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        while let Some(mut chunk) = self.next_chunk(MAX_READ)? {
            lines.append(&mut chunk);
        }
        Ok(lines)
    }

    /// Like [`Self::next_lines`], of at most about `limit` bytes of one segment. `None`: there are
    /// no further whole lines. The rest of a segment that cannot be read is left out: see
    /// [`Self::take_fault`].
    ///
    /// # Errors
    ///
    /// Fails if the directory cannot be read.
    pub fn next_chunk(&mut self, limit: u64) -> io::Result<Option<Vec<String>>> {
        let segments = segments(&self.directory)?;
        let newest = segments.last().copied();
        if newest < self.read.map(|(segment, _)| segment) {
            // The numbers began again in an emptied directory.
            self.read = self.read.filter(|(_, offset)| *offset == 0);
        }
        for segment in segments {
            let offset = match self.read {
                Some((read, _)) if segment < read => continue,
                Some((read, offset)) if segment == read => offset,
                Some(_) | None => 0,
            };
            let (bytes, is_cut) = match self.bytes(segment, offset, limit) {
                // Removed since the directory was read.
                Err(err) if err.kind() == io::ErrorKind::NotFound => continue,
                Err(err) => {
                    let path = segment.path(&self.directory);
                    let why = format!("{}: {err}", path.display());
                    self.fault = Some(io::Error::new(err.kind(), why));
                    self.read = Some((segment.next(), 0));
                    return Ok(Some(Vec::new()));
                }
                Ok(bytes) => bytes,
            };
            let end = bytes.iter().rposition(|byte| *byte == b'\n');
            let whole = match end {
                Some(end) => bytes.get(..=end).unwrap_or_default(),
                // The newest segment may end with a line that is being written.
                None if bytes.is_empty() || (Some(segment) == newest && !is_cut) => continue,
                // No line is so long, or none follows.
                None => bytes.as_slice(),
            };
            let length = u64::try_from(whole.len()).unwrap_or_default();
            self.read = Some((segment, offset.saturating_add(length)));
            return Ok(Some(self.intact_lines(whole)));
        }
        Ok(None)
    }

    fn intact_lines(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = str::from_utf8(line).unwrap_or_default();
            // Blocks that were not written, before the line after them.
            let rest = text.trim_start_matches('\0');
            let line = rest.strip_suffix('\n').filter(|line| is_intact(line));
            lines.extend(line.map(str::to_owned));
            if line.is_none() || rest.len() < text.len() {
                self.damaged = self.damaged.saturating_add(1);
            }
        }
        lines
    }

    /// Returns the number of places so far that a power cut or a faulty disk has damaged.
    pub const fn damaged(&self) -> u64 {
        self.damaged
    }

    /// Returns why the last [`Self::next_chunk`] has left out a segment.
    pub const fn take_fault(&mut self) -> Option<io::Error> {
        self.fault.take()
    }

    /// Returns at least one line if there is one of at most [`MAX_LINE`], and whether more bytes
    /// may follow.
    fn bytes(&self, segment: Segment, offset: u64, limit: u64) -> io::Result<(Vec<u8>, bool)> {
        let path = segment.path(&self.directory);
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK);
        let mut file = options.open(&path)?;
        let found = file.metadata()?;
        if !found.is_file() || !is_trusted_owner(found.uid()) {
            let why = "it is not a file of root";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        file.seek(SeekFrom::Start(offset))?;
        let mut bytes = Vec::new();
        let mut limit = limit;
        loop {
            let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
            let mut rest = (&file).take(limit.saturating_sub(length));
            let read = rest.read_to_end(&mut bytes)?;
            let is_cut = 0 < read && rest.limit() == 0;
            if !is_cut || bytes.contains(&b'\n') || MAX_LINE <= limit {
                return Ok((bytes, is_cut));
            }
            limit = limit.saturating_mul(4);
        }
    }
}

/// A segment is read in parts of this size.
const MAX_READ: u64 = 1 << 20;

/// Lines of this length are not written.
const MAX_LINE: u64 = 1 << 20;
