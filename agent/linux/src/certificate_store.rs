//! EDGE: the directory with the node's key and certificate, in the file layout of a kubelet.
//!
//! ```text
//! kubelet-client-2026-01-31-12-00-00.pem   certificate and key, mode 0600
//! kubelet-client-current.pem               link to the newest
//! kubelet-client.key.tmp                   key of a request whose certificate is not used yet
//! kubelet-client.pem.tmp                   issued certificate and key that are not used yet
//! ```
//!
//! Keys are never logged, and are never in a file that others can read. Calls here can wait for a
//! disk.

#![forbid(unsafe_code)]

use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use nodepulse_core::client_certificate::{Certificate, Problem};
use nodepulse_io::file::{self, FileError, Links};

use jiff::Timestamp;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use tracing::debug;
use x509_cert::der::pem::{self, LineEnding};
use zeroize::Zeroizing;

mod key;
mod x509;

pub use key::PendingKey;

/// The link to the newest pair.
pub const CURRENT: &str = "kubelet-client-current.pem";
/// The key of a request whose certificate is not used yet.
const PENDING_KEY: &str = "kubelet-client.key.tmp";
/// The pair that was issued and is not used yet.
const ISSUED: &str = "kubelet-client.pem.tmp";
/// The name of a new file or link until it is complete.
const NEW: &str = "kubelet-client.new";
/// Around the date in the name of a pair.
const PAIR: [&str; 2] = ["kubelet-client-", ".pem"];
/// Pairs that are kept: the current one and the one before.
const KEPT: usize = 2;
/// Certificates in one answer: that of the node, and its authorities.
const MAX_CERTIFICATES: usize = 16;
/// A pair has less than 4 KiB, and 10 certificates of authorities 20 KiB.
const LIMIT: u64 = 64 << 10;
/// A key on P-256 in PEM has less than this number of bytes.
const KEY_LEN: usize = 512;
/// Permission of other users to write.
const WRITTEN_BY_OTHERS: u32 = 0o022;

/// The directory, for one node.
#[derive(Debug, Clone)]
pub struct CertificateStore {
    directory: PathBuf,
    node: String,
}

impl CertificateStore {
    /// Creates `directory`, with access only for nodepulse's user, if it is missing. Others must
    /// not be able to write in one that exists; they may be able to list it, as that of a kubelet
    /// (mode 0755).
    pub fn open(directory: &Path, node: &str) -> Result<Self, DirectoryError> {
        let mut builder = DirBuilder::new();
        builder.mode(0o700).recursive(true).create(directory)?;
        let found = fs::metadata(directory)?;
        if !file::is_trusted_owner(found.uid()) {
            return Err(DirectoryError::Owner(found.uid()));
        }
        if found.mode() & WRITTEN_BY_OTHERS != 0 {
            return Err(DirectoryError::Mode(found.mode() & 0o7777));
        }
        Ok(Self::existing(directory, node))
    }

    /// The same without creating it, for reading only.
    pub fn existing(directory: &Path, node: &str) -> Self {
        Self {
            directory: directory.to_owned(),
            node: node.to_owned(),
        }
    }

    /// The node whose certificate it is.
    pub fn node(&self) -> &str {
        &self.node
    }

    /// Where the files are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The path of the current pair, for a kubeconfig.
    pub fn current_path(&self) -> PathBuf {
        self.directory.join(CURRENT)
    }

    /// The path of the pair that was issued and is not used yet.
    pub fn issued_path(&self) -> PathBuf {
        self.directory.join(ISSUED)
    }

    /// The current pair.
    pub fn current(&self, now: SystemTime) -> Result<Certificate, Problem> {
        let path = self.current_path();
        let text = private_file(&path, Links::Followed)?;
        let checked = self.checked(&text, now)?;
        // Another program may use other names.
        let target = fs::read_link(&path).ok();
        let name = target.as_deref().and_then(Path::file_name);
        let stored = name.and_then(|name| time_in(name.to_str()?));
        Ok(Certificate { stored, ..checked })
    }

