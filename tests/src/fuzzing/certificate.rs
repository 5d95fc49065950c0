//! Checks certificates and requests for them, which the API server sends or a file contains.

use nodepulse_core::client_certificate::{signing_request, x509};

/// A certificate, or a request for one, in DER.
///
/// # Panics
///
/// If more is read than there is, or a request for another node or key counts as the node's.
pub fn client_certificate(input: &[u8]) {
    if let Some(fields) = x509::parse(input) {
        let subject = fields.subject;
        let names = subject.organizations.iter().chain([&subject.common_name]);
        let len: usize = names.map(String::len).sum();
        assert!(len + fields.public_key.len() <= input.len());
    }
    if let Some((subject, key)) = signing_request::parse(input) {
        assert!(subject.common_name.len() + key.len() <= input.len());
    }
    let point = [4; 65];
    if signing_request::is_for(input, "worker-1", &point) {
        assert!(!signing_request::is_for(input, "worker-2", &point));
        assert!(!signing_request::is_for(input, "worker-1", &[5; 65]));
    }
}
