//! Builds the parts of the agent, connects them and runs the main loop.
//!
//! One task owns the state. Each event that can wake it is one kind of `Input`. The other tasks
//! send to it over bounded channels, and receive requests from it.
// tidy: long: the loop, with one arm for each wake-up

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;

use nodepulse_core::black_box::Observed;
use nodepulse_core::clock::{ALIGN, BootNanos, Now, Stamp};
use nodepulse_core::explanation::CurrentState;
use nodepulse_core::incident::Occurred;
use nodepulse_core::kube_event::Draft;
use nodepulse_core::node_status::ledger::{ConditionChange, LastChange, Ledger};
use nodepulse_core::node_status::transition::ground;
use nodepulse_core::node_status::{Facts, NodeFact, NodeStatus, Shutdown};
use nodepulse_core::reading::{Ground, Resource};
use nodepulse_core::record::Received;
use nodepulse_core::settings::Mode;
use nodepulse_core::subjects::recording::RecordedSubjects;
use nodepulse_core::subjects::{
    Decision, Effect, IncidentInput, Input, KillCounterInput, KillInput, NodeEventInput, PodInput,
    Rotation, StateInput, records,
};
use nodepulse_io::clock::{Alarm, Clock};
use nodepulse_io::tasks::Tasks;
use nodepulse_kube::recorder::Delivered;
use nodepulse_kube::{Client, convert};
use nodepulse_linux::logind::PowerMessage;
use tokio::sync::mpsc;
use tracing::info;

use crate::black_box::BlackBox;
use crate::config::Config;
use crate::history::History;
use crate::queries::Queries;
use crate::queries::blocking::{Answer, Question};
use crate::reporting::{self, Report, Reporting, Why};
use crate::serve::{StatePage, StateRequest};
use crate::telemetry::{self, Journald, Telemetry};

mod builder;
mod error;
mod facts;
mod kernel_inputs;
mod reload;
mod service;
mod shutdown;
mod start;
mod wakeup;

pub use crate::queries::read_config::ReadConfig;
pub use builder::{Agent, CertificateSetup, KernelSource, RunMode};
pub use error::AppError;
pub use reload::{Reloads, SetLogging};

use error::{no_kubelet, ring_ended};
use kernel_inputs::KernelInputs;
use service::Service;
use start::Persistence;
use wakeup::Wakeup;

/// The version in recordings.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Maximum number of records in a batch that contains kills.
const MAX_BATCH: usize = 256;

struct App {
    config: Config,
    clock: Clock,
    subjects: RecordedSubjects,
    queries: Queries,
    facts: Facts,
    ledger: Ledger,
    /// The last changes of conditions in the history, until the conditions are compared with them,
    /// and when that is due.
    recorded: Option<(BootNanos, BTreeMap<String, LastChange>)>,
    /// The kernel's records because of which conditions change, until the next status.
    causes: BTreeMap<Resource, Stamp>,
    /// `None` without an API server.
    reporting: Option<Reporting>,
    history: History,
    black_box: BlackBox,
    journald: Option<Journald>,
    telemetry: Telemetry,
    service: Service,
    tasks: Tasks,
}

