//! Pods in which a memory limit is reached: inotify on `memory.events` of version 2.
//!
//! A container that reads files reaches its limit all the time, and the kernel notifies of that up to a
//! hundred times a second. So each notification is the last one (`IN_ONESHOT`), until the pod is
//! watched again. The file of a pod includes the events of its containers.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tracing::{debug, warn};

use crate::clock::Clock;
use crate::fd::{self, Watched};
use crate::record::{Received, Record};
use crate::units::CgroupId;

/// Maximum number of watched pods. Each pins an inode of about 1 KiB.
const MOST_WATCHES: usize = 1024;

/// Watches pods. Nothing exists until the first pod is watched.
#[derive(Debug)]
pub struct LimitWatch {
    /// Does not keep the channel open. `None`: nothing is watched.
    records: Option<mpsc::WeakSender<Received>>,
    clock: Clock,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    shared: Arc<Shared>,
    /// A pod was not watched, and that was logged.
    incomplete: bool,
    _task: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    inotify: AsyncFd<Watched<Inotify>>,
    pods: Mutex<HashMap<WatchDescriptor, CgroupId>>,
}

impl LimitWatch {
    /// Sends to `records`. Without them, nothing is watched.
    pub const fn new(records: Option<mpsc::WeakSender<Received>>, clock: Clock) -> Self {
        Self {
            records,
            clock,
            running: None,
        }
    }

    /// Sends a record the next time that a cgroup of each pod, in its directory, has an event of memory.
    /// Must be called in a runtime.
    pub fn add(&mut self, pods: impl Iterator<Item = (CgroupId, PathBuf)>) {
        if self.running.is_none()
            && let Some(records) = &self.records
        {
            let started = Running::start(self.clock, records.clone());
            let logged = started.inspect_err(|err| {
                let err = err as &dyn Error;
                warn!(err, "reached memory limits are not reported");
            });
            self.running = logged.ok();
        }
        if let Some(running) = &mut self.running {
            for (pod, dir) in pods {
                running.add(pod, &dir);
            }
        }
    }

    /// Watches no pod any more.
    pub fn stop(&mut self) {
        self.running = None;
    }
}

impl Running {
    fn start(clock: Clock, records: mpsc::WeakSender<Received>) -> io::Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let shared = Arc::new(Shared {
            inotify: fd::watch(inotify, Interest::READABLE)?,
            pods: Mutex::default(),
        });
        let mut task = JoinSet::new();
        let reader = Arc::clone(&shared);
        task.spawn(async move {
            if let Err(err) = read(&reader, clock, records).await {
                let err = &err as &dyn Error;
                warn!(err, "reached memory limits are no longer reported");
            }
        });
        Ok(Self {
            shared,
            incomplete: false,
            _task: task,
        })
    }

    fn add(&mut self, pod: CgroupId, dir: &Path) {
        const ONCE: AddWatchFlags = AddWatchFlags::IN_MODIFY.union(AddWatchFlags::IN_ONESHOT);
        let mut pods = self
            .shared
            .pods
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let inotify = &self.shared.inotify.get_ref().0;
        let why = if MOST_WATCHES <= pods.len() {
            format!("there are more than {MOST_WATCHES} pods")
        } else {
            match inotify.add_watch(&dir.join("memory.events"), ONCE) {
                Ok(descriptor) => {
                    pods.insert(descriptor, pod);
                    return;
                }
                Err(Errno::ENOSPC) => "raise fs.inotify.max_user_watches".to_owned(),
                Err(err) => {
                    debug!(
                        err = &err as &dyn Error,
                        "pod not watched, as it was removed"
                    );
                    return;
                }
            }
        };
        if !std::mem::replace(&mut self.incomplete, true) {
            warn!(why, "reached memory limits of some pods are not reported");
        }
    }
}

