//! Checks what the system bus sends: single messages, and whole connections.

use std::io::{self, IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as Std;

use nodepulse_linux::logind::{Lock, PowerMessage, fuzzing};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

/// Maximum size of a message that is read.
const LARGEST: usize = 64 << 10;
/// Size of the fixed part of a message's header.
const FIXED: usize = 16;
/// Number of bytes before those that are sent: the stage of the connection, the number of
/// descriptors with each piece, and the size of the pieces.
const HEAD: usize = 3;
/// Maximum number of descriptors with a piece.
const DESCRIPTORS: usize = 8;
/// Number of waiting words; if the agent changes it, the target must follow.
const WORDS: usize = 4;

/// A message, alone.
///
/// # Panics
///
/// If something is read that the bytes do not contain, or if what follows the message matters.
pub fn dbus_message(input: &[u8]) {
    let Some(read) = fuzzing::message(input) else {
        return;
    };
    assert!((FIXED..=LARGEST).contains(&read.len) && read.len <= input.len());
    let (message, _rest) = input.split_at(read.len);
    let announced = message.get(4..8).map(|four| four.try_into());
    let announced = u32::from_le_bytes(announced.expect("fixed part").expect("four bytes"));
    assert_eq!(u32::try_from(read.body.len()), Ok(announced));
    assert!(message.ends_with(&read.body));
    for text in [&read.sender, &read.interface, &read.member] {
        let text = text.as_bytes();
        let contained = || message.windows(text.len()).any(|part| part == text);
        assert!(text.is_empty() || contained(), "{text:?}");
    }
    if let Some(boolean) = read.boolean {
        assert!(read.body.starts_with(&u32::from(boolean).to_le_bytes()));
    }
    assert_eq!(fuzzing::message(message).as_ref(), Some(&read));
    let cut = message.split_last().map(|(_, cut)| cut);
    assert_eq!(fuzzing::message(cut.unwrap_or_default()), None);
    assert_eq!(fuzzing::message(&[input, &[0xa5; 8]].concat()), Some(read));
}

/// All that a bus sends on one connection, from the answer to the first line to the end.
///
/// # Panics
///
/// If a descriptor stays open, or if a shutdown is reported that neither a signal announces nor an
/// answer with a boolean.
pub fn dbus_session(input: &[u8]) {
    thread_local! {
        static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("runtime");
    }
    let Some((head, sent)) = input.split_first_chunk::<HEAD>() else {
        return;
    };
    let (reported, closed) = RUNTIME.with(|runtime| runtime.block_on(connection(*head, sent)));
    assert!(closed, "a descriptor is still open");
    assert!(reported.len() <= sent.len() / FIXED, "{reported:?}");
    let contains = |text: &[u8]| sent.windows(text.len()).any(|part| part == text);
    let announced = contains(b"PrepareForShutdown") || contains(&[1, b'b', 0]);
    assert!(reported.is_empty() || announced);
}

/// The start of a shutdown, with a lock or without, or its cancellation.
#[derive(Debug, PartialEq, Eq)]
enum Reported {
    Shutdown { lock: bool },
    Cancelled,
}

/// Returns what the agent reported, and whether it closed every descriptor.
async fn connection(head: [u8; HEAD], sent: &[u8]) -> (Vec<Reported>, bool) {
    let (agent, mut bus) = UnixStream::pair().expect("pair of sockets");
    let (mut agent_side, theirs) = Std::pair().expect("pair of sockets");
    let (send, mut words) = mpsc::channel(WORDS);
    let mut reported = Vec::new();
    let agent = async {
        let ended = fuzzing::connection(agent, &send).await;
        drop(send);
        ended
    };
    let bus = async {
        feed(&mut bus, head, sent, &theirs).await;
        drop(theirs);
        // The agent reads the end, and can still write.
        rustix::net::shutdown(&bus, rustix::net::Shutdown::Write).expect("shutdown");
        bus
    };
    let listener = async {
        while let Some(word) = words.recv().await {
            reported.push(match word {
                PowerMessage::ShuttingDown(lock) => Reported::Shutdown {
                    lock: lock.map(drop::<Lock>).is_some(),
                },
                PowerMessage::Cancelled => Reported::Cancelled,
            });
        }
    };
    let (ended, bus, ()) = tokio::join!(agent, bus, listener);
    assert!(ended.is_err(), "it ends with the connection");
    drop(bus);
    agent_side.set_nonblocking(true).expect("socket");
    let closed = matches!(agent_side.read(&mut [0]), Ok(0));
    (reported, closed)
}

/// Sends the bus's messages up to `stage` of four answers, and then the input.
async fn feed(bus: &mut UnixStream, [stage, descriptors, size]: [u8; HEAD], sent: &[u8], of: &Std) {
    let manager = ":1.3";
    let answers: [(Vec<u8>, usize); 6] = [
        (b"OK 1234\r\n".to_vec(), 0),
        (b"AGREE_UNIX_FD\r\n".to_vec(), 0),
        (answer(manager, 1, 0), 0),
        (answer(manager, 2, 0), 0),
        (answer(manager, 3, 0), 0),
        (answer(manager, 4, 1), 1),
    ];
    let stage = [0, 2, 5, 6][usize::from(stage) % 4];
    for (bytes, descriptors) in &answers[..stage] {
        // The answer follows the call.
        let _call = bus.read(&mut [0; 1024]).await;
        if write(bus, bytes, *descriptors, of).await.is_err() {
            return;
        }
    }
    let descriptors = usize::from(descriptors) % (DESCRIPTORS + 1);
    for piece in sent.chunks((usize::from(size) + 1) * 16) {
        if write(bus, piece, descriptors, of).await.is_err() {
            return;
        }
    }
}

/// Writes all bytes, and `count` copies of a descriptor with the first.
async fn write(bus: &UnixStream, mut bytes: &[u8], count: usize, of: &Std) -> io::Result<()> {
    let mut copies = vec![of.as_fd(); count];
    while !bytes.is_empty() {
        let written = bus.async_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !copies.is_empty() {
                assert!(ancillary.push(SendAncillaryMessage::ScmRights(&copies)));
            }
            let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
            Ok(sendmsg(bus, &[IoSlice::new(bytes)], &mut ancillary, flags)?)
        });
        bytes = bytes.get(written.await?..).unwrap_or_default();
        copies.clear();
    }
    Ok(())
}

