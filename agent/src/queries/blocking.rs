//! Calls that can wait for a disk or a server, with a time limit: a hung disk must stop neither
//! lease renewals nor the report of that disk.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::incident::Position;
use nodepulse_core::kube_event::ReportedKills;
use nodepulse_core::node_status::AttachDetach;
use nodepulse_core::pods::LinkSearch;
use nodepulse_core::reading::Machine;
use nodepulse_core::settings::Mode;
use nodepulse_core::subjects::VolumeInput;
use nodepulse_core::subjects::incidents::LinksRead;
use nodepulse_core::subjects::{
    BlockingQuery, DiskInput, DiskQuery, IncidentInput, Input, KillCounterInput, Previous,
    SignalInput, StallInput, StateInput,
};
use nodepulse_core::units::DeviceNumber;
use nodepulse_io::lane::{Lane, Lanes, NoAnswer, Purpose};
use nodepulse_io::names::Names;
use nodepulse_io::tasks::Tasks;
use nodepulse_linux::host::cgroup::pods::PodsPath;
use nodepulse_linux::host::{HostRoot, container_logs, machine, volumes};
use nodepulse_linux::state::State;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::read_config::ReadConfig;
use crate::config::Config;

mod counted_kills;
mod disk_files;
mod io_wait;
mod kill_details;
mod largest_owners;
pub mod nodefs;
mod question;
mod runtime;
pub mod saved;
mod shortage;
mod units;

use nodefs::Directories;
use question::unanswered;
pub use question::{Answer, Initial, Question};
pub use runtime::RuntimeClient;
use units::CgroupReader;

const LIMIT: Duration = Duration::from_secs(5);

/// Time for which a question is not repeated after there was no thread for it.
const NO_THREAD_PAUSE: Duration = Duration::from_secs(1);

/// Time limit for the answers that an exit waits for: counted kills and saved state.
pub const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Capacity of a lane's queue: two questions for each disk that can be watched. If it is full, the
/// newest question is dropped with a warning.
const QUESTIONS: usize = 512;

pub struct Blocking {
    configuration: mpsc::Sender<Box<Question>>,
    nodefs: mpsc::Sender<Box<Question>>,
    /// Separate, so that a hung file system does not delay queries of disks.
    disks: mpsc::Sender<Box<Question>>,
    container_logs: mpsc::Sender<Box<Question>>,
    kill_details: mpsc::Sender<Box<Question>>,
    /// The state file and the cgroups' counters of OOM kills.
    state: mpsc::Sender<Box<Question>>,
    /// Uses the lane of `disks`, twice for each question.
    io_wait: CgroupReader,
    /// Uses the lane of `kill_details`: no file of either waits for a disk.
    shortage: CgroupReader,
    /// Has a task instead of a lane. `None` if no container runtime is used.
    runtime: Option<mpsc::Sender<Box<Question>>>,
    /// Has a separate lane.
    names: Names,
    /// The messages of all queues are boxed: a queue keeps the memory of more than a hundred.
    answer: mpsc::Sender<Box<Answer>>,
    answers: mpsc::Receiver<Box<Answer>>,
    /// Answers to dropped questions.
    dropped: VecDeque<Answer>,
}

#[derive(Debug, Clone)]
pub struct Responder {
    root: HostRoot,
    directories: Directories,
    /// The component that attaches volumes; `None` if the volumes in use are not reported.
    attach_detach: Option<AttachDetach>,
    state_directory: PathBuf,
    /// The part that every state file of this run has; `None` without a state file.
    base: Option<State>,
    pods: PodsPath,
    /// `oom.namePods`.
    name_pods: bool,
    read: Option<ReadConfig>,
    /// The kills of the last revisions that a former agent recorded. Each lane has a responder.
    recorded: Arc<[(Position, ReportedKills)]>,
}