impl App {
    /// Handles one input after the other.
    ///
    /// # Errors
    ///
    /// Returns an error if the agent cannot continue.
    async fn handle_wakeups(
        &mut self,
        inputs: &mut KernelInputs,
        alarm: &mut Alarm,
        mut shutdown: Pin<&mut impl Future<Output = ()>>,
    ) -> Result<(), AppError> {
        loop {
            if let Some(outcome) = self.once_outcome() {
                return outcome;
            }
            if let Some(lost) = self.subjects.certificate.as_ref().and_then(Rotation::lost) {
                return Err(AppError::Certificate(lost));
            }
            let due = self.due();
            let wakeup = tokio::select! {
                // Kernel events last: a flood of them must delay neither the lease nor reports.
                biased;
                () = &mut shutdown => return Ok(()),
                report = reporting::next(self.reporting.as_mut()) => Wakeup::Api(report),
                // After the reports: a task may have sent one before it ended.
                name = self.tasks.ended() => return Err(AppError::EndedEarly(name)),
                answer = self.queries.blocking.answer() => Wakeup::Host(answer),
                update = self.queries.pods.next() => Wakeup::Pods(update),
                Some(ended) = inputs.readers.join_next() => return Err(ring_ended(ended)),
                reached = alarm.at(due) => {
                    reached.map_err(AppError::Alarm)?;
                    Wakeup::Tick
                }
                // Before kernel events: one scrape ends before the next can be requested.
                request = self.telemetry.metering.next_request() => {
                    Wakeup::Request(request.ok_or(AppError::EndedEarly("server"))?)
                }
                () = reload::requested(self.service.reloading.as_mut()) => Wakeup::Reload,
                message = self.service.power.message() => Wakeup::Power(message),
                received = inputs.records.recv() => {
                    Wakeup::Kernel(received.ok_or(AppError::EndedEarly("ring"))?)
                }
            };
            let now = self.clock.now();
            self.telemetry.metering.record_wakeup(wakeup.cause());
            match wakeup {
                Wakeup::Kernel(received) => {
                    if self.kernel_records(received, &mut inputs.records, now) {
                        // Reports are sent before memory and counters are read.
                        tokio::task::yield_now().await;
                        let reported = Input::Kill(KillInput::BatchReported);
                        self.feed(reported, self.clock.now());
                    }
                }
                Wakeup::Host(answer) => self.answered(answer, now),
                Wakeup::Api(Report::OtherHolder(holder)) => {
                    return Err(AppError::OtherHolder(holder));
                }
                Wakeup::Api(Report::Certificate(input)) => {
                    self.feed(Input::Certificate(input), now);
                }
                Wakeup::Api(report) => self.reported(report, now),
                Wakeup::Pods(update) => self.pods_updated(update, now),
                Wakeup::Request(request) => self.requested(request, now),
                Wakeup::Reload => self.reload(),
                Wakeup::Power(message) => self.power(message, now),
                Wakeup::Tick => self.tick(now),
            }
        }
    }

    /// Passes an input to its subject, and performs all effects. The effects of an answer precede
    /// the remaining effects of the input that asked.
    fn feed(&mut self, input: Input, now: Now) {
        let input = self.queries.complete(input, &self.config.policy);
        let mut effects = VecDeque::from(self.subjects.on(input, now));
        // Published once, with everything that follows from the input.
        let mut publish = false;
        while let Some(effect) = effects.pop_front() {
            if let Some(answer) = self.execute(effect, &mut publish, now) {
                for effect in self.subjects.on(answer, now).into_iter().rev() {
                    effects.push_front(effect);
                }
            }
        }
        if publish {
            self.publish(now);
        }
    }

    /// Performs an effect. Sets `publish` if publishing is to follow after all others. Returns the
    /// answer of a query, if it is available at once.
    fn execute(&mut self, effect: Effect, publish: &mut bool, now: Now) -> Option<Input> {
        match effect {
            Effect::Query(query) => {
                return Some(self.queries.query(query, &self.config.policy, now));
            }
            Effect::BlockingQuery(query) => self.queries.blocking.ask(Question::Subject(query)),
            Effect::ReadContainers(pod) => self.queries.pods.read_containers(pod),
            Effect::Map(update) => return self.queries.probes.write(update),
            Effect::Input(input) => return Some(*input),
            Effect::Fact(change) => self.facts.apply(change),
            Effect::Incident(incident) => {
                self.history.record(&incident);
                self.black_box.observe_incident(&incident);
                telemetry::log_incident(&incident, self.journald.as_ref());
            }
            Effect::NodeEvents(node_events) => self.history.node_events(node_events),
            Effect::Publish => *publish = true,
            Effect::Caused { resource, stamp } => {
                self.causes.insert(resource, stamp);
                if let Some(reporting) = &mut self.reporting {
                    reporting.caused_by(resource, stamp);
                }
            }
            Effect::ConditionDetails { of, details } => {
                self.telemetry.journal.set_details(of, details.as_deref());
            }
            Effect::Certificate(operation) => {
                if let Some(reporting) = &self.reporting {
                    reporting.on_certificate(operation);
                }
            }
            Effect::Save(saved) => self.queries.blocking.ask(Question::Save(saved)),
            Effect::Log(decision) => {
                if let Decision::Sampled(samples) = &decision
                    && self.black_box.is_kept()
                {
                    let observed = Observed {
                        samples,
                        policy: &self.config.policy,
                        stalls: &self.subjects.stalls.readings(),
                        waits: &self.queries.pressure_files.node_waits(),
                        disks: &self.facts.disks,
                        next: self.subjects.signals.due(),
                    };
                    self.black_box.observe(&observed, now);
                }
                self.telemetry.decided(decision, &self.config.policy, now);
            }
        }
        None
    }

