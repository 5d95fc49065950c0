use std::time::UNIX_EPOCH;

use super::*;

const DAY: Duration = Duration::from_hours(24);

/// Wall time and boot time in seconds are the same here.
fn moment(seconds: u64) -> Moment {
    let passed = Duration::from_secs(seconds);
    Moment {
        now: Now {
            boot: BootNanos(0).plus(passed),
            wall: UNIX_EPOCH + passed,
        },
        random: 0.5,
    }
}

fn certificate(fingerprint: u64, from: u64) -> Certificate {
    let not_before = UNIX_EPOCH + Duration::from_secs(from);
    Certificate {
        fingerprint,
        not_before,
        not_after: not_before + DAY,
        stored: None,
    }
}

fn day(share: u64) -> u64 {
    DAY.as_secs() * share / 100
}

fn start(operation: Operation) -> Vec<Effect> {
    vec![Effect::Start(operation)]
}

const REQUEST: Operation = Operation::Request(RequestKey::Pending);

/// A life with a certificate from 0 to one day.
fn with_certificate() -> Life {
    Life::new(&Ok(certificate(1, 0)), moment(0))
}

/// The time at which `life` starts an operation, and the operation, if nothing else happens.
fn next(life: &mut Life, from: u64) -> (u64, Operation) {
    for seconds in from..from + 3 * DAY.as_secs() {
        match life.on(Input::Time, moment(seconds)).as_slice() {
            [] => {}
            [Effect::Start(operation)] => return (seconds, *operation),
            other => panic!("at {seconds}: {other:?}"),
        }
    }
    panic!("nothing happens");
}

#[test]
fn the_first_certificate_is_requested_polled_and_used() {
    let mut life = Life::new(&Err(Problem::Missing), moment(0));
    assert_eq!(life.due(), Some(moment(0).now.boot));
    assert_eq!(life.on(Input::Time, moment(0)), start(REQUEST));
    let pending = || Input::Requested(Requested::Pending("node-csr-1".to_owned()));
    let logged = Effect::Log(Notice::Pending("node-csr-1".to_owned()));
    assert_eq!(life.on(pending(), moment(0)), [logged], "logged once");
    // Half of the spread, which is half of the pause: 1.25 s, 2.5 s, … 30 s and 7.5 s.
    let mut at = 0;
    for expected in [2, 3, 5, 10, 20, 38, 38] {
        let polled = next(&mut life, at);
        assert_eq!(polled, (at + expected, Operation::Poll));
        at = polled.0;
        assert_eq!(life.on(pending(), moment(at)), []);
    }
    let (at, _) = next(&mut life, at);
    let stored = Input::Requested(Requested::Stored(certificate(1, at)));
    assert_eq!(life.on(stored, moment(at)), start(Operation::Use));
    let in_use = Effect::Log(Notice::InUse(certificate(1, at)));
    assert_eq!(life.on(Input::Used(true), moment(at)), [in_use]);
    assert_eq!(life.due(), None);
}

#[test]
fn the_successor_is_requested_between_70_and_90_percent_of_the_life() {
    let rows = [(0.0, 70), (0.5, 80), (0.999_999, 90)];
    for (random, percent) in rows {
        let found = Ok(certificate(1, 0));
        let mut life = Life::new(
            &found,
            Moment {
                random,
                ..moment(0)
            },
        );
        let (at, operation) = next(&mut life, 0);
        assert_eq!(operation, REQUEST, "{random}");
        assert!(at.abs_diff(day(percent)) <= 1, "{random}: {at}");
    }
}

