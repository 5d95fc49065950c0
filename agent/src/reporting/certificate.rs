//! The node's certificate: performs what its life requires, one operation at a time, in a task that the
//! loop never waits for.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use nodepulse_core::client_certificate::life::{
    Effect, Exit, Input, Life, Moment, Notice, Operation, RequestKey, Requested,
};
use nodepulse_core::client_certificate::{Certificate, Problem};
use nodepulse_core::clock::{BootNanos, Now};
use nodepulse_core::escape::escape_to;
use nodepulse_io::clock::Clock;
use nodepulse_io::lane::{Lane, NoAnswer, Purpose};
use nodepulse_io::tasks::Tasks;
use nodepulse_kube::backoff::Jitter;
use nodepulse_kube::convert::time;
use nodepulse_kube::signing_requests::{RequestStatus, SigningRequest};
use nodepulse_kube::{ApiError, Client, Refusal, access};
use nodepulse_linux::certificate_store::{CertificateStore, PendingKey, StoreError};
use tokio::sync::mpsc;
use tracing::{debug, error, info, warn};

use super::Report;
use crate::config::key;

/// Timeout of reading or writing the files.
const FILES_LIMIT: Duration = Duration::from_secs(10);
/// Maximum length of a server's text in a log line.
const TEXT_LIMIT: usize = 512;

/// What is needed to request certificates.
#[derive(Debug)]
pub struct CertificateSetup {
    /// Where they are stored.
    pub store: CertificateStore,
    /// The stored one.
    pub found: Result<Certificate, Problem>,
    /// The client that may request the first one; `None` if there is one.
    pub bootstrap: Option<Client>,
    /// Receives a message if the stored one may have changed.
    pub changes: mpsc::Receiver<()>,
}

/// Why the agent ends: its certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateEnd {
    /// See [`Exit::Expired`].
    #[error(
        "the client certificate expired at {}, and the API server answers; a restart requests another \
         one with {}", time(*.0), key::bootstrap_kubeconfig
    )]
    Expired(SystemTime),
    /// See [`Exit::NotIssued`].
    #[error(
        "no client certificate was issued within {}s; check `kubectl get csr`, approve the request of \
         this node, and restart", .0.as_secs()
    )]
    NotIssued(Duration),
}

/// The loop's side.
pub(super) struct CertificateKeeper {
    life: Life,
    jitter: Jitter,
    operations: mpsc::Sender<Operation>,
    end: Option<CertificateEnd>,
}

impl CertificateKeeper {
    /// Starts the task. Must be called in a runtime.
    pub(super) fn start(
        setup: CertificateSetup,
        client: Client,
        clock: Clock,
        reports: mpsc::Sender<Box<Report>>,
        tasks: &mut Tasks,
    ) -> Self {
        let mut jitter = client.jitter();
        let life = Life::new(&setup.found, moment(clock.now(), &mut jitter));
        let (operations, requested) = mpsc::channel(1);
        let worker = Worker {
            lane: client
                .lane()
                .unwrap_or_else(|| Lane::new(Purpose::Credentials)),
            store: Arc::new(setup.store),
            requester: setup.bootstrap.unwrap_or_else(|| client.clone()),
            client,
            clock,
        };
        tasks.spawn("certificate", worker.run(requested, setup.changes, reports));
        Self {
            life,
            jitter,
            operations,
            end: None,
        }
    }

    /// When it is to be called although nothing happened.
    pub(super) fn due(&self) -> Option<BootNanos> {
        self.life.due()
    }

    /// When the certificate in use expires.
    pub(super) fn expires(&self) -> Option<SystemTime> {
        Some(self.life.current()?.not_after)
    }

    /// Why the agent has to end.
    pub(super) const fn end(&self) -> Option<CertificateEnd> {
        self.end
    }

    pub(super) fn on(&mut self, input: Input, now: Now) {
        let moment = moment(now, &mut self.jitter);
        for effect in self.life.on(input, moment) {
            match effect {
                // One at a time, so there is room.
                Effect::Start(operation) => {
                    if self.operations.try_send(operation).is_err() {
                        debug!("the certificate task has ended");
                    }
                }
                Effect::Log(notice) => log(&notice, now.wall),
                Effect::Exit(Exit::Expired(at)) => self.end = Some(CertificateEnd::Expired(at)),
                Effect::Exit(Exit::NotIssued(limit)) => {
                    self.end = Some(CertificateEnd::NotIssued(limit));
                }
            }
        }
    }
}

fn moment(now: Now, jitter: &mut Jitter) -> Moment {
    Moment {
        now,
        random: jitter.fraction(),
    }
}

/// Performs the operations.
struct Worker {
    lane: Lane,
    store: Arc<CertificateStore>,
    /// Sends the requests: the bootstrap client until there is a certificate.
    requester: Client,
    client: Client,
    clock: Clock,
}

impl Worker {
    async fn run(
        mut self,
        mut operations: mpsc::Receiver<Operation>,
        mut changes: mpsc::Receiver<()>,
        reports: mpsc::Sender<Box<Report>>,
    ) {
        loop {
            let input = tokio::select! {
                operation = operations.recv() => match operation {
                    Some(operation) => self.perform(operation).await,
                    None => return,
                },
                Some(()) = changes.recv() => Input::FilesChanged,
            };
            if reports
                .send(Box::new(Report::Certificate(input)))
                .await
                .is_err()
            {
                return;
            }
        }
    }

