//! EDGE: notifies the service manager as in `sd_notify(3)`.
//!
//! Sending never waits, and a service manager that does not listen is no reason to stop. READY=1 is
//! repeated until it is accepted; other messages are lost if there is no room.

#![forbid(unsafe_code)]

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

pub mod heartbeat;

/// Maximum interval of watchdog messages, whatever the manager's timeout is.
const MAX_INTERVAL: Duration = Duration::from_hours(1);

/// The service manager's socket, if there is one.
#[derive(Debug, Default)]
pub struct Notify {
    socket: Option<UnixDatagram>,
    ready: bool,
    /// Interval of watchdog messages.
    watchdog: Option<Duration>,
}

impl Notify {
    /// Connects to the socket at `address`, an absolute path or `@` and an abstract name. Connects
    /// at once, because the sandbox forbids connections to abstract names of other processes.
    ///
    /// `watchdog` is half of the manager's timeout. Fails if no process listens there.
    pub fn connect(address: &str, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = self::address(address)?;
        let socket = UnixDatagram::unbound()?;
        socket.set_nonblocking(true)?;
        socket.connect_addr(&address)?;
        Ok(Self {
            socket: Some(socket),
            ready: false,
            watchdog,
        })
    }

    /// Announces that the agent is ready. Sent once, and again after each [`Notify::reloading`].
    /// Call it repeatedly, in case there was no room for the message.
    pub fn ready(&mut self) {
        if !self.ready {
            self.ready = self.send("READY=1");
        }
    }

    /// Announces that the agent begins to reload its configuration, at this moment on
    /// `CLOCK_MONOTONIC`. Not sent before the first [`Notify::ready`].
    pub fn reloading(&mut self, monotonic: Duration) {
        if self.ready {
            let micros = monotonic.as_micros();
            // If this message is lost, READY=1 is not needed.
            self.ready = !self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
        }
    }

    pub fn stopping(&self) {
        let _lost: bool = self.send("STOPPING=1");
    }

    /// Reports to the watchdog that the main loop is alive.
    pub fn alive(&self) {
        let _lost: bool = self.send("WATCHDOG=1");
    }

    /// Interval of [`Notify::alive`]; `None` if it is never sent.
    pub const fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// Returns `false` if the manager's queue is full, or the manager has ended.
    fn send(&self, message: &str) -> bool {
        let socket = self.socket.as_ref();
        socket.is_none_or(|socket| socket.send(message.as_bytes()).is_ok())
    }
}

/// The address in `NOTIFY_SOCKET`. A relative path is rejected, as by `sd_notify(3)`: the manager
/// does not know the working directory. An error contains a valid example.
pub fn address(text: &str) -> io::Result<SocketAddr> {
    let address = match text.strip_prefix('@') {
        Some("") => None,
        Some(name) => SocketAddr::from_abstract_name(name).ok(),
        None if text.starts_with('/') => SocketAddr::from_pathname(text).ok(),
        None => None,
    };
    address.ok_or_else(|| {
        let text: String = text.chars().take(80).collect();
        let why = format!(
            "NOTIFY_SOCKET: {text:?} is neither an absolute path nor @ and an abstract name, of at \
             most 107 bytes; a correct example: NOTIFY_SOCKET=/run/systemd/notify"
        );
        io::Error::new(io::ErrorKind::InvalidInput, why)
    })
}

