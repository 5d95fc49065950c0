use std::time::UNIX_EPOCH;

use super::CertificateOperation as Operation;
use super::*;

mod early;
mod rejected;

const DAY: Duration = Duration::from_hours(24);
const REQUEST: Operation = Operation::Request(RequestKey::Pending, Requester::Node);
const FIRST_REQUEST: Operation = Operation::Request(RequestKey::Pending, Requester::Bootstrap);

/// Wall time and boot time in seconds are the same here.
fn at(seconds: u64) -> Now {
    let passed = Duration::from_secs(seconds);
    Now {
        boot: BootNanos(0).plus(passed),
        wall: UNIX_EPOCH + passed,
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

fn day(percent: u64) -> u64 {
    DAY.as_secs() * percent / 100
}

fn start(operation: Operation) -> Vec<Effect> {
    vec![Effect::Certificate(operation)]
}

fn logged(notice: CertificateNotice) -> Effect {
    Effect::Log(Decision::Certificate(notice))
}

fn requested(requested: Requested) -> CertificateInput {
    CertificateInput::Requested(requested)
}

fn started(found: Result<Certificate, Problem>, seconds: u64, jitter: Jitter) -> Rotation {
    Rotation::new(RotationSetup {
        found,
        read_at: at(seconds),
        jitter,
    })
}

/// Without a certificate, at second 0 and without jitter.
fn without_certificate() -> Rotation {
    started(Err(Problem::Missing), 0, Jitter::NONE)
}

/// With a certificate from second 0 on for one day, whose successor is requested at 70 %.
fn with_certificate() -> Rotation {
    started(Ok(certificate(1, 0)), 0, Jitter::NONE)
}

/// The time at which `rotation` starts an operation, and the operation, if nothing else happens.
fn next(rotation: &mut Rotation, from: u64) -> (u64, Operation) {
    for seconds in from..from + 3 * DAY.as_secs() {
        match rotation.on(CertificateInput::Tick, at(seconds)).as_slice() {
            [] => {}
            [Effect::Certificate(operation)] | [Effect::Log(_), Effect::Certificate(operation)] => {
                return (seconds, *operation);
            }
            other => panic!("at {seconds}: {other:?}"),
        }
    }
    panic!("nothing happens");
}

/// The server accepts the pair that is being tried. Returns the effects of its use.
fn accept(rotation: &mut Rotation, pair: Pair, seconds: u64) -> Vec<Effect> {
    let tried = CertificateInput::Tried(Attempt::Accepted);
    assert_eq!(rotation.on(tried, at(seconds)), start(Operation::Use(pair)));
    rotation.on(CertificateInput::Used(Usage::Used), at(seconds))
}

#[test]
fn the_first_certificate_is_requested_polled_tried_and_used() {
    let mut rotation = without_certificate();
    assert_eq!(rotation.due(), Some(at(0).boot));
    let tick = CertificateInput::Tick;
    assert_eq!(rotation.on(tick, at(0)), start(FIRST_REQUEST));
    let pending = || requested(Requested::Pending("node-csr-1".to_owned()));
    let notice = CertificateNotice::Pending("node-csr-1".to_owned());
    assert_eq!(rotation.on(pending(), at(0)), [logged(notice)], "once");
    let mut seconds = 0;
    for expected in [1, 2, 4, 8, 16, 30, 30] {
        let polled = next(&mut rotation, seconds);
        let poll = Operation::Poll(Requester::Bootstrap);
        assert_eq!(polled, (seconds + expected, poll));
        seconds = polled.0;
        assert_eq!(rotation.on(pending(), at(seconds)), []);
    }
    let (seconds, _) = next(&mut rotation, seconds);
    let stored = requested(Requested::Stored(certificate(1, seconds)));
    let attempt = start(Operation::Try(Pair::Issued));
    assert_eq!(rotation.on(stored, at(seconds)), attempt);
    assert_eq!(rotation.current(), None, "not before it is accepted");
    let in_use = logged(CertificateNotice::InUse(certificate(1, seconds)));
    assert_eq!(accept(&mut rotation, Pair::Issued, seconds), [in_use]);
    assert_eq!(rotation.current(), Some(certificate(1, seconds)));
    assert_eq!(rotation.due(), None);
}

#[test]
fn the_successor_is_requested_between_70_and_90_percent_of_the_life() {
    let mut shares = BTreeSet::new();
    for seed in 1..=50 {
        let jitter = Jitter::seeded(seed);
        let rotation = started(Ok(certificate(1, 0)), 0, jitter);
        let requested = rotation.rotate_at.unwrap();
        let seconds = requested.duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!((day(70)..=day(90)).contains(&seconds), "{seed}: {seconds}");
        shares.insert(seconds * 100 / DAY.as_secs());
    }
    assert!(shares.len() > 15, "{shares:?}");
    assert_eq!(next(&mut with_certificate(), 0), (day(70), REQUEST));
}

#[test]
fn a_certificate_that_is_never_issued_ends_the_start_but_not_a_running_agent() {
    let tick = || CertificateInput::Tick;
    let pending = || requested(Requested::Pending("a".to_owned()));
    let mut rotation = without_certificate();
    rotation.on(tick(), at(0));
    rotation.on(pending(), at(0));
    let poll = start(Operation::Poll(Requester::Bootstrap));
    assert_eq!(rotation.on(tick(), at(3599)), poll);
    assert_eq!(rotation.on(pending(), at(3599)), []);
    assert_eq!(rotation.lost(), None);
    assert_eq!(rotation.on(tick(), at(3600)), [], "nothing follows");
    let lost = CertificateLost::NotIssued(FIRST_LIMIT);
    assert_eq!(rotation.lost(), Some(lost));

    let mut rotation = with_certificate();
    let (seconds, _) = next(&mut rotation, 0);
    rotation.on(pending(), at(seconds));
    rotation.on(tick(), at(seconds + 3600));
    let still = logged(CertificateNotice::StillPending("a".to_owned()));
    assert_eq!(rotation.on(pending(), at(seconds + 3600)), [still]);
    rotation.on(tick(), at(seconds + 3700));
    assert_eq!(rotation.on(pending(), at(seconds + 3700)), [], "once");
}

#[test]
fn each_failed_request_is_repeated_later_and_logged_once() {
    use Requested::{Deleted, Denied, Foreign, NotStored, Refused, Unanswered, Unusable};

    let text = || "why".to_owned();
    let other_user = Problem::OtherUser("CN=a".to_owned());
    let not_yet = Problem::NotYetValid(UNIX_EPOCH);
    let renewed = Operation::Request(RequestKey::New, Requester::Node);
    // result, logged, what follows, its delay in s
    #[rustfmt::skip]
    let rows = [
        (Denied(text()), Some(CertificateNotice::Denied(text())), renewed, 60),
        (Foreign, Some(CertificateNotice::Foreign), renewed, 60),
        (Unusable(other_user.clone()), Some(CertificateNotice::IssuedUnusable(other_user)), renewed, 60),
        (Unusable(not_yet.clone()), Some(CertificateNotice::IssuedUnusable(not_yet)),
            Operation::Poll(Requester::Node), 60),
        (NotStored(text()), Some(CertificateNotice::NotStored(text())), REQUEST, 10),
        (Refused(text()), Some(CertificateNotice::NotRequested(text())), REQUEST, 10),
        (Unanswered(text()), Some(CertificateNotice::NotRequested(text())), REQUEST, 10),
        (Deleted, None, REQUEST, 1),
    ];
    for (result, notice, operation, delay) in rows {
        let mut rotation = with_certificate();
        let (seconds, _) = next(&mut rotation, 0);
        let effects = rotation.on(requested(result.clone()), at(seconds));
        let expected: Vec<_> = notice.into_iter().map(logged).collect();
        assert_eq!(effects, expected, "{result:?}");
        let (again, started) = next(&mut rotation, seconds);
        assert_eq!((again, started), (seconds + delay, operation), "{result:?}");
        let effects = rotation.on(requested(result.clone()), at(again));
        assert_eq!(effects, [], "{result:?} is logged once");
        let later = next(&mut rotation, again).0 - again;
        assert!(delay < later, "{result:?}: the delay doubles");
    }
}

#[test]
fn an_expired_certificate_ends_the_process_only_if_the_server_answers() {
    let end = day(100);
    for answers in [false, true] {
        let mut rotation = with_certificate();
        let (seconds, _) = next(&mut rotation, 0);
        let silent = || requested(Requested::Unanswered("no route".to_owned()));
        rotation.on(silent(), at(seconds));
        let (again, _) = next(&mut rotation, seconds);
        assert!(again < end);
        // Under way until the certificate has expired.
        let tick = CertificateInput::Tick;
        assert_eq!(rotation.on(tick, at(end)), [], "one at a time");
        assert_eq!(rotation.on(silent(), at(end)), start(Operation::Probe));
        let probed = CertificateInput::Probed {
            found: Err(Problem::Expired(UNIX_EPOCH + DAY)),
            answers,
        };
        let effects = rotation.on(probed, at(end));
        if answers {
            let lost = CertificateLost::Expired(UNIX_EPOCH + DAY);
            assert_eq!((effects, rotation.lost()), (vec![], Some(lost)));
        } else {
            assert_eq!(effects, [logged(CertificateNotice::ExpiredUnanswered)]);
            assert_eq!(next(&mut rotation, end), (end + 10, Operation::Probe));
        }
    }
    // Another program has replaced it.
    let mut rotation = with_certificate();
    let tick = CertificateInput::Tick;
    assert_eq!(rotation.on(tick, at(end)), start(Operation::Probe));
    let replaced = CertificateInput::Probed {
        found: Ok(certificate(2, end)),
        answers: true,
    };
    let attempt = start(Operation::Try(Pair::Current));
    assert_eq!(rotation.on(replaced, at(end)), attempt);
    accept(&mut rotation, Pair::Current, end);
    assert_eq!(rotation.current(), Some(certificate(2, end)));
}

#[test]
fn a_changed_file_is_used_if_the_server_accepts_it() {
    use CertificateInput::{FilesChanged, Read, Tried, Used};

    let mut rotation = with_certificate();
    assert_eq!(rotation.on(FilesChanged, at(5)), start(Operation::Read));
    assert_eq!(rotation.on(FilesChanged, at(5)), [], "one at a time");
    let same = Read(Ok(certificate(1, 0)));
    assert_eq!(rotation.on(same, at(5)), start(Operation::Read), "again");
    let open = || Problem::ReadableByOthers(0o644);
    let notice = logged(CertificateNotice::StoredUnusable(open()));
    assert_eq!(rotation.on(Read(Err(open())), at(5)), [notice]);
    rotation.on(FilesChanged, at(6));
    assert_eq!(rotation.on(Read(Err(open())), at(6)), [], "once");
    assert_eq!(rotation.current(), Some(certificate(1, 0)), "kept");

    let attempt = start(Operation::Try(Pair::Current));
    rotation.on(FilesChanged, at(7));
    let rejected = Read(Ok(certificate(3, 7)));
    assert_eq!(rotation.on(rejected, at(7)), attempt);
    assert_eq!(rotation.on(Tried(Attempt::Rejected), at(7)), []);
    rotation.on(CertificateInput::Tick, at(187));
    let notice = logged(CertificateNotice::PairRejected(Pair::Current));
    let rejected = rotation.on(Tried(Attempt::Rejected), at(187));
    assert_eq!(rejected, [notice], "nothing is requested");
    assert_eq!(
        (rotation.current(), rotation.due()),
        (Some(certificate(1, 0)), None)
    );

    rotation.on(FilesChanged, at(200));
    let other = certificate(2, 200);
    assert_eq!(rotation.on(Read(Ok(other)), at(200)), attempt);
    rotation.on(Tried(Attempt::Accepted), at(200));
    // It could not be read at that moment.
    assert_eq!(rotation.on(Used(Usage::NotRead), at(200)), []);
    let again = next(&mut rotation, 200);
    assert_eq!(again, (220, Operation::Try(Pair::Current)));
    accept(&mut rotation, Pair::Current, 220);
    assert_eq!(rotation.current(), Some(other));
    // The key of an earlier request belongs to an earlier certificate.
    let renewed = Operation::Request(RequestKey::New, Requester::Node);
    assert_eq!(next(&mut rotation, 220), (200 + day(70), renewed));
}

#[test]
fn a_pair_that_cannot_be_stored_is_requested_again() {
    let mut rotation = with_certificate();
    let (seconds, _) = next(&mut rotation, 0);
    let stored = requested(Requested::Stored(certificate(2, seconds)));
    rotation.on(stored, at(seconds));
    rotation.on(CertificateInput::Tried(Attempt::Accepted), at(seconds));
    let full = CertificateInput::Used(Usage::NotStored("disk full".to_owned()));
    let notice = logged(CertificateNotice::NotStored("disk full".to_owned()));
    assert_eq!(rotation.on(full, at(seconds)), [notice]);
    assert_eq!(rotation.current(), Some(certificate(1, 0)));
    assert_eq!(next(&mut rotation, seconds), (seconds + 10, REQUEST));
}

#[test]
fn a_stored_certificate_that_is_not_valid_yet_waits_for_the_clock() {
    let later = || Problem::NotYetValid(UNIX_EPOCH + DAY);
    let mut rotation = started(Err(later()), 0, Jitter::NONE);
    assert_eq!(next(&mut rotation, 0), (10, Operation::Read));
    let notice = logged(CertificateNotice::StoredUnusable(later()));
    let read = CertificateInput::Read(Err(later()));
    assert_eq!(rotation.on(read, at(10)), [notice]);
    let (seconds, operation) = next(&mut rotation, 10);
    assert_eq!(operation, Operation::Read);
    let found = CertificateInput::Read(Ok(certificate(1, 0)));
    let attempt = start(Operation::Try(Pair::Current));
    assert_eq!(rotation.on(found, at(seconds)), attempt);

    // Removed meanwhile: the first one is requested.
    let mut rotation = started(Err(later()), 0, Jitter::NONE);
    let (seconds, _) = next(&mut rotation, 0);
    let missing = CertificateInput::Read(Err(Problem::Missing));
    assert_eq!(rotation.on(missing, at(seconds)), start(FIRST_REQUEST));
}
