//! Builds the rooms, connects them, owns the loop.
//!
//! One task owns the state. Everything that can wake it is one kind of `Input`; everything else sends
//! to it over a bounded channel, or is told by it what to do.

#![forbid(unsafe_code)]

use std::future::Future;
use std::pin::Pin;

use tokio::sync::mpsc;
use tracing::info;

use crate::api::Client;
use crate::clock::{Alarm, BootNanos, Clock};
use crate::config::Config;
use crate::explain::Journal;
use crate::logind::PowerMessage;
use crate::node_status::Facts;
use crate::node_status::ledger::Ledger;
use crate::pressure::deadline::Deadlines;
use crate::pressure::evaluate::Evaluator;
use crate::reading::Signal;
use crate::record::Received;
use crate::reporting::{self, ApiAccess, Report, Reporting, Why};
use crate::serve::{Listener, Pages, Query, Site};
use crate::subjects::{DiskInput, IncidentInput, Input as SubjectInput, KillInput, Subjects};
use crate::tasks::Tasks;

mod answers;
mod blocking;
mod cgroups;
mod control;
mod exceeded;
mod execute;
mod facts;
mod kernel_records;
mod lanes;
mod leaving;
mod metering;
mod observe;
mod once;
mod own;
mod parts;
mod pod_updates;
mod power;
mod pressure_files;
mod probes;
mod reload;
mod spot;
mod storage;
mod tick;
mod watchers;

pub use observe::pods_path;
pub use parts::{AgentParts, AppError, KernelSource, RunMode, setters_of};
pub use pressure_files::{files as stall_files, triggers};
pub use reload::{ReadConfig, Reloads, SetLogging};
pub use spot::status_now;

use blocking::{Answer, Blocking, Memory, Question};
use cgroups::Cgroups;
use control::{AppParts, Heartbeat};
use exceeded::Keeper;
use lanes::Lanes;
use metering::{Metering, Sources};
use observe::Observe;
use once::Once;
use own::Own;
use parts::{LoopInputs, inputs, no_kubelet, ring_ended};
use pod_updates::PodUpdates;
use power::Power;
use pressure_files::PressureFiles;
use probes::Probes;
use reload::{Reloading, asked};

/// What is read without waiting for a disk.
const HOT: [Signal; 4] = [
    Signal::MemoryAvailable,
    Signal::AllocatableMemoryAvailable,
    Signal::PidAvailable,
    Signal::AllocatablePidAvailable,
];

/// What is asked of a helper thread.
const STORAGE: [Signal; 2] = blocking::STORAGE;

/// Everything that can wake the agent.
enum Input {
    /// A record from the kernel.
    Kernel(Received),
    /// What a question to the file system came to.
    Host(Answer),
    /// What a request came to.
    Api(Report),
    /// What is heard of pods.
    Pods(IncidentInput),
    /// Somebody wants to know something.
    Query(Query),
    /// The configuration may have changed.
    Reload,
    /// The machine goes down, or does not after all.
    Power(PowerMessage),
    /// A moment that was waited for.
    Tick,
}

/// Runs until `shutdown` or until something breaks that cannot be mended.
///
/// On the way out status and Lease run_mode as they are, queued Events get two seconds, and the
/// programs are detached.
///
/// # Errors
///
/// See [`AppError`].
pub async fn run(parts: AgentParts, shutdown: impl Future<Output = ()>) -> Result<(), AppError> {
    if parts.client.is_some() {
        no_kubelet(&parts.config)?;
    }
    let clock = parts.clock;
    let mut alarm = clock.alarm().map_err(AppError::Alarm)?;
    let (events, mut inputs) = inputs(parts.kernel, parts.kmsg, parts.triggers, &parts.pods, clock);
    let mut sites = match parts.sites {
        Some(sites) => sites,
        None => metering::open(&parts.config, parts.client.is_some()),
    };
    sites.extend(parts.control.map(|socket| Site {
        listener: Listener::Unix(socket),
        pages: Pages::Control,
    }));
    let sources = Sources {
        sites,
        figures: parts.figures,
        client: parts.client.clone(),
        lanes: Lanes::new(parts.client.as_ref()),
        per_pod: parts.config.per_pod_metrics,
    };
    let on_paper = parts.client.as_ref().is_some_and(Client::is_dry_run);
    let app_parts = AppParts {
        pods: parts.pods,
        metering: Metering::start(sources, &inputs.support, inputs.kills),
        setters: parts.setters,
        memory: if on_paper { Memory::None } else { Memory::Kept },
        reloads: parts.reloads,
        notify: parts.notify,
        run_mode: parts.run_mode,
        power: Power::listening_to(parts.logind),
    };
    let mut jitter = parts.jitter;
    let access = parts.client.map(|client| {
        client.spread_by(jitter.fork());
        ApiAccess { client, jitter }
    });
    let app = App::new(parts.config, access, clock, app_parts, &mut inputs).await;
    let result = app.run(events, inputs, &mut alarm, shutdown).await;
    info!("stopped");
    result
}

