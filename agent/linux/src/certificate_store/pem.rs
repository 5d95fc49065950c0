//! PEM, as text: base 64 between a first and a last line.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

const LINE: usize = 64;

/// Appends `der` to `text`, with this label.
pub fn encode(text: &mut Zeroizing<String>, label: &str, der: &[u8]) {
    // Enough for everything, because a text that grows leaves copies.
    text.reserve(der.len() / 3 * 4 + der.len() / 48 + 2 * label.len() + 64);
    text.push_str("-----BEGIN ");
    text.push_str(label);
    text.push_str("-----\n");
    // 48 bytes are 64 digits.
    for line in der.chunks(LINE / 4 * 3) {
        let mut digits = Zeroizing::new([0; LINE]);
        // They fit, and are ASCII.
        let len = STANDARD
            .encode_slice(line, &mut *digits)
            .unwrap_or_default();
        let digits = digits.get(..len).unwrap_or_default();
        text.push_str(str::from_utf8(digits).unwrap_or_default());
        text.push('\n');
    }
    text.push_str("-----END ");
    text.push_str(label);
    text.push_str("-----\n");
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;

    use super::*;

    #[test]
    fn pem_is_read_as_written() {
        for len in [1, 2, 3, 47, 48, 49, 1000] {
            let der: Vec<u8> = (0..len)
                .map(|n| u8::try_from(n * 7 % 256).unwrap())
                .collect();
            let mut text = Zeroizing::new(String::new());
            encode(&mut text, "CERTIFICATE", &der);
            assert!(text.lines().all(|line| line.len() <= LINE), "{len}");
            let read = CertificateDer::from_pem_slice(text.as_bytes()).unwrap();
            assert_eq!(&*read, &*der, "{len}");
        }
    }
}
