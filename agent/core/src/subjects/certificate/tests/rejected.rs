//! Certificates that the API server rejects, or of which it is unknown.

use super::*;

#[test]
fn a_new_certificate_that_is_rejected_leaves_the_one_in_use() {
    let mut rotation = with_certificate();
    let (seconds, _) = next(&mut rotation, 0);
    let stored = requested(Requested::Stored(certificate(2, seconds)));
    assert_eq!(
        rotation.on(stored, at(seconds)),
        start(Operation::Try(Pair::Issued))
    );
    let unknown = CertificateInput::Tried(Attempt::Unknown("no route".to_owned()));
    let notice = logged(CertificateNotice::NotTried("no route".to_owned()));
    assert_eq!(rotation.on(unknown, at(seconds)), [notice]);
    let (tried, operation) = next(&mut rotation, seconds);
    assert_eq!(
        (tried, operation),
        (seconds + 10, Operation::Try(Pair::Issued))
    );
    let rejected = || CertificateInput::Tried(Attempt::Rejected);
    // Another API server may not know the authority yet.
    assert_eq!(rotation.on(rejected(), at(tried)), []);
    let notice = logged(CertificateNotice::PairRejected(Pair::Issued));
    let (tried, _) = next(&mut rotation, tried + 180);
    assert_eq!(rotation.on(rejected(), at(tried)), [notice]);
    assert_eq!(rotation.current(), Some(certificate(1, 0)));
    let renewed = Operation::Request(RequestKey::New, Requester::Node);
    let (again, operation) = next(&mut rotation, tried);
    assert_eq!((again, operation), (tried + 60, renewed));
    let stored = requested(Requested::Stored(certificate(3, again)));
    rotation.on(stored, at(again));
    accept(&mut rotation, Pair::Issued, again);
    assert_eq!(rotation.current(), Some(certificate(3, again)));
}

#[test]
fn a_certificate_that_is_rejected_again_and_again_is_requested_ever_later() {
    let mut rotation = with_certificate();
    let (mut seconds, _) = next(&mut rotation, 0);
    let mut delays = Vec::new();
    for fingerprint in 2..6 {
        let pending = requested(Requested::Pending("a".to_owned()));
        rotation.on(pending, at(seconds));
        seconds = next(&mut rotation, seconds).0;
        let stored = requested(Requested::Stored(certificate(fingerprint, seconds)));
        rotation.on(stored, at(seconds));
        let rejected = || CertificateInput::Tried(Attempt::Rejected);
        rotation.on(rejected(), at(seconds));
        rotation.on(CertificateInput::Tick, at(seconds + 180));
        rotation.on(rejected(), at(seconds + 180));
        let again = next(&mut rotation, seconds + 180);
        delays.push(again.0 - seconds - 180);
        seconds = again.0;
    }
    assert_eq!(delays, [60, 120, 240, 480]);
}

#[test]
fn a_first_answer_of_401_after_an_outage_discards_no_certificate() {
    let mut rotation = with_certificate();
    let (seconds, _) = next(&mut rotation, 0);
    let stored = requested(Requested::Stored(certificate(2, seconds)));
    rotation.on(stored, at(seconds));
    let unknown = CertificateInput::Tried(Attempt::Unknown("no route".to_owned()));
    rotation.on(unknown, at(seconds));
    let (later, _) = next(&mut rotation, seconds + 500);
    rotation.on(CertificateInput::Tried(Attempt::Rejected), at(later));
    let again = next(&mut rotation, later).1;
    assert_eq!(again, Operation::Try(Pair::Issued));
}

#[test]
fn a_pair_whose_files_are_gone_is_not_tried_for_ever() {
    let gone = || CertificateInput::Tried(Attempt::Unreadable("no such file".to_owned()));
    let notice = || logged(CertificateNotice::NotTried("no such file".to_owned()));
    let mut rotation = with_certificate();
    let (seconds, _) = next(&mut rotation, 0);
    let stored = requested(Requested::Stored(certificate(2, seconds)));
    rotation.on(stored, at(seconds));
    assert_eq!(rotation.on(gone(), at(seconds)), [notice()]);
    assert_eq!(next(&mut rotation, seconds), (seconds + 10, REQUEST));

    let mut rotation = with_certificate();
    rotation.on(CertificateInput::FilesChanged, at(5));
    rotation.on(CertificateInput::Read(Ok(certificate(2, 5))), at(5));
    assert_eq!(rotation.on(gone(), at(5)), [notice()]);
    assert_eq!(next(&mut rotation, 5), (day(70), REQUEST));
}

/// The server rejects the certificate in use from `seconds` on, and again when that is confirmed.
fn reject(rotation: &mut Rotation, seconds: u64) -> Vec<Effect> {
    rotation.on(CertificateInput::Rejected(true), at(seconds));
    let confirm = start(Operation::Try(Pair::InUse));
    let confirmed = at(seconds + 180);
    assert_eq!(rotation.on(CertificateInput::Tick, confirmed), confirm);
    let tried = CertificateInput::Tried(Attempt::Rejected);
    // Another program may have stored one that is accepted.
    assert_eq!(rotation.on(tried, confirmed), start(Operation::Read));
    let missing = CertificateInput::Read(Err(Problem::Missing));
    let mut effects = rotation.on(missing, confirmed);
    let unusable = logged(CertificateNotice::StoredUnusable(Problem::Missing));
    effects.retain(|effect| *effect != unusable);
    effects
}

