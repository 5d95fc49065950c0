//! Approves and signs requests for certificates like a controller manager.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::tls::Authority;
use super::{ApiServer, Identity};

const PATH: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// The certificate for a request.
#[derive(Debug, Clone)]
pub struct Issue {
    /// Start of its validity, on the clock of [`ApiServer::wall`].
    pub from: Duration,
    /// Duration of its validity.
    pub life: Duration,
    /// A user other than the one in the request.
    pub identity: Option<Identity>,
    /// True if it is for another key than that of the request.
    pub other_key: bool,
    /// True if the server answers it with 401 until [`ApiServer::accept_as`].
    pub rejected: bool,
}

impl Issue {
    /// Creates a certificate that is valid from now on.
    pub fn now(api: &ApiServer, life: Duration) -> Self {
        Self {
            // Certificates have no fractions of a second.
            from: Duration::from_secs(api.wall().as_secs()),
            life,
            identity: None,
            other_key: false,
            rejected: false,
        }
    }
}

impl ApiServer {
    /// Returns the requests for certificates, the oldest first.
    pub fn signing_requests(&self) -> Vec<Value> {
        let mut requests = self.list(PATH);
        let version = |request: &Value| {
            let version = request["metadata"]["uid"].as_str().unwrap_or_default();
            version.to_owned()
        };
        requests.sort_by_key(version);
        requests
    }

    /// Returns the requests that are neither approved nor denied.
    pub fn pending_requests(&self) -> Vec<Value> {
        let mut requests = self.signing_requests();
        requests.retain(|request| request["status"]["conditions"].is_null());
        requests
    }

    pub fn deny(&self, request: &Value, message: &str) {
        self.decide(request, "Denied", message, None);
    }

    /// Approves a request and signs it.
    ///
    /// # Panics
    ///
    /// If the request is not signed with its key.
    pub fn issue(&self, request: &Value, issue: &Issue) {
        let pem = request["spec"]["request"].as_str().unwrap_or_default();
        let pem = STANDARD.decode(pem).expect("a request in base 64");
        let pem = String::from_utf8(pem).expect("a request in PEM");
        let (der, certificate) = self.authority().sign(&pem, issue);
        let user = request["spec"]["username"].as_str().unwrap_or_default();
        let node = format!("{user} of a request");
        let requested = issue.identity.clone().or_else(|| requested_by(&pem));
        let identity = match requested {
            _ if issue.rejected => Identity::unknown(),
            Some(identity) => identity,
            None => Identity::user(&node),
        };
        self.inner
            .state()
            .certificates
            .insert(der.to_vec(), identity);
        let certificate = STANDARD.encode(certificate);
        self.decide(request, "Approved", "by a test", Some(certificate));
    }

    /// Identifies this user by the certificates that were rejected so far.
    pub fn accept_as(&self, identity: &Identity) {
        for known in self.inner.state().certificates.values_mut() {
            if *known == Identity::unknown() {
                *known = identity.clone();
            }
        }
    }

    fn decide(&self, request: &Value, type_: &str, message: &str, certificate: Option<String>) {
        let condition =
            json!({"type": type_, "status": "True", "reason": "Test", "message": message});
        let mut request = request.clone();
        // Items of a list lack it.
        request["apiVersion"] = json!("certificates.k8s.io/v1");
        request["kind"] = json!("CertificateSigningRequest");
        request["status"] = json!({"conditions": [condition]});
        if let Some(certificate) = certificate {
            request["status"]["certificate"] = json!(certificate);
        }
        self.put_object(request);
    }

    fn authority(&self) -> &Authority {
        match &self.listening {
            Some(listening) => &listening.authority,
            None => self.signer.get_or_init(Authority::new),
        }
    }
}

/// Returns the node in the subject of a request.
fn requested_by(pem: &str) -> Option<Identity> {
    let request = rcgen::CertificateSigningRequestParams::from_pem(pem).ok()?;
    let name = request.params.distinguished_name;
    let text = |kind| match name.get(&kind)? {
        rcgen::DnValue::Utf8String(text) => Some(text.as_str()),
        _ => None,
    };
    let is_node = text(rcgen::DnType::OrganizationName) == Some("system:nodes");
    let node = text(rcgen::DnType::CommonName)?.strip_prefix("system:node:")?;
    is_node.then(|| Identity::node(node))
}
