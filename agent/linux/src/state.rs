//! EDGE: the state directory and the state file, which keeps two things across restarts within one
//! boot: how many kills of each pod were reported, so that the others are reported too, and when
//! each condition was last exceeded.
//!
//! A text file that people can read. A file that is not exactly as nodepulse writes it is ignored.
//! Calls here can wait for a disk.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nodepulse_core::clock::BootNanos;
use nodepulse_core::incident::Position;
use nodepulse_core::pods::PodId;
use nodepulse_core::subjects::kill_counters::AcknowledgedKills;
use nodepulse_core::units::CgroupId;
use nodepulse_io::file::{self, FileError, Links};

use crate::store::write_ahead;

mod claim;

pub use claim::{Claim, Holder, holder};

const NAME: &str = "state";
const NEW: &str = "state.new";
const HEAD: &str = "nodepulse state 1";
const END: &str = "\nend\n";
const NEVER: &str = "never";
const UNCOUNTED: &str = "uncounted";

/// Maximum size of the file. A node of 500 pods needs 70 KiB.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct State {
    /// The boot to which it applies, from `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    pub tier: String,
    /// Each probe, with its state or the reason why it does not run, for people who read the file.
    pub probes: Vec<(String, String)>,
    /// Kills that are recorded; the next start reports others.
    pub kills: AcknowledgedKills,
    /// Set if kills could not be counted so far: a cgroup that is not in `kills` may have had some.
    pub uncounted: bool,
    /// The time at which each condition was last exceeded, by its type; `None` if not within the
    /// transition period. A missing type is unknown.
    pub exceeded: BTreeMap<String, Option<BootNanos>>,
}

/// Returns when the state was last saved.
pub fn saved_at(directory: &Path) -> Option<SystemTime> {
    fs::metadata(directory.join(NAME)).ok()?.modified().ok()
}

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("the directory cannot be used; set another one")]
    Io(#[from] io::Error),
    #[error("the state file is incomplete, invalid or belongs to another user, and is ignored")]
    Foreign,
    /// Other programs use the directory, and nodepulse would close it to them.
    #[error(
        "{} is not a directory for nodepulse alone: {why}; set a directory that only nodepulse \
         uses; example: /run/nodepulse", path.display()
    )]
    Shared { path: PathBuf, why: String },
    /// The owner of the file or directory could change it, or lock out nodepulse.
    #[error(
        "{} belongs to user {uid}, and must belong to the agent's own user or to root: \
         chown it, or set another directory", path.display()
    )]
    Owner { path: PathBuf, uid: u32 },
}

/// Returns true for the names of nodepulse's files in the state directory.
pub fn is_known(name: &OsStr) -> bool {
    let known = [
        NAME,
        NEW,
        "nodepulse.sock",
        write_ahead::FILE,
        write_ahead::NEW,
    ];
    known.iter().any(|known| name == *known)
}

impl State {
    /// Reads the file of `directory`. Returns `None` if there is none, as after every boot. After
    /// an error, the file stays as it is until the next [`State::save`].
    pub fn load(directory: &Path) -> Result<Option<Self>, StateError> {
        let (path, mut bytes) = (directory.join(NAME), Vec::new());
        // Links are refused, so that nothing redirects the read.
        match file::read_with_metadata(&path, MAX_BYTES, Links::Refused, &mut bytes) {
            Ok(found) if file::is_trusted_owner(found.uid()) => {}
            Ok(_) => return Err(StateError::Foreign),
            Err(FileError::Io(err)) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(FileError::Io(err)) => return Err(err.into()),
            Err(FileError::NotRegular(_) | FileError::TooLarge(_) | FileError::NotText) => {
                return Err(StateError::Foreign);
            }
        }
        let text = str::from_utf8(&bytes).ok();
        text.and_then(Self::from_text)
            .map(Some)
            .ok_or(StateError::Foreign)
    }

    /// Writes the file of `directory`, which is created with access only for nodepulse's user, but
    /// not those above it. A reader sees either the old file or the new one.
    pub fn save(&self, directory: &Path) -> Result<(), StateError> {
        match claim::builder().create(directory) {
            Err(err) if err.kind() != io::ErrorKind::AlreadyExists => return Err(err.into()),
            Ok(()) | Err(_) => {}
        }
        let new = directory.join(NEW);
        file::write_private(&new, self.text().as_bytes())?;
        fs::rename(&new, directory.join(NAME))?;
        Ok(())
    }