/// The state, and what it is told through.
struct App {
    config: Config,
    clock: Clock,
    evaluator: Evaluator,
    /// When to look at memory and pids.
    hot: Deadlines,
    /// When to look at the file system, while nobody looks.
    storage: Deadlines,
    storage_asked: bool,
    /// Until then the node may still be coming up.
    settled_at: BootNanos,
    observe: Observe,
    probes: Probes,
    subjects: Subjects,
    pressure_files: PressureFiles,
    cgroups: Cgroups,
    exceeded: Keeper,
    pod_updates: PodUpdates,
    /// `None` in node mode.
    own: Option<Own>,
    facts: Facts,
    ledger: Ledger,
    blocking: Blocking,
    reporting: Option<Reporting>,
    metering: Metering,
    journal: Journal,
    heartbeat: Heartbeat,
    reloading: Option<Reloading>,
    once: Option<Once>,
    power: Power,
    tasks: Tasks,
}

impl App {
    async fn new(
        config: Config,
        access: Option<ApiAccess>,
        clock: Clock,
        app_parts: AppParts,
        inputs: &mut LoopInputs,
    ) -> Self {
        let AppParts {
            pods,
            metering,
            memory,
            setters,
            reloads,
            notify,
            run_mode,
            power,
        } = app_parts;
        let now = clock.now().boot;
        let observe = Observe::new(&config, pods.clone());
        let facts = facts::gather(&config, &observe);
        let read = reloads.as_ref().map(|reloads| reloads.read.clone());
        let mut tasks = Tasks::default();
        let lanes = metering.lanes();
        let blocking = Blocking::new(&config, pods.clone(), memory, read, (lanes, &mut tasks));
        let probes = Probes::start(inputs.kernel.take(), &inputs.support);
        let base = exceeded::base(&config, inputs.kills, &inputs.support);
        let cgroups = Cgroups::new(pods.clone());
        let node = cgroups.node(&config, inputs.kills, base.is_some());
        let disks = execute::disks(&config, &probes, &inputs.stalls, now);
        let stalls = execute::stalls(&config, &inputs.stalls);
        let subjects = Subjects::new(node, disks, stalls, now);
        let mut app = Self {
            evaluator: Evaluator::new(config.policy.clone()),
            hot: Deadlines::new(&HOT, probes.announced()),
            storage: Deadlines::new(&STORAGE, Vec::new()),
            storage_asked: false,
            settled_at: now.plus(storage::SETTLES),
            pressure_files: PressureFiles::new(&config, pods.clone()),
            pod_updates: PodUpdates::new(&config, access.as_ref(), &mut tasks),
            own: Own::new(&config),
            config,
            clock,
            observe,
            probes,
            subjects,
            cgroups,
            exceeded: Keeper::new(base),
            ledger: Ledger::new(setters, &facts, clock.now()),
            facts,
            blocking,
            reporting: None,
            metering,
            journal: Journal::default(),
            heartbeat: Heartbeat::new(notify, now),
            reloading: reloads.map(Reloading::new),
            once: None,
            power,
            tasks,
        };
        app.read_cgroups(clock.now());
        app.look_at_kills(clock.now());
        app.list_disks(clock.now());
        app.first_look().await;
        let now = clock.now();
        // What was found at first is no transition.
        app.ledger = Ledger::new(setters, &app.facts, now);
        own::log_failed(app.ledger.failed());
        app.metering.evaluated(access.is_some());
        app.metering.conditions(app.ledger.conditions(), &[]);
        app.reporting = access.map(|access| {
            let computed = app.ledger.computed();
            Reporting::start(&app.config, access, clock, computed, &mut app.tasks)
        });
        app.reporting_started(now);
        app.sync(Why::Tick, now);
        app.tell_ready();
        app.once = (run_mode == RunMode::Once).then(|| Once::new(app.config.mode, now.boot));
        app
    }

