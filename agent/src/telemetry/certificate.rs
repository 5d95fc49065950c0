//! Log lines about the client certificate.

use std::time::SystemTime;

use nodepulse_core::client_certificate::Problem;
use nodepulse_core::escape::escape_to;
use nodepulse_core::subjects::certificate::{CertificateNotice, Pair};
use nodepulse_kube::convert::time;
use tracing::{error, info, warn};

use crate::config::key;

/// Maximum length of a certificate's text in a log line, in bytes.
const TEXT_LIMIT: usize = 512;

pub(super) fn log(notice: &CertificateNotice, now: SystemTime) {
    match notice {
        CertificateNotice::InUse(certificate) => {
            let expires = time(certificate.not_after);
            info!(expires, "client certificate is used");
        }
        CertificateNotice::Pending(name) => {
            info!(
                name,
                "client certificate requested, waiting for its approval"
            );
        }
        CertificateNotice::StillPending(name) => warn!(
            name,
            "the client certificate's request was neither approved nor denied for an hour; check it with \
             kubectl get csr"
        ),
        CertificateNotice::Denied(why) => error!(
            why,
            "the client certificate's request was denied; will request another one with a new key"
        ),
        CertificateNotice::Foreign => error!(
            "the client certificate's request exists already, for another node or key; will request \
             another one with a new key"
        ),
        CertificateNotice::IssuedUnusable(problem) => error!(
            problem = describe(problem, now),
            "the issued client certificate is not used"
        ),
        CertificateNotice::StoredUnusable(problem) => warn!(
            problem = describe(problem, now),
            "the stored client certificate is not used"
        ),
        CertificateNotice::NotStored(err) => warn!(
            err,
            directory = key::cert_dir.spec.name,
            "cannot store the client certificate or its key, will retry; the directory must be writable"
        ),
        CertificateNotice::NotRequested(err) => {
            warn!(err, "client certificate not requested, will retry");
        }
        CertificateNotice::NotTried(err) => warn!(
            err,
            "cannot try the new client certificate, will retry; the one in use stays"
        ),
        CertificateNotice::PairRejected(Pair::Issued) => error!(
            "the API server rejects the new client certificate (401), which is not used; will request \
             another one; check that the signer's authority is in the --client-ca-file of every API server"
        ),
        CertificateNotice::PairRejected(Pair::Current | Pair::InUse) => error!(
            "the API server rejects the client certificate that another program has stored (401); it is \
             not used"
        ),
        CertificateNotice::InUseRejected => warn!(
            "the API server has rejected the client certificate (401) for minutes; requesting another one \
             with {}",
            key::bootstrap_kubeconfig
        ),
        CertificateNotice::IssuedPastRotation(certificate, wait) => warn!(
            now = time(now),
            not_before = time(certificate.not_before),
            not_after = time(certificate.not_after),
            wait_s = wait.as_secs(),
            "the client certificate was past its rotation point when it was issued, the next one is \
             requested later; check the clocks of this machine and of the signer"
        ),
        CertificateNotice::ExpiredUnanswered => error!(
            "the client certificate has expired, and the API server does not answer; will exit when it \
             does, so that a restart requests another one"
        ),
    }
}

/// Returns what is wrong, and what to do.
pub fn describe(problem: &Problem, now: SystemTime) -> String {
    match problem {
        Problem::Missing => "there is none".to_owned(),
        Problem::Unreadable(why) => format!("the file cannot be read: {why}"),
        Problem::ReadableByOthers(mode) => format!(
            "others can access the key (mode {mode:04o}), and may know it; remove the file, or restrict it \
             with chmod 0600"
        ),
        Problem::Owner(uid) => {
            format!(
                "the file belongs to user {uid}, who knows the key; remove it, or chown it to root"
            )
        }
        Problem::Malformed(missing) => format!("it does not contain {missing}"),
        Problem::OtherKey => "it is for another key".to_owned(),
        Problem::OtherUser(subject) => {
            let subject = escape_to(subject, TEXT_LIMIT);
            format!("it is for {subject}, which is not this node")
        }
        Problem::NotYetValid(from) => format!(
            "it is valid from {} on, and the clock of this machine shows {}; synchronize the clock",
            time(*from),
            time(now)
        ),
        Problem::Expired(at) => format!("it expired at {}", time(*at)),
    }
}