/// Interval of watchdog messages: half of `WATCHDOG_USEC`, if it applies to this process, and at
/// most an hour. Refuses a period of up to a second, which would wake an idle node more often than
/// all other work together.
pub fn watchdog(
    usec: Option<&str>,
    pid: Option<&str>,
    self_pid: u32,
) -> Result<Option<Duration>, String> {
    let Some(text) = usec.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    if pid.is_some_and(|pid| pid.parse() != Ok(self_pid)) {
        return Ok(None);
    }
    let period = text.parse().ok().map(Duration::from_micros);
    let period = period.filter(|period| Duration::from_secs(1) < *period);
    period
        .map(|period| Some((period / 2).min(MAX_INTERVAL)))
        .ok_or_else(|| {
            let text: String = text.chars().take(80).collect();
            format!(
                "WATCHDOG_USEC: {text:?} is not a time above a second in microseconds; a correct \
             example: WATCHDOG_USEC=30000000 (WatchdogSec=30s in the unit)"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_half_of_the_timeout_and_invalid_values_are_rejected() {
        let seconds = |n| Ok(Some(Duration::from_secs(n)));
        #[rustfmt::skip]
        let rows = [
            (None, None, Ok(None), "no watchdog"),
            (Some(""), None, Ok(None), "an empty variable"),
            (Some("30000000"), None, seconds(15), "half"),
            (Some("30000000"), Some("7"), seconds(15), "for this process"),
            (Some("30000000"), Some("8"), Ok(None), "for another process"),
            (Some("18446744073709551615"), None, seconds(3600), "an hour at most"),
        ];
        for (usec, pid, expected, why) in rows {
            assert_eq!(watchdog(usec, pid, 7), expected, "{why}");
        }
        for bad in ["1000000", "0", "-5", "30s", "99999999999999999999999"] {
            let error = watchdog(Some(bad), None, 7).unwrap_err();
            for part in ["WATCHDOG_USEC", bad, "WATCHDOG_USEC=30000000"] {
                assert!(error.contains(part), "{error}");
            }
        }
    }

    #[test]
    fn an_address_is_an_absolute_path_or_an_abstract_name() {
        for good in ["/run/systemd/notify", "@manager"] {
            assert!(address(good).is_ok(), "{good}");
        }
        let long = format!("/{}", "a".repeat(108));
        for bad in [
            "",
            "@",
            "run/notify",
            "vsock:2:1234",
            "/a\0b",
            &long,
            &long.replace('/', "@"),
        ] {
            let error = address(bad).unwrap_err().to_string();
            for part in ["NOTIFY_SOCKET: ", "NOTIFY_SOCKET=/run/systemd/notify"] {
                assert!(error.contains(part), "{error}");
            }
            assert!(error.len() < 300, "{error}");
        }
    }

    #[test]
    fn the_manager_receives_each_message_once_at_a_path_and_at_an_abstract_name() {
        let dir = std::env::temp_dir().join(format!("nodepulse-notify-{}", std::process::id()));
        let path = dir.display().to_string();
        let name = format!("@nodepulse-notify-{}", std::process::id());
        let bound = SocketAddr::from_abstract_name(&name[1..]).unwrap();
        for (manager, address) in [
            (UnixDatagram::bind(&dir).unwrap(), path.as_str()),
            (UnixDatagram::bind_addr(&bound).unwrap(), name.as_str()),
        ] {
            manager.set_nonblocking(true).unwrap();
            let mut notify = Notify::connect(address, None).unwrap();
            notify.reloading(Duration::from_micros(1));
            notify.ready();
            notify.ready();
            notify.reloading(Duration::from_micros(77));
            notify.ready();
            notify.alive();
            notify.stopping();
            let mut buf = [0; 256];
            let mut received = Vec::new();
            while let Ok(len) = manager.recv(&mut buf) {
                received.push(String::from_utf8_lossy(&buf[..len]).into_owned());
            }
            let expected = [
                "READY=1",
                "RELOADING=1\nMONOTONIC_USEC=77",
                "READY=1",
                "WATCHDOG=1",
                "STOPPING=1",
            ];
            assert_eq!(received, expected, "{address}");
        }
        // A slow manager receives the last message later.
        let manager = UnixDatagram::bind(dir.with_extension("slow")).unwrap();
        let slow = dir.with_extension("slow").display().to_string();
        let mut notify = Notify::connect(&slow, None).unwrap();
        for _ in 0..10_000 {
            notify.alive();
        }
        notify.ready();
        let mut buf = [0; 64];
        let mut received = manager.recv(&mut buf).unwrap();
        notify.ready();
        notify.ready();
        manager.set_nonblocking(true).unwrap();
        let mut ready = 0;
        while let Ok(len) = manager.recv(&mut buf) {
            received = len;
            ready += usize::from(buf.starts_with(b"READY=1"));
        }
        assert_eq!((received, ready), (7, 1));
        std::fs::remove_file(dir.with_extension("slow")).unwrap();
        std::fs::remove_file(&dir).unwrap();
        assert!(Notify::connect(&path, None).is_err(), "no listener");
        Notify::default().ready();
    }
}
