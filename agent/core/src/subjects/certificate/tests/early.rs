//! Certificates that are past their rotation point when they are issued.

use super::*;

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
    // name, life and time to the expiry when issued in s, delays of the next requests in s, lines
    #[rustfmt::skip]
    let rows: [(&str, u64, u64, &[u64], usize); 5] = [
        ("a tenth, then twice that", 36_000, 10_000, &[1000, 2000], 1),
        ("before the expiry", 36_000, 6000, &[600, 1200, 2400, 4500, 4500], 1),
        ("less is left than a tenth of its life", 36_000, 400, &[60, 120, 240, 300], 1),
        ("never less than a minute", 300, 80, &[60, 60, 60], 1),
        ("not past it", 36_000, 12_600, &[1800, 1800], 0),
    ];
    for (name, duration, left, delays, expected) in rows {
        let mut rotation = started(Ok(certificate(1, 1_000_000)), 1_000_000, Jitter::NONE);
        let (mut seconds, mut lines) = (1_000_000, 0);
        let adopt = |rotation: &mut Rotation, one: Certificate, seconds: u64| {
            rotation.attempt(Pair::Issued, one, at(seconds).boot);
            rotation.on(CertificateInput::Tick, at(seconds));
            let used = accept(rotation, Pair::Issued, seconds);
            used.iter().filter(|effect| is_early(effect)).count()
        };
        for (nth, delay) in delays.iter().enumerate() {
            lines += adopt(&mut rotation, issued(seconds, duration, left), seconds);
            let (again, operation) = next(&mut rotation, seconds);
            assert_eq!(
                (again - seconds, operation),
                (*delay, REQUEST),
                "{name}: {nth}"
            );
            seconds = again;
        }
        assert_eq!(lines, expected, "{name}");
        // A healthy one ends it: the next delay is not doubled.
        adopt(&mut rotation, issued(seconds, duration, duration), seconds);
        let (again, _) = next(&mut rotation, seconds);
        assert_eq!(again, seconds + duration * 7 / 10, "{name}");
        adopt(&mut rotation, issued(again, 36_000, 10_000), again);
        assert_eq!(
            next(&mut rotation, again),
            (again + 1000, REQUEST),
            "{name}"
        );
    }
}

fn is_early(effect: &Effect) -> bool {
    let Effect::Log(Decision::Certificate(notice)) = effect else {
        return false;
    };
    matches!(notice, CertificateNotice::IssuedPastRotation(..))
}

#[test]
fn a_start_with_such_a_certificate_requests_another_one_only_after_the_delay() {
    let issue = 1_000_000;
    let unknown = Certificate {
        stored: None,
        ..issued(issue, 36_000, 7000)
    };
    // name, certificate, time of the start, time of the request
    #[rustfmt::skip]
    let rows = [
        ("just stored", issued(issue, 36_000, 7000), issue, issue + 700),
        ("half of the delay ago", issued(issue, 36_000, 7000), issue + 350, issue + 700),
        ("longer ago", issued(issue, 36_000, 7000), issue + 800, issue + 800),
        ("in the future", issued(issue, 36_000, 7000), issue - 50, issue + 650),
        ("at an unknown time", unknown, issue, issue),
    ];
    for (name, certificate, from, expected) in rows {
        let mut rotation = started(Ok(certificate), from, Jitter::NONE);
        let first = rotation.on(CertificateInput::Tick, at(from));
        if expected == from {
            assert_eq!(first, start(REQUEST), "{name}");
            continue;
        }
        assert!(
            matches!(first.as_slice(), [one] if is_early(one)),
            "{name}: {first:?}"
        );
        assert_eq!(next(&mut rotation, from), (expected, REQUEST), "{name}");
    }
}

#[test]
fn a_certificate_that_expires_within_the_delay_ends_the_process_after_it() {
    let issue = 1_000_000;
    let found = Ok(issued(issue, 36_000, 30));
    let mut rotation = started(found, issue, Jitter::NONE);
    rotation.on(CertificateInput::Tick, at(issue));
    let mut probe = next(&mut rotation, issue);
    assert_eq!(probe, (issue + 30, Operation::Probe));
    while rotation.lost().is_none() {
        assert_eq!(probe.1, Operation::Probe);
        let probed = CertificateInput::Probed {
            found: Err(Problem::Expired(UNIX_EPOCH)),
            answers: true,
        };
        rotation.on(probed, at(probe.0));
        if rotation.lost().is_none() {
            probe = next(&mut rotation, probe.0);
        }
    }
    let passed = probe.0 - issue;
    assert!((60..110).contains(&passed), "{passed}");
}
