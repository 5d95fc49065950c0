use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};

use super::*;
use crate::incident::{BootId, Incident, IncidentId, Occurred, Occurrence};
use crate::node_status::ledger::{ConditionChange, LastChange};
use crate::node_status::{FactChange, Status};
use crate::pods::{LargestTasks, Owner, PodId};
use crate::pressure::{Exceeded, Pressure};
use crate::subjects::kill_counters::{CountedKills, Counting};
use crate::subjects::{KillCounterSetup, KillSource, LargestOwnersInput, Previous, Saved};

const TYPE: &str = "FrequentOOMKills";

fn at(seconds: u64) -> Now {
    Now {
        boot: BootNanos(seconds * 1_000_000_000),
        wall: SystemTime::UNIX_EPOCH,
    }
}

/// Returns what subjects of companion mode need in which only counters show kills.
fn setup() -> Setup {
    crate::tests::setup(
        KillCounterSetup {
            source: KillSource::Counters,
            counting: Some(Counting::Nested),
            boot_known: true,
        },
        at(1000).boot,
    )
}

fn subjects() -> Subjects {
    Subjects::new(&setup())
}

/// Returns all effects of an input that are not inputs themselves.
fn play(subjects: &mut Subjects, input: Input, now: Now) -> Vec<Effect> {
    let mut queue = VecDeque::from([pass_on(input)]);
    let mut effects = Vec::new();
    while let Some(effect) = queue.pop_front() {
        match effect {
            Effect::Input(input) => {
                for effect in subjects.on(*input, now).into_iter().rev() {
                    queue.push_front(effect);
                }
            }
            effect => effects.push(effect),
        }
    }
    effects
}

fn frequent(effects: &[Effect]) -> Option<Pressure> {
    effects.iter().rev().find_map(|effect| match effect {
        Effect::Fact(FactChange::FrequentKills(pressure)) => Some(*pressure),
        _ => None,
    })
}

/// Returns the condition that a restart finds, for these first answers.
#[test]
fn frequent_kills_survive_a_restart_even_if_the_first_count_fails() {
    let kept = |until| {
        let last_exceeded = at(until).boot;
        Some(Pressure::UnderPressure { last_exceeded })
    };
    let saved = |until| {
        let exceeded = BTreeMap::from([(TYPE.to_owned(), Some(at(until).boot))]);
        Previous::SameBoot(Saved {
            exceeded,
            ..Saved::default()
        })
    };
    let counted = Some(CountedKills {
        pods: "/kubepods".to_owned(),
        cgroups: Vec::new(),
        node: None,
    });
    let rows = [
        (saved(1300), counted.clone(), kept(1300), "counted"),
        (saved(1300), None, kept(1300), "the first count failed"),
        (saved(9999), None, kept(1601), "a window from now at most"),
        (Previous::Unknown, counted, None, "nothing was saved"),
        (Previous::Unknown, None, None, "nothing was read"),
    ];
    for (previous, counted, expected, name) in rows {
        let mut subjects = subjects();
        let started = play(&mut subjects, Input::Starting, at(1000));
        assert_eq!(
            frequent(&started).map(|p| p.to_string()),
            Some("False".to_owned())
        );
        let recalled = Input::State(StateInput::Recalled { previous, counted });
        let effects = play(&mut subjects, recalled, at(1001));
        assert_eq!(frequent(&effects), expected, "{name}");
        // The condition of the Node is kept even if the state file is not known.
        let on_node = Input::State(StateInput::TrueOnNode(vec![(
            TYPE.to_owned(),
            SystemTime::UNIX_EPOCH,
        )]));
        let effects = play(&mut subjects, on_node, at(1002));
        let is_true = |pressure: Pressure| matches!(pressure, Pressure::UnderPressure { .. });
        let now_true = frequent(&effects).or(expected).is_some_and(is_true);
        assert!(now_true, "{name}");
    }
}

#[test]
fn of_a_former_boot_only_a_full_disk_is_still_true() {
    let (second, hour) = (Duration::from_secs(1), Duration::from_hours(1));
    let started = Now {
        wall: SystemTime::UNIX_EPOCH + 24 * hour,
        ..at(1000)
    };
    let booted = started.wall_at(BootNanos(0));
    // Type, time of the last report, it is kept.
    let rows = [
        ("MemoryLow", booted, true),
        ("MemoryLow", booted - second, true),
        ("MemoryLow", booted - 2 * second, false),
        ("MemoryLow", SystemTime::UNIX_EPOCH, true),
        ("PIDsLow", booted - hour, false),
        ("DiskSpaceLow", booted - hour, true),
        ("DiskIOPressure", booted - hour, false),
        ("DiskFailing", booted - hour, false),
        ("FrequentOOMKills", booted - hour, false),
        ("FrequentOOMKills", booted, true),
        ("MemoryStallPressure", booted - hour, false),
    ];
    for (type_, reported, expected) in rows {
        let mut subjects = subjects();
        play(&mut subjects, Input::Starting, started);
        let on_node = StateInput::TrueOnNode(vec![(type_.to_owned(), reported)]);
        play(&mut subjects, Input::State(on_node), started);
        let kept = subjects.times().get(type_) != Some(&Exceeded::Never);
        assert_eq!(kept, expected, "{type_}, reported {reported:?}");
    }
}

