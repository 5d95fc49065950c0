//! Calls that can wait for a disk or a server, with a time limit: a hung disk must not stop the lease,
//! nor the report of the hung disk.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::lanes::Lanes;
use super::reload::ReadConfig;
use crate::config::{Config, Mode};
use crate::host::cgroup::pods::PodsPath;
use crate::host::cgroup::{self, oom};
use crate::host::{HostRoot, volumes};
use crate::lane::{Lane, Purpose};
use crate::names::Names;
use crate::node_status::AttachDetach;
use crate::pods::{self, classify};
use crate::pressure::sample::Sample;
use crate::reading::Signal;
use crate::state::State;
use crate::subjects::kill_counters::{CgroupKills, CountedKills};
use crate::subjects::{DiskInput, DiskQuery};
use crate::tasks::Tasks;
use crate::units::Bytes;

mod disks;
mod nodefs;

use nodefs::storage;

pub(super) use disks::list as list_disks;

/// What is asked for waits so long, then it counts as not answered.
const LIMIT: Duration = Duration::from_secs(5);

/// Questions that wait in one lane: two for each disk that can be watched. When it is full
/// the newest is dropped, with a warning.
const QUESTIONS: usize = 512;

/// What to look at.
#[derive(Debug)]
pub(super) enum Question {
    /// Space and inodes of the root directory's file system, and the volumes below it.
    Storage,
    /// What DNS says of a name.
    Resolve {
        /// The name.
        name: String,
    },
    /// Of the subject `disks`.
    Disk(DiskQuery),
    /// How many kills each pod has had.
    Kills,
    /// The same, and what is remembered of the last start.
    Recall,
    /// Remember this.
    Remember(Box<State>),
    /// What all layers of the configuration say now.
    Configuration,
}

/// What was found.
#[derive(Debug)]
pub(super) enum Answer {
    /// To [`Question::Storage`].
    Storage(Storage),
    /// To [`Question::Disk`].
    Disk(DiskInput),
    /// To [`Question::Kills`]; `None`: not read.
    Kills(Option<CountedKills>),
    /// To [`Question::Recall`].
    Recalled {
        /// Of this boot or another; `None`: nothing, or nothing that can be used.
        state: Option<Box<State>>,
        /// As [`Answer::Kills`].
        kills: Option<CountedKills>,
    },
    /// To [`Question::Remember`].
    Remembered,
    /// To [`Question::Resolve`].
    Resolved(Vec<IpAddr>),
    /// To [`Question::Configuration`]; `Err` is one line that says what is wrong.
    Configured(Result<Box<Config>, String>),
}

/// What was found of the root directory's file system.
#[derive(Debug)]
pub(super) struct Storage {
    /// For the evaluation.
    pub(super) looks: Vec<Sample>,
    /// Its size.
    pub(super) capacity: Option<Bytes>,
    /// The volumes that are in use; `None`: not known, or not asked for.
    pub(super) volumes: Option<Vec<String>>,
}

/// Whether anything is remembered from one start to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// In the state directory.
    Kept,
    /// No file is written, and none believed.
    None,
}

/// Asks and is answered.
pub(super) struct Blocking {
    configuration: mpsc::Sender<Question>,
    nodefs: mpsc::Sender<Question>,
    /// Disks: never behind a file system that hangs.
    disks: mpsc::Sender<Question>,
    /// Our own file, and what stands in it.
    state: mpsc::Sender<Question>,
    /// Needs no thread.
    names: Names,
    answer: mpsc::Sender<Answer>,
    answers: mpsc::Receiver<Answer>,
    /// To questions for which there was no room.
    unasked: VecDeque<Answer>,
}

/// Where to look.
#[derive(Debug, Clone)]
struct Place {
    root: HostRoot,
    directory: PathBuf,
    /// Who asks for the volumes in use; `None`: nobody.
    attach_detach: Option<AttachDetach>,
    /// `None`: nothing is remembered.
    state: Option<PathBuf>,
    pods: PodsPath,
    read: Option<ReadConfig>,
}

impl Blocking {
    /// Must be called in a runtime.
    pub(super) fn new(
        config: &Config,
        pods: PodsPath,
        memory: Memory,
        read: Option<ReadConfig>,
        (lanes, tasks): (&Lanes, &mut Tasks),
    ) -> Self {
        let root = HostRoot::new(&config.host_root);
        let directory = root.path(&config.root_directory);
        let place = Place {
            root,
            directory,
            attach_detach: match config.mode {
                Mode::Node => Some(config.attach_detach),
                // They are the kubelet's to tell.
                Mode::Companion => None,
            },
            state: match memory {
                Memory::Kept => Some(config.state_directory.clone()),
                Memory::None => None,
            },
            pods,
            read,
        };
        // As many answers as questions, so that neither waits for the other.
        let (answer, answers) = mpsc::channel(QUESTIONS);
        let mut lane = |purpose: Purpose| {
            let (questions, asked) = mpsc::channel(QUESTIONS);
            let work = work(place.clone(), lanes.of(purpose), asked, answer.clone());
            tasks.spawn(purpose.as_str(), work);
            questions
        };
        Self {
            configuration: lane(Purpose::Configuration),
            nodefs: lane(Purpose::Nodefs),
            disks: lane(Purpose::Disks),
            state: lane(Purpose::State),
            names: Names::system(),
            answer,
            answers,
            unasked: VecDeque::new(),
        }
    }

