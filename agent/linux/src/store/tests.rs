use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use serde_json::json;

use nodepulse_core::checked_line;

use super::*;
use crate::host::scratch::Scratch;

/// Room for five lines, in segments of two.
const SMALL: Bounds = Bounds {
    total: 5 * LINE,
    segment: 2 * LINE,
};

/// Length of a [`line`].
const LINE: u64 = 64;
const LENGTH: usize = 64;

fn line(number: usize) -> String {
    let padded = |pad: &str| checked_line::line(&json!({"pad": pad, "number": number})).unwrap();
    // The length of a checksum varies.
    let pads =
        ('a'..='z').flat_map(|pad| (0..64).map(move |length| String::from(pad).repeat(length)));
    let mut lines = pads.map(|pad| padded(&pad));
    lines.find(|line| line.len() == LENGTH).unwrap()
}

fn open(dir: &Path, bounds: Bounds) -> Store {
    try_open(dir, bounds).unwrap()
}

fn try_open(dir: &Path, bounds: Bounds) -> Option<Store> {
    Store::open(dir, bounds, 1, |_| false).unwrap()
}

fn append_line(store: &mut Store, line: &str) {
    while store.excess(line.len()).is_some() {
        store.remove_oldest();
    }
    store.append(line).unwrap();
}

fn append(store: &mut Store, numbers: impl IntoIterator<Item = usize>) {
    for number in numbers {
        append_line(store, &line(number));
        store.sync().unwrap();
    }
}

fn numbers(lines: &[String]) -> Vec<usize> {
    let number = |line: &String| {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        usize::try_from(value["number"].as_u64().unwrap()).unwrap()
    };
    lines.iter().map(number).collect()
}

/// Returns the lines of the directory, and the number of damaged ones.
fn read(dir: &Path) -> (Vec<usize>, u64) {
    let mut reader = Reader::new(dir.to_owned());
    let lines = reader.next_lines().unwrap();
    (numbers(&lines), reader.damaged())
}

fn names(dir: &Path) -> Vec<String> {
    let segments = segments(dir).unwrap().into_iter();
    segments.map(Segment::name).collect()
}

#[test]
fn the_oldest_segments_are_removed_and_each_start_begins_another_one() {
    let dir = Scratch::new();
    let dir = &dir.path().join("a/history");
    let mut store = open(dir, SMALL);
    assert_eq!(fs::read_dir(dir).unwrap().count(), 1, "only the lock");
    append(&mut store, 0..5);
    assert_eq!(read(dir).0, [0, 1, 2, 3, 4]);
    append(&mut store, 5..6);
    assert_eq!(read(dir).0, [2, 3, 4, 5], "the first segment had two lines");
    drop(store);
    let mut store = open(dir, SMALL);
    append(&mut store, 6..7);
    assert_eq!(names(dir).len(), 3);
    append(&mut store, 7..9);
    assert_eq!(read(dir), ([4, 5, 6, 7, 8].into(), 0));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(dir), 0o700);
    assert_eq!(mode(&dir.join(&names(dir)[0])), 0o600);
}

#[test]
fn a_directory_may_be_reached_by_a_link() {
    let dir = Scratch::new();
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    fs::create_dir(&target).unwrap();
    symlink(&target, &link).unwrap();
    append(&mut open(&link, SMALL), 0..1);
    assert_eq!((read(&target).0, read(&link).0), (vec![0], vec![0]));
    let _open = open(&link, SMALL);
    assert!(try_open(&target, SMALL).is_none(), "one lock");
}

#[test]
fn a_line_larger_than_all_bounds_replaces_everything_else() {
    let dir = Scratch::new();
    let mut store = open(dir.path(), SMALL);
    append(&mut store, 0..4);
    let large = checked_line::line(&json!({"number": 9, "pad": "x".repeat(500)})).unwrap();
    append_line(&mut store, &large);
    assert_eq!(read(dir.path()).0, [9]);
    append(&mut store, 10..11);
    assert_eq!(read(dir.path()).0, [10]);
}

#[test]
fn one_process_appends_and_others_read_what_it_adds() {
    let dir = Scratch::new();
    let mut store = open(dir.path(), SMALL);
    assert!(try_open(dir.path(), SMALL).is_none(), "locked");
    let mut reader = Reader::new(dir.path().to_owned());
    for number in 0..20 {
        append(&mut store, [number]);
        let lines = reader.next_lines().unwrap();
        assert_eq!(numbers(&lines), [number]);
        assert_eq!(reader.next_lines().unwrap(), Vec::<String>::new());
    }
    // A line that is being written is returned when it is whole.
    let next = line(20);
    let path = dir.path().join(names(dir.path()).pop().unwrap());
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(&next.as_bytes()[..30]).unwrap();
    assert_eq!(reader.next_lines().unwrap(), Vec::<String>::new());
    file.write_all(&next.as_bytes()[30..]).unwrap();
    assert_eq!(numbers(&reader.next_lines().unwrap()), [20]);
    assert_eq!(reader.damaged(), 0);
}