#[test]
fn what_is_exceeded_is_saved_before_it_is_published() {
    let mut subjects = subjects();
    play(&mut subjects, Input::Starting, at(1000));
    let recalled = StateInput::Recalled {
        previous: Previous::Unknown,
        counted: None,
    };
    play(&mut subjects, Input::State(recalled), at(1001));
    let mut effects = Vec::new();
    for pod in ["a", "b", "c", "a", "b"] {
        let killed = Input::OomIncident {
            pod: PodId::Uid(pod.to_owned()),
            at: at(1002).boot,
        };
        effects = play(&mut subjects, killed, at(1002));
    }
    let position = |wanted: fn(&Effect) -> bool| effects.iter().position(wanted);
    let save = position(|effect| matches!(effect, Effect::Save(_)));
    let publish = position(|effect| matches!(effect, Effect::Publish));
    assert!(save.is_some() && save < publish, "{effects:?}");
}

/// The two that can pass inputs to each other: an incident is reported, and its kills are counted
/// as acknowledged.
const CIRCLE: [&str; 2] = ["incidents", "kill_counters"];

/// The subjects, by the names of their inputs.
const SUBJECTS: [(&str, &str); 16] = [
    ("Certificate", "certificate"),
    ("Disk", "disks"),
    ("Incident", "incidents"),
    ("Kill", "kills"),
    ("KillCounter", "kill_counters"),
    ("LargestOwners", "largest_owners"),
    ("NodeEvents", "node_events"),
    ("OomIncident", "frequent_kills"),
    ("Pid", "pids"),
    ("Pod", "pods"),
    ("PodPid", "pod_pids"),
    ("Runtime", "container_runtime"),
    ("Signal", "signals"),
    ("Stall", "stalls"),
    ("State", "saved_state"),
    ("Volume", "volumes"),
];

/// The text of a subject: of its file and of the files in its folder, without tests.
fn source(subject: &str) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/subjects");
    let mut text = std::fs::read_to_string(root.join(format!("{subject}.rs"))).unwrap();
    for entry in std::fs::read_dir(root.join(subject)).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_file() && !path.ends_with("tests.rs") {
            text += &std::fs::read_to_string(path).unwrap();
        }
    }
    text
}

/// The subjects to which a subject passes inputs.
fn receivers(subject: &str) -> Vec<&'static str> {
    let text = source(subject);
    let passes = |name: &str| {
        let input = format!("Input::{name}");
        let mut found = text.match_indices(&input);
        // Not the input of another subject, such as `DiskInput::Pod`, nor one that begins alike.
        found.any(|(at, _)| {
            let (before, after) = (&text[..at], &text[at + input.len()..]);
            !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric)
        })
    };
    let others = SUBJECTS.iter().filter(|(_, other)| *other != subject);
    let receivers = others.filter(|(name, _)| passes(name));
    receivers.map(|(_, other)| *other).collect()
}

#[test]
fn inputs_are_passed_in_one_direction() {
    let mut left: BTreeMap<&str, Vec<&str>> = SUBJECTS
        .iter()
        .map(|(_, subject)| (*subject, receivers(subject)))
        .collect();
    assert!(left["disks"].contains(&"signals"), "{left:?}");
    let [one, other] = CIRCLE;
    left.get_mut(one).unwrap().retain(|to| *to != other);
    // A subject that passes inputs to none that is left can be removed, until none is left.
    while let Some(last) = left
        .iter()
        .find_map(|(from, to)| (!to.iter().any(|to| left.contains_key(to))).then_some(*from))
    {
        left.remove(last);
    }
    assert!(left.is_empty(), "a circle: {left:?}");
}

fn changed(type_: &str, status: Status) -> Input {
    let change = ConditionChange {
        type_: type_.to_owned(),
        status,
        reason: "Because".to_owned(),
        message: "m".to_owned(),
        details: None,
        ended: None,
    };
    let occurred = Occurred::condition(change, None, at(1000));
    Input::Incident(IncidentInput::Happened(vec![occurred]))
}

/// Returns the answer about tasks: this unit, or nothing.
fn counted(unit: Option<&str>) -> Input {
    let owners = unit.map(|unit| (Owner::from_path(unit, ""), 7));
    Input::LargestOwners(LargestOwnersInput::TasksCounted(LargestTasks {
        owners: owners.into_iter().collect(),
        outside_pods: None,
    }))
}

