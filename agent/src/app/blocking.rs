//! Calls that can wait for a disk, on one helper thread with a time limit: a hung disk must not stop
//! the lease, nor the report of the hung disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{debug, warn};

use crate::clock::Stamp;
use crate::config::Config;
use crate::host::{HostRoot, block, statfs};
use crate::pressure::look::Look;
use crate::reading::Signal;
use crate::units::{Bytes, DeviceNumber};

/// What is asked for waits so long, then it counts as not answered.
const LIMIT: Duration = Duration::from_secs(5);

/// Questions that wait. When it is full the newest is dropped: whoever asks asks again.
const QUESTIONS: usize = 64;

/// What to look at.
#[derive(Debug)]
pub(super) enum Question {
    /// Space and inodes of the root directory's file system.
    Storage,
    /// The kernel says that a disk is slow: do its requests carry their start times?
    SlowDisk {
        /// Which.
        device: DeviceNumber,
        /// Its name under `/sys/block`.
        name: String,
        /// When the kernel said so.
        stamp: Stamp,
    },
    /// How many requests a slow disk has in flight.
    InFlight {
        /// Which.
        device: DeviceNumber,
        /// Its name under `/sys/block`.
        name: String,
    },
}

/// What was found.
#[derive(Debug)]
pub(super) enum Answer {
    /// To [`Question::Storage`].
    Storage {
        /// For the evaluation.
        looks: Vec<Look>,
        /// Size of the file system.
        capacity: Option<Bytes>,
    },
    /// To [`Question::SlowDisk`].
    SlowDisk {
        /// Which.
        device: DeviceNumber,
        /// Whether I/O statistics are on, so that the kernel's judgement counts.
        counts: bool,
        /// As asked.
        stamp: Stamp,
    },
    /// To [`Question::InFlight`].
    InFlight {
        /// Which.
        device: DeviceNumber,
        /// Reads and writes; `None` where it cannot be read.
        in_flight: Option<u64>,
    },
}

/// Asks and is answered.
pub(super) struct Blocking {
    place: Place,
    questions: mpsc::Sender<Question>,
    answers: mpsc::Receiver<Answer>,
}

/// Where to look.
#[derive(Debug, Clone)]
struct Place {
    root: HostRoot,
    directory: PathBuf,
}

impl Blocking {
    /// Must be called in a runtime.
    pub(super) fn new(config: &Config) -> Self {
        let root = HostRoot::new(&config.host_root);
        let directory = existing(&root.path(&config.root_directory));
        let place = Place { root, directory };
        let (questions, asked) = mpsc::channel(QUESTIONS);
        // As many answers as questions, so that neither waits for the other.
        let (answer, answers) = mpsc::channel(QUESTIONS);
        tokio::spawn(work(place.clone(), asked, answer));
        Self {
            place,
            questions,
            answers,
        }
    }

    pub(super) fn ask(&self, question: Question) {
        if self.questions.try_send(question).is_err() {
            debug!("the helper is busy; asked again later");
        }
    }

    /// Asks and waits, for before the loop runs.
    pub(super) async fn ask_now(&self, question: Question) -> Answer {
        on_thread(&self.place, question).await
    }

    /// The next answer; never ends.
    pub(super) async fn answer(&mut self) -> Answer {
        match self.answers.recv().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

async fn work(place: Place, mut asked: mpsc::Receiver<Question>, answer: mpsc::Sender<Answer>) {
    while let Some(question) = asked.recv().await {
        if answer
            .send(on_thread(&place, question).await)
            .await
            .is_err()
        {
            return;
        }
    }
}

/// Asks on the helper thread. One question at a time: a thread that hangs is given up after the
/// limit, and its answer, should it come, is dropped.
async fn on_thread(place: &Place, question: Question) -> Answer {
    let unanswered = Answer::missing(&question);
    let place = place.clone();
    let call = tokio::task::spawn_blocking(move || place.look(question));
    match tokio::time::timeout(LIMIT, call).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(err)) => {
            warn!(err = &err as &dyn std::error::Error, "a look failed");
            unanswered
        }
        Err(_) => {
            warn!(limit_s = LIMIT.as_secs(), "the file system does not answer");
            unanswered
        }
    }
}

impl Place {
    fn look(&self, question: Question) -> Answer {
        match question {
            Question::Storage => storage(&self.directory),
            Question::SlowDisk {
                device,
                name,
                stamp,
            } => {
                let counts = block::iostats(&self.root, &name)
                    .ok()
                    .flatten()
                    .unwrap_or(false);
                Answer::SlowDisk {
                    device,
                    counts,
                    stamp,
                }
            }
            Question::InFlight { device, name } => {
                let read = block::in_flight(&self.root, &name).ok().flatten();
                let in_flight = read.map(|now| now.reads.saturating_add(now.writes));
                Answer::InFlight { device, in_flight }
            }
        }
    }
}

const STORAGE: [Signal; 2] = [Signal::NodefsAvailable, Signal::NodefsInodesFree];

impl Answer {
    /// What not being answered means. A disk that cannot even be asked is taken at the kernel's
    /// word.
    fn missing(question: &Question) -> Self {
        match question {
            Question::Storage => Self::Storage {
                looks: STORAGE.map(Look::Missing).to_vec(),
                capacity: None,
            },
            Question::SlowDisk { device, stamp, .. } => Self::SlowDisk {
                device: *device,
                counts: true,
                stamp: *stamp,
            },
            Question::InFlight { device, .. } => Self::InFlight {
                device: *device,
                in_flight: None,
            },
        }
    }
}

fn storage(directory: &Path) -> Answer {
    let usage = match statfs::read(directory) {
        Ok(usage) => usage,
        Err(err) => {
            debug!(err = &err as &dyn std::error::Error, "file system not read");
            return Answer::missing(&Question::Storage);
        }
    };
    let seen: Vec<_> = usage.readings(statfs::Holds::Node).collect();
    let look = |signal| {
        let reading = seen.iter().find(|reading| reading.signal == signal);
        reading.map_or(Look::Missing(signal), |reading| Look::Seen(*reading))
    };
    Answer::Storage {
        looks: STORAGE.map(look).to_vec(),
        capacity: Some(usage.capacity),
    }
}

/// The directory, or the nearest one above it that exists: its file system is where the directory
/// would be made.
fn existing(directory: &Path) -> PathBuf {
    let found = directory.ancestors().find(|dir| dir.is_dir());
    let found = found.unwrap_or(Path::new("/")).to_owned();
    if found != directory {
        warn!(
            wanted = %directory.display(),
            used = %found.display(),
            "rootDirectory does not exist; its file system is taken to be that of the directory above"
        );
    }
    found
}
