//! X.509: reads certificates and makes requests for them.
//!
//! rustls checks that a certificate fits its key, but returns neither its validity nor its subject.

use nodepulse_core::client_certificate::{CertificateFields, GROUP, user};
use x509_cert::Certificate;
use x509_cert::attr::{AttributeTypeAndValue, Attributes};
use x509_cert::der::asn1::{Any, BitString, Utf8StringRef};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc4519::{COMMON_NAME, ORGANIZATION_NAME};
use x509_cert::der::oid::db::rfc5912::{ECDSA_WITH_SHA_256, ID_EC_PUBLIC_KEY, SECP_256_R_1};
use x509_cert::der::pem::LineEnding;
use x509_cert::der::{self, Decode as _, Encode as _, EncodePem as _};
use x509_cert::ext::pkix::name::DirectoryString;
use x509_cert::name::{Name, RdnSequence, RelativeDistinguishedName};
use x509_cert::request::{CertReq, CertReqInfo, Version};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

/// Reads a certificate in DER. Its signature is not checked: the API server does.
pub(super) fn fields(certificate: &[u8]) -> der::Result<CertificateFields> {
    let certificate = Certificate::from_der(certificate)?;
    let certificate = certificate.tbs_certificate();
    let values = |kind| -> der::Result<Vec<String>> {
        let attributes = certificate.subject().iter();
        let attributes = attributes.filter(|attribute| attribute.oid == kind);
        let text = |attribute: &AttributeTypeAndValue| {
            let text: DirectoryString = attribute.value.decode_as()?;
            Ok(text.value().into_owned())
        };
        attributes.map(text).collect()
    };
    let validity = certificate.validity();
    Ok(CertificateFields {
        not_before: validity.not_before.to_system_time(),
        not_after: validity.not_after.to_system_time(),
        // The API server uses the last one too (Go, crypto/x509/pkix, FillFromRDNSequence).
        common_name: values(COMMON_NAME)?.pop().unwrap_or_default(),
        organizations: values(ORGANIZATION_NAME)?,
    })
}

/// The part of a request (PKCS #10) that is signed, for the ECDSA key on P-256 with this public
/// key, an uncompressed point.
pub(super) fn request_info(node: &str, point: &[u8]) -> der::Result<CertReqInfo> {
    let mut name = RdnSequence::default();
    for (oid, text) in [(ORGANIZATION_NAME, GROUP), (COMMON_NAME, &user(node))] {
        let value = Any::encode_from(&Utf8StringRef::new(text)?)?;
        let mut part = RelativeDistinguishedName::default();
        part.insert(AttributeTypeAndValue { oid, value })?;
        name.push(part);
    }
    Ok(CertReqInfo {
        version: Version::V1,
        subject: Name::from_der(&name.to_der()?)?,
        public_key: SubjectPublicKeyInfoOwned {
            algorithm: AlgorithmIdentifierOwned {
                oid: ID_EC_PUBLIC_KEY,
                parameters: Some(Any::encode_from::<ObjectIdentifier>(&SECP_256_R_1)?),
            },
            subject_public_key: BitString::from_bytes(point)?,
        },
        attributes: Attributes::new(),
    })
}

/// The request in PEM, with the signature of its first part.
pub(super) fn request(info: CertReqInfo, signature: &[u8]) -> der::Result<String> {
    let request = CertReq {
        info,
        algorithm: AlgorithmIdentifierOwned {
            oid: ECDSA_WITH_SHA_256,
            parameters: None,
        },
        signature: BitString::from_bytes(signature)?,
    };
    request.to_pem(LineEnding::LF)
}
