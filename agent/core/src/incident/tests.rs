//! The invariant, over random interleavings: the kills of the recorded incidents are the kernel's
//! count, and each sink gets each incident, or its number in a summary, exactly once but for the
//! writes whose answers were lost or that a crash cut off.

use proptest::collection::vec;
use proptest::prelude::*;

mod agent;
mod kernel;
mod out_of_order;
mod receiver;
mod world;

use world::World;

/// What happens next. Numbers select one of what there is.
#[derive(Debug, Clone, Copy)]
enum Step {
    Wait {
        millis: u16,
    },
    /// A process is killed, and its record may be lost.
    Kill {
        place: u8,
        recorded: bool,
    },
    /// A container is killed as a whole. The kernel may count its first process twice.
    KillGroup {
        place: u8,
        processes: u8,
        twice: bool,
    },
    RemovePod {
        place: u8,
    },
    /// The agent reads records, and learns of lost ones.
    Read {
        records: u8,
    },
    /// Memory is sampled, after which counters are read that are due.
    Sample,
    /// A query that can wait is answered.
    Answer,
    /// The kills that are recorded so far are saved, or a write of them is lost.
    Save,
    /// The watch reports a pod.
    SeePod {
        place: u8,
    },
    /// Another query about an incident is answered.
    Learn,
    /// A sink delivers what is next.
    Deliver {
        sink: u8,
        outcome: Outcome,
    },
    Sigkill,
    /// The power fails, with the last entries of the history.
    PowerCut {
        entries: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Accepted,
    /// The receiver refuses it for good.
    Refused,
    NotReached,
    /// The receiver has it, and the agent does not learn that.
    AnswerLost,
    /// The answer comes with the next step of this sink.
    Slow,
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        8 => Just(Outcome::Accepted),
        1 => Just(Outcome::Refused),
        2 => Just(Outcome::NotReached),
        1 => Just(Outcome::AnswerLost),
        2 => Just(Outcome::Slow),
    ];
    prop_oneof![
        8 => (1..4000_u16).prop_map(|millis| Step::Wait { millis }),
        12 => (any::<u8>(), prop::bool::weighted(0.8))
            .prop_map(|(place, recorded)| Step::Kill { place, recorded }),
        3 => (any::<u8>(), 2..6_u8, any::<bool>())
            .prop_map(|(place, processes, twice)| Step::KillGroup { place, processes, twice }),
        1 => any::<u8>().prop_map(|place| Step::RemovePod { place }),
        10 => (0..6_u8).prop_map(|records| Step::Read { records }),
        8 => Just(Step::Sample),
        8 => Just(Step::Answer),
        4 => Just(Step::Save),
        2 => any::<u8>().prop_map(|place| Step::SeePod { place }),
        4 => Just(Step::Learn),
        24 => (0..3_u8, outcome).prop_map(|(sink, outcome)| Step::Deliver { sink, outcome }),
        1 => Just(Step::Sigkill),
        1 => (0..4_u8).prop_map(|entries| Step::PowerCut { entries }),
    ]
}

proptest! {
    // A failure prints the smallest steps, and writes no file.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_kill_is_in_one_incident_and_every_sink_gets_each_incident_once(
        nested in any::<bool>(),
        steps in vec(step(), 1..300),
    ) {
        let mut world = World::new(nested);
        for step in steps {
            world.perform(step);
        }
        world.come_to_rest();
        world.check();
    }
}
