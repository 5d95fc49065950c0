//! Builds the parts of the agent, connects them and runs the main loop.
//!
//! One task owns the state. Each event that can wake it is one kind of `Input`. The other tasks send
//! to it over bounded channels, and receive requests from it.

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
use crate::subjects::{
    DiskInput, IncidentInput, Input as SubjectInput, KillInput, Setup, Subjects,
};
use crate::tasks::Tasks;

mod answers;
mod blocking;
mod cgroups;
mod companion;
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

use blocking::{Answer, Blocking, Persistence, Question};
use cgroups::Cgroups;
use companion::CompanionConditions;
use control::{AppParts, Heartbeat};
use exceeded::ExceededTimes;
use lanes::Lanes;
use metering::{Metering, Sources};
use observe::Observe;
use once::Once;
use parts::{LoopInputs, inputs, no_kubelet, ring_ended};
use pod_updates::PodUpdates;
use power::Power;
use pressure_files::PressureFiles;
use probes::Probes;
use reload::{Reloading, asked};

/// Signals that can be read without waiting for a disk.
const HOT: [Signal; 4] = [
    Signal::MemoryAvailable,
    Signal::AllocatableMemoryAvailable,
    Signal::PidAvailable,
    Signal::AllocatablePidAvailable,
];

/// Signals that a helper thread reads.
const STORAGE: [Signal; 2] = blocking::STORAGE;

/// Everything that can wake the agent.
enum Input {
    /// A record from the kernel.
    Kernel(Received),
    /// A helper thread has answered a question.
    Host(Answer),
    /// The result of a request to the API server.
    Api(Report),
    /// An update about pods, from the API server.
    Pods(IncidentInput),
    /// A request for metrics, `status` or `explain`.
    Query(Query),
    /// The configuration may have changed.
    Reload,
    /// logind announced a shutdown of the machine, or cancelled it.
    Power(PowerMessage),
    /// A deadline was reached.
    Tick,
}

/// Runs until `shutdown` completes or an unrecoverable error occurs.
///
/// On exit, the status and the Lease are left unchanged, queued Events are sent for up to two seconds,
/// and the programs are detached.
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
    let dry_run = parts.client.as_ref().is_some_and(Client::is_dry_run);
    let app_parts = AppParts {
        pods: parts.pods,
        metering: Metering::start(sources, &inputs.support, inputs.kills),
        setters: parts.setters,
        persistence: if dry_run {
            Persistence::None
        } else {
            Persistence::StateFile
        },
        reloads: parts.reloads,
        notify: parts.notify,
        run_mode: parts.run_mode,
        power: Power::new(parts.logind),
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

/// The state of the agent, with its connections to the other tasks.
struct App {
    config: Config,
    clock: Clock,
    evaluator: Evaluator,
    /// When to sample memory and pids.
    hot: Deadlines,
    /// When to sample the file system, while no sample is in progress.
    storage: Deadlines,
    storage_asked: bool,
    /// End of the start-up period of the node.
    settled_at: BootNanos,
    observe: Observe,
    probes: Probes,
    subjects: Subjects,
    pressure_files: PressureFiles,
    cgroups: Cgroups,
    exceeded: ExceededTimes,
    pod_updates: PodUpdates,
    /// `None` in node mode.
    companion: Option<CompanionConditions>,
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
            persistence,
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
        let lanes = (metering.lanes(), &mut tasks);
        let blocking = Blocking::new(&config, pods.clone(), persistence, read, lanes);
        let probes = Probes::start(inputs.kernel.take(), &inputs.support);
        let base = exceeded::base(&config, inputs.kills, &inputs.support);
        let cgroups = Cgroups::new(pods.clone());
        let setup = Setup {
            started: now,
            node: cgroups.node(&config, inputs.kills, base.is_some()),
            disks: execute::disks(&config, &probes, &inputs.stalls),
            stalls: execute::stalls(&config, &inputs.stalls),
        };
        let subjects = Subjects::new(&setup);
        let mut app = Self {
            evaluator: Evaluator::new(config.policy.clone()),
            hot: Deadlines::new(&HOT, probes.announced()),
            storage: Deadlines::new(&STORAGE, Vec::new()),
            storage_asked: false,
            settled_at: now.plus(storage::STARTUP_GRACE),
            pressure_files: PressureFiles::new(&config, pods.clone()),
            pod_updates: PodUpdates::new(&config, access.as_ref(), &mut tasks),
            companion: CompanionConditions::new(&config),
            config,
            clock,
            observe,
            probes,
            subjects,
            cgroups,
            exceeded: ExceededTimes::new(base),
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
        app.check_kill_source(clock.now());
        app.list_disks(clock.now());
        app.initial_evaluation().await;
        let now = clock.now();
        // The first evaluation is not a transition.
        app.ledger = Ledger::new(setters, &app.facts, now);
        companion::log_failed(app.ledger.failed());
        app.metering.evaluated(access.is_some());
        app.metering.conditions(app.ledger.conditions(), &[]);
        app.reporting = access.map(|access| {
            let computed = app.ledger.computed();
            Reporting::start(&app.config, access, clock, computed, &mut app.tasks)
        });
        app.reporting_started(now);
        app.sync(Why::Tick, now);
        app.notify_ready();
        app.once = (run_mode == RunMode::Once).then(|| Once::new(app.config.mode, now.boot));
        app
    }

    /// Evaluates everything once before anything is reported, with the state of the previous agent.
    /// Values that are not available within their time limit are missing from this evaluation.
    async fn initial_evaluation(&mut self) {
        self.blocking.ask(Question::Load);
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
            answered += usize::from(answer.is_initial());
            self.answered(answer, self.clock.now());
        }
        let now = self.clock.now();
        self.feed(SubjectInput::Disk(DiskInput::Started), now);
        self.read_stalls(now.boot.plus(reporting::ALIGN), now);
        self.sample(now, None);
        self.configure_pids(now);
    }

    /// Runs until the loop ends. Reports and saves the remaining state in any case, also after an
    /// error.
    async fn run(
        mut self,
        mut events: mpsc::Receiver<Received>,
        mut inputs: LoopInputs,
        alarm: &mut Alarm,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        tokio::pin!(shutdown);
        let result = self
            .handle_inputs(&mut events, &mut inputs, alarm, shutdown)
            .await;
        self.heartbeat.notify.stopping();
        self.shut_down(events, inputs).await;
        result
    }

    /// Handles one input after the other.
    ///
    /// # Errors
    ///
    /// If the agent cannot continue.
    async fn handle_inputs(
        &mut self,
        events: &mut mpsc::Receiver<Received>,
        inputs: &mut LoopInputs,
        alarm: &mut Alarm,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), AppError> {
        loop {
            if let Some(outcome) = self.once_outcome() {
                return outcome;
            }
            let due = self.due();
            let input = tokio::select! {
                // Kernel events last: a flood of them must delay neither the lease nor reports.
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
                // Before kernel events: one scrape ends before the next can be requested.
                query = self.metering.next_query() => Input::Query(query?),
                () = asked(self.reloading.as_mut()) => Input::Reload,
                message = self.power.message() => Input::Power(message),
                received = events.recv() => {
                    Input::Kernel(received.ok_or(AppError::EndedEarly("ring"))?)
                }
            };
            let now = self.clock.now();
            self.metering.record_wakeup(&input);
            match input {
                Input::Kernel(received) => {
                    if self.kernel_records(received, events, now) {
                        // Reports are sent before memory and counters are read.
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
                Input::Power(message) => self.power(message, now),
                Input::Tick => self.tick(now),
            }
        }
    }
}
