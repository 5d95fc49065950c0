use super::*;
use crate::tests::boot as at;

const TYPE: &str = "PIDPressure";

fn times(exceeded: Exceeded) -> Times {
    BTreeMap::from([(TYPE, exceeded)])
}

/// Returns true if the file is written, and the time that it then contains.
fn check(file: &mut SavedState, exceeded: Exceeded, seconds: u64) -> (bool, Option<SavedTime>) {
    let effect = file.check(&times(exceeded), at(seconds));
    (effect.is_some(), file.saved(TYPE))
}

fn writable() -> SavedState {
    let mut file = SavedState::new(true);
    assert_eq!(file.recall(&Previous::Unknown), []);
    file
}

#[test]
fn saved_times_are_never_too_early_and_cause_few_writes() {
    use Exceeded::{At, Never, Now};
    let mut file = writable();
    let known = |seconds| Some(Some(at(seconds)));
    // At s, exceeded, the file is written, time in the file.
    #[rustfmt::skip]
    let script = [
        (0, Never, false, None, "nothing to save"),
        (100, Now, true, known(130), "at once, with the lead"),
        (105, Now, false, known(130), "covered"),
        (117, Now, false, known(130), "until the next sample too"),
        (119, Now, true, known(149), "the lead is used up"),
        (124, At(at(119)), false, known(149), "a correction is not urgent"),
        (126, Now, false, known(149), "flapping costs nothing"),
        (149, At(at(126)), true, known(126), "corrected"),
        (200, At(at(126)), false, known(126), "unchanged"),
        (426, Never, true, Some(None), "it has ended"),
        (430, At(at(430)), true, known(430), "a kill"),
    ];
    for (seconds, exceeded, written, time, why) in script {
        let found = check(&mut file, exceeded, seconds);
        assert_eq!(found, (written, time), "at {seconds} s: {why}");
    }
    file.be_exact();
    let exact = file.times_to_save(&times(Now), at(500));
    assert_eq!(exact[TYPE], Some(at(500)));
}

#[test]
fn a_storm_of_kills_causes_few_writes() {
    let mut file = writable();
    let mut writes = Vec::new();
    for seconds in 100..200 {
        let (written, time) = check(&mut file, Exceeded::At(at(seconds)), seconds);
        assert!(time >= Some(Some(at(seconds))), "never too early");
        if written {
            writes.push(seconds);
        }
    }
    assert_eq!(writes, [100, 101, 132, 133, 164, 165, 196, 197]);
    assert_eq!(
        check(&mut file, Exceeded::At(at(199)), 227),
        (true, Some(Some(at(199)))),
        "exact after the storm"
    );
}

#[test]
fn an_unknown_time_is_not_saved_before_the_node_was_read() {
    let mut file = writable();
    assert_eq!(check(&mut file, Exceeded::Never, 1), (false, None));
    let types = vec![TYPE.to_owned()];
    assert_eq!(file.adopt(types.clone()), types, "it was not known");
    assert_eq!(check(&mut file, Exceeded::Never, 2), (true, Some(None)));

    let mut next = SavedState::new(true);
    let saved = file.known().unwrap().clone();
    assert_eq!(next.recall(&Previous::SameBoot(saved)), []);
    let types = [TYPE, "PIDsLow"].map(str::to_owned).to_vec();
    let adopted = next.adopt(types);
    assert_eq!(adopted, ["PIDsLow"], "`None` is known too");
}

#[test]
fn the_file_is_not_overwritten_before_its_content_is_known() {
    for boot_known in [true, false] {
        let mut file = SavedState::new(boot_known);
        assert_eq!(file.check(&times(Exceeded::Now), at(1)), None);
        assert!(!file.is_writing());
    }
}

#[test]
fn only_the_first_recall_has_an_effect() {
    let mut file = SavedState::new(true);
    let saved = Saved {
        exceeded: BTreeMap::from([(TYPE.to_owned(), Some(at(7)))]),
        ..Saved::default()
    };
    let previous = Previous::SameBoot(saved);
    assert_eq!(file.recall(&previous), [(TYPE.to_owned(), at(7))]);
    assert_eq!(file.recall(&previous), []);
    assert_eq!(file.saved(TYPE), Some(Some(at(7))));
}
