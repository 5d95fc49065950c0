//! Connects a simulated agent to the API server, and provides its credentials.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nodepulse::testing::CertificateSetup;
use nodepulse_io::clock::Clock;
use nodepulse_kube::{Client, transport};
use nodepulse_linux::certificate_store::CertificateStore;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use crate::api_server::{ApiServer, Identity};

pub const BOOTSTRAP: &str = "system:bootstrap:abcdef";

/// Time limit of a request with that token.
const DEADLINE: Duration = Duration::from_secs(10);

pub(super) struct Network {
    pub(super) api: Arc<ApiServer>,
    identity: Identity,
    pub(super) reachable: AtomicBool,
    pub(super) dials: Mutex<Vec<Duration>>,
    /// Makes the next task that opens a connection panic.
    pub(super) panic: AtomicBool,
}

impl Network {
    pub(super) fn new(api: &Arc<ApiServer>, identity: Identity, reachable: bool) -> Arc<Self> {
        Arc::new(Self {
            api: Arc::clone(api),
            identity,
            reachable: AtomicBool::new(reachable),
            dials: Mutex::default(),
            panic: AtomicBool::new(false),
        })
    }

    fn dial(&self) -> io::Result<DuplexStream> {
        assert!(
            !self.panic.swap(false, Ordering::Relaxed),
            "a task panics, as the test wants it"
        );
        let mut dials = self.dials.lock().unwrap_or_else(PoisonError::into_inner);
        dials.push(self.api.now());
        if self.reachable.load(Ordering::Relaxed) {
            Ok(self.api.dial_as(self.identity.clone()))
        } else {
            Err(io::ErrorKind::ConnectionRefused.into())
        }
    }

    pub(super) fn client(self: &Arc<Self>, deadline: Duration) -> Client {
        let network = Arc::clone(self);
        let connector = transport::in_memory(move || std::future::ready(network.dial()));
        let server = kube::Config::new("http://in-memory".parse().expect("an address"));
        Client::new(server, connector, deadline).expect("a client without credentials")
    }

    /// Prepares the certificate in `directory`, which [`BOOTSTRAP`] requests and tries.
    pub(super) fn certificate(
        &self,
        directory: &Path,
        node: &str,
        clock: Clock,
        changes: mpsc::Receiver<()>,
    ) -> CertificateSetup {
        let store = CertificateStore::open(directory, node).expect("a directory");
        let found = store.current(clock.now().wall);
        let bootstrap = Self::new(&self.api, Identity::user(BOOTSTRAP), true);
        CertificateSetup {
            bootstrap: Some(bootstrap.client(DEADLINE)),
            found,
            store,
            changes,
            kubeconfigs: None,
        }
    }
}

/// Returns the client of an agent that has this certificate, or waits for the first one.
pub(super) fn awaiting(client: Client, certificate: Option<&CertificateSetup>) -> Client {
    if certificate.is_some_and(|one| one.found.is_err()) {
        client.without_credentials()
    } else {
        client
    }
}