/// Returns the bus's answer to call `serial`.
fn answer(sender: &str, serial: u32, descriptors: u32) -> Vec<u8> {
    const RETURN: u8 = 2;
    let mut fields = Vec::new();
    for (code, number) in [(5, serial), (9, descriptors)] {
        fields.extend([code, 1, b'u', 0]);
        fields.extend(number.to_le_bytes());
    }
    fields.extend([7, 1, b's', 0]);
    fields.extend(length(sender.as_bytes()));
    fields.extend(sender.bytes().chain([0]));
    let mut message = vec![b'l', RETURN, 0, 1];
    message.extend(length(&[]));
    message.extend(1_u32.to_le_bytes());
    message.extend(length(&fields));
    message.extend(fields);
    message.resize(message.len().next_multiple_of(8), 0);
    message
}

fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).expect("short").to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(name: &str) -> Vec<u8> {
        let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/dbus_session/");
        std::fs::read(format!("{corpus}{name}")).unwrap()
    }

    #[tokio::test]
    async fn valid_connections_report_what_logind_announces() {
        let with_lock = || Reported::Shutdown { lock: true };
        let without_lock = || Reported::Shutdown { lock: false };
        for (name, expected) in [
            // Another lock is refused.
            ("shutdown", vec![with_lock(), Reported::Cancelled]),
            ("pieces", vec![with_lock(), Reported::Cancelled]),
            // In one piece, the descriptor belongs to the last message.
            ("whole", vec![without_lock()]),
            ("stranger", vec![]),
            ("skipped", vec![with_lock()]),
            ("preparing", vec![with_lock()]),
            ("in-progress", vec![without_lock()]),
            ("cancelled-before", vec![with_lock(), Reported::Cancelled]),
            ("restarted", vec![without_lock()]),
        ] {
            let input = kept(name);
            let (head, sent) = input.split_first_chunk::<HEAD>().unwrap();
            let (reported, closed) = connection(*head, sent).await;
            assert_eq!(reported, expected, "{name}");
            assert!(closed, "{name}");
        }
    }
}