#[test]
fn a_certificate_that_is_never_issued_ends_the_start_but_not_a_running_agent() {
    let pending = || Input::Requested(Requested::Pending("a".to_owned()));
    let mut life = Life::new(&Err(Problem::Missing), moment(0));
    life.on(Input::Time, moment(0));
    life.on(pending(), moment(0));
    assert_eq!(life.on(Input::Time, moment(3599)), start(Operation::Poll));
    assert_eq!(life.on(pending(), moment(3599)), []);
    let exit = Effect::Exit(Exit::NotIssued(FIRST_LIMIT));
    assert_eq!(life.on(Input::Time, moment(3600)), [exit]);
    assert_eq!(life.on(Input::Time, moment(3601)), [], "nothing follows");

    let mut life = with_certificate();
    let (at, _) = next(&mut life, 0);
    life.on(pending(), moment(at));
    life.on(Input::Time, moment(at + 3600));
    let still = Effect::Log(Notice::StillPending("a".to_owned()));
    assert_eq!(life.on(pending(), moment(at + 3600)), [still]);
    life.on(Input::Time, moment(at + 3700));
    assert_eq!(life.on(pending(), moment(at + 3700)), [], "logged once");
}

#[test]
fn each_failed_request_is_repeated_later_and_logged_once() {
    use Requested::{Deleted, Denied, Foreign, NotStored, Refused, Unanswered, Unusable};

    let text = || "why".to_owned();
    let other_user = Problem::OtherUser("CN=a".to_owned());
    let not_yet = Problem::NotYetValid(UNIX_EPOCH);
    let renewed = Operation::Request(RequestKey::New);
    // result, logged, what follows, its pause with half of the spread
    let rows = [
        (Denied(text()), Some(Notice::Denied(text())), renewed, 75),
        (Foreign, Some(Notice::Foreign), renewed, 75),
        (
            Unusable(other_user.clone()),
            Some(Notice::IssuedUnusable(other_user)),
            renewed,
            75,
        ),
        (
            Unusable(not_yet.clone()),
            Some(Notice::IssuedUnusable(not_yet)),
            Operation::Poll,
            75,
        ),
        (
            NotStored(text()),
            Some(Notice::NotStored(text())),
            REQUEST,
            13,
        ),
        (
            Refused(text()),
            Some(Notice::NotRequested(text())),
            REQUEST,
            13,
        ),
        (
            Unanswered(text()),
            Some(Notice::NotRequested(text())),
            REQUEST,
            13,
        ),
        (Deleted, None, REQUEST, 2),
    ];
    for (result, logged, operation, pause) in rows {
        let mut life = with_certificate();
        let (at, _) = next(&mut life, 0);
        let effects = life.on(Input::Requested(result.clone()), moment(at));
        let expected: Vec<_> = logged.into_iter().map(Effect::Log).collect();
        assert_eq!(effects, expected, "{result:?}");
        let (again, started) = next(&mut life, at);
        assert_eq!((again, started), (at + pause, operation), "{result:?}");
        let effects = life.on(Input::Requested(result.clone()), moment(again));
        assert_eq!(effects, [], "{result:?} is logged once");
        let later = next(&mut life, again).0 - again;
        assert!(pause < later, "{result:?}: the pause doubles");
    }
}

#[test]
fn an_expired_certificate_ends_the_process_only_if_the_server_answers() {
    let end = day(100);
    let rows = [(false, false), (true, true)];
    for (answers, exits) in rows {
        let mut life = with_certificate();
        let (at, _) = next(&mut life, 0);
        let silent = Input::Requested(Requested::Unanswered("no route".to_owned()));
        life.on(silent, moment(at));
        let (again, _) = next(&mut life, at);
        // Under way until the certificate has expired.
        assert_eq!(life.on(Input::Time, moment(end)), [], "one at a time");
        let silent = Input::Requested(Requested::Unanswered("no route".to_owned()));
        assert!(again < end);
        assert_eq!(life.on(silent, moment(end)), start(Operation::Probe));
        let found = || Err(Problem::Expired(UNIX_EPOCH + DAY));
        let probed = |answers| Input::Probed {
            found: found(),
            answers,
        };
        if exits {
            let exit = Effect::Exit(Exit::Expired(UNIX_EPOCH + DAY));
            assert_eq!(life.on(probed(answers), moment(end)), [exit]);
        } else {
            let logged = Effect::Log(Notice::ExpiredUnanswered);
            assert_eq!(life.on(probed(answers), moment(end)), [logged]);
            let (later, operation) = next(&mut life, end);
            assert_eq!((later, operation), (end + 13, Operation::Probe));
        }
    }
    // Another program has replaced it.
    let mut life = with_certificate();
    assert_eq!(life.on(Input::Time, moment(end)), start(Operation::Probe));
    let replaced = Input::Probed {
        found: Ok(certificate(2, end)),
        answers: true,
    };
    assert_eq!(life.on(replaced, moment(end)), start(Operation::Use));
}