    async fn perform(&mut self, operation: Operation) -> Input {
        match operation {
            Operation::Request(key) => Input::Requested(self.request(Some(key)).await),
            Operation::Poll => Input::Requested(self.request(None).await),
            Operation::Use => {
                let used = self.client.use_stored().await;
                if used {
                    self.requester = self.client.clone();
                }
                Input::Used(used)
            }
            Operation::Read => Input::Read(self.read().await),
            Operation::Probe => {
                let found = self.read().await;
                let answers = match access::version(&self.requester).await {
                    Ok(_) => true,
                    // Other errors may come from a proxy.
                    Err(err) => matches!(
                        err.refusal(),
                        Some(Refusal::Unauthorized | Refusal::Forbidden | Refusal::NotFound)
                    ),
                };
                Input::Probed { found, answers }
            }
        }
    }

    /// Creates the request with this key, or reads the one that was created.
    async fn request(&self, create: Option<RequestKey>) -> Requested {
        let made = self.files(move |store| {
            if create == Some(RequestKey::New) {
                store.discard_key()?;
            }
            let key = store.pending_key()?;
            let pem = key.signing_request(store.node())?;
            Ok::<_, io::Error>((key, pem))
        });
        let (key, pem) = match made.await {
            Ok(Ok(made)) => made,
            Ok(Err(err)) => return not_stored(&err),
            Err(err) => return not_stored(&err),
        };
        let name = key.request_name(self.store.node());
        let request = SigningRequest {
            name: &name,
            pem: &pem,
            node: self.store.node(),
            point: key.point(),
        };
        let status = match create {
            Some(_) => request.create(&self.requester).await,
            None => request.read(&self.requester).await,
        };
        match status {
            Ok(RequestStatus::Issued(certificate)) => self.store(certificate, key).await,
            Ok(RequestStatus::Pending) => Requested::Pending(name),
            Ok(RequestStatus::Denied(why)) => Requested::Denied(escape_to(&why, TEXT_LIMIT)),
            Ok(RequestStatus::Deleted) => Requested::Deleted,
            Ok(RequestStatus::Foreign) => Requested::Foreign,
            Err(err) => failed(&err),
        }
    }

    async fn store(&self, certificate: Vec<u8>, key: PendingKey) -> Requested {
        let now = self.clock.now().wall;
        let stored = self.files(move |store| store.store(&certificate, &key, now));
        match stored.await {
            Ok(Ok(certificate)) => Requested::Stored(certificate),
            Ok(Err(StoreError::Unusable(problem))) => Requested::Unusable(problem),
            Ok(Err(StoreError::Io(err))) => not_stored(&err),
            Err(err) => not_stored(&err),
        }
    }

    async fn read(&self) -> Result<Certificate, Problem> {
        let now = self.clock.now().wall;
        let read = self.files(move |store| store.current(now)).await;
        read.unwrap_or_else(|err| Err(Problem::Unreadable(err.to_string())))
    }

    async fn files<T: Send + 'static>(
        &self,
        call: impl FnOnce(&CertificateStore) -> T + Send + 'static,
    ) -> Result<T, NoAnswer> {
        let store = Arc::clone(&self.store);
        self.lane.run(FILES_LIMIT, move || call(&store)).await
    }
}

fn not_stored(err: &dyn std::error::Error) -> Requested {
    Requested::NotStored(err.to_string())
}

fn failed(err: &ApiError) -> Requested {
    let text = escape_to(err.to_string(), TEXT_LIMIT);
    if err.refusal().is_some() {
        Requested::Refused(text)
    } else {
        Requested::Unanswered(text)
    }
}

/// One line about what a person has to know.
fn log(notice: &Notice, now: SystemTime) {
    match notice {
        Notice::InUse(certificate) => {
            let expires = time(certificate.not_after);
            info!(expires, "client certificate is used");
        }
        Notice::Pending(name) => {
            info!(
                name,
                "client certificate requested, waiting for its approval"
            );
        }
        Notice::StillPending(name) => warn!(
            name,
            "the client certificate's request was neither approved nor denied for an hour; check it with \
             kubectl get csr"
        ),
        Notice::Denied(why) => error!(
            why,
            "the client certificate's request was denied; will request another one with a new key"
        ),
        Notice::Foreign => error!(
            "the client certificate's request exists already, for another node or key; will request \
             another one with a new key"
        ),
        Notice::IssuedUnusable(problem) => error!(
            problem = describe(problem, now),
            "the issued client certificate is not used"
        ),
        Notice::StoredUnusable(problem) => warn!(
            problem = describe(problem, now),
            "the stored client certificate is not used"
        ),
        Notice::NotStored(err) => warn!(
            err,
            directory = key::cert_dir.spec.name,
            "cannot store the client certificate or its key, will retry; the directory must be writable"
        ),
        Notice::NotRequested(err) => warn!(err, "client certificate not requested, will retry"),
        Notice::IssuedPastRotation(certificate, wait) => warn!(
            now = time(now),
            not_before = time(certificate.not_before),
            not_after = time(certificate.not_after),
            wait_s = wait.as_secs(),
            "the client certificate was past its rotation point when it was issued, the next one is \
             requested later; check the clocks of this machine and of the signer"
        ),
        Notice::ExpiredUnanswered => error!(
            "the client certificate has expired, and the API server does not answer; will exit when it \
             does, so that a restart requests another one"
        ),
    }
}

/// What is wrong, and what to do.
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
