//! Performs the operations on the client certificate, one at a time, in a task that the loop never
//! waits for. When each of them is due is decided in [`nodepulse_core::subjects::certificate`].

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::client_certificate::{Certificate, Problem};
use nodepulse_core::escape::escape_to;
use nodepulse_core::subjects::certificate::{
    Attempt, CertificateInput, CertificateOperation, Pair, RequestKey, Requested, Requester, Usage,
};
use nodepulse_io::clock::Clock;
use nodepulse_io::lane::{Lane, NoAnswer, Purpose};
use nodepulse_kube::credentials::CredentialSource;
use nodepulse_kube::signing_requests::{RequestStatus, SigningRequest};
use nodepulse_kube::{ApiError, Client, Endpoint, Refusal, access};
use nodepulse_linux::certificate_store::{CertificateStore, PendingKey, StoreError};
use tokio::sync::mpsc;

use super::Report;

/// Timeout of reading or writing the files.
const FILES_LIMIT: Duration = Duration::from_secs(10);
/// Maximum length of a server's text in a log line, in bytes.
const TEXT_LIMIT: usize = 512;

#[derive(Debug)]
pub struct CertificateSetup {
    pub store: CertificateStore,
    pub found: Result<Certificate, Problem>,
    /// The client that may request the first one; `None` if there is one.
    pub bootstrap: Option<Client>,
    /// `None` for a simulation, whose clients need no credentials.
    pub kubeconfigs: Option<Kubeconfigs>,
    /// Receives a message if the current pair may have changed.
    pub changes: mpsc::Receiver<()>,
}

/// The files from which clients with other credentials are created.
#[derive(Debug)]
pub struct Kubeconfigs {
    /// The one whose user has the current pair.
    pub node: PathBuf,
    /// The one whose user may request a certificate; may be missing while the pair is accepted.
    pub bootstrap: PathBuf,
}

struct Worker {
    lane: Lane,
    store: Arc<CertificateStore>,
    client: Client,
    /// Created from the file when it is needed, and dropped when it is not, or is rejected: the
    /// file may have changed. The one of the start stays if a program issued its credentials,
    /// because no other program can be run.
    bootstrap: Option<Client>,
    kubeconfigs: Option<Kubeconfigs>,
    /// Whether the loop knows that the server rejects the certificate.
    reported_rejected: bool,
    clock: Clock,
}

pub(super) async fn run(
    setup: CertificateSetup,
    client: Client,
    clock: Clock,
    mut operations: mpsc::Receiver<CertificateOperation>,
    reports: mpsc::Sender<Box<Report>>,
) {
    let (mut changes, mut rejections) = (setup.changes, client.rejections());
    let lane = client.lane();
    let mut worker = Worker {
        lane: lane.unwrap_or_else(|| Lane::new(Purpose::Credentials)),
        store: Arc::new(setup.store),
        bootstrap: setup.bootstrap,
        kubeconfigs: setup.kubeconfigs,
        reported_rejected: false,
        client,
        clock,
    };
    loop {
        let reported = worker.reported_rejected;
        // Not only changes: the first request may have been rejected before.
        let rejected = async {
            let now = rejections.wait_for(|rejected| *rejected != reported).await;
            now.map(|rejected| *rejected)
        };
        let input = tokio::select! {
            operation = operations.recv() => match operation {
                Some(operation) => worker.perform(operation).await,
                None => return,
            },
            Some(()) = changes.recv() => CertificateInput::FilesChanged,
            Ok(rejected) = rejected => {
                worker.reported_rejected = rejected;
                CertificateInput::Rejected(rejected)
            }
        };
        let report = Box::new(Report::Certificate(input));
        if reports.send(report).await.is_err() {
            return;
        }
    }
}

impl Worker {
    async fn perform(&mut self, operation: CertificateOperation) -> CertificateInput {
        match operation {
            CertificateOperation::Request(key, requester) => {
                CertificateInput::Requested(self.request(Some(key), requester).await)
            }
            CertificateOperation::Poll(requester) => {
                CertificateInput::Requested(self.request(None, requester).await)
            }
            CertificateOperation::Try(pair) => CertificateInput::Tried(self.attempt(pair).await),
            CertificateOperation::Use(pair) => CertificateInput::Used(self.use_pair(pair).await),
            CertificateOperation::Read => CertificateInput::Read(self.read().await),
            CertificateOperation::Probe => {
                let found = self.read().await;
                let answers = match access::version(&self.client).await {
                    Ok(_) => true,
                    // Other errors may come from a proxy.
                    Err(err) => err.is_authenticated().is_some(),
                };
                CertificateInput::Probed { found, answers }
            }
        }
    }

