//! One connection to the bus.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;

use super::Lock;
use super::wire::{Call, FIXED, Kind, MOST, Message, parse, size};

const MANAGER: &str = "org.freedesktop.login1.Manager";
const LOGIND: &str = "org.freedesktop.login1";
const DBUS: &str = "org.freedesktop.DBus";

/// Longest that the bus or logind may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Messages that come while an answer is waited for; more than these are a fault of the bus.
const AHEAD: usize = 64;

/// Most descriptors that Linux passes with one write (`SCM_MAX_FD`).
const MOST_DESCRIPTORS: usize = 253;

/// A message with the descriptors that came with it.
struct Received {
    message: Message,
    descriptors: Vec<OwnedFd>,
}

/// What of all that comes matters.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BusEvent {
    /// `PrepareForShutdown`.
    Prepare(bool),
    /// logind was started anew.
    NewManager,
}

/// A connection that has said who it is and what it wants to hear.
pub(super) struct Session {
    stream: UnixStream,
    serial: u32,
    /// Bytes that were read and not yet used.
    bytes: Vec<u8>,
    /// Descriptors of the messages in `bytes`, in their order. A bus that sends more than those of
    /// two messages is left.
    descriptors: VecDeque<OwnedFd>,
    ahead: VecDeque<Message>,
    /// logind's name on this bus. Anybody may send us a signal, but only logind has this name.
    manager: String,
}

impl Session {
    /// Says on a connection who we are, and subscribes.
    pub(super) async fn open(stream: UnixStream) -> io::Result<Self> {
        let opening = async {
            let mut session = Self {
                stream,
                serial: 0,
                bytes: Vec::new(),
                descriptors: VecDeque::new(),
                ahead: VecDeque::new(),
                manager: String::new(),
            };
            session.authenticate().await?;
            session.ask_bus("Hello", &[]).await?;
            let shutdown = format!(
                "type='signal',sender='{LOGIND}',interface='{MANAGER}',member='PrepareForShutdown'"
            );
            let owner = format!(
                "type='signal',sender='{DBUS}',interface='{DBUS}',member='NameOwnerChanged',\
                 arg0='{LOGIND}'"
            );
            session.ask_bus("AddMatch", &[&shutdown]).await?;
            session.ask_bus("AddMatch", &[&owner]).await?;
            Ok(session)
        };
        tokio::time::timeout(PATIENCE, opening).await?
    }

    async fn authenticate(&mut self) -> io::Result<()> {
        let uid = nix::unistd::geteuid().to_string();
        // Digits, each as the number of its character.
        let hex = uid
            .chars()
            .fold(String::new(), |hex, digit| hex + "3" + &digit.to_string());
        self.line(format!("\0AUTH EXTERNAL {hex}\r\n"), "OK ")
            .await?;
        self.line("NEGOTIATE_UNIX_FD\r\n".to_owned(), "AGREE_UNIX_FD")
            .await?;
        self.stream.write_all(b"BEGIN\r\n").await
    }

    /// Sends a line and takes one that begins as expected.
    async fn line(&mut self, line: String, expected: &str) -> io::Result<()> {
        self.stream.write_all(line.as_bytes()).await?;
        loop {
            if let Some(end) = self.bytes.windows(2).position(|two| two == b"\r\n") {
                let answer: Vec<u8> = self.bytes.drain(..end + 2).collect();
                let refused = || io::Error::other("the bus does not let us in");
                return answer
                    .starts_with(expected.as_bytes())
                    .then_some(())
                    .ok_or_else(refused);
            }
            self.read().await?;
        }
    }

    /// Takes a delay lock, which logind waits for.
    pub(super) async fn inhibit(&mut self) -> io::Result<Option<Lock>> {
        let call = Call {
            destination: LOGIND,
            path: "/org/freedesktop/login1",
            interface: MANAGER,
            member: "Inhibit",
            arguments: &["shutdown", "nodepulse", "Tells the cluster first", "delay"],
        };
        let answer = tokio::time::timeout(PATIENCE, self.call(&call)).await??;
        self.manager = answer.message.sender;
        let lock = answer.descriptors.into_iter().next();
        Ok(lock.map(|descriptor| Lock {
            _descriptor: descriptor,
        }))
    }