    /// Everything is evaluated once before anything is said, also by what the last start knew. What
    /// does not answer within its limit is missing then.
    async fn first_look(&mut self) {
        self.blocking.ask(Question::Recall);
        self.ask_storage();
        let mut questions = 2;
        if self.config.node_ips.is_empty() {
            let name = self.config.node_name.clone();
            self.blocking.ask(Question::Resolve { name });
            questions += 1;
        }
        let mut answered = 0;
        while answered < questions {
            let answer = self.blocking.answer().await;
            answered += usize::from(answer.is_of_the_first_look());
            self.answered(answer, self.clock.now());
        }
        let now = self.clock.now();
        self.feed(SubjectInput::Disk(DiskInput::Started), now);
        self.read_stalls(now.boot.plus(reporting::ALIGN), now);
        self.sample(now, None);
        self.configure_pids(now);
    }

    /// Runs until something ends it. Whatever that is, what is known by then is reported and written
    /// down.
    async fn run(
        mut self,
        mut events: mpsc::Receiver<Received>,
        mut inputs: LoopInputs,
        alarm: &mut Alarm,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        tokio::pin!(shutdown);
        let result = self.turn(&mut events, &mut inputs, alarm, shutdown).await;
        self.heartbeat.notify.stopping();
        self.leave(events, inputs).await;
        result
    }

    /// Takes one input after the other.
    ///
    /// # Errors
    ///
    /// If the agent cannot go on.
    async fn turn(
        &mut self,
        events: &mut mpsc::Receiver<Received>,
        inputs: &mut LoopInputs,
        alarm: &mut Alarm,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), AppError> {
        loop {
            if let Some(over) = self.once_over() {
                return over;
            }
            let due = self.due();
            let input = tokio::select! {
                // Kernel events last: a flood of them must hold up neither lease nor report.
                biased;
                () = &mut shutdown => return Ok(()),
                report = reporting::next(self.reporting.as_mut()) => Input::Api(report),
                // After the reports: a task may have sent one before it ended.
                name = self.tasks.ended() => return Err(AppError::EndedEarly(name)),
                answer = self.blocking.answer() => Input::Host(answer),
                update = self.pod_updates.next() => Input::Pods(update),
                Some(ended) = inputs.readers.join_next() => return Err(ring_ended(ended)),
                reached = alarm.at(due) => {
                    reached.map_err(AppError::Alarm)?;
                    Input::Tick
                }
                // Before them: a scrape ends before the next can be asked for.
                query = self.metering.asked() => Input::Query(query?),
                () = asked(self.reloading.as_mut()) => Input::Reload,
                word = self.power.word() => Input::Power(word),
                received = events.recv() => {
                    Input::Kernel(received.ok_or(AppError::EndedEarly("ring"))?)
                }
            };
            let now = self.clock.now();
            self.metering.woke(&input);
            match input {
                Input::Kernel(received) => {
                    if self.kernel_records(received, events, now) {
                        // What was told is written before memory and counters are looked at.
                        tokio::task::yield_now().await;
                        self.feed(
                            SubjectInput::Kill(KillInput::BatchReported),
                            self.clock.now(),
                        );
                    }
                }
                Input::Host(answer) => self.answered(answer, now),
                Input::Api(Report::OtherHolder(holder)) => {
                    return Err(AppError::OtherHolder(holder));
                }
                Input::Api(report) => self.reported(report, now),
                Input::Pods(update) => self.pods_updated(update, now),
                Input::Query(query) => self.queried(query, now),
                Input::Reload => self.reload(),
                Input::Power(word) => self.power(word, now),
                Input::Tick => self.tick(now),
            }
        }
    }
}