#[test]
fn a_changed_file_is_used_if_it_can_be() {
    let mut life = with_certificate();
    assert_eq!(
        life.on(Input::FilesChanged, moment(5)),
        start(Operation::Read)
    );
    assert_eq!(life.on(Input::FilesChanged, moment(5)), [], "one at a time");
    let same = Input::Read(Ok(certificate(1, 0)));
    assert_eq!(life.on(same, moment(5)), start(Operation::Read), "again");
    let open = || Problem::ReadableByOthers(0o644);
    let logged = Effect::Log(Notice::StoredUnusable(open()));
    assert_eq!(life.on(Input::Read(Err(open())), moment(5)), [logged]);
    life.on(Input::FilesChanged, moment(6));
    assert_eq!(life.on(Input::Read(Err(open())), moment(6)), [], "once");
    assert_eq!(life.current(), Some(certificate(1, 0)), "kept");

    life.on(Input::FilesChanged, moment(7));
    let other = certificate(2, 7);
    assert_eq!(
        life.on(Input::Read(Ok(other)), moment(7)),
        start(Operation::Use)
    );
    // It could not be read at that moment.
    assert_eq!(life.on(Input::Used(false), moment(7)), []);
    assert_eq!(next(&mut life, 7), (20, Operation::Use));
    life.on(Input::Used(true), moment(20));
    // The key of an earlier request belongs to an earlier certificate.
    let (at, operation) = next(&mut life, 20);
    assert_eq!(operation, Operation::Request(RequestKey::New));
    assert!(at.abs_diff(7 + day(80)) <= 1, "{at}");
}

#[test]
fn a_stored_certificate_that_is_not_valid_yet_waits_for_the_clock() {
    let later = Problem::NotYetValid(UNIX_EPOCH + DAY);
    let mut life = Life::new(&Err(later.clone()), moment(0));
    let (at, operation) = next(&mut life, 0);
    assert_eq!((at, operation), (13, Operation::Read));
    let logged = Effect::Log(Notice::StoredUnusable(later.clone()));
    assert_eq!(life.on(Input::Read(Err(later)), moment(at)), [logged]);
    let (at, operation) = next(&mut life, at);
    assert_eq!(operation, Operation::Read);
    let found = Input::Read(Ok(certificate(1, 0)));
    assert_eq!(life.on(found, moment(at)), start(Operation::Use));

    // Removed meanwhile: the first one is requested.
    let mut life = Life::new(&Err(Problem::NotYetValid(UNIX_EPOCH + DAY)), moment(0));
    let (at, _) = next(&mut life, 0);
    assert_eq!(
        life.on(Input::Read(Err(Problem::Missing)), moment(at)),
        start(REQUEST)
    );
}

/// A certificate with this life in seconds, issued and stored at `at` with `left` until its expiry.
fn issued(at: u64, life: u64, left: u64) -> Certificate {
    let time = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    Certificate {
        fingerprint: at,
        not_before: time(at + left - life),
        not_after: time(at + left),
        stored: Some(time(at)),
    }
}

