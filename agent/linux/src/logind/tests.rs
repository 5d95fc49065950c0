//! Tests with a minimal bus.

use std::os::unix::net::UnixStream as Std;
use std::sync::Arc;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;

use super::wire::tests::{
    answer, answer_with_descriptor, big_endian, new_owner, prepare, refusal, signal,
    signal_with_descriptor, state, unknown_field,
};
use super::*;

const NAME: &str = ":1.3";

const BUS: &str = "org.freedesktop.DBus";

/// Accepts a connection, its subscriptions and its lock, and returns the other end of the lock.
async fn subscribed(listener: &UnixListener) -> (UnixStream, Std) {
    let mut bus = authenticated(listener).await;
    let lock = inhibited(&mut bus, 4).await;
    (bus, lock)
}

/// Accepts a connection and its subscriptions.
async fn authenticated(listener: &UnixListener) -> UnixStream {
    let (mut bus, _) = listener.accept().await.unwrap();
    let mut buf = [0; 4096];
    for reply in ["OK 1234\r\n", "AGREE_UNIX_FD\r\n"] {
        let _line = bus.read(&mut buf).await.unwrap();
        bus.write_all(reply.as_bytes()).await.unwrap();
    }
    let mut begin = [0; 7];
    bus.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"BEGIN\r\n");
    for serial in 1..=3 {
        let _call = bus.read(&mut buf).await.unwrap();
        bus.write_all(&answer(BUS, serial)).await.unwrap();
    }
    bus
}

/// Answers call `serial`, which takes a lock, and receives the next call, which is not answered.
async fn inhibited(bus: &mut UnixStream, serial: u32) -> Std {
    lock_requested(bus).await;
    let lock = with_descriptor(bus, &answer_with_descriptor(NAME, serial)).await;
    state_requested(bus).await;
    lock
}

async fn lock_requested(bus: &mut UnixStream) {
    requested(bus, &["Inhibit", "shutdown", "delay"]).await;
}

async fn state_requested(bus: &mut UnixStream) {
    let parts = ["DBus.Properties", "Get", "PreparingForShutdown"];
    requested(bus, &parts).await;
}

/// Returns the agent's connection after a shutdown was announced and cancelled: the agent requests
/// its second lock.
async fn lock_requested_again(
    listener: &UnixListener,
    messages: &mut mpsc::Receiver<PowerMessage>,
) -> UnixStream {
    let (mut bus, first) = subscribed(listener).await;
    bus.write_all(&prepare(NAME, true)).await.unwrap();
    drop(shutting_down(messages).await);
    assert!(is_free(&first));
    bus.write_all(&prepare(NAME, false)).await.unwrap();
    lock_requested(&mut bus).await;
    bus
}

async fn requested(bus: &mut UnixStream, parts: &[&str]) {
    let mut buf = [0; 4096];
    let len = bus.read(&mut buf).await.unwrap();
    let call = String::from_utf8_lossy(&buf[..len]).into_owned();
    for part in parts.iter().chain(&["org.freedesktop.login1"]) {
        assert!(call.contains(part), "{call:?}");
    }
}

/// Sends a message with a descriptor, and returns the other end of the descriptor.
async fn with_descriptor(bus: &UnixStream, message: &[u8]) -> Std {
    sent_with_descriptor(bus, message).await.unwrap()
}

async fn sent_with_descriptor(bus: &UnixStream, message: &[u8]) -> io::Result<Std> {
    let (near, far) = Std::pair().unwrap();
    bus.async_io(Interest::WRITABLE, || {
        let far = [std::os::fd::AsFd::as_fd(&far)];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&far)));
        let bytes = [std::io::IoSlice::new(message)];
        Ok(sendmsg(&*bus, &bytes, &mut control, SendFlags::empty())?)
    })
    .await?;
    near.set_nonblocking(true).unwrap();
    Ok(near)
}

fn is_free(lock: &Std) -> bool {
    matches!(std::io::Read::read(&mut &*lock, &mut [0]), Ok(0))
}

/// Limits the steps of the paused clock. Otherwise it advances to the next timeout while a socket
/// is ready.
fn tick() {
    tokio::spawn(async {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        loop {
            ticks.tick().await;
        }
    });
}

fn bus(name: &str) -> (PathBuf, UnixListener) {
    let path = std::env::temp_dir().join(format!("nodepulse-{name}-{}", std::process::id()));
    let listener = UnixListener::bind(&path).unwrap();
    (path, listener)
}

