//! PURE: the forms of names that an API server accepts.
//!
//! <https://github.com/kubernetes/kubernetes/blob/v1.33.0/staging/src/k8s.io/apimachinery/pkg/util/validation/validation.go>

/// Maximum length of a DNS-1123 label: a namespace, or the name of a container.
pub const LONGEST_LABEL: usize = 63;

/// Maximum length of a DNS-1123 subdomain: the name of a pod.
pub const LONGEST_SUBDOMAIN: usize = 253;

pub fn is_label(text: &str) -> bool {
    text.len() <= LONGEST_LABEL && is_part(text)
}

/// The parts may be longer than a label.
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= LONGEST_SUBDOMAIN && text.split('.').all(is_part)
}

/// Accepts lower-case letters, digits and `-`, which is neither first nor last.
fn is_part(text: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_alphanumeric)
        && text.ends_with(is_alphanumeric)
        && text.chars().all(|c| is_alphanumeric(c) || c == '-')
}