    /// Handles a record, and after a kill all records that are already queued, so that related
    /// kills are reported together. Returns whether there were kills.
    fn kernel_records(
        &mut self,
        first: Received,
        queued: &mut mpsc::Receiver<Received>,
        now: Now,
    ) -> bool {
        let mut killed = false;
        let mut next = Some(first);
        for _ in 0..MAX_BATCH {
            let Some(received) = next else {
                break;
            };
            self.telemetry.record_received(&received);
            let input = records::input(received, || self.queries.cgroups.pods());
            killed |= records::is_kill(&input);
            self.feed(input, now);
            next = if killed { queued.try_recv().ok() } else { None };
        }
        if killed {
            self.feed(Input::Kill(KillInput::BatchRead), now);
        }
        killed
    }

    /// Handles an answer that was not available at once.
    fn answered(&mut self, answer: Answer, now: Now) {
        match answer {
            Answer::Subject(input) => self.feed(input, now),
            Answer::Machine(machine) => self.facts.set(NodeFact::Machine(machine)),
            Answer::Resolved(addresses) => self.resolved(addresses, now),
            Answer::Configured(read) => self.configured(read, now),
        }
    }

    /// Adds the addresses to the status. At the start, it is published later.
    fn resolved(&mut self, addresses: Vec<IpAddr>, now: Now) {
        self.facts.set(NodeFact::Resolved(addresses));
        if self.reporting.is_some() {
            self.sync(Why::Tick, now);
        }
    }

    /// Handles an update about pods, and all that are already queued.
    fn pods_updated(&mut self, first: PodInput, now: Now) {
        let mut next = Some(first);
        while let Some(update) = next {
            self.feed(Input::Pod(update), now);
            next = self.queries.pods.try_next();
        }
        self.feed(Input::Incident(IncidentInput::Due), now);
    }

    fn due(&self) -> BootNanos {
        let reports = self.reporting.as_ref().map(Reporting::due);
        let others = [reports, self.service.due()].into_iter().flatten();
        others.fold(self.subjects.due(), BootNanos::min)
    }

    fn tick(&mut self, now: Now) {
        // Work that is due shortly is done in the same wake-up.
        let soon = now.boot.plus(ALIGN);
        self.settle_kills(now);
        self.feed(Input::Tick { soon }, now);
        self.settle_kills(now);
        let is_due = |(due, _): &(BootNanos, _)| *due <= now.boot;
        if self.recorded.as_ref().is_some_and(is_due) {
            self.compare_with_history(false, now);
        }
        self.service.heartbeat.beat(now.boot, soon);
        self.notify_ready();
        let is_due = |reporting: &Reporting| reporting.status_due(now.boot);
        if self.reporting.as_ref().is_some_and(is_due) {
            if self.config.mode == Mode::Node
                && let Some(network) = self.queries.signals.interfaces()
            {
                self.facts.set(NodeFact::Interfaces(network));
            }
            if self.queries.probes.log_losses() {
                self.feed(Input::KillCounter(KillCounterInput::RecordsLost), now);
            }
            self.sync(Why::Tick, now);
        }
        if let Some(reporting) = &mut self.reporting {
            reporting.on_time(now.boot);
        }
    }

    fn reported(&mut self, report: Report, now: Now) {
        self.telemetry.metering.record_report(&report);
        self.notify_ready();
        if let Some(once) = &mut self.service.once {
            once.record(&report);
        }
        if let Some(seen) = report.seen().map(NodeEventInput::node_seen) {
            self.feed(Input::NodeEvents(seen), now);
        }
        if let Report::Synced { node, .. } = &report {
            self.ledger.record_on_node(node);
        }
        if let Report::ApiServer { release, .. } = &report {
            self.facts.set(NodeFact::ApiServer(*release));
        }
        self.feed(Input::Incident(IncidentInput::ServerAnswered), now);
        if let Report::Registered { stored, .. } = &report {
            self.ledger.record_stored(stored);
            let on_node = StateInput::TrueOnNode(stored.true_conditions());
            self.feed(Input::State(on_node), now);
        }
        if let Report::Event(Delivered {
            incident: Some(id), ..
        }) = &report
        {
            self.feed(Input::Incident(IncidentInput::Delivered(*id)), now);
        }
        self.publish(now);
        if let Report::Registered { is_new, .. } = &report {
            self.compare_with_history(*is_new, now);
            self.publish(now);
        }
        if let Some(reporting) = &mut self.reporting {
            reporting.apply_report(report, now.boot);
        }
        // The machine may shut down once no status write is in progress.
        let syncing = self.reporting.as_ref().is_some_and(Reporting::is_syncing);
        if !syncing && self.service.power.release() {
            info!("released the shutdown inhibitor lock");
        }
        self.settle_kills(now);
    }