impl Blocking {
    /// `runtime` is the container runtime, if one is used. Must be called in a runtime of tokio.
    pub fn start(
        responder: &Responder,
        runtime: Option<RuntimeClient>,
        names: Names,
        lanes: &Lanes,
        tasks: &mut Tasks,
    ) -> Self {
        // The same capacity for answers, so that neither side waits for the other.
        let (answer, answers) = mpsc::channel(QUESTIONS);
        let mut lane = |purpose: Purpose| {
            let (sender, questions) = mpsc::channel(QUESTIONS);
            let work = run_lane(
                responder.clone(),
                lanes.of(purpose),
                questions,
                answer.clone(),
            );
            tasks.spawn(purpose.as_str(), work);
            sender
        };
        let reader = |purpose| CgroupReader {
            root: responder.root.clone(),
            pods: responder.pods.clone(),
            lane: lanes.of(purpose),
        };
        Self {
            configuration: lane(Purpose::Configuration),
            nodefs: lane(Purpose::Nodefs),
            disks: lane(Purpose::Disks),
            container_logs: lane(Purpose::ContainerLogs),
            kill_details: lane(Purpose::KillDetails),
            state: lane(Purpose::State),
            io_wait: reader(Purpose::Disks),
            shortage: reader(Purpose::KillDetails),
            runtime: runtime.map(|runtime| runtime.start(answer.clone(), tasks)),
            names,
            answer,
            answers,
            dropped: VecDeque::new(),
        }
    }

    /// Each question gets exactly one answer, even if it is dropped or times out.
    pub fn ask(&mut self, question: Question) {
        let lane = match question {
            Question::Resolve { name } => return self.resolve(name),
            Question::Configuration => &self.configuration,
            // Reads directories on the root file system.
            Question::Machine => &self.nodefs,
            Question::Save(_) => &self.state,
            Question::Subject(ref query) => match query {
                BlockingQuery::IoWait(disk) => return self.read_io_wait(*disk),
                BlockingQuery::Shortage => return self.observe_shortage(),
                // Reads directories on nodefs.
                BlockingQuery::Storage | BlockingQuery::VolumesOnDisk(_) => &self.nodefs,
                BlockingQuery::Disk(_) | BlockingQuery::LargestOwners(_) => &self.disks,
                BlockingQuery::ContainerLinks(_) => &self.container_logs,
                BlockingQuery::KillDetails(_) => &self.kill_details,
                BlockingQuery::KillCounters | BlockingQuery::Recall => &self.state,
                BlockingQuery::RuntimeStatus | BlockingQuery::RuntimeImages => {
                    match &self.runtime {
                        Some(runtime) => runtime,
                        None => return self.dropped.push_back(Answer::missing(&question)),
                    }
                }
            },
        };
        // Half of the queue is reserved for questions about slow or failing disks. Announced disks
        // that are dropped here are found when the disks are listed again.
        let announced = matches!(
            question,
            Question::Subject(BlockingQuery::Disk(DiskQuery::Find(_) | DiskQuery::List))
        );
        let crowded = announced && lane.capacity() < QUESTIONS / 2;
        let question = Box::new(question);
        let refused = if crowded {
            Err(question)
        } else {
            let sent = lane.try_send(question);
            sent.map_err(mpsc::error::TrySendError::into_inner)
        };
        if let Err(question) = refused {
            warn!("queue of file system requests is full; one request dropped");
            self.dropped.push_back(Answer::missing(&question));
        }
    }

    fn read_io_wait(&self, disk: DeviceNumber) {
        let read = self.io_wait.clone().read_io_wait(disk);
        self.answer_later(async { Input::Disk(DiskInput::IoWaitRead(read.await)) });
    }

    fn observe_shortage(&self) {
        let read = self.shortage.clone().read_shortage();
        self.answer_later(async { Input::Stall(StallInput::shortage_read(read.await)) });
    }

    fn answer_later(&self, read: impl Future<Output = Input> + Send + 'static) {
        let answer = self.answer.clone();
        tokio::spawn(async move {
            let read = Box::new(Answer::Subject(read.await));
            if answer.send(read).await.is_err() {
                debug!("the loop ended before the cgroups were read");
            }
        });
    }

    fn resolve(&self, name: String) {
        let (names, answer) = (self.names.clone(), self.answer.clone());
        tokio::spawn(async move {
            let found = names.resolve(&name).await;
            let found = ok_or_log!(debug, found, "cannot resolve the node's name");
            let found = Box::new(Answer::Resolved(found.unwrap_or_default()));
            if answer.send(found).await.is_err() {
                debug!("the loop ended before the node's name was resolved");
            }
        });
    }

    pub async fn answer(&mut self) -> Answer {
        if let Some(answer) = self.dropped.pop_front() {
            return answer;
        }
        match self.answers.recv().await {
            Some(answer) => *answer,
            None => std::future::pending().await,
        }
    }
}