async fn read(
    shared: &Shared,
    clock: Clock,
    records: mpsc::WeakSender<Received>,
) -> io::Result<()> {
    loop {
        let mut ready = shared.inotify.readable().await?;
        let events = match ready.get_inner().0.read_events() {
            Ok(events) => events,
            Err(Errno::EAGAIN) => {
                ready.clear_ready();
                continue;
            }
            Err(Errno::EINTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        for event in events {
            let Some(pod) = shared.notified(&event) else {
                continue;
            };
            let Some(records) = records.upgrade() else {
                return Ok(());
            };
            let received = Received {
                read: clock.now().boot,
                record: Ok(Record::MemoryLimitReached { pod }),
            };
            if records.send(received).await.is_err() {
                return Ok(());
            }
        }
    }
}

impl Shared {
    /// The pod that the event is about. `None`: its watch has ended.
    fn notified(&self, event: &InotifyEvent) -> Option<CgroupId> {
        let mut pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
            pods.remove(&event.wd);
            return None;
        }
        pods.get(&event.wd).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;
    use crate::host::scratch::Scratch;

    const SOON: Duration = Duration::from_secs(10);

    async fn next(records: &mut mpsc::Receiver<Received>) -> Option<CgroupId> {
        let received = tokio::time::timeout(SOON, records.recv()).await.ok()??;
        match received.record {
            Ok(Record::MemoryLimitReached { pod }) => Some(pod),
            other => panic!("{other:?}"),
        }
    }

    fn watched(watch: &LimitWatch) -> usize {
        let running = watch.running.as_ref().unwrap();
        running.shared.pods.lock().unwrap().len()
    }

    #[tokio::test]
    async fn each_pod_is_notified_of_once_until_it_is_watched_again() {
        let dir = Scratch::new();
        let at = |pod: &str| dir.path().join(pod);
        for pod in ["a", "b"] {
            dir.write(&format!("{pod}/memory.events"), "max 0");
        }
        let event = |pod: &str| fs::write(at(pod).join("memory.events"), "max 1").unwrap();
        let (send, mut records) = mpsc::channel(8);
        let mut watch = LimitWatch::new(Some(send.downgrade()), Clock::kernel());
        assert!(watch.running.is_none());
        watch.add([(CgroupId(1), at("a"))].into_iter());
        watch.add([(CgroupId(2), at("b"))].into_iter());
        watch.add([(CgroupId(3), at("removed"))].into_iter());
        assert_eq!(watched(&watch), 2);
        for _ in 0..100 {
            event("a");
        }
        assert_eq!(next(&mut records).await, Some(CgroupId(1)));
        event("b");
        assert_eq!(
            next(&mut records).await,
            Some(CgroupId(2)),
            "and a only once"
        );
        event("a");
        watch.add([(CgroupId(1), at("a"))].into_iter());
        event("a");
        assert_eq!(next(&mut records).await, Some(CgroupId(1)));
        watch.add([(CgroupId(2), at("b"))].into_iter());
        fs::remove_dir_all(at("b")).unwrap();
        watch.add([(CgroupId(1), at("a"))].into_iter());
        event("a");
        assert_eq!(
            next(&mut records).await,
            Some(CgroupId(1)),
            "and no removed pod"
        );
        assert_eq!(watched(&watch), 0);
        assert_eq!(records.len(), 0);
        watch.stop();
        assert!(watch.running.is_none());
    }

    #[tokio::test]
    async fn the_number_of_watches_is_limited_with_one_warning_and_the_channel_may_close() {
        let dir = Scratch::new();
        let log = dir.path().join("log");
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_writer(Arc::new(fs::File::create(&log).unwrap()))
            .finish();
        let _logged = tracing::subscriber::set_default(subscriber);
        let (send, mut records) = mpsc::channel(8);
        let mut watch = LimitWatch::new(Some(send.downgrade()), Clock::kernel());
        assert!(watch.running.is_none());
        for n in 0..MOST_WATCHES as u64 + 5 {
            dir.write(&format!("{n}/memory.events"), "");
            watch.add([(CgroupId(n), dir.path().join(n.to_string()))].into_iter());
        }
        assert_eq!(watched(&watch), MOST_WATCHES);
        let log = fs::read_to_string(log).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("more than 1024 pods"), "{log}");
        drop(send);
        let closed = tokio::time::timeout(SOON, records.recv()).await;
        assert!(closed.unwrap().is_none(), "the watch does not keep it open");
    }
}