    /// Passes the OOM kills that are recorded to the kill counters.
    fn settle_kills(&mut self, now: Now) {
        let (kills, until) = self.history.recorded_kills();
        if !kills.is_empty() {
            let recorded = KillCounterInput::Recorded { kills, until };
            self.feed(Input::KillCounter(recorded), now);
        }
    }

    fn record(&mut self, event: Draft) {
        if let Some(reporting) = &mut self.reporting {
            reporting.events.record(event);
        }
    }

    fn sync(&mut self, why: Why, now: Now) {
        self.update_ledger(now);
        if let Some(reporting) = &mut self.reporting {
            reporting.sync(why, now.boot);
        }
    }

    /// Publishes changed facts, at once if a condition became True.
    fn publish(&mut self, now: Now) {
        self.update_ledger(now);
        if let Some(reporting) = &mut self.reporting {
            reporting.send_urgent(now.boot);
        }
    }

    /// Updates the ledger from the facts, and metrics and reporting from the ledger.
    fn update_ledger(&mut self, now: Now) {
        let mut update = self.ledger.update(&self.facts, now);
        self.telemetry.record_failed(self.ledger.failed());
        if self.recorded.is_none() {
            self.changed(std::mem::take(&mut update.changes), now);
        }
        self.causes.clear();
        if update.conditions {
            let conditions = self.ledger.conditions();
            let metering = &mut self.telemetry.metering;
            metering.conditions(conditions, &update.transitions);
        }
        let Some(reporting) = &mut self.reporting else {
            return;
        };
        reporting.publish(self.ledger.computed(), self.history.newest());
        reporting.changed(&update, now.boot);
    }

    /// Changes of conditions are incidents.
    fn changed(&mut self, changes: Vec<ConditionChange>, now: Now) {
        if !changes.is_empty() {
            let changes = changes.into_iter();
            let occurred = changes.map(|change| {
                let is_problem = change.is_problem() == Some(true);
                let resource = ground(&change.type_).and_then(Ground::resource);
                let cause = resource.and_then(|resource| self.causes.get(&resource));
                Occurred::condition(change, cause.copied().filter(|_| is_problem), now)
            });
            let happened = IncidentInput::Happened(occurred.collect());
            self.feed(Input::Incident(happened), now);
        }
    }

    /// Compares the conditions with the history, or else with the Node unless that is new, once.
    fn compare_with_history(&mut self, is_new: bool, now: Now) {
        if let Some((_, mut recorded)) = self.recorded.take() {
            let on_node = self.ledger.on_node().filter(|_| !is_new);
            for condition in on_node.unwrap_or_default() {
                let last = LastChange {
                    status: condition.status,
                    problem: None,
                };
                recorded.entry(condition.type_.clone()).or_insert(last);
            }
            self.changed(self.ledger.changes_since(&recorded), now);
        }
    }

    fn requested(&mut self, request: StateRequest, now: Now) {
        let (page, answer) = match request {
            StateRequest::Page { page, answer } => (page, answer),
            StateRequest::Record(recording) => {
                if !recording.is_closed() {
                    self.subjects.attach(Box::new(recording), VERSION);
                }
                return;
            }
        };
        self.publish(now);
        let text = match page {
            StatePage::Metrics => self.metrics(now),
            StatePage::Status => convert::status_value(&self.ledger.status(now)).to_string(),
            StatePage::Explain => self.explained(now),
        };
        // The client may have closed the connection.
        drop(answer.send(text));
    }

    fn explained(&self, now: Now) -> String {
        let present = CurrentState {
            node: &self.config.node_name,
            evaluator: self.subjects.signals.evaluator(),
            stalls: &self.subjects.stalls.readings(),
            shortage: self.subjects.stalls.shortage(),
            kills: self.subjects.oom_incidents(now.boot),
            on_node: self.ledger.on_node(),
            disks: &self.facts.disks,
            disk_details: &self.queries.disk_details(&self.subjects.disks, now.boot),
            transition_period: self.config.policy.transition_period,
            blocked: &self.telemetry.metering.lanes().blocked(),
            missing_credentials: &self.telemetry.metering.missing_credentials(),
            sinks: &self.telemetry.metering.sinks(&self.config.sinks),
            now,
            time: convert::time,
        };
        let status = self.ledger.status(now);
        let explanation = self.telemetry.journal.explain(&status, present);
        // Serialization fails only for a map whose keys are not strings.
        serde_json::to_string(&explanation).unwrap_or_default()
    }

