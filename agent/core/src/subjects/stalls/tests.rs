use super::*;
use crate::pods::Owner;
use crate::pressure::io_wait::StallShare;
use crate::pressure::shortage::{Reclaim, StalledUnit, UnitStalls};
use crate::pressure::stall::READ_INTERVAL;
use crate::subjects::BlockingQuery;
use crate::tests::boot as at;

const IO: Stall = Stall::new(StallOf::Node, StallKind::Io);
const MEMORY: Stall = Stall::new(StallOf::Node, StallKind::Memory);
const PERIOD: Duration = Duration::from_mins(5);

fn watch<const N: usize>(transition_period: Duration, watched: [(Stall, bool); N]) -> StallWatch {
    StallWatch::new(StallSetup {
        thresholds: StallThresholds {
            memory: 15.0,
            io: 40.0,
        },
        transition_period,
        watched: watched.into(),
    })
}

fn on(watch: &mut StallWatch, seconds: u64, input: StallInput) -> Vec<Effect> {
    watch.on(input, crate::tests::now(seconds))
}

fn sampled(percent: f32) -> StallInput {
    let sample = StallSample {
        avg10: percent,
        avg60: percent,
    };
    StallInput::Sampled {
        stall: IO,
        sample: Some(sample),
    }
}

fn configured<const N: usize>(transition_period: Duration, watched: [Stall; N]) -> StallInput {
    StallInput::Configured {
        transition_period,
        watched: watched.into(),
    }
}

/// Returns the stalls whose files are queried.
fn queried(effects: &[Effect]) -> Vec<Stall> {
    let query = |effect: &Effect| match effect {
        Effect::Query(Query::Stall(stall)) => Some(*stall),
        _ => None,
    };
    effects.iter().filter_map(query).collect()
}

/// Returns the published pressure of I/O, and true if a change was logged.
fn published(effects: &[Effect]) -> (Option<Pressure>, bool) {
    let changed = |effect: &Effect| {
        matches!(
            effect,
            Effect::Log(Decision::Stall(StallDecision::Changed { .. }))
        )
    };
    let states = effects.iter().find_map(|effect| match effect {
        Effect::Fact(FactChange::Stalls(states)) => Some(states),
        _ => None,
    });
    let of_io = |states: &Vec<(Stall, Pressure)>| {
        let of_io = states.iter().find(|(stall, _)| *stall == IO);
        of_io.map(|(_, pressure)| *pressure)
    };
    (states.and_then(of_io), effects.iter().any(changed))
}

#[test]
fn files_are_read_at_the_start_when_a_trigger_fires_and_while_not_calm() {
    let mut watch = self::watch(PERIOD, [(IO, true), (MEMORY, false)]);
    let tick = |seconds| StallInput::Tick { soon: at(seconds) };
    let all = on(&mut watch, 1, tick(1));
    assert_eq!(queried(&all), [MEMORY, IO]);
    on(&mut watch, 1, sampled(1.0));
    assert_eq!(watch.due(), None, "a trigger reports it");
    assert_eq!(queried(&on(&mut watch, 2, tick(2))), [MEMORY], "no answer");

    let fired = on(&mut watch, 3, StallInput::Reported(IO));
    let expected = [
        Effect::Log(Decision::Stall(StallDecision::Reported(IO))),
        Effect::Query(Query::Stall(IO)),
        pass_on(Input::Signal(SignalInput::StorageRequested)),
        pass_on(Input::Disk(DiskInput::IoStalled)),
    ];
    assert_eq!(fired, expected);
    let fired = on(&mut watch, 3, StallInput::Reported(MEMORY));
    let memory = pass_on(Input::Signal(SignalInput::MemoryMayBeShort));
    assert_eq!(fired.last(), Some(&memory));
    let pods = Stall::new(StallOf::Pods, StallKind::Io);
    let fired = on(&mut watch, 3, StallInput::Reported(pods));
    let storage = pass_on(Input::Signal(SignalInput::StorageRequested));
    assert_eq!(fired, [storage], "no disk of the node is suspected");
    on(&mut watch, 3, sampled(50.0));
    let again = at(3).plus(READ_INTERVAL);
    assert_eq!(watch.due(), Some(again));
    let early = on(&mut watch, 12, tick(12));
    assert!(!queried(&early).contains(&IO), "{early:?}");
    let due = on(&mut watch, 12, StallInput::Tick { soon: again });
    assert!(queried(&due).contains(&IO), "in the same wake-up: {due:?}");
}

