use std::time::SystemTime;

use super::*;
use crate::reading::container_runtime::{RuntimeCondition, RuntimeHandler};

fn at(millis: u64) -> Now {
    Now {
        boot: BootNanos(0).plus(Duration::from_millis(millis)),
        wall: SystemTime::UNIX_EPOCH,
    }
}

fn condition(is_true: bool) -> RuntimeCondition {
    RuntimeCondition {
        is_true,
        ..RuntimeCondition::default()
    }
}

fn answer(ready: bool) -> RuntimeInput {
    RuntimeInput::Checked(Ok(RuntimeAnswer {
        version: RuntimeVersion {
            name: "containerd".to_owned(),
            version: Some("2.1.4".to_owned()),
        },
        status: RuntimeStatus {
            runtime: Some(condition(ready)),
            network: Some(condition(true)),
            handlers: vec![RuntimeHandler {
                name: "runc".to_owned(),
                recursive_read_only_mounts: true,
                user_namespaces: true,
            }],
            supplemental_groups_policy: Some(true),
        },
    }))
}

fn no_answer() -> RuntimeInput {
    RuntimeInput::Checked(Err("no answer".to_owned()))
}

fn list(names: &[&str]) -> RuntimeInput {
    let image = |name: &&str| NodeImage {
        names: vec![(*name).to_owned()],
        size: 1,
    };
    RuntimeInput::Listed(RuntimeList {
        images: Some(names.iter().map(image).collect()),
        imagefs: Some("/images".into()),
    })
}

fn started() -> RuntimeWatch {
    let mut watch = RuntimeWatch::new(RuntimeUse::Required, at(0).boot);
    let asked = watch.on(RuntimeInput::Starting, at(0));
    assert_eq!(asked, [Effect::BlockingQuery(BlockingQuery::RuntimeStatus)]);
    watch
}

/// Returns the next time at which the runtime is due, in ms, and the effects.
fn next(watch: &mut RuntimeWatch) -> (u64, Vec<Effect>) {
    let due = watch.due().unwrap();
    let now = Now { boot: due, ..at(0) };
    let effects = watch.on(
        RuntimeInput::Tick {
            soon: due.plus(ALIGN),
        },
        now,
    );
    (due.0 / 1_000_000, effects)
}

fn queries(effects: &[Effect]) -> Vec<&BlockingQuery> {
    let queries = effects.iter().filter_map(|effect| match effect {
        Effect::BlockingQuery(query) => Some(query),
        _ => None,
    });
    queries.collect()
}

#[test]
fn a_runtime_is_checked_every_ten_seconds_and_its_images_are_listed_every_thirty() {
    let mut watch = started();
    let mut lists = Vec::new();
    for millis in [0, 10_000, 20_000, 30_000, 40_000, 50_000, 60_000] {
        let effects = watch.on(answer(true), at(millis));
        if queries(&effects) == [&BlockingQuery::RuntimeImages] {
            assert_eq!(
                watch.on(
                    RuntimeInput::Tick {
                        soon: at(900_000).boot
                    },
                    at(millis)
                ),
                []
            );
            watch.on(list(&["a"]), at(millis));
            lists.push(millis);
        }
        let (due, effects) = next(&mut watch);
        assert_eq!(
            (due, queries(&effects)),
            (millis + 10_000, vec![&BlockingQuery::RuntimeStatus])
        );
    }
    assert_eq!(lists, [0, 30_000, 60_000]);
}

#[test]
fn a_runtime_that_is_not_ready_yet_is_checked_often_for_two_minutes() {
    for refused in [no_answer(), answer(false)] {
        let mut watch = started();
        let mut millis = 0;
        let mut waits = Vec::new();
        while millis < 150_000 {
            watch.on(refused.clone(), at(millis));
            watch.on(list(&[]), at(millis));
            let (due, _) = next(&mut watch);
            waits.push((due - millis, millis));
            millis = due;
        }
        for (wait, millis) in waits {
            assert_eq!(
                wait,
                if millis < 120_000 { 250 } else { 10_000 },
                "at {millis} ms"
            );
        }
        // Later failures are not checked more often.
        watch.on(answer(true), at(millis));
        watch.on(list(&[]), at(millis));
        next(&mut watch);
        watch.on(no_answer(), at(millis + 10_000));
        assert_eq!(next(&mut watch).0, millis + 20_000);
    }
}

