//! The history while its directory or the disk is unavailable.

use std::fs;

use nodepulse_io::lane::Lanes;
use nodepulse_linux::host::scratch::Scratch;
use nodepulse_linux::store::Reader;
use serde_json::json;

use super::outbox::Work;
use super::*;

const BOOT: &str = "00000000-0000-0000-0000-000000000007";

fn incident(number: u64, settled: bool) -> JsonIncident {
    let incident = json!({
        "apiVersion": "nodepulse.dev/incident/v1",
        "id": format!("{BOOT}-{number}"), "revision": 1, "settled": settled, "time": "", "object": {},
        "reason": "", "message": "", "kind": "UnidentifiedOOMKills", "facts": {"kills": 1, "whileDown": true},
    });
    serde_json::from_value(incident).unwrap()
}

/// Directories of which that of the state is in memory.
struct Directories {
    state: PathBuf,
    other: Scratch,
}

impl Directories {
    fn new() -> Self {
        let other = Scratch::new();
        let dirs = Self {
            state: Path::new("/dev/shm").join(other.path().file_name().unwrap()),
            other,
        };
        fs::create_dir(&dirs.state).unwrap();
        dirs
    }

    fn history(&self) -> PathBuf {
        self.other.path().join("history")
    }

    /// Starts an agent. Its history ends with the runtime, as if it was killed.
    fn start(&self) -> (History, Tasks) {
        let state = Some(self.state.as_path());
        let files = HistoryFiles::open(&self.history(), state, |_| {}).unwrap();
        let setup = HistorySetup {
            files: Some(files),
            sinks: Vec::new(),
        };
        let lanes = Lanes::new(&[]);
        let metering = Metering::start("worker-1", "files", Vec::new(), None, lanes.clone());
        let mut tasks = Tasks::default();
        let of_boot = (BootId(7), None);
        let history = History::start(setup, of_boot, &lanes, &metering, &mut tasks);
        (history, tasks)
    }

    /// Returns the numbers of the incidents in the segments, and whether they are settled.
    fn recorded(&self) -> Vec<(u64, bool)> {
        let lines = Reader::new(self.history()).next_lines().unwrap();
        let entries = disk::entries(&lines);
        assert!(entries.is_sorted_by_key(|entry| entry.position));
        let entries = entries.into_iter().map(|Entry { incident, .. }| {
            let number = incident.id.rsplit('-').next().unwrap();
            (number.parse().unwrap(), incident.settled)
        });
        entries.collect()
    }
}

impl Drop for Directories {
    fn drop(&mut self) {
        // An error here must not hide the failure of the test.
        drop(fs::remove_dir_all(&self.state));
    }
}

#[tokio::test]
async fn incidents_of_agents_whose_directory_was_unavailable_are_recorded_once_and_in_order() {
    let dirs = Directories::new();
    fs::write(dirs.history(), "no directory").unwrap();
    let kills = ReportedKills::default;
    let (mut first, tasks) = dirs.start();
    first.append(incident(1, true), kills());
    first.add_unsafe(kills());
    first.append(incident(2, false), kills());
    assert_eq!(first.recorded_kills().1, first.newest, "the log has them");
    drop((first, tasks));

    let (mut second, tasks) = dirs.start();
    second.append(incident(3, true), kills());
    second.flush().await;
    fs::remove_file(dirs.history()).unwrap();
    drop((second, tasks));

    // The third finds the directory, which becomes available after the start of the fourth.
    let (mut third, tasks) = dirs.start();
    third.append(incident(4, true), kills());
    third.flush().await;
    let mut expected = vec![(1, true), (2, false), (2, true), (3, true), (4, true)];
    assert_eq!(dirs.recorded(), expected);
    drop((third, tasks));
    let aside = dirs.other.path().join("aside");
    fs::rename(dirs.history(), &aside).unwrap();
    fs::write(dirs.history(), "no directory").unwrap();
    let (mut fourth, tasks) = dirs.start();
    fs::remove_file(dirs.history()).unwrap();
    fs::rename(&aside, dirs.history()).unwrap();
    fourth.append(incident(5, true), kills());
    fourth.flush().await;
    expected.push((5, true));
    assert_eq!(dirs.recorded(), expected);
    drop((fourth, tasks));
    let (mut last, _tasks) = dirs.start();
    last.flush().await;
    assert_eq!(dirs.recorded(), expected);
}

fn entry(position: Position) -> Entry {
    Entry {
        position,
        added: ReportedKills::default(),
        incident: incident(position.0, true),
    }
}

/// Returns an outbox with a sink that has delivered the second revision of a former start, while
/// the disk lacks those from the fourth to `last`.
fn outbox_after_restart(begin: Position, last: u64) -> Outbox {
    let metering = Metering::start("worker-1", "files", Vec::new(), None, Lanes::new(&[]));
    let sink = SinkState {
        cursor: Cursor::new(Position(2)),
        series: metering.sink_series("webhook"),
        taken: None,
    };
    let outbox = Outbox::new(begin, [sink], BootId(7), true);
    outbox.lacks((4..=last).map(Position).map(entry).collect());
    outbox.push(entry(begin.next()));
    let Work::Read { after, through } = outbox.work(0) else {
        panic!("it does not read what the history has");
    };
    assert_eq!((after, through), (Position(2), Position(3)));
    outbox.advance(0, |cursor| cursor.skip_to(through));
    outbox
}

#[test]
fn a_sink_gets_what_the_history_lacks_of_former_agents_from_memory() {
    for last in [5, 200] {
        let begin = Position::before_start(1);
        let outbox = outbox_after_restart(begin, last);
        let Work::Entries(entries) = outbox.work(0) else {
            panic!("it waits for the disk");
        };
        let positions: Vec<_> = entries.iter().map(|entry| entry.position).collect();
        let logged = (4..=last).map(Position);
        let expected: Vec<_> = logged.chain([begin.next()]).collect();
        assert_eq!(positions, expected);
        assert_eq!(outbox.on_disk(), Position(3));
        assert!(!outbox.keeps_up(0), "the rest is only in memory");
        outbox.recorded(begin);
        assert_eq!(outbox.on_disk(), begin);
        assert!(outbox.keeps_up(0), "the rest can be read later");
    }
}

#[test]
fn what_the_history_has_leaves_memory_while_a_sink_is_behind() {
    const REVISIONS: u64 = 100;
    let metering = Metering::start("worker-1", "files", Vec::new(), None, Lanes::new(&[]));
    let begin = Position::before_start(1);
    let sinks = ["webhook", "kubernetes"].map(|name| SinkState {
        cursor: Cursor::new(begin),
        series: metering.sink_series(name),
        taken: (name == "kubernetes").then_some(begin),
    });
    let outbox = Outbox::new(begin, sinks, BootId(7), true);
    let mut newest = begin;
    for number in 1..=REVISIONS {
        newest = newest.next();
        outbox.push(entry(newest));
        outbox.recorded(newest);
        assert!(
            matches!(outbox.revisions(1), Work::Entries(_)),
            "one that is not behind waits for the disk at {number}"
        );
        outbox.take(1, newest);
    }
    let Work::Read { after, through } = outbox.work(0) else {
        panic!("the history is not read");
    };
    assert_eq!((after, through), (begin, newest));
}