    /// Has one answer follow, whatever comes of the question.
    pub(super) fn ask(&mut self, question: Question) {
        let lane = match question {
            Question::Resolve { name } => return self.resolve(name),
            Question::Configuration => &self.configuration,
            Question::Storage => &self.nodefs,
            Question::Disk(_) => &self.disks,
            Question::Kills | Question::Recall | Question::Remember(_) => &self.state,
        };
        // Announced disks leave room for questions about disks that are not well. What is dropped
        // here is found when the disks are listed again.
        let announced = matches!(
            question,
            Question::Disk(DiskQuery::Find(_) | DiskQuery::List)
        );
        let crowded = announced && lane.capacity() < QUESTIONS / 2;
        let refused = if crowded {
            Err(question)
        } else {
            let sent = lane.try_send(question);
            sent.map_err(mpsc::error::TrySendError::into_inner)
        };
        if let Err(question) = refused {
            warn!("too many questions to the file system; one is dropped");
            self.unasked.push_back(Answer::missing(&question));
        }
    }

    fn resolve(&self, name: String) {
        let (names, answer) = (self.names.clone(), self.answer.clone());
        tokio::spawn(async move {
            let found = names.resolve(&name).await.unwrap_or_else(|err| {
                debug!(
                    err = &err as &dyn std::error::Error,
                    "no addresses for the node's name"
                );
                Vec::new()
            });
            if answer.send(Answer::Resolved(found)).await.is_err() {
                debug!("nobody waits for addresses any more");
            }
        });
    }