    /// The next thing that matters.
    pub(super) async fn next(&mut self) -> io::Result<BusEvent> {
        loop {
            // Any program on the bus may send signals with descriptors; those are closed here.
            let message = match self.ahead.pop_front() {
                Some(message) => message,
                None => self.message().await?.message,
            };
            if message.kind != Kind::Signal {
                continue;
            }
            match (message.interface.as_str(), message.member.as_str()) {
                (MANAGER, "PrepareForShutdown") if message.sender == self.manager => {
                    return Ok(BusEvent::Prepare(message.boolean()?));
                }
                // Without a new owner logind is gone, and another signal tells when it is back.
                (DBUS, "NameOwnerChanged") if message.sender == DBUS && owned(&message)? => {
                    return Ok(BusEvent::NewManager);
                }
                _ => {}
            }
        }
    }

    async fn ask_bus(&mut self, member: &str, arguments: &[&str]) -> io::Result<()> {
        let call = Call {
            destination: DBUS,
            path: "/org/freedesktop/DBus",
            interface: DBUS,
            member,
            arguments,
        };
        self.call(&call).await.map(drop)
    }

    async fn call(&mut self, call: &Call<'_>) -> io::Result<Received> {
        self.serial += 1;
        let serial = self.serial;
        self.stream.write_all(&call.bytes(serial)?).await?;
        loop {
            let received = self.message().await?;
            let message = &received.message;
            match message.kind {
                Kind::Return if message.reply_to == serial => return Ok(received),
                Kind::Error if message.reply_to == serial => {
                    let why = message.text().unwrap_or_default();
                    let why: String = why.chars().filter(|c| !c.is_control()).take(200).collect();
                    return Err(io::Error::other(format!("{}: {why}", call.member)));
                }
                Kind::Return | Kind::Error | Kind::Signal | Kind::Other => {
                    if self.ahead.len() == AHEAD {
                        return Err(io::Error::other("the bus sends more than was asked for"));
                    }
                    self.ahead.push_back(received.message);
                }
            }
        }
    }

    async fn message(&mut self) -> io::Result<Received> {
        loop {
            if let Some(fixed) = self.bytes.first_chunk::<FIXED>() {
                let size = size(fixed)?;
                if size <= self.bytes.len() {
                    let message: Vec<u8> = self.bytes.drain(..size).collect();
                    return Ok(self.with_descriptors(parse(&message)?));
                }
            }
            self.read().await?;
        }
    }

    /// Adds the descriptors that the message announces.
    fn with_descriptors(&mut self, message: Message) -> Received {
        let count = message.descriptors.min(self.descriptors.len());
        let descriptors = self.descriptors.drain(..count).collect();
        if self.bytes.is_empty() {
            // No message announced them.
            self.descriptors.clear();
        }
        Received {
            message,
            descriptors,
        }
    }

    /// Some more bytes, and the descriptors that come with them.
    async fn read(&mut self) -> io::Result<()> {
        if self.bytes.len() > MOST {
            return Err(io::Error::other("the bus sends no end of a line"));
        }
        if self.descriptors.len() > 2 * MOST_DESCRIPTORS {
            return Err(io::Error::other(
                "the bus sends more descriptors than messages",
            ));
        }
        let (stream, bytes, descriptors) = (&self.stream, &mut self.bytes, &mut self.descriptors);
        let read = || {
            let mut buf = [0; 4096];
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
            let mut beside = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut buf)];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let got = recvmsg(stream, &mut into, &mut beside, flags)?;
            for message in beside.drain() {
                if let RecvAncillaryMessage::ScmRights(got) = message {
                    descriptors.extend(got);
                }
            }
            bytes.extend(buf.get(..got.bytes).unwrap_or_default());
            Ok(got.bytes)
        };
        match stream.async_io(Interest::READABLE, read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Whether a `NameOwnerChanged` names a new owner: the last of its three texts.
fn owned(message: &Message) -> io::Result<bool> {
    // An empty text ends a body with four bytes of length and its end.
    message
        .text()
        .map(|_| !message.body.ends_with(&[0, 0, 0, 0, 0]))
}