    /// All metrics as text, including those that are read on demand.
    fn metrics(&self, now: Now) -> String {
        let metering = &self.telemetry.metering;
        if let Some(reporting) = &self.reporting {
            metering.events(&reporting.events.counts());
        }
        let certificate = self.subjects.certificate.as_ref();
        metering.certificate(certificate.and_then(Rotation::current));
        let figures = self.queries.probes.figures(self.subjects.disks.devices());
        metering.text(&figures, &self.subjects.disks.named(&figures.disks), now)
    }

    fn notify_ready(&mut self) {
        if self.telemetry.metering.is_ready() && !self.service.is_reloading() {
            self.service.heartbeat.notify.ready();
        }
    }

    /// Returns the result of `--once`, or `None` while writes are pending.
    fn once_outcome(&self) -> Option<Result<(), AppError>> {
        let once = self.service.once.as_ref()?;
        if self.reporting.is_none() {
            return Some(Ok(()));
        }
        let outcome = once.outcome(self.clock.now().boot)?;
        Some(outcome.map_err(AppError::NotWritten))
    }

    /// Reports at once that the machine shuts down, or that the shutdown was cancelled. The rate
    /// limit of status writes for changed conditions does not apply.
    fn power(&mut self, message: PowerMessage, now: Now) {
        let shutdown = service::follow(message, &mut self.service.power);
        self.black_box
            .shut_down(shutdown == Shutdown::Announced, now);
        self.facts.set(NodeFact::Shutdown(shutdown));
        self.record(Draft::shutdown(shutdown, now.wall));
        self.sync(Why::Edge, now);
    }

    /// Starts to read the configuration, or schedules a second read if one is in progress.
    fn reload(&mut self) {
        if self.service.start_reload(self.clock.monotonic()) {
            self.queries.blocking.ask(Question::Configuration);
        }
    }

    /// Applies a configuration that was read, or logs why it is refused.
    fn configured(&mut self, read: Result<Box<Config>, String>, now: Now) {
        let refused = read.as_ref().err().map(String::as_str);
        self.telemetry.metering.record_config(refused, now);
        let result = reload::logged(read).map_or("refused", |new| {
            let changes = reload::apply(self, *new, now);
            telemetry::log_changes(&changes)
        });
        self.telemetry.metering.record_reload(result);
        let again = self.service.reloaded();
        self.notify_ready();
        if again {
            self.reload();
        }
    }
}

impl Agent {
    /// Runs until `shutdown` completes or an unrecoverable error occurs.
    ///
    /// On exit, the status and the Lease are left unchanged, queued Events are sent for up to two
    /// seconds, and the programs are detached.
    ///
    /// # Errors
    ///
    /// See [`AppError`].
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<(), AppError> {
        if self.has_client() {
            no_kubelet(&self.config)?;
        }
        let mut alarm = self.clock.alarm().map_err(AppError::Alarm)?;
        let mut inputs = KernelInputs::start(&mut self);
        let dry_run = self.client.as_ref().is_some_and(Client::is_dry_run);
        let persistence = if dry_run {
            Persistence::None
        } else {
            Persistence::StateFile
        };
        let mut app = start::app(self, persistence, &mut inputs).await;
        tokio::pin!(shutdown);
        let result = app.handle_wakeups(&mut inputs, &mut alarm, shutdown).await;
        // Reports and saves the remaining state in any case, also after an error.
        Box::pin(shutdown::shut_down(app, inputs, result.is_ok())).await;
        info!("stopped");
        result
    }

    /// The first status that an agent would compute, from files only. Attaches, sends and saves
    /// nothing. Must be called in a runtime.
    ///
    /// Waits for the disk under the root directory for up to five seconds, and for as long again if
    /// the node's addresses are resolved with DNS.
    pub async fn status(config: Config, clock: Clock) -> NodeStatus {
        let agent = Self::new(config, clock).sites(Vec::new());
        let mut inputs = KernelInputs::none(agent.kernel.support());
        let app = start::app(agent, Persistence::None, &mut inputs).await;
        app.ledger.status(clock.now())
    }
}
