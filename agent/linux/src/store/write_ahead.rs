//! EDGE: a write-ahead log of the history, in memory (tmpfs): lines survive the process although
//! the disk does not answer. A machine that ends loses them. Only a machine that swaps may have the
//! file on a disk.
//!
//! Lines follow each other, and begin again at the start of the file when the segments have all.
//! The log ends before the first line that is damaged, or older than the one before it: that is
//! what remains of former lines.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use nix::sys::statfs::{FsType, TMPFS_MAGIC, statfs};
use nodepulse_core::checked_line::is_intact;
use nodepulse_core::incident::Position;
use nodepulse_io::file::{self, FileError};
use serde::Deserialize;

use super::Store;

/// The file in the state directory. Other formats will have other names.
pub const FILE: &str = "incidents";
/// The file before it is renamed.
pub const NEW: &str = "incidents.new";

/// The size of the file in bytes: room for about a hundred incidents.
const SIZE: u64 = 256 << 10;

/// `include/uapi/linux/magic.h`
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// Lines by their positions, which grow.
pub type Lines = Vec<(Position, String)>;

/// Returns true if files of this directory are in memory.
///
/// # Errors
///
/// Fails if the directory cannot be read.
pub fn is_in_memory(directory: &Path) -> io::Result<bool> {
    let found = statfs(directory)?.filesystem_type();
    Ok([TMPFS_MAGIC, RAMFS_MAGIC].contains(&found))
}

/// Reads the lines that a former process has left, also those that the segments have.
///
/// # Errors
///
/// Fails if the file cannot be read, is not one of root or of this process's user, or has other
/// contents.
pub fn read(directory: &Path) -> Result<Lines, FileError> {
    let bytes = super::load(&directory.join(FILE), SIZE)?.unwrap_or_default();
    let lines = lines(&bytes);
    if lines.is_empty() && bytes.first().is_some_and(|first| *first != 0) {
        let why = "it begins with a line that is damaged or of another version";
        return Err(io::Error::new(io::ErrorKind::InvalidData, why).into());
    }
    Ok(lines)
}

fn lines(bytes: &[u8]) -> Lines {
    let mut lines = Lines::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let text = str::from_utf8(line).unwrap_or_default();
        let object = text.strip_suffix('\n').filter(|object| is_intact(object));
        let last = lines.last().map(|(last, _)| *last);
        match object.and_then(position) {
            Some(position) if last < Some(position) => lines.push((position, text.to_owned())),
            Some(_) | None => break,
        }
    }
    lines
}

/// Lines of former versions have no position.
fn position(line: &str) -> Option<Position> {
    #[derive(Deserialize)]
    struct Positioned {
        position: Position,
    }

    let line: Positioned = serde_json::from_str(line).ok()?;
    Some(line.position)
}

/// Returns the positions of the lines in the segments since the start of `since`.
///
/// # Errors
///
/// Fails if the directory cannot be read.
pub fn positions(store: &Store, since: Option<Position>) -> io::Result<BTreeSet<Position>> {
    let mut reader = store.all().starting_at(since.map_or(0, Position::start));
    let mut found = BTreeSet::new();
    while let Some(lines) = reader.next_chunk(SIZE)? {
        found.extend(lines.iter().filter_map(|line| position(line)));
    }
    Ok(found)
}

/// Writes the log. No other process writes it, since the directory is claimed.
#[derive(Debug)]
pub struct WriteAheadLog {
    file: File,
    /// The end of the lines.
    end: u64,
    first: Position,
    last: Position,
    /// A line had no room, so that none is added before the segments have all.
    is_full: bool,
}

impl WriteAheadLog {
    /// Replaces the log by one with these lines of the former one. Its whole size is allocated now,
    /// so that a full file system does not matter later.
    ///
    /// # Errors
    ///
    /// Fails if there is no room, or if the directory is read-only.
    pub fn create(directory: &Path, lines: &Lines) -> io::Result<Self> {
        let text: String = lines.iter().map(|(_, line)| line.as_str()).collect();
        let end = length(&text);
        let mut bytes = text.into_bytes();
        bytes.resize(usize::try_from(SIZE).unwrap_or_default(), 0);
        let new = directory.join(NEW);
        let written = file::write_private(&new, &bytes).and_then(|file| {
            fs::rename(&new, directory.join(FILE))?;
            Ok(file)
        });
        let file = written.inspect_err(|_| {
            // The room is left to others. The first error is the one to report.
            let _removed = file::remove(&new);
        })?;
        let at = |line: Option<&(Position, _)>| line.map_or(Position(0), |(at, _)| *at);
        Ok(Self {
            file,
            end,
            first: at(lines.first()),
            last: at(lines.last()),
            is_full: false,
        })
    }

