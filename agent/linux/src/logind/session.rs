//! One connection to the bus.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use nodepulse_io::budget::Budget;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::time::Instant;
use tracing::warn;

use super::Lock;

use super::wire::{MAX_BYTES, Message, MessageKind, MethodCall, parse, size};

const MANAGER: &str = "org.freedesktop.login1.Manager";
const LOGIND: &str = "org.freedesktop.login1";
const DBUS: &str = "org.freedesktop.DBus";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

const PATH: &str = "/org/freedesktop/login1";

/// logind's error for a new lock while a shutdown is in progress.
const IN_PROGRESS: &str = "org.freedesktop.login1.OperationInProgress";

/// Time limit for answers of the bus and of logind.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of events before an answer. More are an error of logind or of the bus.
const MAX_AHEAD: usize = 64;

/// Maximum number of descriptors that Linux passes with one write (`SCM_MAX_FD`).
const MAX_DESCRIPTORS: usize = 253;

/// Maximum number of messages of other programs that may arrive at once. The subscriptions match
/// only those of logind and of the bus, so others come from a program that sends them to the agent.
const FOREIGN: u32 = 1000;

/// Interval after which one more message may arrive.
const FOREIGN_INTERVAL: Duration = Duration::from_millis(100);

struct ReceivedMessage {
    message: Message,
    descriptors: Vec<OwnedFd>,
}

impl ReceivedMessage {
    /// Returns the answer to `call`, unless it is an error.
    fn accepted(self, call: &MethodCall<'_>) -> io::Result<Self> {
        match self.error() {
            Some(text) => Err(io::Error::other(format!("{}: {text}", call.member))),
            None => Ok(self),
        }
    }

    /// Returns the text of an error.
    fn error(&self) -> Option<String> {
        if self.message.kind != MessageKind::Error {
            return None;
        }
        let text = self.message.text().unwrap_or_default();
        Some(text.chars().filter(|c| !c.is_control()).take(200).collect())
    }

    /// Logs the error, if it is the refusal of a lock.
    fn log_refusal(&self) {
        if let Some(err) = self.error() {
            warn!(
                err,
                "logind refuses to delay a shutdown; the next one will be reported without a delay"
            );
        }
    }
}

/// A message that matters to the agent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BusEvent {
    /// `PrepareForShutdown`.
    Prepare(bool),
    /// The answer that [`Session::inhibit`] requests: `true` while a shutdown is in progress.
    Preparing(bool),
    /// logind was restarted.
    NewManager,
}

pub(super) struct Session {
    stream: UnixStream,
    serial: u32,
    /// Bytes that are not parsed yet.
    bytes: Vec<u8>,
    /// Number of bytes to discard: the rest of a message that is too long.
    skipped: usize,
    /// Descriptors of the messages in `bytes`, in order, with the number of bytes up to the end of
    /// the read that they came with. The connection is closed if there are more than those of two
    /// messages.
    descriptors: Vec<(usize, OwnedFd)>,
    ahead: VecDeque<BusEvent>,
    /// logind's unique name on this bus. Every program may send signals, but only logind has this
    /// name.
    manager: String,
    /// The call whose answer is [`BusEvent::Preparing`].
    state_call: Option<u32>,
    /// Messages that are not for the agent.
    foreign: Budget,
}

impl Session {
    /// Authenticates the connection and subscribes.
    pub(super) async fn open(stream: UnixStream) -> io::Result<Self> {
        let opening = async {
            let mut session = Self {
                stream,
                serial: 0,
                bytes: Vec::new(),
                skipped: 0,
                descriptors: Vec::new(),
                ahead: VecDeque::new(),
                manager: String::new(),
                state_call: None,
                foreign: Budget::new(FOREIGN, FOREIGN_INTERVAL, Instant::now()),
            };
            session.authenticate().await?;
            session.call_bus("Hello", &[]).await?;
            let shutdown = format!(
                "type='signal',sender='{LOGIND}',interface='{MANAGER}',member='PrepareForShutdown'"
            );
            let owner = format!(
                "type='signal',sender='{DBUS}',interface='{DBUS}',member='NameOwnerChanged',\
                 arg0='{LOGIND}'"
            );
            session.call_bus("AddMatch", &[&shutdown]).await?;
            session.call_bus("AddMatch", &[&owner]).await?;
            Ok(session)
        };
        tokio::time::timeout(TIMEOUT, opening).await?
    }