    /// Parses `text`. Returns `None` if it is not exactly in the written form.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix(END)?.split('\n');
        if lines.next()? != HEAD {
            return None;
        }
        let mut state = Self {
            boot: lines.next()?.strip_prefix("boot ")?.to_owned(),
            tier: lines.next()?.strip_prefix("tier ")?.to_owned(),
            ..Self::default()
        };
        for line in lines {
            if let Some(probe) = line.strip_prefix("probe ") {
                let (name, state_text) = probe.split_once(' ')?;
                state.probes.push((name.to_owned(), state_text.to_owned()));
            } else if let Some(exceeded) = line.strip_prefix("exceeded ") {
                let (type_, at) = exceeded.split_once(' ')?;
                let at = match at {
                    NEVER => None,
                    at => Some(BootNanos(at.parse().ok()?)),
                };
                state.exceeded.insert(type_.to_owned(), at);
            } else if line == UNCOUNTED {
                state.uncounted = true;
            } else if let Some(position) = line.strip_prefix("recorded ") {
                state.kills.until = Position(position.parse().ok()?);
            } else if let Some(pod) = line.strip_prefix("pod ") {
                let (id, kills) = pod.split_once(' ')?;
                let kills = kills.parse().ok()?;
                state.kills.pods.insert(PodId::parse(id)?, kills);
            } else {
                let (id, kills) = line.strip_prefix("cgroup ")?.split_once(' ')?;
                let (id, kills) = (CgroupId(id.parse().ok()?), kills.parse().ok()?);
                state.kills.cgroups.insert(id, kills);
            }
        }
        Some(state)
    }

    pub fn text(&self) -> String {
        let head = format!("{HEAD}\nboot {}\ntier {}", self.boot, self.tier);
        let probes = self.probes.iter().map(|(probe, state)| {
            let parts: Vec<_> = state.split_whitespace().collect();
            format!("probe {probe} {}", parts.join(" "))
        });
        let AcknowledgedKills {
            cgroups,
            pods,
            until,
            later: _,
        } = &self.kills;
        let recorded = format!("recorded {}", until.0);
        let cgroups = cgroups.iter();
        let cgroups = cgroups.map(|(cgroup, kills)| format!("cgroup {} {kills}", cgroup.0));
        let pods = pods.iter();
        let pods = pods.map(|(pod, kills)| format!("pod {} {kills}", pod.as_str()));
        let exceeded = self.exceeded.iter().map(|(type_, at)| match at {
            Some(at) => format!("exceeded {type_} {}", at.0),
            None => format!("exceeded {type_} {NEVER}"),
        });
        let uncounted = self.uncounted.then(|| UNCOUNTED.to_owned());
        let lines = [head, recorded].into_iter().chain(probes).chain(uncounted);
        let lines: Vec<_> = lines.chain(cgroups).chain(pods).chain(exceeded).collect();
        lines.join("\n") + END
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;

    use super::*;

    fn state() -> State {
        State {
            boot: "0-1".to_owned(),
            tier: "kmsg".to_owned(),
            probes: vec![("oom_victim".to_owned(), "no kernel types".to_owned())],
            kills: AcknowledgedKills {
                cgroups: BTreeMap::from([(CgroupId(7), 3), (CgroupId(u64::MAX), 0)]),
                pods: BTreeMap::from([
                    (PodId::Uid("0a-1".to_owned()), 2),
                    (PodId::ConfigHash("0a".repeat(16)), 1),
                ]),
                until: Position(9),
                ..AcknowledgedKills::default()
            },
            uncounted: true,
            exceeded: BTreeMap::from([
                ("MemoryLow".to_owned(), None),
                ("PIDsLow".to_owned(), Some(BootNanos(u64::MAX))),
            ]),
        }
    }

    fn directory() -> std::path::PathBuf {
        let name = std::thread::current()
            .name()
            .unwrap_or_default()
            .replace(':', "-");
        let dir = std::env::temp_dir().join(format!("nodepulse-{name}-{}", std::process::id()));
        let _removed: io::Result<()> = fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn saved_state_is_loaded_and_other_users_cannot_read_it() {
        let dir = directory();
        assert!(State::load(&dir).unwrap().is_none(), "no directory yet");
        state().save(&dir).unwrap();
        assert_eq!(State::load(&dir).unwrap(), Some(state()));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        assert_eq!(mode(&dir.join(NAME)), 0o600);

        // A new file is created, whatever an earlier process left.
        let other = dir.join("other");
        fs::write(&other, "mine").unwrap();
        symlink(&other, dir.join(NEW)).unwrap();
        State::default().save(&dir).unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_file_that_is_not_exactly_as_written_is_ignored() {
        let dir = directory();
        fs::create_dir_all(&dir).unwrap();
        let whole = state().text();
        let torn = whole.strip_suffix("end\n").unwrap();
        let with = |line: &str| whole.replace("end\n", &format!("{line}\nend\n"));
        let rows = [
            (String::new(), "empty"),
            (torn.to_owned(), "torn"),
            (whole.trim_end().to_owned(), "torn by one byte"),
            (whole.replace("state 1", "state 2"), "of another version"),
            (with("cgroup 1"), "an incomplete line"),
            (with("cgroup -1 4"), "an invalid number"),
            (with("pod web 4"), "an invalid pod"),
            (with("recorded -1"), "an invalid position"),
            (with("exceeded PIDsLow"), "a condition without a time"),
            (with("exceeded PIDsLow -1"), "an invalid time"),
            (with("another kind"), "of a newer version"),
            (with("\0garbage"), "garbage"),
            ("x".repeat(5 << 20), "huge"),
        ];
        for (text, why) in rows {
            fs::write(dir.join(NAME), text).unwrap();
            let got = State::load(&dir);
            assert!(matches!(got, Err(StateError::Foreign)), "{why}: {got:?}");
        }
        fs::write(dir.join(NAME), b"\xff\xfe").unwrap();
        assert!(State::load(&dir).is_err(), "not text");
        fs::remove_file(dir.join(NAME)).unwrap();
        symlink("/dev/zero", dir.join(NAME)).unwrap();
        assert!(State::load(&dir).is_err(), "a link");
        fs::remove_file(dir.join(NAME)).unwrap();
        mkfifo(&dir.join(NAME), Mode::S_IRWXU).unwrap();
        assert!(State::load(&dir).is_err(), "a pipe without a writer");
        fs::remove_dir_all(&dir).unwrap();
    }
}