    /// The key of a request whose certificate is not used yet, which is created if there is none.
    pub fn pending_key(&self) -> io::Result<PendingKey> {
        let path = self.directory.join(PENDING_KEY);
        let known = private_file(&path, Links::Refused).ok();
        if let Some(key) = known.and_then(|pem| PendingKey::from_pem(&pem)) {
            return Ok(key);
        }
        let key = PendingKey::generate()?;
        self.write(PENDING_KEY, key.pem()?.as_bytes())?;
        Ok(key)
    }

    /// Removes the key of a request, and the pair that was issued for it.
    pub fn discard_request(&self) -> io::Result<()> {
        file::remove(&self.issued_path())?;
        file::remove(&self.directory.join(PENDING_KEY))
    }

    /// Stores certificates in PEM, the first of which is the node's, with the key that it is for.
    /// The current pair stays as it is.
    pub fn write_issued(
        &self,
        certificates: &[u8],
        key: &PendingKey,
        now: SystemTime,
    ) -> Result<Certificate, StoreError> {
        let malformed = || Problem::Malformed("a certificate in PEM".into());
        // Enough for everything, because a text that grows leaves copies of the key.
        let mut text = Zeroizing::new(String::with_capacity(2 * certificates.len() + KEY_LEN));
        for certificate in CertificateDer::pem_slice_iter(certificates).take(MAX_CERTIFICATES) {
            let certificate = certificate.map_err(|_| malformed())?;
            text.push_str(&pem_text("CERTIFICATE", &certificate)?);
        }
        text.push_str(&key.pem()?);
        let checked = self.checked(text.as_bytes(), now)?;
        self.write(ISSUED, text.as_bytes())?;
        let stored = Some(now);
        Ok(Certificate { stored, ..checked })
    }

    /// Makes the issued pair the current one. A reader sees the old pair or the new one.
    pub fn use_issued(&self, now: SystemTime) -> io::Result<()> {
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH);
        let seconds = i64::try_from(seconds.unwrap_or_default().as_secs()).unwrap_or_default();
        let date = Timestamp::from_second(seconds).unwrap_or_default();
        let date = date.strftime("%Y-%m-%d-%H-%M-%S").to_string();
        let name = PAIR.join(&date);
        let (issued, pair) = (self.issued_path(), self.directory.join(&name));
        fs::rename(&issued, &pair)?;
        if let Err(err) = self.link(&name) {
            // Otherwise each attempt would leave a pair.
            fs::rename(&pair, &issued)?;
            return Err(err);
        }
        // The pair is in use. What is left is removed by the next one.
        let removed = self.discard_request().and_then(|()| self.remove_old(&name));
        if let Err(err) = removed {
            let err = &err as &dyn std::error::Error;
            debug!(err, "cannot remove old certificates");
        }
        Ok(())
    }

    /// Makes the link to the current pair refer to `name`.
    fn link(&self, name: &str) -> io::Result<()> {
        let new = self.directory.join(NEW);
        file::remove(&new)?;
        symlink(name, &new)?;
        fs::rename(&new, self.current_path())
    }

    /// Checks a certificate with its key, both in PEM.
    fn checked(&self, text: &[u8], now: SystemTime) -> Result<Certificate, Problem> {
        let malformed = |_| Problem::Malformed("a certificate in PEM".into());
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
        let all = all.map_err(malformed)?;
        let Some(first) = all.first().map(|first| first.to_vec()) else {
            return Err(Problem::Malformed("a certificate in PEM".into()));
        };
        let key = PrivateKeyDer::from_pem_slice(text).map(Zeroizing::new);
        let key = key.map_err(|_| Problem::Malformed("a private key in PEM".into()))?;
        // `CertifiedKey::from_der` takes a key, and does not overwrite it.
        let signing = any_supported_type(&key);
        let matching = signing.and_then(|key| CertifiedKey::new(all, key).keys_match());
        matching.map_err(|err| match err {
            rustls::Error::InconsistentKeys(_) => Problem::OtherKey,
            _ => Problem::Malformed("a certificate with a key that can be used".into()),
        })?;
        let fields = x509::fields(&first);
        let fields = fields.map_err(|_| Problem::Malformed("an X.509 certificate".into()))?;
        let mut hasher = DefaultHasher::new();
        first.hash(&mut hasher);
        fields.check(hasher.finish(), &self.node, now)
    }

    /// Writes a file that others cannot read. A reader sees the old file or the whole new one.
    fn write(&self, name: &str, text: &[u8]) -> io::Result<()> {
        let new = self.directory.join(NEW);
        // After a power failure, the name must not refer to an empty file.
        file::write_private(&new, text)?.sync_all()?;
        fs::rename(&new, self.directory.join(name))
    }

    /// Removes all pairs but the newest, so that a short life fills no disk. `newest` is kept,
    /// whatever the clock shows.
    fn remove_old(&self, newest: &str) -> io::Result<()> {
        let mut pairs = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if date_in(&name).is_some() && name != newest {
                pairs.push(name);
            }
        }
        pairs.sort();
        for name in pairs.iter().rev().skip(KEPT - 1) {
            file::remove(&self.directory.join(name))?;
        }
        Ok(())
    }
}