    async fn authenticate(&mut self) -> io::Result<()> {
        let uid = nix::unistd::geteuid().to_string();
        // Digits, each as its character code.
        let hex = uid
            .chars()
            .fold(String::new(), |hex, digit| hex + "3" + &digit.to_string());
        self.line(format!("\0AUTH EXTERNAL {hex}\r\n"), "OK ")
            .await?;
        self.line("NEGOTIATE_UNIX_FD\r\n".to_owned(), "AGREE_UNIX_FD")
            .await?;
        self.stream.write_all(b"BEGIN\r\n").await
    }

    /// Sends a line and waits for one that begins as expected.
    async fn line(&mut self, line: String, expected: &str) -> io::Result<()> {
        self.stream.write_all(line.as_bytes()).await?;
        loop {
            if let Some(end) = self.bytes.windows(2).position(|two| two == b"\r\n") {
                let (answer, _descriptors) = self.take(end + 2);
                let refused = || io::Error::other("the bus refused the connection");
                return answer
                    .starts_with(expected.as_bytes())
                    .then_some(())
                    .ok_or_else(refused);
            }
            self.read().await?;
        }
    }

    /// Takes a delay lock, which logind waits for. Returns `None` if logind refuses it, as during a
    /// shutdown. Requests the state of the shutdown: the answer is an event, unless logind refuses
    /// the lock.
    pub(super) async fn inhibit(&mut self) -> io::Result<Option<Lock>> {
        let inhibit = MethodCall {
            destination: LOGIND,
            path: PATH,
            interface: MANAGER,
            member: "Inhibit",
            arguments: &[
                "shutdown",
                "nodepulse",
                "Reports the shutdown to the cluster",
                "delay",
            ],
        };
        let state = MethodCall {
            destination: LOGIND,
            path: PATH,
            interface: PROPERTIES,
            member: "Get",
            arguments: &[MANAGER, "PreparingForShutdown"],
        };
        let calls = async {
            let mut answer = self.answer(&inhibit).await?;
            // The bus answers if there is no logind.
            if answer.message.sender == DBUS {
                answer = answer.accepted(&inhibit)?;
            } else if answer.message.error != IN_PROGRESS {
                answer.log_refusal();
            }
            self.manager = answer.message.sender;
            self.state_call = Some(self.send(&state).await?);
            let lock = answer.descriptors.into_iter().next();
            Ok(lock.map(|descriptor| Lock {
                _descriptor: descriptor,
            }))
        };
        tokio::time::timeout(TIMEOUT, calls).await?
    }

    pub(super) async fn next(&mut self) -> io::Result<BusEvent> {
        if let Some(event) = self.ahead.pop_front() {
            return Ok(event);
        }
        loop {
            // Every program on the bus may send signals with descriptors; those are closed here.
            let message = self.message().await?.message;
            if let Some(event) = self.event(&message) {
                return Ok(event);
            }
            self.count_foreign()?;
        }
    }

    /// Returns `None` for a message that does not matter to the agent, such as any signal of
    /// another program.
    fn event(&self, message: &Message) -> Option<BusEvent> {
        let is_of_manager = message.sender == self.manager;
        let is_state = Some(message.reply_to) == self.state_call;
        match (
            message.kind,
            message.interface.as_str(),
            message.member.as_str(),
        ) {
            (MessageKind::Return, ..) if is_of_manager && is_state => {
                message.variant_boolean().ok().map(BusEvent::Preparing)
            }
            (MessageKind::Signal, MANAGER, "PrepareForShutdown") if is_of_manager => {
                message.boolean().ok().map(BusEvent::Prepare)
            }
            // Without a new owner, logind has ended. Another signal follows when it is back.
            (MessageKind::Signal, DBUS, "NameOwnerChanged") if message.sender == DBUS => {
                has_new_owner(message).then_some(BusEvent::NewManager)
            }
            _ => None,
        }
    }

    async fn call_bus(&mut self, member: &str, arguments: &[&str]) -> io::Result<()> {
        let call = MethodCall {
            destination: DBUS,
            path: "/org/freedesktop/DBus",
            interface: DBUS,
            member,
            arguments,
        };
        self.answer(&call).await?.accepted(&call).map(drop)
    }

