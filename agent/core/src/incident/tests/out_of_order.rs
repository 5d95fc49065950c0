//! A sink that does not wait for each answer: whatever happens, its cursor has what was
//! acknowledged or removed, and nothing else.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{
    BootId, Cursor, Entry, IncidentId, JsonIncident, JsonObject, Position, Revision,
};

#[derive(Debug, Clone, Copy)]
enum Step {
    Take,
    /// The answer about one of those that wait for it.
    Answer(u8),
    /// Everything up to a later revision is removed from the history.
    Remove(u8),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Take),
        8 => any::<u8>().prop_map(Step::Answer),
        1 => (1..4_u8).prop_map(Step::Remove),
        1 => Just(Step::Restart),
    ]
}

fn revision(position: Position) -> Revision {
    Revision {
        position,
        id: IncidentId {
            boot: BootId(0),
            number: position.0,
        },
        kills: 0,
        settled: true,
    }
}

fn entry(position: u64) -> Entry {
    Entry {
        position: Position(position),
        added: crate::kube_event::ReportedKills::default(),
        incident: JsonIncident {
            api_version: String::new(),
            id: position.to_string(),
            revision: 1,
            settled: true,
            time: String::new(),
            until: None,
            object: JsonObject::default(),
            reason: String::new(),
            message: String::new(),
            facts: None,
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_restart_delivers_what_was_not_acknowledged(steps in vec(step(), 1..200)) {
        let mut cursor = Cursor::default();
        let (mut taken, mut pending, mut done) = (0, BTreeSet::new(), BTreeSet::new());
        for step in steps {
            match step {
                Step::Take => {
                    taken += 1;
                    if !cursor.has(Position(taken)) {
                        pending.insert(Position(taken));
                    }
                }
                Step::Answer(which) => {
                    let which = usize::from(which) % pending.len().max(1);
                    let Some(position) = pending.iter().nth(which).copied() else {
                        continue;
                    };
                    pending.remove(&position);
                    done.insert(position);
                    let first = pending.first().copied().unwrap_or(Position(taken + 1));
                    cursor.delivered_before(&revision(position), first);
                }
                Step::Remove(further) => {
                    let last = taken + u64::from(further);
                    for position in taken + 1..=last {
                        done.insert(Position(position));
                        let id = IncidentId { boot: BootId(1), number: position };
                        let reached = Position(position - 1).max(cursor.position());
                        cursor.removed(&entry(position), reached, || id);
                    }
                    taken = last;
                }
                Step::Restart => {
                    let saved = serde_json::to_string(&cursor).unwrap();
                    cursor = serde_json::from_str(&saved).unwrap();
                    pending.clear();
                    taken = cursor.position().0;
                }
            }
            for position in (1..taken + 5).map(Position) {
                prop_assert_eq!(cursor.has(position), done.contains(&position), "{:?}", position);
            }
        }
        for position in pending {
            done.insert(position);
            let last = Position(taken + 1);
            cursor.delivered_before(&revision(position), last);
        }
        // Positions that were not taken again are still above.
        let last = done.last().copied().unwrap_or_default();
        prop_assert!(cursor.position() <= last);
    }
}