/// Returns the revisions that follow, each with its change.
fn changes(subjects: &mut Subjects, input: Input, ms: u64) -> Vec<(Incident, ConditionChange)> {
    let now = Now {
        boot: BootNanos(at(1000).boot.0 + ms * 1_000_000),
        wall: SystemTime::UNIX_EPOCH,
    };
    let mut effects = play(subjects, input, now);
    if subjects.due() <= now.boot {
        effects.extend(play(subjects, Input::Incident(IncidentInput::Due), now));
    }
    let change = |effect| match effect {
        Effect::Incident(incident) => match incident.occurred.occurrence.clone() {
            Occurrence::Condition(change) => Some((*incident, change)),
            other => panic!("{other:?}"),
        },
        _ => None,
    };
    effects.into_iter().filter_map(change).collect()
}

/// Whether details are known when the incident is decided, and when it is settled.
#[test]
fn the_incident_of_a_problem_is_settled_with_details_that_are_being_read() {
    use LargestOwnersInput::Short;

    let read = || Input::LargestOwners(Short(Resource::Pids));
    let hog = || counted(Some("/system.slice/hog.service"));
    let none = || Some(counted(None));
    let ended = || changed("PIDsLow", Status::False);
    let rows = [
        (vec![], None, false, "nothing is read"),
        (vec![read(), hog()], None, true, "they were known"),
        (vec![read()], Some(hog()), true, "they are known later"),
        (vec![read()], none(), false, "no unit has tasks"),
        (vec![hog(), read()], none(), false, "those of a former read"),
        (
            vec![hog(), ended()],
            None,
            false,
            "those of a former problem",
        ),
    ];
    for (before, later, expected, why) in rows {
        let mut subjects = subjects();
        for input in before {
            play(&mut subjects, input, at(1000));
        }
        let first = changes(&mut subjects, changed("PIDsLow", Status::True), 1);
        let [(mut incident, mut change)]: [_; 1] = first.try_into().unwrap();
        assert_eq!(incident.settled, later.is_none(), "{why}");
        if let Some(later) = later {
            assert_eq!(change.details, None, "{why}");
            (incident, change) = changes(&mut subjects, later, 5).pop().unwrap();
        }
        assert!(incident.settled, "{why}");
        let details = change.details.unwrap_or_default();
        let is_known = details.starts_with("most tasks: hog.service (7)");
        assert_eq!(is_known, expected, "{why}: {details}");
    }
}

#[test]
fn an_incident_does_not_wait_longer_for_details_than_any_other() {
    let mut subjects = subjects();
    let read = Input::LargestOwners(LargestOwnersInput::Short(Resource::Pids));
    play(&mut subjects, read, at(1000));
    let first = changes(&mut subjects, changed("PIDsLow", Status::True), 0);
    assert!(!first[0].0.settled);
    let due = || Input::Incident(IncidentInput::Due);
    assert_eq!(changes(&mut subjects, due(), 3499), []);
    let last = changes(&mut subjects, due(), 3500);
    assert!(last[0].0.settled);
}

#[test]
fn the_end_of_a_problem_names_the_incident_with_which_it_began() {
    use Status::{False, True, Unknown};

    let recorded = |number| IncidentId {
        boot: BootId(9),
        number,
    };
    let last = |status, number: Option<u64>| LastChange {
        status,
        problem: number.map(recorded),
    };
    let mut setup = setup();
    setup.conditions = BTreeMap::from([
        ("PIDsLow".to_owned(), last(True, Some(1))),
        ("MemoryLow".to_owned(), last(Unknown, Some(2))),
        ("Ready".to_owned(), last(False, Some(3))),
    ]);
    let mut subjects = Subjects::new(&setup);
    let mut began = None;
    let rows = [
        ("PIDsLow", False, Some(Some(1)), "it began before the start"),
        ("PIDsLow", Unknown, None, "it is over"),
        ("PIDsLow", True, None, "it begins"),
        ("PIDsLow", Unknown, None, "it is not over"),
        ("PIDsLow", True, None, "nor does it begin again"),
        ("PIDsLow", False, Some(None), "it ends"),
        ("PIDsLow", False, None, "it had ended"),
        (
            "MemoryLow",
            False,
            Some(Some(2)),
            "it was Unknown before the start",
        ),
        ("MemoryLow", False, None, "it was no problem"),
        (
            "Ready",
            True,
            Some(Some(3)),
            "a node that is ready has no problem",
        ),
    ];
    for (type_, status, expected, why) in rows {
        let (incident, change) = changes(&mut subjects, changed(type_, status), 1).remove(0);
        let expected = expected.map(|number| number.map_or_else(|| began.unwrap(), recorded));
        assert_eq!(change.ended, expected, "{why}");
        if change.is_problem() == Some(true) {
            began.get_or_insert(incident.id);
        }
    }
}