    async fn send(&mut self, call: &MethodCall<'_>) -> io::Result<u32> {
        self.serial += 1;
        self.stream.write_all(&call.bytes(self.serial)?).await?;
        Ok(self.serial)
    }

    /// Sends a call and waits for its answer.
    async fn answer(&mut self, call: &MethodCall<'_>) -> io::Result<ReceivedMessage> {
        let serial = self.send(call).await?;
        loop {
            let received = self.message().await?;
            let message = &received.message;
            let is_answer = matches!(message.kind, MessageKind::Return | MessageKind::Error);
            if is_answer && message.reply_to == serial {
                return Ok(received);
            }
            let Some(event) = self.event(message) else {
                self.count_foreign()?;
                continue;
            };
            if self.ahead.len() == MAX_AHEAD {
                return Err(io::Error::other("logind sends too many messages"));
            }
            self.ahead.push_back(event);
        }
    }

    /// Returns the next message that can be parsed. The others are skipped, because every program
    /// on the bus may send any valid message. Can be cancelled.
    async fn message(&mut self) -> io::Result<ReceivedMessage> {
        loop {
            let skipped = self.skipped.min(self.bytes.len());
            drop(self.take(skipped));
            self.skipped -= skipped;
            match self.bytes.first_chunk().map(size).transpose()? {
                Some(size) if size > MAX_BYTES => {
                    self.skipped = size;
                    self.count_foreign()?;
                }
                Some(size) if size <= self.bytes.len() => {
                    let (bytes, descriptors) = self.take(size);
                    if let Ok(message) = parse(&bytes) {
                        return Ok(ReceivedMessage {
                            message,
                            descriptors,
                        });
                    }
                    self.count_foreign()?;
                }
                Some(_) | None => self.read().await?,
            }
        }
    }

    /// Counts a message of another program. Fails if there are too many of them.
    fn count_foreign(&mut self) -> io::Result<()> {
        if self.foreign.take(Instant::now()) {
            return Ok(());
        }
        let why = "another program floods the system bus with messages to the agent";
        Err(io::Error::new(io::ErrorKind::QuotaExceeded, why))
    }

    /// Removes the first `count` bytes, which end with a message or are part of one, and their
    /// descriptors.
    ///
    /// A bus sends each message separately, and its descriptors with its first byte. A read ends
    /// with the bytes that descriptors came with, or within them (`unix_stream_read_generic` of
    /// Linux). So descriptors belong to the message that contains the end of their read, whatever
    /// its header contains.
    fn take(&mut self, count: usize) -> (Vec<u8>, Vec<OwnedFd>) {
        let bytes = self.bytes.drain(..count).collect();
        let taken = self.descriptors.partition_point(|(end, _)| *end <= count);
        let descriptors = self.descriptors.drain(..taken).map(|(_, of)| of).collect();
        for (end, _) in &mut self.descriptors {
            *end -= count;
        }
        (bytes, descriptors)
    }

    /// Reads more bytes with their descriptors.
    async fn read(&mut self) -> io::Result<()> {
        if self.bytes.len() > MAX_BYTES {
            return Err(io::Error::other("the bus sends a line that is too long"));
        }
        if self.descriptors.len() > 2 * MAX_DESCRIPTORS {
            return Err(io::Error::other("the bus sends too many descriptors"));
        }
        let (stream, bytes, descriptors) = (&self.stream, &mut self.bytes, &mut self.descriptors);
        let read = || {
            let mut buf = [0; 4096];
            let mut space =
                [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut buf)];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let got = recvmsg(stream, &mut into, &mut control, flags)?;
            bytes.extend(buf.get(..got.bytes).unwrap_or_default());
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(got) = message {
                    descriptors.extend(got.map(|descriptor| (bytes.len(), descriptor)));
                }
            }
            Ok(got.bytes)
        };
        match stream.async_io(Interest::READABLE, read).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Returns `true` if a `NameOwnerChanged` contains a new owner, the last of its three texts.
fn has_new_owner(message: &Message) -> bool {
    // A body that ends with an empty text ends with five zero bytes: the length and the terminator.
    message.text().is_ok() && !message.body.ends_with(&[0, 0, 0, 0, 0])
}