    async fn client_of(&mut self, requester: Requester) -> Result<Client, ApiError> {
        if requester == Requester::Node {
            self.drop_bootstrap();
        }
        match (requester, &self.bootstrap, &self.kubeconfigs) {
            (Requester::Bootstrap, Some(client), _) => Ok(client.clone()),
            (Requester::Bootstrap, None, Some(kubeconfigs)) => {
                let source = CredentialSource::Kubeconfig(&kubeconfigs.bootstrap);
                let deadline = self.client.deadline();
                let client = Client::from_files(source, &self.lane, deadline).await?;
                Ok(self.bootstrap.insert(client).clone())
            }
            (Requester::Node, ..) | (Requester::Bootstrap, None, None) => Ok(self.client.clone()),
        }
    }

    /// Creates the request with this key, or reads the one that was created.
    async fn request(&mut self, create: Option<RequestKey>, requester: Requester) -> Requested {
        let made = self.files(move |store| {
            if create == Some(RequestKey::New) {
                store.discard_request()?;
            }
            let key = store.pending_key()?;
            let pem = key.signing_request(store.node())?;
            Ok::<_, io::Error>((key, pem))
        });
        let (key, pem) = match made.await.map_err(io::Error::other).flatten() {
            Ok(made) => made,
            Err(err) => return Requested::NotStored(err.to_string()),
        };
        let client = match self.client_of(requester).await {
            Ok(client) => client,
            Err(err) => return Requested::Refused(text(&err)),
        };
        let store = Arc::clone(&self.store);
        let name = key.request_name(store.node());
        let request = SigningRequest {
            name: &name,
            pem: &pem,
        };
        let status = match create {
            Some(_) => request.create(&client).await,
            None => request.read(&client).await,
        };
        match status {
            Ok(RequestStatus::Issued(certificate)) => self.store(certificate, key).await,
            Ok(RequestStatus::Pending) => Requested::Pending(name),
            Ok(RequestStatus::Denied(why)) => Requested::Denied(escape_to(&why, TEXT_LIMIT)),
            Ok(RequestStatus::Deleted) => Requested::Deleted,
            Ok(RequestStatus::Foreign) => Requested::Foreign,
            Err(err) => {
                if err.refusal() == Some(Refusal::Unauthorized) {
                    self.drop_bootstrap();
                }
                failed(&err)
            }
        }
    }

    async fn store(&self, certificate: Vec<u8>, key: PendingKey) -> Requested {
        let now = self.clock.now().wall;
        let stored = self.files(move |store| store.write_issued(&certificate, &key, now));
        match stored.await {
            Ok(Ok(certificate)) => Requested::Stored(certificate),
            Ok(Err(StoreError::Unusable(problem))) => Requested::Unusable(problem),
            Ok(Err(StoreError::Io(err))) => Requested::NotStored(err.to_string()),
            Err(err) => Requested::NotStored(err.to_string()),
        }
    }

    /// Reads the Node with `pair`.
    async fn attempt(&mut self, pair: Pair) -> Attempt {
        let path = match pair {
            Pair::Issued => Some(self.store.issued_path()),
            Pair::Current => Some(self.store.current_path()),
            Pair::InUse => None,
        };
        let client = match (path, &self.kubeconfigs) {
            (Some(pair), Some(kubeconfigs)) => {
                let source = CredentialSource::Pair {
                    kubeconfig: &kubeconfigs.node,
                    pair: &pair,
                };
                Client::from_files(source, &self.lane, self.client.deadline()).await
            }
            (Some(_), None) => self.client_of(Requester::Bootstrap).await,
            (None, _) => Ok(self.client.clone()),
        };
        let client = match client {
            Ok(client) => client,
            Err(err) => return Attempt::Unreadable(text(&err)),
        };
        let node = Endpoint::node(self.store.node());
        let Err(err) = client.get(&node).await else {
            return Attempt::Accepted;
        };
        match err.is_authenticated() {
            Some(true) => Attempt::Accepted,
            Some(false) => Attempt::Rejected,
            None => Attempt::Unknown(text(&err)),
        }
    }

    async fn use_pair(&mut self, pair: Pair) -> Usage {
        let now = self.clock.now().wall;
        if pair == Pair::Issued {
            let used = self.files(move |store| store.use_issued(now)).await;
            if let Err(err) = used.map_err(io::Error::other).flatten() {
                return Usage::NotStored(err.to_string());
            }
        }
        if !self.client.use_stored().await {
            return Usage::NotRead;
        }
        self.reported_rejected = false;
        self.drop_bootstrap();
        Usage::Used
    }

    fn drop_bootstrap(&mut self) {
        let can_be_created = |client: &Client| !client.runs_a_plugin();
        if self.kubeconfigs.is_some() && self.bootstrap.as_ref().is_some_and(can_be_created) {
            self.bootstrap = None;
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

fn failed(err: &ApiError) -> Requested {
    if err.refusal().is_some() {
        Requested::Refused(text(err))
    } else {
        Requested::Unanswered(text(err))
    }
}

fn text(err: &ApiError) -> String {
    escape_to(err.to_string(), TEXT_LIMIT)
}