#[test]
fn a_certificate_that_is_issued_past_its_rotation_point_is_replaced_after_a_delay() {
    // The point is at 70 % of the life.
    let adopted = |seconds| Moment {
        random: 0.0,
        ..moment(seconds)
    };
    // name, life and time to the expiry when issued in s, delays of the next requests in s, lines
    let rows: [(&str, u64, u64, &[u64], usize); 5] = [
        ("a tenth, then twice that", 36_000, 10_000, &[1000, 2000], 1),
        (
            "before the expiry",
            36_000,
            6000,
            &[600, 1200, 2400, 4500, 4500],
            1,
        ),
        (
            "less is left than a tenth of its life",
            36_000,
            400,
            &[60, 120, 240, 300],
            1,
        ),
        ("never less than a minute", 300, 80, &[60, 60, 60], 1),
        ("not past it", 36_000, 12_600, &[1800, 1800], 0),
    ];
    for (name, duration, left, delays, expected) in rows {
        let mut life = Life::new(&Err(Problem::Missing), moment(1_000_000));
        let (mut at, mut lines) = (next(&mut life, 1_000_000).0, 0);
        for (nth, delay) in delays.iter().enumerate() {
            let stored = Input::Requested(Requested::Stored(issued(at, duration, left)));
            assert_eq!(life.on(stored, adopted(at)), start(Operation::Use));
            let used = life.on(Input::Used(true), moment(at));
            lines += used.iter().filter(|effect| is_early(effect)).count();
            let (again, operation) = next(&mut life, at);
            assert_eq!((again - at, operation), (*delay, REQUEST), "{name}: {nth}");
            at = again;
        }
        assert_eq!(lines, expected, "{name}");
        // A healthy one ends it: the next delay is not doubled.
        let healthy = Input::Requested(Requested::Stored(issued(at, duration, duration)));
        life.on(healthy, adopted(at));
        life.on(Input::Used(true), moment(at));
        let (again, _) = next(&mut life, at);
        assert!(
            again.abs_diff(at + duration * 7 / 10) <= 1,
            "{name}: {again}"
        );
        life.on(
            Input::Requested(Requested::Stored(issued(again, 36_000, 10_000))),
            adopted(again),
        );
        life.on(Input::Used(true), moment(again));
        assert_eq!(next(&mut life, again), (again + 1000, REQUEST), "{name}");
    }
}

fn is_early(effect: &Effect) -> bool {
    matches!(effect, Effect::Log(Notice::IssuedPastRotation(..)))
}

#[test]
fn a_start_with_such_a_certificate_requests_another_one_only_after_the_delay() {
    let at = 1_000_000;
    let unknown = Certificate {
        stored: None,
        ..issued(at, 36_000, 7000)
    };
    // name, certificate, time of the start, time of the request
    let rows = [
        ("just stored", issued(at, 36_000, 7000), at, at + 700),
        (
            "half of the delay ago",
            issued(at, 36_000, 7000),
            at + 350,
            at + 700,
        ),
        ("longer ago", issued(at, 36_000, 7000), at + 800, at + 800),
        ("in the future", issued(at, 36_000, 7000), at - 50, at + 650),
        ("at an unknown time", unknown, at, at),
    ];
    for (name, certificate, from, expected) in rows {
        let mut life = Life::new(&Ok(certificate), moment(from));
        let first = life.on(Input::Time, moment(from));
        if expected == from {
            assert_eq!(first, start(REQUEST), "{name}");
            continue;
        }
        assert!(
            matches!(first.as_slice(), [one] if is_early(one)),
            "{name}: {first:?}"
        );
        assert_eq!(next(&mut life, from), (expected, REQUEST), "{name}");
    }
}

#[test]
fn a_certificate_that_expires_within_the_delay_ends_the_process_after_it() {
    let at = 1_000_000;
    let mut life = Life::new(&Ok(issued(at, 36_000, 30)), moment(at));
    life.on(Input::Time, moment(at));
    let mut probe = next(&mut life, at);
    assert_eq!(probe, (at + 30, Operation::Probe));
    let exit = loop {
        let probed = Input::Probed {
            found: Err(Problem::Expired(UNIX_EPOCH)),
            answers: true,
        };
        match life.on(probed, moment(probe.0)).as_slice() {
            [] => probe = next(&mut life, probe.0),
            [Effect::Exit(Exit::Expired(_))] => break probe.0,
            other => panic!("{other:?}"),
        }
    };
    assert!((at + 60..at + 110).contains(&exit), "{}", exit - at);
}
