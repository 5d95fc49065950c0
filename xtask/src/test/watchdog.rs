//! Ends a stage that does not end by itself, so that the run still closes with its table.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub struct Watchdog {
    stop: Sender<()>,
    thread: JoinHandle<bool>,
}

pub fn start(limit: Duration) -> Watchdog {
    let (stop, stopped) = mpsc::channel();
    let thread = thread::spawn(move || {
        let late = stopped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        if late {
            // A killed process may just have started another: until `stop`, search again.
            while stopped.recv_timeout(Duration::from_millis(200)) == Err(RecvTimeoutError::Timeout)
            {
                kill_descendants(nix::unistd::getpid());
            }
        }
        late
    });
    Watchdog { stop, thread }
}

impl Watchdog {
    /// Whether the time ran out before this call.
    pub fn stop(self) -> bool {
        // The thread has the other end until it stops; if it panicked, joining returns that.
        let _ = self.stop.send(());
        self.thread.join().unwrap_or(true)
    }
}

/// Children in separate process groups would not get Ctrl-C, so they are found by parent.
fn kill_descendants(of: Pid) {
    for child in children(of) {
        kill_descendants(child);
        // It may have ended meanwhile.
        let _ = kill(child, Signal::SIGKILL);
    }
}

fn children(of: Pid) -> Vec<Pid> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| parent(&stat) == Some(of.as_raw()))
    };
    pids.filter(is_child).map(Pid::from_raw).collect()
}

/// The fourth field of `/proc/<pid>/stat`. The second, in parentheses, may contain anything.
fn parent(stat: &str) -> Option<i32> {
    let (_, behind_name) = stat.rsplit_once(") ")?;
    behind_name.split(' ').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::Instant;

    #[test]
    fn the_parent_is_found_behind_a_hostile_name() {
        assert_eq!(parent("12 (a) S 7 (b) R 34 5 6"), Some(34));
        assert_eq!(parent("12 sh"), None);
    }

    #[test]
    fn descendants_are_killed_with_their_children() {
        let script = "sh -c 'sleep 60; true'; true";
        // If it continues to run, it does not keep an output open.
        let mut outer = Command::new("sh");
        outer
            .args(["-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let mut outer = outer.spawn().unwrap();
        let outer_pid = Pid::from_raw(i32::try_from(outer.id()).unwrap());
        let inner = until(|| only_child(only_child(outer_pid)?));
        let inner = inner.expect("the inner sleep has started");

        kill_descendants(outer_pid);
        outer.wait().unwrap();
        assert_eq!(
            until(|| (!is_running(inner)).then_some(())),
            Some(()),
            "{inner} runs on"
        );
    }

    fn only_child(of: Pid) -> Option<Pid> {
        children(of).first().copied()
    }

    /// Killed processes remain zombies until their new parent waits for them.
    fn is_running(pid: Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    /// The value of `found`, if it has one within 10 s.
    fn until<T>(found: impl Fn() -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if let Some(found) = found() {
                return Some(found);
            }
            thread::yield_now();
        }
        None
    }
}