/// The date in the name of a pair.
fn date_in(name: &str) -> Option<&str> {
    let [before, after] = PAIR;
    let date = name.strip_prefix(before)?.strip_suffix(after)?;
    let is_date = date.bytes().all(|c| c.is_ascii_digit() || c == b'-');
    is_date.then_some(date)
}

/// The time at which a pair of this name was stored.
fn time_in(name: &str) -> Option<SystemTime> {
    let parts: Vec<&str> = date_in(name)?.split('-').collect();
    let [year, month, day, hour, minute, second] = parts.as_slice() else {
        return None;
    };
    let text = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    Some(text.parse::<Timestamp>().ok()?.into())
}

/// Why the directory is not used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It cannot be created.
    #[error("it cannot be created ({0}); set another directory")]
    Io(#[from] io::Error),
    /// It belongs to this user, who is neither root nor nodepulse's.
    #[error(
        "it belongs to user {0}, who can replace the key, and must belong to the agent's own user or to \
         root; chown it, or set another directory"
    )]
    Owner(u32),
    /// Others can write in it, with this mode.
    #[error(
        "others can write in it (mode {0:04o}), and replace the key; restrict it with chmod go-w, or set \
         another directory"
    )]
    Mode(u32),
}

/// Why a pair is not stored.
#[derive(Debug)]
pub enum StoreError {
    /// It cannot be used.
    Unusable(Problem),
    /// It cannot be written.
    Io(io::Error),
}

impl From<Problem> for StoreError {
    fn from(problem: Problem) -> Self {
        Self::Unusable(problem)
    }
}

impl From<io::Error> for StoreError {
    fn from(err: io::Error) -> Self {
        Self::Io(err)
    }
}

/// `der` in PEM, with this label.
fn pem_text(label: &str, der: &[u8]) -> io::Result<Zeroizing<String>> {
    let text = pem::encode_string(label, LineEnding::LF, der);
    text.map(Zeroizing::new).map_err(io::Error::other)
}

/// The content of a file that contains a key.
fn private_file(path: &Path, links: Links) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let unreadable = |err: FileError| match err {
        FileError::Io(err) if err.kind() == io::ErrorKind::NotFound => Problem::Missing,
        err => Problem::Unreadable(err.to_string()),
    };
    let mut text = Zeroizing::new(Vec::new());
    let found = file::read_with_metadata(path, LIMIT, links, &mut text).map_err(unreadable)?;
    if !file::is_trusted_owner(found.uid()) {
        return Err(Problem::Owner(found.uid()));
    }
    if found.mode() & file::OTHERS != 0 {
        return Err(Problem::ReadableByOthers(found.mode() & 0o7777));
    }
    Ok(text)
}

#[cfg(test)]
mod tests;
