//! Builds the rooms, connects them, owns the loop and the way out.
//!
//! One task owns the state. Everything that can wake it is one kind of `Input`; everything else sends
//! to it over a bounded channel, or is told by it what to do.

#![forbid(unsafe_code)]

use std::future::Future;

use tokio::sync::mpsc;
use tracing::info;

use crate::api::Client;
use crate::api::backoff::Jitter;
use crate::clock::{Alarm, BootNanos, Clock, Now, Stamp};
use crate::config::{Config, Mode};
use crate::event::Received;
use crate::node_status::{Facts, Status, setters};
use crate::pressure::deadline::Deadlines;
use crate::pressure::evaluate::{Change, Evaluator};
use crate::pressure::look::DiskLook;
use crate::reading::{Resource, Signal};

mod blocking;
mod facts;
mod kernel_events;
mod kills;
mod observe;
mod outside;
mod probes;
mod reporting;
mod tasks;
mod watchers;

pub use outside::{AppError, KernelLine, Outside};

use blocking::{Answer, Blocking, Question};
use kills::Kills;
use observe::Observe;
use outside::{Doors, doors, no_kubelet, ring_ended};
use probes::Probes;
use reporting::{Report, Reporting, Why};

/// What is read without waiting for a disk.
const HOT: [Signal; 3] = [
    Signal::MemoryAvailable,
    Signal::AllocatableMemoryAvailable,
    Signal::PidAvailable,
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
    /// A moment that was waited for.
    Tick,
    /// We were asked to stop.
    Shutdown,
}

/// Runs until `shutdown` or until something breaks that cannot be mended.
///
/// On the way out status and Lease stay as they are, queued Events get two seconds, and the
/// programs are detached.
///
/// # Errors
///
/// See [`AppError`].
pub async fn run(outside: Outside, shutdown: impl Future<Output = ()>) -> Result<(), AppError> {
    if outside.client.is_some() {
        no_kubelet(&outside.config)?;
    }
    let clock = outside.clock;
    let mut alarm = clock.alarm().map_err(AppError::Alarm)?;
    let (events, mut doors) = doors(outside.kernel, &outside.config, clock);
    let app = App::new(
        outside.config,
        outside.client,
        outside.jitter,
        clock,
        &mut doors,
    )
    .await;
    let result = app.run(events, doors, &mut alarm, shutdown).await;
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
    observe: Observe,
    probes: Probes,
    kills: Kills,
    facts: Facts,
    blocking: Blocking,
    reporting: Option<Reporting>,
}

impl App {
    async fn new(
        config: Config,
        client: Option<Client>,
        jitter: Jitter,
        clock: Clock,
        doors: &mut Doors,
    ) -> Self {
        let observe = Observe::new(&config);
        let facts = facts::gather(&config, &observe);
        let blocking = Blocking::new(&config);
        let probes = Probes::start(&config, doors.kernel.take(), &doors.support);
        let announced = if probes.tells_pids() {
            vec![Signal::PidAvailable]
        } else {
            Vec::new()
        };
        let mut app = Self {
            evaluator: Evaluator::new(config.policy.clone()),
            hot: Deadlines::new(&HOT, announced),
            storage: Deadlines::new(&STORAGE, Vec::new()),
            storage_asked: false,
            kills: Kills::new(&config, observe.layout()),
            config,
            clock,
            observe,
            probes,
            facts,
            blocking,
            reporting: None,
        };
        app.first_look().await;
        // Only now: what was found at first is no news.
        app.reporting = client
            .filter(|_| app.config.mode == Mode::Node)
            .map(|client| {
                let mut reporting =
                    Reporting::start(&app.config, &client, clock, jitter, &app.facts);
                reporting.sync(Why::Tick);
                reporting
            });
        app
    }

    /// Everything is evaluated once before anything is said. What does not answer within its limit
    /// is missing then.
    async fn first_look(&mut self) {
        self.ask_storage();
        if self.config.node_ips.is_empty() {
            let name = self.config.node_name.clone();
            self.blocking.ask(Question::Resolve { name });
            let answer = self.blocking.answer().await;
            self.answered(answer, self.clock.now());
        }
        let answer = self.blocking.answer().await;
        let now = self.clock.now();
        self.answered(answer, now);
        let look = if self.probes.tells_disks() {
            DiskLook::Seen {
                slow: &[],
                stalled: &[],
            }
        } else {
            DiskLook::Blind
        };
        self.evaluator.observe_disks(look, now.boot);
        self.sample(now, None);
        self.probes
            .set_pid_levels(&self.evaluator, self.observe.pid_capacity());
    }

    async fn run(
        mut self,
        mut events: mpsc::Receiver<Received>,
        mut doors: Doors,
        alarm: &mut Alarm,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), AppError> {
        tokio::pin!(shutdown);
        loop {
            let due = self.due();
            let input = tokio::select! {
                // Kernel events last: a flood of them must hold up neither lease nor report.
                biased;
                () = &mut shutdown => Input::Shutdown,
                report = reporting::next(self.reporting.as_mut()) => Input::Api(report?),
                answer = self.blocking.answer() => Input::Host(answer),
                Some(ended) = doors.readers.join_next() => return Err(ring_ended(ended)),
                reached = alarm.at(due) => {
                    reached.map_err(AppError::Alarm)?;
                    Input::Tick
                }
                Some(received) = events.recv() => Input::Kernel(received),
            };
            let now = self.clock.now();
            match input {
                Input::Kernel(received) => self.kernel_event(received, now),
                Input::Host(answer) => self.answered(answer, now),
                Input::Api(Report::Held(holder)) => return Err(AppError::Held(holder)),
                Input::Api(report) => self.reported(report, now),
                Input::Tick => self.tick(now),
                Input::Shutdown => break,
            }
        }
        if let Some(reporting) = self.reporting {
            reporting.finish().await;
        }
        Ok(())
    }