/// A bus whose socket is removed with it. The agent follows it.
struct Followed {
    path: PathBuf,
    listener: UnixListener,
}

impl Followed {
    fn new(name: &str) -> (Self, mpsc::Receiver<PowerMessage>) {
        let (path, listener) = bus(name);
        let (send, messages) = mpsc::channel(4);
        tokio::spawn(follow(connect(&path), path.clone(), send));
        (Self { path, listener }, messages)
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.path);
    }
}

/// Receives that the machine shuts down, and the agent's lock if it has one.
async fn shutting_down(messages: &mut mpsc::Receiver<PowerMessage>) -> Option<Lock> {
    let Some(PowerMessage::ShuttingDown(lock)) = messages.recv().await else {
        panic!("no message about a shutdown");
    };
    lock
}

async fn cancelled(messages: &mut mpsc::Receiver<PowerMessage>) {
    assert!(matches!(
        messages.recv().await,
        Some(PowerMessage::Cancelled)
    ));
}

#[tokio::test]
async fn a_shutdown_is_delayed_until_the_lock_is_dropped_and_can_be_cancelled() {
    let (followed, mut messages) = Followed::new("logind");
    let (mut bus, lock) = subscribed(&followed.listener).await;
    // Every program may send signals. Only logind's count.
    let other = with_descriptor(&bus, &prepare(":1.99", true)).await;
    bus.write_all(&prepare(NAME, true)).await.unwrap();
    let agents_lock = shutting_down(&mut messages).await.unwrap();
    assert!(is_free(&other), "the other program's descriptor is closed");
    assert!(!is_free(&lock));
    drop(agents_lock);
    assert!(is_free(&lock));

    bus.write_all(&prepare(NAME, false)).await.unwrap();
    let _next = inhibited(&mut bus, 6).await;
    cancelled(&mut messages).await;
    assert!(messages.is_empty(), "the other program was ignored");

    // The agent reconnects to a bus that comes back.
    drop(bus);
    let (mut bus, _lock) = subscribed(&followed.listener).await;
    bus.write_all(&prepare(NAME, true)).await.unwrap();
    assert!(shutting_down(&mut messages).await.is_some());
}

/// Every program on the bus may send descriptors, even during a call to logind.
#[tokio::test]
async fn a_descriptor_of_another_program_is_not_used_as_the_lock() {
    let (followed, mut messages) = Followed::new("stranger");
    let mut bus = lock_requested_again(&followed.listener, &mut messages).await;
    let other = with_descriptor(&bus, &signal_with_descriptor(":1.99")).await;
    let lock = with_descriptor(&bus, &answer_with_descriptor(NAME, 6)).await;
    cancelled(&mut messages).await;
    bus.write_all(&prepare(NAME, true)).await.unwrap();
    let agents_lock = shutting_down(&mut messages).await.unwrap();
    assert!(is_free(&other), "the other program's descriptor is closed");
    assert!(!is_free(&lock), "the lock is kept");
    drop(agents_lock);
    assert!(is_free(&lock));
}

/// Every program on the bus may send any valid message, even during a call to logind.
#[tokio::test]
async fn no_message_of_another_program_ends_the_connection() {
    let (followed, mut messages) = Followed::new("hostile");
    let mut bus = lock_requested_again(&followed.listener, &mut messages).await;
    let mut others = Vec::new();
    // If this message is not skipped as a whole, it contains messages of logind.
    let long = prepare(NAME, true).repeat(1000);
    for message in [
        unknown_field(":1.99"),
        big_endian(":1.99", &[]),
        signal(":1.99", &long),
        big_endian(":1.99", &long),
        signal(":1.99", &[]),
    ] {
        let (begin, rest) = message.split_at(1);
        others.push(with_descriptor(&bus, begin).await);
        bus.write_all(rest).await.unwrap();
    }
    for _ in 0..100 {
        bus.write_all(&prepare(":1.99", true)).await.unwrap();
        bus.write_all(&signal(":1.99", &[])).await.unwrap();
    }
    let lock = with_descriptor(&bus, &answer_with_descriptor(NAME, 6)).await;
    state_requested(&mut bus).await;
    cancelled(&mut messages).await;
    bus.write_all(&signal(":1.99", &long)).await.unwrap();
    bus.write_all(&prepare(NAME, true)).await.unwrap();
    let agents_lock = shutting_down(&mut messages).await.unwrap();
    for (n, other) in others.iter().enumerate() {
        assert!(is_free(other), "the descriptor of message {n} is closed");
    }
    assert!(!is_free(&lock), "the lock is logind's");
    drop(agents_lock);
    assert!(is_free(&lock));
    assert!(messages.is_empty());
}