#[test]
fn each_sample_is_published_and_only_a_change_is_logged() {
    let under = |seconds| Pressure::UnderPressure {
        last_exceeded: at(seconds),
    };
    let missing = || StallInput::Sampled {
        stall: IO,
        sample: None,
    };
    let shorter = configured(Duration::from_secs(30), [IO]);
    // At s, input, published pressure, a change was logged, name.
    let script = [
        (1, sampled(1.0), Some(Pressure::Normal), true, "the first"),
        (11, sampled(2.0), Some(Pressure::Normal), false, "the same"),
        (21, sampled(50.0), Some(under(21)), true, "exceeded"),
        (31, missing(), Some(under(21)), false, "one failed read"),
        (32, shorter, Some(under(21)), false, "another period"),
        (51, sampled(1.0), Some(Pressure::Normal), true, "at its end"),
    ];
    let mut watch = self::watch(PERIOD, [(IO, true)]);
    for (seconds, input, pressure, logged, name) in script {
        let effects = on(&mut watch, seconds, input);
        assert_eq!(published(&effects), (pressure, logged), "{name}");
    }
}

#[test]
fn the_event_of_a_stall_that_begins_has_its_averages() {
    let averages = |avg10, avg60| StallInput::Sampled {
        stall: IO,
        sample: Some(StallSample { avg10, avg60 }),
    };
    let details = |effects: Vec<Effect>| {
        effects.into_iter().find_map(|effect| match effect {
            Effect::ConditionDetails { of, details } => Some((of, details?)),
            _ => None,
        })
    };
    let begins = |text: &str| Some((Ground::Stall(IO), text.to_owned()));
    let mut watch = self::watch(PERIOD, [(IO, true)]);
    #[rustfmt::skip]
    let script = [
        (1, averages(80.0, 39.0), None, "below 40 % over a minute"),
        (11, averages(83.7, 41.2), begins("over 10 s 84%, over a minute 41%"), "begins"),
        (21, averages(90.0, 50.0), None, "still"),
        (400, averages(1.0, 1.0), None, "ends"),
    ];
    for (seconds, input, expected, name) in script {
        assert_eq!(details(on(&mut watch, seconds, input)), expected, "{name}");
    }
}

#[test]
fn a_stall_whose_condition_is_off_is_not_read_even_if_its_trigger_fires() {
    let mut watch = self::watch(PERIOD, [(IO, true), (MEMORY, true)]);
    on(&mut watch, 1, sampled(50.0));
    assert!(watch.due().is_some());
    let off = on(&mut watch, 2, configured(PERIOD, [MEMORY]));
    assert_eq!(published(&off).0, None, "it has no state any more");
    assert_eq!(watch.due(), None, "nothing wakes the agent");
    let tick = |seconds| StallInput::Tick { soon: at(seconds) };
    assert_eq!(queried(&on(&mut watch, 20, tick(20))), [MEMORY]);
    let expected = [
        pass_on(Input::Signal(SignalInput::StorageRequested)),
        pass_on(Input::Disk(DiskInput::IoStalled)),
    ];
    let fired = on(&mut watch, 21, StallInput::Reported(IO));
    assert_eq!(fired, expected, "only what else a stall can be a sign of");
    assert_eq!(published(&on(&mut watch, 22, sampled(50.0))).0, None);

    let again = on(&mut watch, 30, configured(PERIOD, [IO, MEMORY]));
    assert_eq!(queried(&again), [IO], "at once");
    let read = on(&mut watch, 30, sampled(1.0));
    assert_eq!(published(&read).0, Some(Pressure::Normal));
    assert!(
        queried(&on(&mut watch, 50, tick(50))).contains(&IO),
        "it has no trigger now"
    );
}

#[test]
fn what_was_exceeded_before_a_restart_is_kept() {
    let restored = |seconds| StallInput::Restored {
        stall: IO,
        at: at(seconds),
    };
    let under = |seconds| {
        Some(Pressure::UnderPressure {
            last_exceeded: at(seconds),
        })
    };
    // At s before and after the first sample; then, published.
    #[rustfmt::skip]
    let rows = [
        ("by the state file", restored(50), None, under(50)),
        ("too long ago", restored(1), None, Some(Pressure::Normal)),
        ("by the Node", configured(Duration::from_mins(1), [IO]), Some(StallInput::Stored(IO)), under(100)),
    ];
    for (name, before, after, expected) in rows {
        let minute = Duration::from_mins(1);
        let mut watch = self::watch(minute, [(IO, true)]);
        let state = on(&mut watch, 99, before);
        let unread = Some(Pressure::Unknown);
        assert_eq!(published(&state).0, unread, "{name}: not sampled yet");
        let mut effects = on(&mut watch, 100, sampled(1.0));
        if let Some(after) = after {
            effects = on(&mut watch, 101, after);
        }
        assert_eq!(published(&effects).0, expected, "{name}");
    }
}