#[test]
fn a_check_counts_for_thirty_seconds() {
    let mut watch = started();
    watch.on(answer(true), at(0));
    watch.on(list(&["a"]), at(0));
    assert_eq!(watch.known.checked, RuntimeCheck::Recently);
    for (expected, input) in [(10_000, no_answer()), (20_000, answer(false))] {
        let (due, _) = next(&mut watch);
        assert_eq!(due, expected);
        watch.on(input, at(due));
        watch.on(list(&["a"]), at(due));
        assert_eq!(watch.known.checked, RuntimeCheck::Recently, "at {due} ms");
    }
    let (due, effects) = next(&mut watch);
    assert_eq!(due, 30_000);
    assert_eq!(
        effects[0],
        Effect::Log(Decision::Runtime(RuntimeDecision::Stale))
    );
    assert_eq!(effects[2], Effect::Publish);
    assert_eq!(watch.known.checked, RuntimeCheck::Stale);
    let version = watch.known.version.clone().unwrap();
    assert_eq!(
        (version.name.as_str(), version.version),
        ("containerd", None)
    );
    assert!(watch.known.images.is_some(), "what it reported stays");
    watch.on(answer(true), at(31_000));
    assert_eq!(watch.known.checked, RuntimeCheck::Recently);
    assert_eq!(
        watch.known.version.unwrap().version.as_deref(),
        Some("2.1.4")
    );
}

#[test]
fn a_runtime_that_was_never_ready_is_not_down() {
    let mut watch = started();
    watch.on(answer(false), at(0));
    assert_eq!(watch.known.checked, RuntimeCheck::Never);
    assert_eq!(
        watch.known.handlers, None,
        "they are those of a ready runtime"
    );
    assert!(watch.known.status.is_some());
}

#[test]
fn only_changes_are_published_and_logged() {
    let mut watch = started();
    let publishes = |effects: &[Effect]| effects.contains(&Effect::Publish);
    let logs = |effects: &[Effect]| {
        effects
            .iter()
            .filter(|e| matches!(e, Effect::Log(_)))
            .count()
    };
    // Input, it is published, lines of the log.
    let rows = [
        (no_answer(), false, 1),
        (no_answer(), false, 0),
        (answer(true), true, 1),
        (list(&["a", "b"]), true, 0),
        (answer(true), false, 0),
        (list(&["a", "b"]), false, 0),
        (list(&["b", "a"]), true, 0),
        (list(&["a"]), true, 0),
        (no_answer(), false, 1),
        (answer(false), true, 1),
    ];
    for ((n, millis), (input, published, lines)) in (0..).zip((0..).step_by(40_000)).zip(rows) {
        let effects = watch.on(input, at(millis));
        assert_eq!(
            (publishes(&effects), logs(&effects)),
            (published, lines),
            "row {n}"
        );
    }
}

#[test]
fn storage_is_sampled_first_and_when_the_images_are_elsewhere() {
    let sampled = |effects: &[Effect]| {
        let sample = pass_on(Input::Signal(SignalInput::StorageRequested));
        effects.contains(&sample)
    };
    let at_path = |path: Option<&str>| {
        RuntimeInput::Listed(RuntimeList {
            images: None,
            imagefs: path.map(PathBuf::from),
        })
    };
    // Inputs, each with true if storage is sampled after it.
    #[rustfmt::skip]
    let rows: [&[(RuntimeInput, bool)]; 2] = [
        &[(no_answer(), true), (no_answer(), false), (at_path(None), false), (at_path(Some("/a")), true)],
        &[
            (at_path(Some("/a")), true),
            (at_path(Some("/a")), false),
            (at_path(None), false),
            (at_path(Some("/b")), true),
        ],
    ];
    for (n, row) in rows.into_iter().enumerate() {
        let mut watch = started();
        for (step, (input, expected)) in row.iter().enumerate() {
            let effects = watch.on(input.clone(), at(0));
            assert_eq!(sampled(&effects), *expected, "row {n}, step {step}");
        }
    }
}

#[test]
fn an_unused_runtime_is_never_due() {
    let mut watch = RuntimeWatch::new(RuntimeUse::Unused, at(0).boot);
    assert_eq!(watch.on(RuntimeInput::Starting, at(0)), []);
    assert_eq!(watch.due(), None);
    let soon = at(3_600_000).boot;
    assert_eq!(watch.on(RuntimeInput::Tick { soon }, at(3_600_000)), []);
}

#[test]
fn why_the_runtime_does_not_answer_is_logged_if_it_changes_at_most_once_a_minute() {
    // Second, reason, it is logged.
    let rows = [
        (0, "no socket", true),
        (1, "no socket", false),
        (20, "no CRI", false),
        (60, "no CRI", true),
        (120, "no CRI", false),
        (500, "no CRI", false),
        (510, "no socket", true),
    ];
    let mut watch = started();
    for (seconds, why, logged) in rows {
        let failed = RuntimeInput::Checked(Err(why.to_owned()));
        let effects = watch.on(failed, at(seconds * 1000));
        let line = RuntimeDecision::Unavailable(why.to_owned());
        let line = Effect::Log(Decision::Runtime(line));
        assert_eq!(effects.contains(&line), logged, "{seconds} s");
    }
    watch.on(answer(true), at(511_000));
    let lost = watch.on(no_answer(), at(512_000));
    let is_log = |effect: &Effect| matches!(effect, Effect::Log(_));
    assert!(lost.iter().any(is_log), "{lost:?}");
}
