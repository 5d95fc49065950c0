//! PEM, as text: base 64 between a first and a last line.

use zeroize::Zeroizing;

const LINE: usize = 64;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends `der` to `text`, with this label.
pub fn encode(text: &mut Zeroizing<String>, label: &str, der: &[u8]) {
    // Enough for everything, because a text that grows leaves copies.
    text.reserve(der.len() / 3 * 4 + der.len() / 48 + 2 * label.len() + 64);
    text.push_str("-----BEGIN ");
    text.push_str(label);
    text.push_str("-----\n");
    // 48 bytes are 64 digits.
    for line in der.chunks(LINE / 4 * 3) {
        for three in line.chunks(3) {
            let bytes = [0, 1, 2].map(|at| three.get(at).copied().unwrap_or_default());
            let bits = bytes
                .iter()
                .fold(0, |bits, byte| bits << 8 | u32::from(*byte));
            for (at, shift) in [18, 12, 6, 0].into_iter().enumerate() {
                let digit = usize::try_from(bits >> shift & 0x3f).unwrap_or_default();
                let digit = DIGITS.get(digit).copied().unwrap_or_default();
                text.push(if at <= three.len() {
                    char::from(digit)
                } else {
                    '='
                });
            }
        }
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