fn memory(avg10: f32, avg60: f32) -> StallInput {
    StallInput::Sampled {
        stall: MEMORY,
        sample: Some(StallSample { avg10, avg60 }),
    }
}

/// Creates the observation of a node that reclaims memory, or does not.
fn shortage(rose: bool) -> StallInput {
    let unit = |n: u32, percent, at_its_limit| StalledUnit {
        owner: Owner::from_path(&format!("/system.slice/{n}.service"), "/kubepods"),
        share: StallShare::from_percent(percent),
        at_its_limit,
    };
    StallInput::shortage_read(ShortageEvidence {
        reclaim: Some(Reclaim {
            rose,
            intervals: 10,
            direct: 0,
        }),
        units: UnitStalls::Read {
            units: vec![unit(1, 97.0, true), unit(2, 34.0, false)],
            unlimited: StallShare::from_percent(34.0),
        },
    })
}

/// Returns as short texts: the published pressure of memory, the queries of its file and of a
/// shortage, and a withheld condition.
fn in_short(effects: &[Effect]) -> String {
    let words = effects.iter().filter_map(|effect| match effect {
        Effect::Fact(FactChange::Stalls(states)) => {
            let mut states = states.iter();
            let state = states.find(|(stall, _)| *stall == MEMORY)?;
            Some(state.1.to_string())
        }
        Effect::Query(Query::Stall(_)) => Some("file".to_owned()),
        Effect::BlockingQuery(BlockingQuery::Shortage) => Some("shortage".to_owned()),
        Effect::Log(Decision::Stall(StallDecision::Withheld(why))) => Some(format!("{why:?}")),
        Effect::ConditionDetails { details, .. } => details.clone(),
        _ => None,
    });
    words.collect::<Vec<_>>().join(" ")
}

#[test]
fn a_stall_on_memory_begins_only_while_the_node_is_short_of_it() {
    let fired = || StallInput::Reported(MEMORY);
    // At s, input, effects, name.
    #[rustfmt::skip]
    let script = [
        (0, memory(0.0, 0.0), "False", "calm: nothing more is read"),
        (1, fired(), "file shortage", "from the trigger on"),
        (1, memory(9.0, 1.0), "False", "not yet"),
        (3, fired(), "file", "it is being observed"),
        (3, memory(40.0, 16.0), "False", "withheld until that is known"),
        (11, shortage(false), "file", "and then decided by the averages of now"),
        (11, memory(60.0, 20.0), "NoReclaim shortage False", "a tenant at its limit"),
        (21, memory(60.0, 30.0), "False", "not logged again"),
        (22, shortage(false), "file", "as before"),
        (22, memory(60.0, 30.0), "shortage False", "nor queried twice"),
        (33, shortage(true), "file", "now the node is short"),
        (
            33,
            memory(60.4, 31.6),
            "over 10 s 60%, over a minute 32%; waiting most: 1.service (97% of \
             the time, at its own limit), 2.service (34% of the time) True",
            "and the Event names the units that wait",
        ),
        (43, memory(60.0, 40.0), "True", "in effect: not observed any more"),
        (44, fired(), "file", "nor by a trigger"),
        (53, memory(5.0, 5.0), "True", "over, and kept"),
        (55, memory(60.0, 40.0), "shortage True", "the next one is observed from its begin"),
        (66, shortage(true), "file", "it is short again"),
        (66, memory(1.0, 1.0), "True", "but it is over: that does not count"),
        (70, memory(60.0, 40.0), "shortage True", "for the next one"),
    ];
    let mut watch = self::watch(PERIOD, [(MEMORY, true)]);
    for (seconds, input, expected, name) in script {
        let effects = on(&mut watch, seconds, input);
        assert_eq!(in_short(&effects), expected, "at {seconds} s: {name}");
    }
}

#[test]
fn a_shortage_of_a_stall_that_is_not_watched_has_no_effect() {
    let mut watch = self::watch(PERIOD, [(MEMORY, true)]);
    on(&mut watch, 1, StallInput::Reported(MEMORY));
    on(&mut watch, 2, configured(PERIOD, [IO]));
    assert_eq!(on(&mut watch, 11, shortage(true)), []);
    assert_eq!(
        in_short(&on(&mut watch, 12, StallInput::Reported(MEMORY))),
        ""
    );
}