    /// The next moment at which there is something to do.
    fn due(&self) -> BootNanos {
        let falls = self.evaluator.next_fall();
        let reports = self.reporting.as_ref().map(Reporting::due);
        let own = [
            falls,
            self.probes.count_at(),
            self.probes.look_at(),
            reports,
        ];
        let storage = (!self.storage_asked).then(|| self.storage.due());
        let all = own.into_iter().chain([storage]).flatten();
        all.fold(self.hot.due(), BootNanos::min)
    }

    fn tick(&mut self, now: Now) {
        let past = |at: Option<BootNanos>| at.is_some_and(|at| at <= now.boot);
        let must = past(self.evaluator.next_fall()) || past(self.probes.count_at());
        // What is due within a moment is done in the same wake-up as what is due now.
        let soon = now.boot.plus(reporting::ALIGN);
        if must || self.hot.due() <= soon {
            self.sample(now, None);
        }
        if must || self.storage.due() <= soon {
            self.ask_storage();
        }
        if past(self.probes.look_at()) {
            for question in self.probes.look(now.boot) {
                self.blocking.ask(question);
            }
        }
        let Some(reporting) = &mut self.reporting else {
            return;
        };
        if reporting.status_due(now.boot) {
            self.observe.refresh(&mut self.facts);
            self.probes.log_losses();
            self.sync(Why::Tick);
        }
        if let Some(reporting) = &mut self.reporting {
            reporting.on_time(now.boot);
        }
    }

    fn ask_storage(&mut self) {
        if !self.storage_asked {
            self.storage_asked = true;
            self.blocking.ask(Question::Storage);
        }
    }

    /// Looks at everything that can be read without waiting for a disk. `stamp` is that of the
    /// record on pids that was the reason.
    fn sample(&mut self, now: Now, stamp: Option<Stamp>) {
        let looks = self.observe.hot();
        let changes = self.evaluator.evaluate(&looks, now.boot);
        self.hot.next(&looks, &self.evaluator, now.boot);
        let pids = self.evaluator.pressure(Resource::Pids);
        self.probes.sampled(self.observe.tasks(), pids, now.boot);
        self.changed(&changes, stamp.map(|stamp| (Resource::Pids, stamp)), now);
    }

    fn answered(&mut self, answer: Answer, now: Now) {
        match answer {
            Answer::Storage { looks, capacity } => {
                self.storage_asked = false;
                if capacity.is_some() {
                    self.facts.ephemeral_storage = capacity;
                }
                let changes = self.evaluator.evaluate(&looks, now.boot);
                self.storage.next(&looks, &self.evaluator, now.boot);
                self.changed(&changes, None, now);
            }
            Answer::Resolved(addresses) => self.facts.network.resolved = addresses,
            Answer::SlowDisk {
                device,
                counts,
                stamp,
            } => {
                let news = if counts {
                    self.probes.disk_slow(device, now.boot)
                } else {
                    // The start times that the kernel judged by are stale.
                    self.probes
                        .forget_disk(device, "its I/O statistics are off", now.boot)
                };
                self.disks_changed(news, Some(stamp), now);
            }
            Answer::InFlight { device, found } => {
                let news = self.probes.disk_looked(device, found, now.boot);
                self.disks_changed(news, None, now);
            }
        }
    }

    /// Says what changed, to the log and to the API server; `cause` is what the kernel saw of it.
    fn changed(&mut self, changes: &[Change], cause: Option<(Resource, Stamp)>, now: Now) {
        self.facts.pressures = self.evaluator.pressures();
        for change in changes {
            info!(
                resource = change.resource.as_str(),
                from = ?change.from,
                to = ?change.to,
                why = ?change.why,
                "pressure changed"
            );
            let stamp = cause.filter(|(resource, _)| *resource == change.resource);
            if let (Some(reporting), Some((resource, stamp))) = (&mut self.reporting, stamp) {
                reporting.caused_by(resource, stamp);
            }
        }
        if let Some(reporting) = &mut self.reporting {
            reporting.set_facts(&self.facts);
            if !changes.is_empty() {
                reporting.edge(now.boot);
            }
        }
    }

    fn sync(&mut self, why: Why) {
        if let Some(reporting) = &mut self.reporting {
            reporting.set_facts(&self.facts);
            reporting.sync(why);
        }
    }

    fn reported(&mut self, report: Report, now: Now) {
        if let Report::Registered { stored, .. } = &report {
            // What was True before a restart is held for a whole transition period from now on,
            // unless nothing tells of it any more.
            for condition in stored
                .conditions
                .iter()
                .filter(|c| c.status == Status::True)
            {
                let resource = setters::resource(&condition.type_);
                let told = |r: &Resource| *r != Resource::DiskIo || self.probes.tells_disks();
                if let Some(resource) = resource.filter(told) {
                    self.evaluator.seed(resource, now.boot);
                }
            }
            self.facts.pressures = self.evaluator.pressures();
        }
        if let Some(reporting) = &mut self.reporting {
            reporting.set_facts(&self.facts);
            reporting.took(report, now.boot);
        }
    }
}
