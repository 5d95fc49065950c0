use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use x509_cert::der::DecodePem as _;
use x509_cert::request::CertReq;

use super::*;
use crate::host::scratch::Scratch;

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_hours(490_896)
}

#[test]
fn a_pending_key_survives_a_restart_and_its_request_has_the_same_name() {
    let dir = Scratch::new();
    let directory = dir.path().join("pki");
    let store = CertificateStore::open(&directory, "worker-1").unwrap();
    assert_eq!(mode(&directory), 0o700);
    let key = store.pending_key().unwrap();
    assert_eq!(mode(&directory.join(PENDING_KEY)), 0o600);
    let again = CertificateStore::open(&directory, "worker-1").unwrap();
    let again = again.pending_key().unwrap();
    assert_eq!(key.point(), again.point());
    let name = key.request_name("worker-1");
    assert_eq!(name, again.request_name("worker-1"));
    assert_ne!(name, again.request_name("worker-2"));
    assert_eq!(name.len(), "node-csr-".len() + 64);
    let request = key.signing_request("worker-1").unwrap();
    let request = CertReq::from_pem(&request).unwrap();
    let subject = request.info.subject.to_string();
    assert_eq!(subject, "CN=system:node:worker-1,O=system:nodes");
    let public_key = request.info.public_key.subject_public_key;
    assert_eq!(public_key.raw_bytes(), key.point());
    assert!(!format!("{key:?}").contains("der"), "{key:?}");

    store.discard_request().unwrap();
    store.discard_request().unwrap();
    assert_ne!(store.pending_key().unwrap().point(), key.point());
}

#[test]
fn a_key_file_that_others_can_read_is_not_used() {
    let dir = Scratch::new();
    let directory = dir.path().join("pki");
    let store = CertificateStore::open(&directory, "worker-1").unwrap();
    let path = directory.join(PENDING_KEY);
    let key = store.pending_key().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    let other = store.pending_key().unwrap();
    assert_ne!(key.point(), other.point());
    assert_eq!(mode(&path), 0o600);

    dir.write("pki/kubelet-client-current.pem", "");
    fs::set_permissions(store.current_path(), fs::Permissions::from_mode(0o604)).unwrap();
    let found = store.current(now());
    assert_eq!(found, Err(Problem::ReadableByOthers(0o604)));
}

#[test]
fn a_directory_in_which_others_can_write_is_refused() {
    let dir = Scratch::new();
    let set = |mode| fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
    for mode in [0o700, 0o750, 0o755, 0o2755] {
        set(mode);
        let opened = CertificateStore::open(dir.path(), "worker-1");
        assert!(opened.is_ok(), "{mode:o}: {opened:?}");
    }
    for mode in [0o720, 0o702, 0o775, 0o1777] {
        set(mode);
        let err = CertificateStore::open(dir.path(), "worker-1").unwrap_err();
        let err = err.to_string();
        for part in [&format!("{mode:04o}"), "chmod go-w"] {
            assert!(err.contains(part), "{mode:o}: {err}");
        }
    }
}

#[test]
fn what_is_no_pair_is_not_used() {
    let dir = Scratch::new();
    let directory = dir.path().join("pki");
    let store = CertificateStore::open(&directory, "worker-1").unwrap();
    assert_eq!(store.current(now()), Err(Problem::Missing));
    let key = store.pending_key().unwrap().pem().unwrap();
    let certificate = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
    let no_certificate = Problem::Malformed("a certificate in PEM".into());
    let rows = [
        (String::new(), no_certificate.clone()),
        (key.to_string(), no_certificate),
        (
            certificate.to_owned(),
            Problem::Malformed("a private key in PEM".into()),
        ),
        (
            format!("{certificate}{}", *key),
            Problem::Malformed("a certificate with a key that can be used".into()),
        ),
    ];
    for (text, expected) in rows {
        store.write("pair", text.as_bytes()).unwrap();
        fs::rename(directory.join("pair"), store.current_path()).unwrap();
        assert_eq!(store.current(now()), Err(expected), "{text}");
    }
    let key = store.pending_key().unwrap();
    let stored = store.write_issued(b"garbage", &key, now());
    assert!(matches!(stored, Err(StoreError::Unusable(_))), "{stored:?}");
    store.write("large", &vec![b'x'; 70 << 10]).unwrap();
    fs::rename(directory.join("large"), store.current_path()).unwrap();
    let found = store.current(now());
    assert!(matches!(found, Err(Problem::Unreadable(_))), "{found:?}");
}

#[test]
fn an_issued_pair_that_cannot_become_the_current_one_stays_the_only_one() {
    let dir = Scratch::new();
    let directory = dir.path().join("pki");
    let store = CertificateStore::open(&directory, "worker-1").unwrap();
    let names = || {
        let entries = fs::read_dir(&directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name != NEW)
            .collect::<std::collections::BTreeSet<_>>()
    };
    store.write(ISSUED, b"a pair").unwrap();
    // A rename does not replace a directory.
    fs::create_dir(store.current_path()).unwrap();
    for _ in 0..3 {
        store.use_issued(now()).unwrap_err();
        assert_eq!(names(), [CURRENT, ISSUED].map(str::to_owned).into());
    }
    fs::remove_dir(store.current_path()).unwrap();
    store.use_issued(now()).unwrap();
    let pair = "kubelet-client-2026-01-01-00-00-00.pem";
    assert_eq!(names(), [pair, CURRENT].map(str::to_owned).into());
    assert_eq!(fs::read(store.current_path()).unwrap(), b"a pair");
}

#[test]
fn the_name_of_a_pair_has_the_time_at_which_it_was_stored() {
    let rows = [
        ("kubelet-client-2026-01-01-00-00-00.pem", true),
        ("kubelet-client-2026-01-01-00-00.pem", false),
        ("kubelet-client-2026-13-01-00-00-00.pem", false),
        ("kubelet-client-current.pem", false),
        ("tls.pem", false),
    ];
    for (name, is_time) in rows {
        assert_eq!(time_in(name), is_time.then(now), "{name}");
    }
}