    /// The next answer; never ends.
    pub(super) async fn answer(&mut self) -> Answer {
        if let Some(answer) = self.unasked.pop_front() {
            return answer;
        }
        match self.answers.recv().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

/// Asks on the lane's thread, one question at a time. A call that takes longer than the limit counts
/// as not answered; while it still hangs, nothing more is asked on this lane.
async fn work(
    place: Place,
    lane: Lane,
    mut asked: mpsc::Receiver<Question>,
    answer: mpsc::Sender<Answer>,
) {
    // Nobody asks for the configuration again after it has changed.
    let mut owed = false;
    loop {
        let question = tokio::select! {
            question = asked.recv() => match question {
                Some(question) => question,
                None => return,
            },
            () = lane.free(), if owed => Question::Configuration,
        };
        let unanswered = Answer::missing(&question);
        let is_configuration = matches!(question, Question::Configuration);
        let place = place.clone();
        let found = lane.run(LIMIT, move || place.look(question)).await;
        owed = is_configuration && found.is_err();
        let found = found.unwrap_or_else(|err| {
            let (purpose, err) = (lane.purpose().as_str(), &err as &dyn std::error::Error);
            debug!(purpose, err, "a question stays without an answer");
            unanswered
        });
        if answer.send(found).await.is_err() {
            return;
        }
    }
}

impl Place {
    fn look(&self, question: Question) -> Answer {
        match question {
            Question::Storage => storage(&self.directory, self.volumes()),
            // Needs no thread.
            Question::Resolve { .. } => Answer::Resolved(Vec::new()),
            Question::Disk(query) => Answer::Disk(disks::answer(&self.root, query)),
            Question::Kills => Answer::Kills(self.kills()),
            Question::Recall => Answer::Recalled {
                state: self.recall().map(Box::new),
                kills: self.kills(),
            },
            Question::Remember(state) => {
                self.remember(&state);
                Answer::Remembered
            }
            Question::Configuration => Answer::Configured(match &self.read {
                Some(read) => read.read().map(Box::new),
                None => Err("there is nothing to read it from".to_owned()),
            }),
        }
    }

    fn remember(&self, state: &State) {
        let Some(directory) = &self.state else {
            return;
        };
        if let Err(err) = state.save(directory) {
            warn!(
                directory = %directory.display(),
                err = &err as &dyn std::error::Error,
                "nothing is remembered for the next start"
            );
        }
    }

    /// Only where the control plane attaches volumes: nobody else waits for the answer.
    fn volumes(&self) -> Option<Vec<String>> {
        match self.attach_detach {
            Some(AttachDetach::Controller) => volumes::mounted(&self.root, &self.directory)
                .inspect_err(|err| {
                    debug!(err = err as &dyn std::error::Error, "volumes not known");
                })
                .ok(),
            Some(AttachDetach::Node) | None => None,
        }
    }

    fn recall(&self) -> Option<State> {
        let directory = self.state.as_deref()?;
        State::load(directory).unwrap_or_else(|err| {
            warn!(
                directory = %directory.display(),
                err = &err as &dyn std::error::Error,
                "nothing is known of the last start"
            );
            None
        })
    }

    /// At the pods cgroup and at each pod.
    fn kills(&self) -> Option<CountedKills> {
        let all = self.pods.path();
        let of = |path: &str| {
            let is = |path: &str| classify(path, all);
            let counts = |path: &&str| {
                matches!(
                    is(path),
                    pods::CgroupKind::Pods | pods::CgroupKind::Pod { .. }
                )
            };
            let mut above =
                cgroup::ancestors(path).take_while(|path| is(path) != pods::CgroupKind::Other);
            above.find(counts).map(str::to_owned)
        };
        let found = oom::kills_below(&self.pods.layout()?.memory, all, of);
        let counted = |cgroups| CountedKills {
            pods: all.to_owned(),
            cgroups,
        };
        match found {
            Ok(found) => {
                let found = found.into_iter();
                let found = found.map(|(id, cgroup, kills)| CgroupKills { id, cgroup, kills });
                let cgroups: Vec<CgroupKills> = found.collect();
                // Without that of all pods it is not known how many were killed.
                let of_all = |one: &CgroupKills| one.cgroup == all;
                cgroups.iter().any(of_all).then_some(counted(cgroups))
            }
            // No pods yet.
            Err(err) if err.is_absent() => Some(counted(Vec::new())),
            Err(err) => {
                debug!(err = &err as &dyn std::error::Error, "kills not counted");
                None
            }
        }
    }
}

/// The signals of [`Question::Storage`].
pub(super) const STORAGE: [Signal; 2] = [Signal::NodefsAvailable, Signal::NodefsInodesFree];

impl Answer {
    /// Whether the agent waits for it before it says anything.
    pub(super) const fn is_of_the_first_look(&self) -> bool {
        matches!(
            self,
            Self::Storage(_) | Self::Recalled { .. } | Self::Resolved(_)
        )
    }

    /// What not being answered means. A disk that cannot even be asked is taken at the kernel's
    /// word.
    fn missing(question: &Question) -> Self {
        match question {
            Question::Storage => Self::Storage(Storage {
                looks: STORAGE.map(Sample::Missing).to_vec(),
                capacity: None,
                volumes: None,
            }),
            Question::Resolve { .. } => Self::Resolved(Vec::new()),
            Question::Kills => Self::Kills(None),
            Question::Recall => Self::Recalled {
                state: None,
                kills: None,
            },
            Question::Remember(_) => Self::Remembered,
            Question::Configuration => {
                Self::Configured(Err("the file system does not answer".to_owned()))
            }
            Question::Disk(query) => Self::Disk(disks::timed_out(query)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lanes with one place each, and nobody who asks.
    fn crowded() -> (Blocking, Vec<mpsc::Receiver<Question>>) {
        let mut asked = Vec::new();
        let mut lane = || {
            let (questions, lane) = mpsc::channel(1);
            asked.push(lane);
            questions
        };
        let (answer, answers) = mpsc::channel(1);
        let blocking = Blocking {
            configuration: lane(),
            nodefs: lane(),
            disks: lane(),
            state: lane(),
            names: Names::system(),
            answer,
            answers,
            unasked: VecDeque::new(),
        };
        (blocking, asked)
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_finds_no_room_is_answered_as_one_that_hangs() {
        type Row = (&'static str, fn() -> Question, fn(&Answer) -> bool);
        let rows: [Row; 4] = [
            (
                "configuration",
                || Question::Configuration,
                |answer| matches!(answer, Answer::Configured(Err(_))),
            ),
            (
                "nodefs",
                || Question::Storage,
                |answer| matches!(answer, Answer::Storage(found) if found.capacity.is_none()),
            ),
            (
                "disks",
                || Question::Disk(DiskQuery::Counters(Vec::new())),
                |answer| matches!(answer, Answer::Disk(_)),
            ),
            (
                "state",
                || Question::Remember(Box::default()),
                |answer| matches!(answer, Answer::Remembered),
            ),
        ];
        for (name, question, expected) in rows {
            let (mut blocking, _asked) = crowded();
            blocking.ask(question());
            blocking.ask(question());
            let answer = tokio::time::timeout(LIMIT, blocking.answer()).await;
            assert!(answer.is_ok_and(|answer| expected(&answer)), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_task_of_a_lane_each_of_its_questions_is_answered() {
        let (mut blocking, asked) = crowded();
        drop(asked);
        for _ in 0..3 {
            blocking.ask(Question::Kills);
        }
        for _ in 0..3 {
            let answer = tokio::time::timeout(LIMIT, blocking.answer()).await;
            assert!(matches!(answer, Ok(Answer::Kills(None))));
        }
    }
}
