//! Attacks an agent on a real machine, each attack until it is dropped or its time is over.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::days::Draws;
use crate::http1;

/// Size in bytes that exceeds any file that the agent reads.
const HUGE: u64 = 1 << 30;

/// A file that the agent reads repeatedly, and its valid content.
#[derive(Debug)]
pub struct Victim {
    /// The path at which the agent connects.
    pub path: PathBuf,
    pub content: String,
}

impl Victim {
    /// Replaces the file by its valid content atomically.
    pub fn restore(&self) {
        let new = self.path.with_extension("new");
        fs::write(&new, &self.content).expect("a new file");
        self.replace(&new);
    }

    fn replace(&self, by: &Path) {
        // A directory cannot be replaced by a file.
        if self.path.is_dir() {
            fs::remove_dir(&self.path).expect("an empty directory");
        }
        fs::rename(by, &self.path).expect("another file in its place");
    }

    /// Replaces the file by something invalid.
    pub fn spoil(&self, draws: &Draws) {
        let new = self.path.with_extension("new");
        match draws.below(7) {
            0 => fs::write(&new, "\u{0}garbage: [").expect("garbage"),
            1 => mkfifo(&new, Mode::S_IRWXU).expect("a FIFO"),
            2 => {
                let huge = File::create(&new).expect("a file");
                huge.set_len(HUGE).expect("a sparse file");
            }
            3 => symlink("/dev/zero", &new).expect("a link to a device"),
            4 => symlink(&self.path, &new).expect("a link to itself"),
            5 => fs::create_dir(&new).expect("a directory"),
            _ => fs::write(&new, "").expect("an empty file"),
        }
        if new.is_dir() {
            drop(fs::remove_file(&self.path));
        }
        self.replace(&new);
    }
}

/// Spoils and restores the files in turn, and makes the process reload them each time.
pub async fn files(victims: &[Victim], pid: u32, draws: Draws, end: Instant) {
    while Instant::now() < end {
        for victim in victims {
            victim.spoil(&draws);
            signal(pid, Signal::SIGHUP);
            sleep(Duration::from_millis(500 + draws.below(4_000))).await;
            victim.restore();
            signal(pid, Signal::SIGHUP);
            sleep(Duration::from_millis(500 + draws.below(2_000))).await;
        }
    }
}

/// Opens connections without a request, or with an incomplete one, as fast as the machine allows,
/// and keeps `count` of them.
pub async fn half_open(address: String, count: usize, end: Instant) {
    let mut open = std::collections::VecDeque::new();
    while Instant::now() < end {
        match TcpStream::connect(&address).await {
            Ok(mut stream) => {
                // It may have been closed already.
                drop(stream.write_all(b"GET /livez HTTP/1.1\r\nX: ").await);
                open.push_back(stream);
            }
            Err(_) => sleep(Duration::from_millis(10)).await,
        }
        if open.len() > count {
            open.pop_front();
        }
        sleep(Duration::from_millis(5)).await;
    }
}

/// Requests `/livez` once a second, like a kubelet, with a time limit of one second. Returns the
/// probes that failed, with the times of `now`.
pub async fn probes(
    address: String,
    now: impl Fn() -> Duration,
    end: Instant,
) -> Vec<(Duration, String)> {
    let mut failed = Vec::new();
    while Instant::now() < end {
        let began = now();
        let probe = async {
            let stream = TcpStream::connect(&address).await?;
            io::Result::Ok(http1::exchange(stream, &http1::request("GET", "/livez")).await)
        };
        match timeout(Duration::from_secs(1), probe).await {
            Ok(Ok(answer)) if answer.code == Some(200) => {}
            other => failed.push((began, format!("{other:?}"))),
        }
        sleep(Duration::from_secs(1)).await;
    }
    failed
}

/// Writes a credential plugin whose behaviour is the content of the file `mode` next to it.
pub fn plugin(dir: &Path, token: &str) -> PathBuf {
    let script = format!(
        r#"#!/bin/sh
case "$(cat {mode})" in
hang) sleep 3600 & sleep 3600 & wait ;;
escape) setsid sleep 30 & sleep 3600 ;;
flood) yes ;;
garbage) printf '\377\000{{' ;;
fail) exit 1 ;;
*) until=$(date -u -d '+20 seconds' +%Y-%m-%dT%H:%M:%SZ)
   echo '{{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {{"token": "{token}", "expirationTimestamp": "'$until'"}}}}' ;;
esac
"#,
        mode = mode(dir).display()
    );
    let path = dir.join("plugin");
    fs::write(&path, script).expect("a script");
    set_mode(dir, "good");
    path
}

fn mode(dir: &Path) -> PathBuf {
    dir.join("mode")
}

pub fn set_mode(dir: &Path, what: &str) {
    fs::write(mode(dir), what).expect("the mode of the plugin");
}

/// Changes the plugin's behaviour by turns.
pub async fn credentials(dir: &Path, draws: Draws, end: Instant) {
    const MODES: [&str; 5] = ["hang", "escape", "flood", "garbage", "fail"];
    while Instant::now() < end {
        let drawn = usize::try_from(draws.below(MODES.len() as u64)).expect("a small number");
        set_mode(dir, MODES[drawn]);
        sleep(Duration::from_secs(10 + draws.below(20))).await;
        set_mode(dir, "good");
        sleep(Duration::from_secs(5 + draws.below(20))).await;
    }
}

/// Stops the process for `time`, while requests and events continue.
pub async fn stopped(pid: u32, time: Duration) {
    signal(pid, Signal::SIGSTOP);
    sleep(time).await;
    signal(pid, Signal::SIGCONT);
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("a process id"));
    // It may have ended, which the test detects.
    let _: nix::Result<()> = kill(pid, signal);
}
