//! Checks that subjects that were written and read go on like the original.

use std::collections::BTreeSet;

use super::values::MadeUp;
use super::*;

/// The number of inputs, half of which are made up, and the number from one snapshot to the next.
const INPUTS: u64 = 20_000;
const EACH: u64 = 500;

#[test]
fn restored_subjects_go_on_as_the_originals() {
    let mut made_up = MadeUp::default();
    let mut setup = setup();
    if let Some(certificate) = &mut setup.certificate {
        certificate.jitter = Jitter::seeded(7);
    }
    let mut original = Subjects::new(&setup);
    let mut restored = None;
    let mut queue: VecDeque<Input> = VecDeque::new();
    let mut script = bad_minute().into_iter().map(|(_, input)| input).cycle();
    for n in 0..INPUTS {
        if n % EACH == 0 {
            if let Some(restored) = &restored {
                assert_eq!(
                    format!("{restored:?}"),
                    format!("{original:?}"),
                    "before input {n}"
                );
            }
            let snapshot = checked_line::line(&original).unwrap();
            let read: Subjects = serde_json::from_str(&snapshot).unwrap();
            assert_eq!(
                checked_line::line(&read).unwrap(),
                snapshot,
                "before input {n}"
            );
            // Also what is not in the text.
            assert_eq!(
                format!("{read:?}"),
                format!("{original:?}"),
                "before input {n}"
            );
            restored = Some(read);
        }
        let input = if n % 2 == 0 {
            queue.pop_front().or_else(|| script.next()).unwrap()
        } else {
            Input::deserialize(&mut made_up).unwrap()
        };
        let text = checked_line::line(&input).unwrap();
        let effects = original.on(input.clone(), at(n));
        queue.extend(effects.iter().filter_map(answer));
        queue.truncate(20);
        let restored = restored.as_mut().unwrap();
        let again = restored.on(input, at(n));
        assert_eq!(
            checked_line::line(&again).unwrap(),
            checked_line::line(&effects).unwrap(),
            "input {n}: {text}"
        );
    }
}

/// By name: one of two fields of the same name may be left out.
#[test]
fn no_field_of_the_subjects_is_left_out() {
    let mut made_up = MadeUp::default();
    let mut names = BTreeSet::new();
    for _ in 0..50 {
        let value = Subjects::deserialize(&mut made_up).unwrap();
        let text = checked_line::line(&value).unwrap();
        let debug = format!("{value:?}")
            .replace("tv_sec: ", "")
            .replace("tv_nsec: ", "");
        for before in debug.split(": ") {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let name = before.rsplit(|c| !is_part(c)).next().unwrap_or_default();
            if name.starts_with(|first: char| first.is_ascii_lowercase()) {
                assert!(
                    text.contains(&format!("\"{name}\":")),
                    "{name} is not written"
                );
                names.insert(name.to_owned());
            }
        }
    }
    assert!(names.len() > 200, "{names:?}");
}

/// Ends when it has [`LINES`] lines.
#[derive(Debug)]
struct Short(Lines);

const LINES: usize = 6;

impl RunRecorder for Short {
    fn start(&mut self, header: &Header<&Subjects>) {
        self.0.start(header);
    }

    fn record(&mut self, step: &Step) -> ControlFlow<()> {
        assert!(self.0.record(step).is_continue());
        let ended = self.0.0.lock().unwrap().len() == LINES;
        if ended {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

#[test]
fn a_recording_begins_and_ends_while_the_subjects_run() {
    let inputs = bad_minute();
    let (early, late) = inputs.split_at(4);
    let lines = Lines::default();
    let mut subjects = RecordedSubjects::new(&setup());
    for (now, input) in early {
        subjects.on(input.clone(), *now);
    }
    subjects.attach(Box::new(Short(lines.clone())), "1.2.3");
    for (now, input) in late {
        subjects.on(input.clone(), *now);
    }
    let recorded = lines.0.lock().unwrap();
    assert!(late.len() > LINES);
    assert_eq!(recorded.len(), LINES, "the recorder has left");
    let again = replayed(&recorded).unwrap();
    assert_eq!(again.steps, LINES - 1);
    let expected = late.iter().take(again.steps);
    let mut other = Subjects::new(&setup());
    for (now, input) in early.iter().chain(expected) {
        other.on(input.clone(), *now);
    }
    assert_eq!(
        checked_line::line(&again.subjects).unwrap(),
        checked_line::line(&other).unwrap()
    );
}

#[test]
fn what_cannot_be_replayed_is_named_with_its_remedy() {
    let good = record(bad_minute()).concat();
    let header = good.split_inclusive('\n').next().unwrap();
    let last = good.lines().count();
    let cut = format!("the recording is cut off at line {last}: only the lines before it");
    let arch = format!("\"{ARCH}\"");
    let rows: [(&str, String, &str); 8] = [
        ("no end of line", good[..good.len() - 1].to_owned(), &cut),
        ("half a line", good[..good.len() - 40].to_owned(), &cut),
        (
            "half a header",
            header[..header.len() / 2].to_owned(),
            "the recording is cut off at line 1:",
        ),
        (
            "newer",
            good.replace("recording/v1", "recording/v2"),
            "the recording has the format nodepulse.dev/recording/v2, made by a newer nodepulse (version 1.2.3): replay it with that version",
        ),
        (
            "newer, without subjects",
            good.replace("recording/v1", "recording/v3")
                .replace("\"subjects\"", "\"parts\""),
            "the recording has the format nodepulse.dev/recording/v3, made by a newer",
        ),
        (
            "other machine",
            good.replace(&arch, "\"s390x\""),
            &format!(
                "the recording was made on s390x, but this is {ARCH}: replay it on s390x, with nodepulse 1.2.3"
            ),
        ),
        (
            "other state",
            resealed(&good.replace("\"pod_pids\"", "\"pod_pid\"")),
            "line 1 of the recording has no state of this nodepulse, but of version 1.2.3: replay it with that version",
        ),
        (
            "another decision",
            resealed(&good.replace("\"ForgetDisk\":{\"major\":8", "\"ForgetDisk\":{\"major\":9")),
            "line ",
        ),
    ];
    for (name, text, expected) in rows {
        assert_ne!(text, good, "{name}");
        let err = replay(text.split_inclusive('\n'), |_| {})
            .unwrap_err()
            .to_string();
        assert!(err.starts_with(expected), "{name}: {err}");
    }
}

#[test]
fn each_change_of_a_byte_is_found() {
    let good = record(bad_minute()).concat();
    for at in (0..good.len()).step_by(61) {
        let mut bytes = good.clone().into_bytes();
        bytes[at] ^= 1;
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        let replayed = replay(text.split_inclusive('\n'), |_| {});
        assert!(
            replayed.is_err(),
            "byte {at}: {}",
            &good[at..(at + 40).min(good.len())]
        );
    }
}
