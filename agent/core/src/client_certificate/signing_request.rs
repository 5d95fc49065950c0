//! A certificate signing request (PKCS #10) for a node's ECDSA key on P-256.

use super::der::{BIT_STRING, CONTEXT_0, Elements, INTEGER, OID, SEQUENCE, SET, UTF8, element};
use super::x509::{self, COMMON_NAME, ORGANIZATION, Subject};
use super::{GROUP, user};

/// `1.2.840.10045.2.1`.
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
/// `1.2.840.10045.3.1.7`.
const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
/// `1.2.840.10045.4.3.2`.
const ECDSA_WITH_SHA256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];

/// The part of a request that is signed. `point` is the public key, uncompressed.
pub fn unsigned(node: &str, point: &[u8]) -> Vec<u8> {
    let attribute = |kind: &[u8], value: &str| {
        let value = element(UTF8, &[value.as_bytes()]);
        let attribute = element(SEQUENCE, &[&element(OID, &[kind]), &value]);
        element(SET, &[&attribute])
    };
    let name = element(
        SEQUENCE,
        &[
            &attribute(ORGANIZATION, GROUP),
            &attribute(COMMON_NAME, &user(node)),
        ],
    );
    let version = element(INTEGER, &[&[0]]);
    let attributes = element(CONTEXT_0, &[]);
    element(
        SEQUENCE,
        &[&version, &name, &public_key(point), &attributes],
    )
}

/// The request, from its signed part and the signature of that.
pub fn signed(unsigned: &[u8], signature: &[u8]) -> Vec<u8> {
    let algorithm = element(SEQUENCE, &[&element(OID, &[ECDSA_WITH_SHA256])]);
    let signature = element(BIT_STRING, &[&[0], signature]);
    element(SEQUENCE, &[unsigned, &algorithm, &signature])
}

/// The `SubjectPublicKeyInfo` of a key.
pub fn public_key(point: &[u8]) -> Vec<u8> {
    let kind = element(
        SEQUENCE,
        &[&element(OID, &[EC_PUBLIC_KEY]), &element(OID, &[P256])],
    );
    element(SEQUENCE, &[&kind, &element(BIT_STRING, &[&[0], point])])
}

/// Subject and `SubjectPublicKeyInfo` of a request in DER; `None` if it is none.
pub fn parse(der: &[u8]) -> Option<(Subject, &[u8])> {
    let mut signed = Elements(der).inside(SEQUENCE)?.inside(SEQUENCE)?;
    signed.expect(INTEGER)?;
    let subject = x509::subject(signed.inside(SEQUENCE)?)?;
    let (SEQUENCE, _, public_key) = signed.next()? else {
        return None;
    };
    Some((subject, public_key))
}

/// Whether a request in DER is for `node` and the key `point`.
pub fn is_for(der: &[u8], node: &str, point: &[u8]) -> bool {
    parse(der).is_some_and(|(subject, key)| {
        subject.common_name == user(node)
            && subject.organizations == [GROUP]
            && key == public_key(point)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_for_one_node_and_one_key() {
        let point = [4; 65];
        let der = signed(&unsigned("worker-1", &point), &[1, 2, 3]);
        let (subject, key) = parse(&der).unwrap();
        assert_eq!(
            subject.to_string(),
            "CN=system:node:worker-1,O=system:nodes"
        );
        assert_eq!(key, public_key(&point));
        assert!(is_for(&der, "worker-1", &point));
        assert!(!is_for(&der, "worker-2", &point));
        assert!(!is_for(&der, "worker-1", &[5; 65]));
        for len in 0..der.len() {
            assert!(!is_for(&der[..len], "worker-1", &point), "{len} bytes");
        }
    }
}
