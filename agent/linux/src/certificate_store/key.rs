//! The key of a request: ECDSA on P-256, as a kubelet's.

use std::fmt;
use std::io;

use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use x509_cert::der::Encode as _;
use zeroize::Zeroizing;

use super::{pem_text, x509};

const LABEL: &str = "PRIVATE KEY";

/// A key without a certificate.
pub struct PendingKey {
    pair: EcdsaKeyPair,
    /// In PKCS #8.
    der: Zeroizing<Vec<u8>>,
}

/// Without the key.
impl fmt::Debug for PendingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingKey").finish_non_exhaustive()
    }
}

impl PendingKey {
    pub(super) fn generate() -> io::Result<Self> {
        let random = SystemRandom::new();
        let der = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random);
        let der = der.map_err(|_| io::Error::other("no key could be generated"))?;
        let der = Zeroizing::new(der.as_ref().to_vec());
        Self::from_der(der).ok_or_else(|| io::Error::other("the generated key is invalid"))
    }

    /// `None` if it is not such a key.
    pub(super) fn from_pem(pem: &[u8]) -> Option<Self> {
        let der = Zeroizing::new(PrivatePkcs8KeyDer::from_pem_slice(pem).ok()?);
        Self::from_der(Zeroizing::new(der.secret_pkcs8_der().to_vec()))
    }

    fn from_der(der: Zeroizing<Vec<u8>>) -> Option<Self> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &der, &random);
        Some(Self {
            pair: pair.ok()?,
            der,
        })
    }

    pub(super) fn pem(&self) -> io::Result<Zeroizing<String>> {
        pem_text(LABEL, &self.der)
    }

    /// The public key, uncompressed.
    pub(super) fn point(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// A request for a certificate of `node`, in PEM.
    pub fn signing_request(&self, node: &str) -> io::Result<String> {
        let info = x509::request_info(node, self.point()).map_err(io::Error::other)?;
        let unsigned = info.to_der().map_err(io::Error::other)?;
        let signature = self.pair.sign(&SystemRandom::new(), &unsigned);
        let signature = signature.map_err(|_| io::Error::other("the request cannot be signed"))?;
        x509::request(info, signature.as_ref()).map_err(io::Error::other)
    }

    /// The name of that request: the same for the same key and node, so that an answer that was
    /// lost, or a restart, leads to the same object.
    pub fn request_name(&self, node: &str) -> String {
        let hashed = digest(&SHA256, &[self.point(), node.as_bytes()].concat());
        let digits = hashed.as_ref().iter().map(|byte| format!("{byte:02x}"));
        let digits: Vec<String> = digits.collect();
        format!("node-csr-{}", digits.concat())
    }
}
