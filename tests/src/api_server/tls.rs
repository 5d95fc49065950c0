//! Creates the test CA, the server's certificate, and the files of clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

use super::auth::Identity;
use super::signer::Issue;

/// A CA, and the acceptor that presents its certificate and trusts its clients.
pub(super) struct Authority {
    ca: Issuer<'static, KeyPair>,
    pub(super) ca_pem: String,
    pub(super) acceptor: TlsAcceptor,
}

/// A client certificate with its key.
pub(super) struct IssuedCertificate {
    pub(super) der: CertificateDer<'static>,
    pub(super) certificate_pem: String,
    pub(super) key_pem: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name = name("nodepulse-test-ca", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let key = KeyPair::generate().expect("a P-256 key");
        let certificate = params.self_signed(&key).expect("a CA certificate");
        let ca = Issuer::new(params, key);
        let acceptor = TlsAcceptor::from(Arc::new(server_config(&ca, certificate.der())));
        Self {
            ca,
            ca_pem: certificate.pem(),
            acceptor,
        }
    }

    pub(super) fn issue(&self, identity: &Identity) -> IssuedCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished_name(identity);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a P-256 key");
        let certificate = params
            .signed_by(&key, &self.ca)
            .expect("a client certificate");
        IssuedCertificate {
            der: certificate.der().clone(),
            certificate_pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }
}

impl Authority {
    /// Verifies a request in PEM, and signs it. Returns the certificate and its PEM.
    pub(super) fn sign(&self, request: &str, issue: &Issue) -> (CertificateDer<'static>, String) {
        let mut csr = CertificateSigningRequestParams::from_pem(request).expect("a signed request");
        let epoch = date_time_ymd(1970, 1, 1);
        csr.params.not_before = epoch + issue.from;
        csr.params.not_after = epoch + issue.from + issue.life;
        csr.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if let Some(identity) = &issue.identity {
            csr.params.distinguished_name = distinguished_name(identity);
        }
        let certificate = if issue.other_key {
            let key = KeyPair::generate().expect("a P-256 key");
            csr.params.signed_by(&key, &self.ca)
        } else {
            csr.signed_by(&self.ca)
        };
        let certificate = certificate.expect("a client certificate");
        (certificate.der().clone(), certificate.pem())
    }
}

/// Omits the group that every user has.
fn distinguished_name(identity: &Identity) -> DistinguishedName {
    let groups = identity.groups.iter();
    let groups = groups.filter(|group| *group != "system:authenticated");
    name(&identity.user, &groups.collect::<Vec<_>>())
}

fn name(common: &str, organizations: &[&String]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    for organization in organizations {
        name.push(DnType::OrganizationName, organization.as_str());
    }
    name
}

fn server_config(ca: &Issuer<'static, KeyPair>, ca_der: &CertificateDer<'static>) -> ServerConfig {
    let names = ["localhost", "127.0.0.1", "::1", "kubernetes.default.svc"].map(String::from);
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name = self::name("kube-apiserver", &[]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().expect("a P-256 key");
    let certificate = params.signed_by(&key, ca).expect("a server certificate");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));

    let provider = Arc::new(crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(ca_der.clone()).expect("the CA certificate");
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .expect("a client verifier");
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("protocol versions")
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate.der().clone()], key)
        .expect("the server certificate");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

/// Credentials of a client in a kubeconfig.
pub(super) enum TlsCredentials<'a> {
    Certificate(&'a IssuedCertificate),
    Token(&'a str),
}

/// Writes a kubeconfig with embedded data.
pub(super) fn write_kubeconfig(
    path: &Path,
    url: &str,
    ca_pem: &str,
    credentials: &TlsCredentials<'_>,
) -> PathBuf {
    let user = match credentials {
        TlsCredentials::Certificate(issued) => format!(
            "client-certificate-data: {}\n    client-key-data: {}",
            STANDARD.encode(&issued.certificate_pem),
            STANDARD.encode(&issued.key_pem)
        ),
        TlsCredentials::Token(token) => format!("token: {token}"),
    };
    let ca = STANDARD.encode(ca_pem);
    let text = format!(
        "apiVersion: v1
kind: Config
clusters:
- name: test
  cluster:
    server: {url}
    certificate-authority-data: {ca}
users:
- name: user
  user:
    {user}
contexts:
- name: test
  context:
    cluster: test
    user: user
current-context: test
"
    );
    fs::write(path, text).expect("a folder to write the kubeconfig to");
    path.to_owned()
}