/// Answers questions on the lane's thread, one at a time. A call that exceeds the limit counts as
/// unanswered; until it returns, no other call is made on this lane.
async fn run_lane(
    responder: Responder,
    lane: Lane,
    mut questions: mpsc::Receiver<Box<Question>>,
    answer: mpsc::Sender<Box<Answer>>,
) {
    // A question that is asked only once is repeated after a timeout, when the lane is free.
    let mut repeated = None;
    let mut pause_until = None;
    loop {
        let available = async {
            if let Some(until) = pause_until {
                sleep_until(until).await;
            }
            lane.free().await;
        };
        let question = tokio::select! {
            question = questions.recv() => match question {
                Some(question) => *question,
                None => return,
            },
            () = available, if repeated.is_some() => match repeated.take() {
                Some(question) => question,
                None => continue,
            },
        };
        let unanswered = Answer::missing(&question);
        let once = question.asked_once();
        let responder = responder.clone();
        let found = lane.run(LIMIT, move || responder.answer(question)).await;
        if once.is_some() {
            repeated = once.filter(|_| found.is_err());
        }
        // Without a thread, the lane is free, but of no use yet.
        pause_until = match found {
            Err(NoAnswer::NoThread(_)) => Instant::now().checked_add(NO_THREAD_PAUSE),
            Ok(_) | Err(NoAnswer::Late(_) | NoAnswer::Blocked | NoAnswer::Ended) => None,
        };
        let found = found.unwrap_or_else(|err| {
            let (purpose, err) = (lane.purpose().as_str(), &err as &dyn std::error::Error);
            debug!(purpose, err, "request not answered");
            unanswered
        });
        if answer.send(Box::new(found)).await.is_err() {
            return;
        }
    }
}

impl Responder {
    /// Without `base`, see [`saved::base`], nothing is kept. `read` reads the configuration again.
    pub fn new(
        config: &Config,
        directories: Directories,
        pods: PodsPath,
        base: Option<State>,
        read: Option<ReadConfig>,
    ) -> Self {
        Self {
            root: HostRoot::new(&config.host_root),
            directories,
            attach_detach: match config.mode {
                Mode::Node => Some(config.attach_detach),
                // The kubelet reports them.
                Mode::Companion => None,
            },
            state_directory: config.state_directory.clone(),
            base,
            pods,
            name_pods: config.oom_name_pods,
            read,
            recorded: Arc::default(),
        }
    }

    #[must_use]
    pub fn recorded(self, recorded: Vec<(Position, ReportedKills)>) -> Self {
        Self {
            recorded: recorded.into(),
            ..self
        }
    }

    fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Subject(query) => Answer::Subject(self.query(query)),
            Question::Save(saved) => {
                if let Some(base) = &self.base {
                    saved::save(&self.state_directory, base, saved);
                }
                Answer::Subject(Input::State(StateInput::Written))
            }
            Question::Machine => Answer::Machine(Box::new(self.machine())),
            // Resolved by `Names`.
            Question::Resolve { .. } => Answer::Resolved(Vec::new()),
            Question::Configuration => Answer::Configured(match &self.read {
                Some(read) => read.read().map(Box::new),
                None => Err("the configuration has no source".to_owned()),
            }),
        }
    }

    fn query(&self, query: BlockingQuery) -> Input {
        match query {
            BlockingQuery::Storage => {
                let sample = self.directories.sample(self.volumes());
                Input::Signal(SignalInput::StorageSampled(sample))
            }
            BlockingQuery::VolumesOnDisk(device) => Input::Volume(VolumeInput::Read {
                device,
                volumes: self.directories.volumes_on(device),
            }),
            BlockingQuery::LargestOwners(of) => {
                Input::LargestOwners(largest_owners::read(&self.root, &self.pods, of))
            }
            BlockingQuery::Disk(query) => Input::Disk(disk_files::answer(&self.directories, query)),
            BlockingQuery::ContainerLinks(ids) => {
                Input::Incident(IncidentInput::Links(self.links(&ids)))
            }
            BlockingQuery::KillDetails(of) => {
                let mut read = kill_details::read(&self.root, &self.pods, &of);
                if !self.name_pods {
                    read.memory.hide_pods();
                }
                Input::Incident(IncidentInput::DetailsRead(read))
            }
            BlockingQuery::KillCounters => Input::KillCounter(KillCounterInput::Counted(
                counted_kills::read(&self.root, &self.pods),
            )),
            BlockingQuery::Recall => Input::State(StateInput::Recalled {
                previous: match &self.base {
                    Some(base) => saved::load(&self.state_directory, base, &self.recorded),
                    None => Previous::Unknown,
                },
                counted: counted_kills::read(&self.root, &self.pods),
            }),
            // Answered by `CgroupReader` and `RuntimeClient`.
            BlockingQuery::IoWait(_)
            | BlockingQuery::Shortage
            | BlockingQuery::RuntimeStatus
            | BlockingQuery::RuntimeImages => unanswered(&query),
        }
    }

    fn machine(&self) -> Machine {
        let read = machine::read(&self.root);
        ok_or_log!(warn, read, "cannot read machine information").unwrap_or_default()
    }

    /// Reads mounted volumes only if the control plane attaches them, and waits for their status.
    fn volumes(&self) -> Option<Vec<String>> {
        match self.attach_detach {
            Some(AttachDetach::Controller) => {
                let mounted = volumes::mounted(&self.root, &self.directories.nodefs);
                ok_or_log!(debug, mounted, "mounted volumes not read")
            }
            Some(AttachDetach::Node) | None => None,
        }
    }

    fn links(&self, ids: &BTreeSet<Box<str>>) -> LinksRead {
        let mut search = LinkSearch::new(ids);
        let read = container_logs::each_name(&self.root, |name| search.add(name));
        match ok_or_log!(debug, read, "links to container logs not read") {
            Some(()) => LinksRead::Found(search.found()),
            None => LinksRead::Unavailable,
        }
    }
}

