//! The TLS configuration of a connection to the API server.
//!
//! `kube::Config::rustls_client_config` would link the removed `auth-provider`, with queries of
//! JSON and regular expressions: 1.1 MB of code, which an agent that locks its memory keeps there.

#![forbid(unsafe_code)]

use std::sync::Arc;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use kube::config::AuthInfo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_platform_verifier::BuilderVerifierExt as _;
use secrecy::ExposeSecret as _;
use tower::BoxError;
use tracing::warn;
use zeroize::Zeroizing;

/// Uses the certificate authority of `config`, or those of the host if it has none, and its client
/// certificate. All of it must be data: files and programs are not used.
pub(super) fn client_config(config: &kube::Config) -> Result<ClientConfig, BoxError> {
    let builder = match &config.root_cert {
        Some(certificates) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates {
                roots.add(CertificateDer::from(certificate.as_slice()))?;
            }
            ClientConfig::builder().with_root_certificates(roots)
        }
        None => ClientConfig::builder().with_platform_verifier()?,
    };
    let mut tls = match identity(&config.auth_info)? {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    };
    if config.accept_invalid_certs {
        warn!("insecure-skip-tls-verify: any server can pass for the API server");
        tls.dangerous()
            .set_certificate_verifier(Arc::new(Unverified));
    }
    Ok(tls)
}

type Identity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// Parses certificate and key. No error contains an excerpt of the data, because those of the PEM
/// parser have whole lines of it.
fn identity(user: &AuthInfo) -> Result<Option<Identity>, BoxError> {
    let (certificate, key) = match (&user.client_certificate_data, &user.client_key_data) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        (Some(_), None) => return Err("there is a client certificate without its key".into()),
        (None, Some(_)) => return Err("there is a client key without its certificate".into()),
    };
    let certificate = decode(certificate).ok_or("the client certificate is not in base64")?;
    let chain = CertificateDer::pem_slice_iter(&certificate).collect::<Result<Vec<_>, _>>();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let chain = chain.ok_or("the client certificate is not in PEM")?;
    let key = decode(key.expose_secret()).ok_or("the client key is not in base64")?;
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|_| "the client key is not in PEM, in PKCS #8, PKCS #1 or SEC 1")?;
    Ok(Some((chain, key)))
}

fn decode(data: &str) -> Option<Zeroizing<Vec<u8>>> {
    let decoded = BASE64_STANDARD.decode(data.trim()).ok()?;
    Some(Zeroizing::new(decoded))
}

/// Accepts any certificate, for `insecure-skip-tls-verify`.
#[derive(Debug)]
struct Unverified;

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    /// Returns all schemes that a server may use, because its signatures are not verified either.
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
            SignatureScheme::ECDSA_NISTP521_SHA512,
            SignatureScheme::ED25519,
            SignatureScheme::ED448,
            SignatureScheme::RSA_PSS_SHA256,
            SignatureScheme::RSA_PSS_SHA384,
            SignatureScheme::RSA_PSS_SHA512,
            SignatureScheme::RSA_PKCS1_SHA256,
            SignatureScheme::RSA_PKCS1_SHA384,
            SignatureScheme::RSA_PKCS1_SHA512,
            SignatureScheme::RSA_PKCS1_SHA1,
        ]
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    #[test]
    fn an_unusable_client_certificate_is_refused_with_the_reason() {
        let encoded = |text: &str| BASE64_STANDARD.encode(text);
        let pem = |label: &str| {
            encoded(&format!(
                "-----BEGIN {label}-----\nMAA=\n-----END {label}-----\n"
            ))
        };
        let (certificate, key) = (pem("CERTIFICATE"), pem("PRIVATE KEY"));
        let in_one_line = encoded("-----BEGIN PRIVATE KEY----- MAA= -----END PRIVATE KEY-----");
        let with_letters = encoded("-----BEGIN PRIVATE KEY-----\\nMAA=\\n");
        let both = encoded(&format!(
            "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n{}",
            "-----BEGIN PRIVATE KEY----- MAA= -----END PRIVATE KEY-----"
        ));
        let no_certificate = "the client certificate is not in PEM";
        let no_key = "the client key is not in PEM, in PKCS #8, PKCS #1 or SEC 1";
        //  certificate, key, and the error
        #[rustfmt::skip]
        let rows: [(Option<&str>, Option<&str>, Option<&str>); 12] = [
            (None, None, None),
            (Some(&certificate), None, Some("there is a client certificate without its key")),
            (None, Some(&key), Some("there is a client key without its certificate")),
            (Some("#"), Some(&key), Some("the client certificate is not in base64")),
            (Some(&certificate), Some("#"), Some("the client key is not in base64")),
            (Some(&key), Some(&key), Some(no_certificate)),
            (Some(&certificate), Some(&certificate), Some(no_key)),
            (Some(&certificate), Some(&in_one_line), Some(no_key)),
            (Some(&certificate), Some(&with_letters), Some(no_key)),
            (Some(&both), Some(&key), Some(no_certificate)),
            (Some(&certificate), Some(&both), Some(no_key)),
            (Some(&certificate), Some(&key),
                Some("unexpected error: failed to parse private key as RSA, ECDSA, or EdDSA")),
        ];
        for (certificate, key, reason) in rows {
            let mut config = kube::Config::new("https://server".parse().unwrap());
            config.root_cert = Some(Vec::new());
            config.auth_info.client_certificate_data = certificate.map(str::to_owned);
            config.auth_info.client_key_data = key.map(SecretString::from);
            let refused = client_config(&config).err().map(|err| err.to_string());
            assert_eq!(refused.as_deref(), reason, "{certificate:?} {key:?}");
        }
    }
}