#[test]
fn a_segment_that_was_removed_or_created_by_others_ends_nothing() {
    let dir = Scratch::new();
    let mut store = open(dir.path(), Bounds::default());
    append(&mut store, 0..2);
    fs::remove_file(dir.path().join(&names(dir.path())[0])).unwrap();
    append(&mut store, 2..3);
    assert_eq!(
        read(dir.path()),
        ([2].into(), 0),
        "in a segment of this name"
    );
    drop(store);
    let mut store = open(dir.path(), Bounds::default());
    let next = Segment(store.next_segment());
    fs::write(next.path(dir.path()), line(7)).unwrap();
    append(&mut store, 8..9);
    assert_eq!(
        read(dir.path()),
        ([2, 7, 8].into(), 0),
        "a name that is in use"
    );
    // A directory cannot be removed like a file.
    let odd = dir.path().join("incidents-0000000000.jsonl");
    fs::create_dir_all(odd.join("a")).unwrap();
    drop(store);
    let mut store = open(dir.path(), SMALL);
    append(&mut store, 10..20);
    fs::remove_dir_all(&odd).unwrap();
    assert_eq!(read(dir.path()).0.last(), Some(&19));
}

#[test]
fn a_reader_starts_anywhere_and_reads_in_parts() {
    let dir = Scratch::new();
    append(&mut open(dir.path(), Bounds::default()), 0..9);
    append(&mut open(dir.path(), Bounds::default()), 9..12);
    let mut reader = Reader::new(dir.path().to_owned());
    let mut parts = Vec::new();
    while let Some(part) = reader.next_chunk(LINE * 4 + 3).unwrap() {
        parts.push(numbers(&part));
    }
    let expected: [&[usize]; 4] = [&[0, 1, 2, 3], &[4, 5, 6, 7], &[8], &[9, 10, 11]];
    assert_eq!(parts, expected);
    let mut reader = Reader::new(dir.path().to_owned()).starting_at(2);
    // A line that is longer than the limit.
    assert_eq!(
        reader.next_chunk(5).unwrap().map(|part| numbers(&part)),
        Some(vec![9])
    );
}

#[test]
fn a_history_that_was_cut_off_anywhere_keeps_its_whole_lines_and_goes_on() {
    let dir = Scratch::new();
    append(&mut open(dir.path(), Bounds::default()), 0..4);
    let path = dir.path().join(&names(dir.path())[0]);
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        let torn = Scratch::new();
        fs::write(
            torn.path().join(path.file_name().unwrap()),
            &whole[..length],
        )
        .unwrap();
        append(&mut open(torn.path(), Bounds::default()), 4..5);
        let left = length / LENGTH;
        let expected: Vec<_> = (0..left).chain([4]).collect();
        let damaged = u64::from(!length.is_multiple_of(LENGTH));
        assert_eq!(read(torn.path()), (expected, damaged), "{length} bytes");
    }
}

#[test]
fn blocks_that_were_not_written_cost_only_their_lines() {
    let dir = Scratch::new();
    append(&mut open(dir.path(), Bounds::default()), 0..200);
    let path = dir.path().join(&names(dir.path())[0]);
    let whole = fs::read(&path).unwrap();
    let blocks = whole.len() / 512;
    let mut state = 1_u64;
    for _ in 0..1000 {
        let mut bytes = whole.clone();
        let mut changed = BTreeSet::new();
        for _ in 0..3 {
            // https://en.wikipedia.org/wiki/Linear_congruential_generator#Parameters_in_common_use
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let [block, other, kind] =
                [33, 40, 63].map(|bits| usize::try_from(state >> bits).unwrap());
            let (block, other) = (block % blocks, other % blocks);
            let range = block * 512..(block + 1) * 512;
            match kind {
                0 => bytes[range].fill(0),
                _ => bytes.copy_within(other * 512..(other + 1) * 512, block * 512),
            }
            changed.insert(block);
        }
        fs::write(&path, &bytes).unwrap();
        let (found, damaged) = read(dir.path());
        let of_block = |number: &usize| number * LENGTH / 512;
        let untouched = (0..200).filter(|number| !changed.contains(&of_block(number)));
        let found: BTreeSet<_> = found.into_iter().collect();
        let untouched: BTreeSet<_> = untouched.collect();
        assert!(untouched.is_subset(&found), "{changed:?}");
        assert!(damaged <= 24, "{damaged} of {changed:?}");
    }
}

#[test]
fn what_is_not_a_file_of_root_is_not_read() {
    let dir = Scratch::new();
    append(&mut open(dir.path(), SMALL), 0..1);
    for name in [
        "incidents-1.jsonl",
        "incidents-+000000001.jsonl",
        "incidents-0000000001.jsonl.gz",
    ] {
        fs::write(dir.path().join(name), line(7)).unwrap();
    }
    assert_eq!(read(dir.path()).0, [0], "other names");
}

#[test]
fn a_segment_that_cannot_be_read_is_left_out() {
    let dir = Scratch::new();
    let path = |number: usize| dir.path().join(format!("incidents-{number:010}.jsonl"));
    for number in [1, 4] {
        fs::write(path(number), line(number)).unwrap();
    }
    symlink("/dev/zero", path(2)).unwrap();
    nix::unistd::mkfifo(&path(3), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::create_dir(path(5)).unwrap();
    let mut reader = Reader::new(dir.path().to_owned());
    let (mut lines, mut faults) = (Vec::new(), Vec::new());
    while let Some(chunk) = reader.next_chunk(MAX_READ).unwrap() {
        lines.extend(numbers(&chunk));
        faults.extend(reader.take_fault().map(|fault| fault.to_string()));
    }
    assert_eq!(lines, [1, 4]);
    assert_eq!(faults.len(), 3, "{faults:?}");
    let expected = format!("{}: it is not a file of root", path(3).display());
    assert_eq!(faults[1], expected);
    fs::write(path(6), line(6)).unwrap();
    assert_eq!(numbers(&reader.next_lines().unwrap()), [6]);
}