#[test]
fn a_certificate_that_is_rejected_for_minutes_is_replaced_with_the_bootstrap_kubeconfig() {
    let rejected = CertificateInput::Rejected;
    let mut rotation = with_certificate();
    assert_eq!(rotation.on(rejected(true), at(100)), []);
    assert_eq!(rotation.due(), Some(at(280).boot));
    assert_eq!(rotation.on(rejected(false), at(200)), [], "accepted again");
    assert_eq!(rotation.due(), None);
    // One 401 while the server starts.
    rotation.on(rejected(true), at(210));
    rotation.on(CertificateInput::Tick, at(390));
    let accepted = CertificateInput::Tried(Attempt::Accepted);
    assert_eq!(rotation.on(accepted, at(390)), []);
    assert_eq!(rotation.due(), None);
    // One 401, and then no answer.
    rotation.on(rejected(true), at(400));
    rotation.on(rejected(true), at(500));
    assert_eq!(rotation.on(CertificateInput::Tick, at(579)), []);
    rotation.on(CertificateInput::Tick, at(580));
    let unknown = CertificateInput::Tried(Attempt::Unknown("no route".to_owned()));
    assert_eq!(rotation.on(unknown, at(580)), []);
    assert_eq!(rotation.due(), Some(at(590).boot));
    rotation.on(rejected(false), at(585));

    let notice = logged(CertificateNotice::InUseRejected);
    let request = Effect::Certificate(FIRST_REQUEST);
    assert_eq!(reject(&mut rotation, 600), [notice, request]);
    rotation.on(requested(Requested::Pending("a".to_owned())), at(780));
    let poll = Operation::Poll(Requester::Bootstrap);
    assert_eq!(next(&mut rotation, 780), (781, poll));
    let stored = requested(Requested::Stored(certificate(2, 781)));
    rotation.on(stored, at(781));
    accept(&mut rotation, Pair::Issued, 781);
    assert_eq!(rotation.current(), Some(certificate(2, 781)));
    assert_eq!(rotation.due(), None, "nothing is known of the new one");

    // It is accepted again while the request waits.
    reject(&mut rotation, 1000);
    rotation.on(requested(Requested::Pending("b".to_owned())), at(1180));
    rotation.on(rejected(false), at(1180));
    assert_eq!(rotation.due(), None);
    assert_eq!(next(&mut rotation, 1180), (781 + day(70), REQUEST));
}

#[test]
fn a_request_of_the_node_that_is_rejected_is_sent_by_the_bootstrap_user() {
    let mut rotation = with_certificate();
    let (seconds, operation) = next(&mut rotation, 0);
    assert_eq!(operation, REQUEST);
    let refused = requested(Requested::Refused("401".to_owned()));
    rotation.on(refused, at(seconds));
    let notice = logged(CertificateNotice::InUseRejected);
    let request = Effect::Certificate(FIRST_REQUEST);
    assert_eq!(reject(&mut rotation, seconds), [notice, request]);
}

#[test]
fn nodes_that_are_rejected_in_one_moment_do_not_return_in_one_moment() {
    let mut due = BTreeSet::new();
    for seed in 1..=50 {
        let mut rotation = started(Ok(certificate(1, 0)), 0, Jitter::seeded(seed));
        rotation.on(CertificateInput::Rejected(true), at(0));
        let at = rotation.due().unwrap();
        due.insert(at.since(BootNanos(0)).as_secs());
    }
    assert!(due.iter().all(|due| (180..360).contains(due)), "{due:?}");
    assert!(due.len() > 30, "{due:?}");
}

#[test]
fn a_rejected_certificate_that_has_expired_causes_no_busy_loop() {
    let mut rotation = with_certificate();
    reject(&mut rotation, 100);
    let unanswered = requested(Requested::Unanswered("no route".to_owned()));
    rotation.on(unanswered, at(day(100)));
    let silent = CertificateInput::Probed {
        found: Err(Problem::Expired(UNIX_EPOCH + DAY)),
        answers: false,
    };
    let later = day(100) + 1000;
    rotation.on(silent, at(later));
    assert!(Some(at(later).boot) < rotation.due(), "{rotation:?}");
}

#[test]
fn an_expired_certificate_ends_the_process_although_a_pair_in_the_file_is_rejected() {
    let end = day(100);
    let mut rotation = with_certificate();
    rotation.on(CertificateInput::Tick, at(end));
    let probed = || CertificateInput::Probed {
        found: Ok(certificate(2, end)),
        answers: true,
    };
    rotation.on(probed(), at(end));
    let rejected = || CertificateInput::Tried(Attempt::Rejected);
    rotation.on(rejected(), at(end));
    rotation.on(CertificateInput::Tick, at(end + 180));
    rotation.on(rejected(), at(end + 180));
    rotation.on(probed(), at(end + 180));
    let lost = CertificateLost::Expired(UNIX_EPOCH + DAY);
    assert_eq!(rotation.lost(), Some(lost), "{rotation:?}");
}

#[test]
fn a_clock_that_was_ahead_for_a_moment_ends_nothing() {
    let mut rotation = with_certificate();
    let ahead = Now {
        wall: at(day(200)).wall,
        ..at(5)
    };
    let probe = start(Operation::Probe);
    assert_eq!(rotation.on(CertificateInput::Tick, ahead), probe);
    let probed = CertificateInput::Probed {
        found: Ok(certificate(1, 0)),
        answers: true,
    };
    assert_eq!(rotation.on(probed, at(6)), []);
    assert_eq!((rotation.lost(), rotation.due()), (None, None));
}
