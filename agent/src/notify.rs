//! EDGE: tells the service manager how far we are, as `sd_notify(3)` has it.
//!
//! Sending never waits: a service manager that does not listen is no reason to stop. That we are ready
//! is said until it is taken; the rest is lost where there is no room for it.

#![forbid(unsafe_code)]

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The watchdog is notified at least this often, however long the manager's patience is.
const LONGEST: Duration = Duration::from_hours(1);

/// The service manager's socket, where there is one.
#[derive(Debug, Default)]
pub struct Notify {
    socket: Option<UnixDatagram>,
    ready: bool,
    /// How often it wants to hear that we turn.
    watchdog: Option<Duration>,
}

impl Notify {
    /// To the socket at `address`, an absolute path or `@` and an abstract name. Connected at once: once the
    /// sandbox holds, abstract names of others cannot be connected to.
    ///
    /// `watchdog` is half of the manager's patience.
    ///
    /// # Errors
    ///
    /// If the address is no such name, or if nobody listens there.
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

    /// We do our work. Told once, and again at the end of each [`Notify::reloading`]; to be called
    /// again whenever there is occasion, in case that there was no room for it.
    pub fn ready(&mut self) {
        if !self.ready {
            self.ready = self.send("READY=1");
        }
    }

    /// We begin to read the configuration again, at this moment on `CLOCK_MONOTONIC`. Not told before
    /// the first [`Notify::ready`]: we are starting then.
    pub fn reloading(&mut self, monotonic: Duration) {
        if self.ready {
            let micros = monotonic.as_micros();
            // Without the one there is no need for the other.
            self.ready = !self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
        }
    }

    /// We are about to stop.
    pub fn stopping(&self) {
        let _lost: bool = self.send("STOPPING=1");
    }

    /// We turn.
    pub fn alive(&self) {
        let _lost: bool = self.send("WATCHDOG=1");
    }

    /// How often [`Notify::alive`] is wanted; `None`: never.
    #[must_use]
    pub const fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// `false` where the manager's queue is full, or the manager gone.
    fn send(&self, words: &str) -> bool {
        let socket = self.socket.as_ref();
        socket.is_none_or(|socket| socket.send(words.as_bytes()).is_ok())
    }
}

/// The address that `NOTIFY_SOCKET` contains. A relative path is refused, as by `sd_notify(3)`: the
/// manager does not know the working directory.
///
/// # Errors
///
/// If it is not of the two forms or too long; with a correct example.
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

/// How often the manager wants to hear of us: half of `WATCHDOG_USEC`, where it means our process,
/// and at most an hour.
///
/// # Errors
///
/// What is wrong with the variables, and a correct example. A period of a second or less would wake
/// an idle node more often than all else together.
pub fn watchdog(
    usec: Option<&str>,
    pid: Option<&str>,
    own_pid: u32,
) -> Result<Option<Duration>, String> {
    let Some(text) = usec.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    if pid.is_some_and(|pid| pid.parse() != Ok(own_pid)) {
        return Ok(None);
    }
    let period = text.parse().ok().map(Duration::from_micros);
    let period = period.filter(|period| Duration::from_secs(1) < *period);
    period
        .map(|period| Some((period / 2).min(LONGEST)))
        .ok_or_else(|| {
            let text: String = text.chars().take(80).collect();
            format!(
                "WATCHDOG_USEC: {text:?} is no time above a second in microseconds; a correct \
             example: WATCHDOG_USEC=30000000 (WatchdogSec=30s in the unit)"
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_patience_is_the_rhythm_and_nonsense_is_refused() {
        let seconds = |n| Ok(Some(Duration::from_secs(n)));
        let rows = [
            (None, None, Ok(None), "none is wanted"),
            (Some(""), None, Ok(None), "an empty variable is none"),
            (Some("30000000"), None, seconds(15), "half"),
            (Some("30000000"), Some("7"), seconds(15), "for us"),
            (Some("30000000"), Some("8"), Ok(None), "for another process"),
            (
                Some("18446744073709551615"),
                None,
                seconds(3600),
                "an hour at most",
            ),
        ];
        for (usec, pid, expected, why) in rows {
            assert_eq!(watchdog(usec, pid, 7), expected, "{why}");
        }
        for bad in ["1000000", "0", "-5", "30s", "99999999999999999999999"] {
            let refused = watchdog(Some(bad), None, 7).unwrap_err();
            for word in ["WATCHDOG_USEC", bad, "WATCHDOG_USEC=30000000"] {
                assert!(refused.contains(word), "{refused}");
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
            let refused = address(bad).unwrap_err().to_string();
            for word in ["NOTIFY_SOCKET: ", "NOTIFY_SOCKET=/run/systemd/notify"] {
                assert!(refused.contains(word), "{refused}");
            }
            assert!(refused.len() < 300, "{refused}");
        }
    }

    #[test]
    fn the_manager_hears_each_word_once_at_a_path_and_at_an_abstract_name() {
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
            let mut heard = Vec::new();
            while let Ok(len) = manager.recv(&mut buf) {
                heard.push(String::from_utf8_lossy(&buf[..len]).into_owned());
            }
            let expected = [
                "READY=1",
                "RELOADING=1\nMONOTONIC_USEC=77",
                "READY=1",
                "WATCHDOG=1",
                "STOPPING=1",
            ];
            assert_eq!(heard, expected, "{address}");
        }
        // A manager that is slow hears the last word when it listens again.
        let manager = UnixDatagram::bind(dir.with_extension("slow")).unwrap();
        let slow = dir.with_extension("slow").display().to_string();
        let mut notify = Notify::connect(&slow, None).unwrap();
        for _ in 0..10_000 {
            notify.alive();
        }
        notify.ready();
        let mut buf = [0; 64];
        let mut heard = manager.recv(&mut buf).unwrap();
        notify.ready();
        notify.ready();
        manager.set_nonblocking(true).unwrap();
        let mut ready = 0;
        while let Ok(len) = manager.recv(&mut buf) {
            heard = len;
            ready += usize::from(buf.starts_with(b"READY=1"));
        }
        assert_eq!((heard, ready), (7, 1));
        std::fs::remove_file(dir.with_extension("slow")).unwrap();
        std::fs::remove_file(&dir).unwrap();
        assert!(Notify::connect(&path, None).is_err(), "nobody listens");
        Notify::default().ready();
    }
}