#[tokio::test]
async fn what_is_no_message_ends_the_connection() {
    let mut endless = signal(":1.99", &[]);
    endless[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    for (name, bytes) in [("order", vec![b'x'; 16]), ("length", endless)] {
        let (followed, _messages) = Followed::new(name);
        let (mut bus, lock) = subscribed(&followed.listener).await;
        bus.write_all(&bytes).await.unwrap();
        assert_eq!(bus.read(&mut [0]).await.unwrap(), 0, "{name}");
        assert!(is_free(&lock), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_without_a_connection_is_reported() {
    tick();
    let (followed, mut messages) = Followed::new("change");
    let (mut bus, _lock) = subscribed(&followed.listener).await;
    bus.write_all(&state(NAME, 5, false)).await.unwrap();
    drop(bus);

    // logind refuses a lock while the machine shuts down.
    let mut bus = authenticated(&followed.listener).await;
    lock_requested(&mut bus).await;
    let refused = refusal(NAME, 4, "org.freedesktop.login1.OperationInProgress");
    bus.write_all(&refused).await.unwrap();
    state_requested(&mut bus).await;
    bus.write_all(&state(":1.99", 5, false)).await.unwrap();
    bus.write_all(&state(NAME, 5, true)).await.unwrap();
    assert!(shutting_down(&mut messages).await.is_none());
    drop(bus);

    let (mut bus, lock) = subscribed(&followed.listener).await;
    bus.write_all(&state(NAME, 5, false)).await.unwrap();
    cancelled(&mut messages).await;
    assert!(!is_free(&lock), "it delays the next shutdown");
    bus.write_all(&prepare(NAME, true)).await.unwrap();
    assert!(shutting_down(&mut messages).await.is_some());

    // logind ends and is started again on the same bus.
    bus.write_all(&new_owner(":1.5")).await.unwrap();
    lock_requested(&mut bus).await;
    let lock = with_descriptor(&bus, &answer_with_descriptor(":1.5", 6)).await;
    state_requested(&mut bus).await;
    bus.write_all(&state(":1.5", 7, false)).await.unwrap();
    cancelled(&mut messages).await;
    assert!(!is_free(&lock));
    assert!(messages.is_empty());
}

#[tokio::test]
async fn without_the_property_shutdowns_are_reported() {
    for (name, answer) in [
        ("refused", refusal(NAME, 5, "a.AccessDenied")),
        ("empty", answer(NAME, 5)),
        ("stranger", state(":1.99", 5, true)),
        ("unchanged", state(NAME, 5, false)),
    ] {
        let (followed, mut messages) = Followed::new(name);
        let (mut bus, lock) = subscribed(&followed.listener).await;
        bus.write_all(&answer).await.unwrap();
        bus.write_all(&prepare(NAME, true)).await.unwrap();
        let agents_lock = shutting_down(&mut messages).await.unwrap();
        assert!(!is_free(&lock), "{name}");
        drop(agents_lock);
        assert!(messages.is_empty(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_loss_the_pause_grows_until_a_lock_is_granted() {
    tick();
    let (path, listener) = bus("pause");
    let logged = path.with_extension("log");
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_writer(Arc::new(std::fs::File::create(&logged).unwrap()))
        .finish();
    let _logged = tracing::subscriber::set_default(subscriber);
    let (send, _messages) = mpsc::channel(1);
    tokio::spawn(follow(connect(&path), path.clone(), send));
    let (bus, _lock) = subscribed(&listener).await;
    let mut lost = Instant::now();
    drop(bus);
    for seconds in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        let mut bus = authenticated(&listener).await;
        let pause = lost.elapsed().as_secs();
        assert!((seconds..=seconds + 1).contains(&pause), "{pause} s");
        lock_requested(&mut bus).await;
        lost = Instant::now();
        let refused = refusal(BUS, 4, "org.freedesktop.DBus.Error.ServiceUnknown");
        bus.write_all(&refused).await.unwrap();
        assert_eq!(bus.read(&mut [0]).await.unwrap(), 0);
    }
    let (bus, _lock) = subscribed(&listener).await;
    let lost = Instant::now();
    drop(bus);
    let _bus = authenticated(&listener).await;
    assert!(lost.elapsed() < 2 * FIRST_PAUSE, "it was connected");
    let log = std::fs::read_to_string(&logged).unwrap();
    let count = |text| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!(count("connected to logind"), 2, "{log}");
    assert_eq!(count("lost the connection to logind"), 2, "{log}");
    assert_eq!(log.lines().count(), 4, "{log}");
    std::fs::remove_file(&logged).unwrap();
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_logind_that_is_not_ready_at_first_is_retried() {
    tick();
    let (followed, mut messages) = Followed::new("late");
    for _ in 0..2 {
        let mut bus = authenticated(&followed.listener).await;
        lock_requested(&mut bus).await;
        assert_eq!(bus.read(&mut [0]).await.unwrap(), 0, "not answered in time");
    }
    let (mut bus, _lock) = subscribed(&followed.listener).await;
    bus.write_all(&prepare(NAME, true)).await.unwrap();
    assert!(shutting_down(&mut messages).await.is_some());
}

#[tokio::test]
async fn shutdowns_are_reported_although_logind_refuses_a_lock() {
    let (followed, mut messages) = Followed::new("refusing");
    let mut bus = lock_requested_again(&followed.listener, &mut messages).await;
    let refused = refusal(NAME, 6, "org.freedesktop.DBus.Error.LimitsExceeded");
    bus.write_all(&refused).await.unwrap();
    state_requested(&mut bus).await;
    cancelled(&mut messages).await;
    bus.write_all(&prepare(NAME, true)).await.unwrap();
    assert!(shutting_down(&mut messages).await.is_none());
}

#[tokio::test]
async fn a_bus_that_sends_endless_descriptors_or_an_endless_line_is_disconnected() {
    // The limit includes the bytes that the socket buffers before the agent reads them.
    for (bytes, most) in [(1, 1000), (4096, 100)] {
        let (followed, _messages) = Followed::new(&format!("endless-{bytes}"));
        let (bus, _) = followed.listener.accept().await.unwrap();
        let line = vec![b'a'; bytes];
        let mut pieces = 0;
        while pieces < most && sent_with_descriptor(&bus, &line).await.is_ok() {
            pieces += 1;
        }
        assert!(pieces < most, "{pieces} pieces of {bytes} bytes");
    }
}

#[tokio::test]
async fn without_a_bus_there_is_no_further_attempt() {
    let (path, listener) = bus("no-logind");
    drop(listener);
    let (send, mut messages) = mpsc::channel(1);
    follow(connect(&path), path.clone(), send).await;
    assert!(messages.recv().await.is_none());
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test]
async fn without_logind_there_is_no_further_attempt() {
    let (path, listener) = bus("bus-only");
    let (send, mut messages) = mpsc::channel(1);
    let refusing = async {
        let mut bus = authenticated(&listener).await;
        lock_requested(&mut bus).await;
        let refused = refusal(BUS, 4, "org.freedesktop.DBus.Error.ServiceUnknown");
        bus.write_all(&refused).await.unwrap();
        bus
    };
    let (_bus, ()) = tokio::join!(refusing, follow(connect(&path), path.clone(), send));
    assert!(messages.recv().await.is_none());
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_program_that_floods_the_bus_ends_the_connection_and_the_pause_grows() {
    tick();
    let (followed, _messages) = Followed::new("flood");
    let flood = signal(":1.99", &[]).repeat(5_000);
    let mut lost = Instant::now();
    for seconds in [0, 1, 2, 4] {
        let (mut bus, _lock) = subscribed(&followed.listener).await;
        let pause = lost.elapsed().as_secs();
        assert!((seconds..=seconds + 1).contains(&pause), "{pause} s");
        let ended = async {
            // The write fails once the agent has closed the connection.
            let _closed: io::Result<()> = bus.write_all(&flood).await;
            bus.read(&mut [0]).await.unwrap_or(0)
        };
        let ended = tokio::time::timeout(Duration::from_mins(1), ended).await;
        assert_eq!(ended, Ok(0), "the connection is closed");
        lost = Instant::now();
    }
}
