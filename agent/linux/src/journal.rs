//! EDGE: sends records to systemd-journald, by its native protocol:
//! <https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>.

#![forbid(unsafe_code)]

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

/// Where journald receives records.
pub const SOCKET: &str = "/run/systemd/journal/socket";

/// A record in the form of the protocol.
#[derive(Debug, Default)]
pub struct JournalRecord(Vec<u8>);

impl JournalRecord {
    /// Adds a field. `name` consists of capital letters, digits and underscores; `value` is any
    /// text.
    pub fn add(&mut self, name: &str, value: &str) {
        self.0.extend_from_slice(name.as_bytes());
        if value.contains('\n') {
            let length = u64::try_from(value.len()).unwrap_or_default();
            self.0.push(b'\n');
            self.0.extend_from_slice(&length.to_le_bytes());
        } else {
            self.0.push(b'=');
        }
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'\n');
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A socket that is not connected, so that it outlives a restart of journald.
#[derive(Debug)]
pub struct Journal {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Journal {
    /// # Errors
    ///
    /// Fails if nothing receives at `path`.
    pub fn open(path: &Path) -> io::Result<Self> {
        // Only to find out: a connected socket would end with its receiver.
        UnixDatagram::unbound()?.connect(path)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            path: path.to_owned(),
        })
    }

    /// Never waits. The journal does not acknowledge records.
    ///
    /// # Errors
    ///
    /// Fails if journald does not run, has no room, or the record exceeds what the socket takes
    /// (about 200 KiB).
    pub fn send(&self, record: &JournalRecord) -> io::Result<()> {
        self.socket.send_to(record.as_bytes(), &self.path)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::scratch::Scratch;

    #[test]
    fn a_value_with_several_lines_has_its_length_and_cannot_add_a_field() {
        let mut record = JournalRecord::default();
        record.add("A", "b=c");
        record.add("B", "x\nPRIORITY=0");
        let expected = b"A=b=c\nB\n\x0c\0\0\0\0\0\0\0x\nPRIORITY=0\n";
        assert_eq!(record.as_bytes(), expected);
    }

    #[test]
    fn records_are_received_again_after_a_restart_of_the_receiver() {
        let dir = Scratch::new();
        let path = dir.path().join("socket");
        assert!(Journal::open(&path).is_err(), "nothing is there");
        let receiver = UnixDatagram::bind(&path).unwrap();
        let journal = Journal::open(&path).unwrap();
        let mut record = JournalRecord::default();
        record.add("MESSAGE", "a");
        drop(receiver);
        assert!(journal.send(&record).is_err(), "it has ended");
        std::fs::remove_file(&path).unwrap();
        let receiver = UnixDatagram::bind(&path).unwrap();
        journal.send(&record).unwrap();
        let mut bytes = [0; 64];
        let length = receiver.recv(&mut bytes).unwrap();
        assert_eq!(bytes[..length], *b"MESSAGE=a\n");
    }
}