#[cfg(test)]
mod tests {
    use nodepulse_core::subjects::Saved;

    use super::*;

    /// Lanes with room for one question each, and without a task that answers.
    fn without_tasks() -> (Blocking, Vec<mpsc::Receiver<Box<Question>>>) {
        let mut receivers = Vec::new();
        let mut lane = || {
            let (sender, receiver) = mpsc::channel(1);
            receivers.push(receiver);
            sender
        };
        let reader = |purpose| CgroupReader {
            root: HostRoot::new("/"),
            pods: PodsPath::new(None, &[]),
            lane: Lane::new(purpose),
        };
        let (answer, answers) = mpsc::channel(1);
        let blocking = Blocking {
            configuration: lane(),
            nodefs: lane(),
            disks: lane(),
            container_logs: lane(),
            kill_details: lane(),
            state: lane(),
            io_wait: reader(Purpose::Disks),
            shortage: reader(Purpose::KillDetails),
            runtime: None,
            names: Names::system(),
            answer,
            answers,
            dropped: VecDeque::new(),
        };
        (blocking, receivers)
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_question_is_answered_like_one_that_timed_out() {
        type Row = (&'static str, fn() -> Question, fn(&Answer) -> bool);
        #[rustfmt::skip]
        let rows: [Row; 4] = [
            ("configuration", || Question::Configuration, |answer| matches!(answer, Answer::Configured(Err(_)))),
            (
                "nodefs",
                || Question::Subject(BlockingQuery::Storage),
                |answer| {
                    let Answer::Subject(Input::Signal(SignalInput::StorageSampled(found))) = answer
                    else {
                        return false;
                    };
                    found.capacity.is_none()
                },
            ),
            ("disks", || Question::Subject(BlockingQuery::Disk(DiskQuery::Counters(Vec::new()))),
                |answer| matches!(answer, Answer::Subject(Input::Disk(_)))),
            ("state", || Question::Save(Saved::default()),
                |answer| matches!(answer, Answer::Subject(Input::State(StateInput::Written)))),
        ];
        for (name, question, expected) in rows {
            let (mut blocking, _receivers) = without_tasks();
            blocking.ask(question());
            blocking.ask(question());
            let answer = tokio::time::timeout(LIMIT, blocking.answer()).await;
            assert!(answer.is_ok_and(|answer| expected(&answer)), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn questions_to_a_lane_without_a_task_are_answered() {
        let (mut blocking, receivers) = without_tasks();
        drop(receivers);
        for _ in 0..3 {
            blocking.ask(Question::Subject(BlockingQuery::KillCounters));
        }
        for _ in 0..3 {
            let answer = tokio::time::timeout(LIMIT, blocking.answer()).await;
            let failed = Input::KillCounter(KillCounterInput::Counted(None));
            assert!(matches!(answer, Ok(Answer::Subject(input)) if input == failed));
        }
    }
}