    /// Adds a line; one of 2 KiB takes 1 µs. Returns false if there is no room before the segments
    /// have the others. `recorded`: the segments have the lines up to there.
    pub fn write(&mut self, position: Position, line: &str, recorded: Position) -> bool {
        if self.last <= recorded {
            (self.first, self.end, self.is_full) = (position, 0, false);
        }
        let end = self.end.saturating_add(length(line));
        self.is_full = self.is_full
            || SIZE < end
            || self.file.write_all_at(line.as_bytes(), self.end).is_err();
        if !self.is_full {
            (self.last, self.end) = (position, end);
        }
        !self.is_full
    }

    /// Returns true if the line at this position is in the log.
    pub fn has(&self, position: Position) -> bool {
        (self.first..=self.last).contains(&position)
    }
}

fn length(text: &str) -> u64 {
    u64::try_from(text.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::os::unix::fs::{chown, symlink};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use nodepulse_core::checked_line;
    use serde_json::json;

    use super::super::Bounds;
    use super::*;
    use crate::host::scratch::Scratch;

    fn line(position: Position, length: usize) -> String {
        let value = json!({"position": position, "text": "x".repeat(length)});
        checked_line::line(&value).unwrap()
    }

    fn positions_of(lines: &Lines) -> Vec<u64> {
        lines.iter().map(|(position, _)| position.0).collect()
    }

    /// A name, the bytes of a file, and the positions in it.
    type Row<'a> = (&'a str, Vec<u8>, Option<&'a [u64]>);

    #[test]
    fn only_what_was_written_as_a_whole_and_last_is_read() {
        let dir = Scratch::new();
        let path = dir.path().join(FILE);
        assert_eq!(read(dir.path()).unwrap(), [], "no file");
        let text = |numbers: &[u64]| {
            let lines = numbers.iter().map(|number| line(Position(*number), 50));
            lines.collect::<String>()
        };
        let two = text(&[1, 2]);
        let other = checked_line::line(&json!({"place": 1})).unwrap();
        let with = |rest: &[u8]| [two.as_bytes(), rest].concat();
        let rows: [Row; 11] = [
            ("empty", Vec::new(), Some(&[])),
            ("new", vec![0; 999], Some(&[])),
            ("of the whole size", with(&[0; 999]), Some(&[1, 2])),
            (
                "followed by an older line",
                text(&[5, 6, 3, 9]).into(),
                Some(&[5, 6]),
            ),
            (
                "followed by the same line",
                text(&[5, 5]).into(),
                Some(&[5]),
            ),
            ("torn", two[..two.len() - 1].into(), Some(&[1])),
            (
                "followed by bytes that are no text",
                with(b"\xff\xfe\n"),
                Some(&[1, 2]),
            ),
            (
                "followed by another version",
                with(other.as_bytes()),
                Some(&[1, 2]),
            ),
            ("of another version", other.into(), None),
            ("garbage", b"\xff\n".into(), None),
            ("too large", vec![0; (256 << 10) + 1], None),
        ];
        for (name, bytes, expected) in rows {
            fs::write(&path, bytes).unwrap();
            let found = read(dir.path()).ok();
            let found = found.as_ref().map(positions_of);
            assert_eq!(found.as_deref(), expected, "{name}");
        }
        fs::write(&path, &two).unwrap();
        // Only root can change the owner.
        if chown(&path, Some(1), None).is_ok() {
            assert!(read(dir.path()).is_err(), "of another user");
        }
        // Whatever is there is replaced.
        let create = || WriteAheadLog::create(dir.path(), &Lines::new()).unwrap();
        create();
        assert_eq!(fs::metadata(&path).unwrap().len(), 256 << 10);
        fs::remove_file(&path).unwrap();
        symlink("/dev/zero", &path).unwrap();
        assert!(read(dir.path()).is_err(), "a link");
        create();
        fs::remove_file(&path).unwrap();
        mkfifo(&path, Mode::S_IRWXU).unwrap();
        assert!(read(dir.path()).is_err(), "a pipe without a writer");
        create();
        assert_eq!(read(dir.path()).unwrap(), []);
    }

    /// <https://en.wikipedia.org/wiki/Linear_congruential_generator#Parameters_in_common_use>
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            let product = self.0.wrapping_mul(6_364_136_223_846_793_005);
            self.0 = product.wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(self.0 >> 33).unwrap() % limit
        }
    }

    /// Opens the history, for positions after all that were given.
    fn open(dir: &Scratch) -> Store {
        let lines = read(dir.path()).unwrap_or_default();
        let first = lines.last().map_or(1, |(last, _)| last.start() + 1);
        let path = dir.path().join("history");
        let opened = Store::open(&path, Bounds::default(), first, |_| false);
        opened.unwrap().unwrap()
    }

    /// One process: it writes, the disk takes what it likes, and the process is killed. Returns the
    /// positions that survive it, of those before it and its own.
    fn process(dir: &Scratch, random: &mut Random) -> BTreeSet<u64> {
        let mut store = open(dir);
        let mut survive: BTreeSet<_> = all(dir, &store).into_iter().collect();
        let missing = missing(dir, &store);
        let begin = Position::before_start(store.next_segment());
        let first = missing.first().map(|(first, _)| Position(first.0 - 1));
        let mut recorded = first.unwrap_or(begin);
        let mut log = WriteAheadLog::create(dir.path(), &missing).unwrap();
        let mut queue = VecDeque::from(missing);
        let (mut newest, mut refused) = (begin, Vec::new());
        // Some processes have a disk that hangs, and others one that answers at once.
        let disk = random.below(4);
        let length = [10, 3_000, 60_000][random.below(3)];
        for _ in 0..random.below(60) {
            newest = newest.next();
            let text = line(newest, random.below(length));
            let is_logged = log.write(newest, &text, recorded);
            if is_logged {
                survive.insert(newest.0);
            } else {
                refused.push(newest);
            }
            assert_eq!(log.has(newest), is_logged);
            assert!(!refused.iter().any(|position| log.has(*position)));
            queue.push_back((newest, text));
            for _ in 0..random.below(disk + 1) {
                let Some((position, text)) = queue.pop_front() else {
                    break;
                };
                store.append(&text).unwrap();
                recorded = position;
                survive.insert(position.0);
            }
        }
        if random.below(2) == 0 {
            newest = newest.next();
            let text = line(newest, random.below(length));
            let path = dir.path().join(FILE);
            let before = fs::read(&path).unwrap();
            if log.write(newest, &text, recorded) {
                let end = usize::try_from(log.end).unwrap();
                let after = fs::read(&path).unwrap();
                let torn = end - text.len() + random.below(text.len());
                let bytes = [&after[..torn], &before[torn..]].concat();
                if bytes == after {
                    survive.insert(newest.0);
                }
                fs::write(&path, bytes).unwrap();
            }
        }
        survive
    }

    fn missing(dir: &Scratch, store: &Store) -> Lines {
        let mut lines = read(dir.path()).unwrap_or_default();
        let found = positions(store, lines.first().map(|(first, _)| *first)).unwrap();
        lines.retain(|(position, _)| !found.contains(position));
        lines
    }

    /// Returns the positions in the history, and then those that only the log has.
    fn all(dir: &Scratch, store: &Store) -> Vec<u64> {
        let lines = store.all().next_lines().unwrap();
        let mut all: Vec<_> = lines.iter().map(|line| position(line).unwrap().0).collect();
        all.extend(positions_of(&missing(dir, store)));
        all
    }

    #[test]
    fn whenever_a_process_is_killed_what_is_logged_or_on_the_disk_is_there_once_and_in_order() {
        let mut random = Random(1);
        for run in 0..50 {
            let dir = Scratch::new();
            for process_number in 0..4 {
                let survive = process(&dir, &mut random);
                let found = all(&dir, &open(&dir));
                let expected: Vec<_> = survive.into_iter().collect();
                assert_eq!(found, expected, "run {run}, process {process_number}");
            }
        }
    }
}
