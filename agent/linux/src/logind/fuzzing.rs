//! Handling of received bytes by a connection, for the fuzz targets.

#![forbid(unsafe_code)]

use std::io;

use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::wire::{FIXED, MAX_BYTES, parse, size};
use super::{PowerMessage, listen, open};

#[derive(Debug, PartialEq, Eq)]
pub struct Read {
    /// Length of the whole message in bytes.
    pub len: usize,
    /// Empty if missing, as are `interface` and `member`.
    pub sender: String,
    pub interface: String,
    pub member: String,
    /// The bytes after the header.
    pub body: Vec<u8>,
    /// The body, if it is a boolean.
    pub boolean: Option<bool>,
}

/// Returns the message that the bytes begin with, if it is complete, valid and not skipped.
pub fn message(bytes: &[u8]) -> Option<Read> {
    let len = size(bytes.first_chunk::<FIXED>()?).ok()?;
    if len > MAX_BYTES {
        return None;
    }
    let message = parse(bytes.get(..len)?).ok()?;
    let _text: io::Result<&str> = message.text();
    Some(Read {
        len,
        boolean: message.boolean().ok(),
        sender: message.sender,
        interface: message.interface,
        member: message.member,
        body: message.body,
    })
}

/// Handles a connection to the bus until its end.
pub async fn connection(
    stream: UnixStream,
    messages: &mpsc::Sender<PowerMessage>,
) -> io::Result<()> {
    let (session, lock) = open(stream).await?;
    listen(session, lock, &mut false, messages).await
}
