//! Builds the rooms, connects them, owns the loop and the way out.
//!
//! One task owns the state. Everything that can wake it is one of [`Input`]; everything else sends
//! to it over a bounded channel, or is told by it what to do.

#![forbid(unsafe_code)]

use std::future::Future;

use tokio::sync::mpsc;
use tracing::{debug, info, warn};

use crate::api::Client;
use crate::api::backoff::Jitter;
use crate::clock::{Alarm, BootNanos, Clock, Now, Stamp};
use crate::config::{Config, Mode};
use crate::event::{Event, Received, Side};
use crate::node_status::setters;
use crate::pressure::deadline::Deadlines;
use crate::pressure::disks::Health;
use crate::pressure::evaluate::{Change, Evaluator};
use crate::pressure::look::DiskLook;
use crate::pressure::oom::Verdict;
use crate::reading::{Resource, Signal};

mod blocking;
mod facts;
mod kills;
mod observe;
mod outside;
mod probes;
mod reporting;
mod tasks;

pub use outside::{AppError, KernelLine, Outside};

use blocking::{Answer, Blocking, Question};
use kills::Kills;
use observe::Observe;
use outside::{Doors, doors, ring_ended};
use probes::Probes;
use reporting::{Report, Reporting, Why};

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
    let clock = outside.clock;
    let mut alarm = clock.alarm().map_err(AppError::Alarm)?;
    let (events, mut doors) = doors(outside.kernel, clock);
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
    deadlines: Deadlines,
    observe: Observe,
    probes: Probes,
    kills: Kills,
    facts: crate::node_status::Facts,
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
            deadlines: Deadlines::new(announced),
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

    /// Everything is evaluated once before anything is said.
    async fn first_look(&mut self) {
        let answer = self.blocking.ask_now(Question::Storage).await;
        let now = self.clock.now();
        if !self.probes.tells_disks() {
            self.evaluator.observe_disks(DiskLook::Blind, now.boot);
        } else {
            self.evaluator.observe_disks(
                DiskLook::Seen {
                    slow: &[],
                    stalled: &[],
                },
                now.boot,
            );
        }
        self.answered(answer, now);
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
                biased;
                () = &mut shutdown => Input::Shutdown,
                Some(received) = events.recv() => Input::Kernel(received),
                answer = self.blocking.answer() => Input::Host(answer),
                report = reporting::next(self.reporting.as_mut()) => Input::Api(report?),
                Some(ended) = doors.readers.join_next() => return Err(ring_ended(ended)),
                reached = alarm.at(due) => {
                    reached.map_err(AppError::Alarm)?;
                    Input::Tick
                }
            };
            let now = self.clock.now();
            match input {
                Input::Kernel(received) => self.kernel_event(received, now),
                Input::Host(answer) => self.answered(answer, now),
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
        own.into_iter()
            .flatten()
            .fold(self.deadlines.due(), BootNanos::min)
    }

    fn tick(&mut self, now: Now) {
        let past = |at: Option<BootNanos>| at.is_some_and(|at| at <= now.boot);
        let must = past(self.evaluator.next_fall()) || past(self.probes.count_at());
        // What is due within a moment is done in the same wake-up as what is due now.
        if must || self.deadlines.due() <= now.boot.plus(reporting::ALIGN) {
            self.sample(now, None);
            self.blocking.ask(Question::Storage);
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
            reporting.on_time(now.boot, &self.facts);
        }
    }

    /// Looks at everything that can be read without waiting for a disk.
    fn sample(&mut self, now: Now, stamp: Option<Stamp>) {
        let looks = self.observe.hot();
        let changes = self.evaluator.evaluate(&looks, now.boot);
        self.deadlines.next(&looks, &self.evaluator, now.boot);
        let pids = self.evaluator.pressure(Resource::Pids);
        self.probes.sampled(self.observe.tasks(), pids, now.boot);
        self.changed(&changes, stamp, now);
    }

    fn answered(&mut self, answer: Answer, now: Now) {
        match answer {
            Answer::Storage { looks, capacity } => {
                if capacity.is_some() {
                    self.facts.ephemeral_storage = capacity;
                }
                let changes = self.evaluator.evaluate(&looks, now.boot);
                self.deadlines.next(&looks, &self.evaluator, now.boot);
                self.changed(&changes, None, now);
            }
            Answer::SlowDisk {
                device,
                counts,
                stamp,
            } => {
                // With I/O statistics off the start times that the kernel judged by are stale.
                if counts {
                    let news = self.probes.disk_told(device, Health::Slow, now.boot);
                    self.disks_changed(news, Some(stamp), now);
                }
            }
            Answer::InFlight { device, in_flight } => {
                let news = self.probes.disk_looked(device, in_flight, now.boot);
                self.disks_changed(news, None, now);
            }
        }
    }

    fn kernel_event(&mut self, received: Received, now: Now) {
        let read = received.read;
        let event = match received.event {
            Ok(event) => event,
            Err(err) => {
                warn!(
                    err = &err as &dyn std::error::Error,
                    "record not understood"
                );
                return;
            }
        };
        match event {
            Event::OomKill(kill) => {
                let stamp = Stamp {
                    kernel: kill.at,
                    read,
                };
                self.killed(&kill, stamp, now);
            }
            Event::PidCrossing { at, side, value } => {
                self.sample(now, Some(Stamp { kernel: at, read }));
                let tasks = self.observe.tasks();
                debug!(
                    ids = value,
                    tasks,
                    over = side == Side::Over,
                    "pid level crossed"
                );
                self.probes.pids_crossed(side, value, tasks, now.boot);
            }
            Event::PidTrend { at, value } => {
                self.sample(now, Some(Stamp { kernel: at, read }));
                self.probes.pids_counted(value, self.observe.tasks());
            }

            Event::DiskState {
                at,
                device,
                side,
                total,
                slow,
                max,
            } => {
                let stamp = Stamp { kernel: at, read };
                info!(%device, side = ?side, total, slow, max_ms = max.as_millis(), "disk state");
                match side {
                    Side::Over => self.ask_disk(device, stamp),
                    Side::Under => {
                        let news = self.probes.disk_told(device, Health::Quick, now.boot);
                        self.disks_changed(news, Some(stamp), now);
                    }
                }
            }
            Event::Unknown { kind } => warn!(kind, "record of an unknown kind"),
        }
    }

    fn ask_disk(&mut self, device: crate::units::DeviceNumber, stamp: Stamp) {
        if let Some(name) = self.probes.disk_name(device) {
            self.blocking.ask(Question::SlowDisk {
                device,
                name: name.to_owned(),
                stamp,
            });
        }
    }

    fn killed(&mut self, kill: &crate::event::OomKill, stamp: Stamp, now: Now) {
        // Taken before the sample, which would find the memory free again.
        let memory = self.observe.memory();
        let finding = self
            .kills
            .examine(kill, memory, &self.config.policy, now.boot);
        info!(
            victim = kill.victim.0,
            comm = finding.comm.as_str(),
            cgroup = finding.cgroup.as_str(),
            limiting = finding.limiting.as_deref(),
            verdict = ?finding.verdict,
            "process killed for want of memory"
        );
        if let Some(reporting) = &mut self.reporting {
            reporting.record(finding.event(kill, stamp, now));
        }
        if let Verdict::NodePressure { why } = finding.verdict {
            let changes = self
                .evaluator
                .force(Resource::Memory, why, kill.at.min(now.boot));
            self.changed(&changes, Some(stamp), now);
        }
        self.deadlines.hint(now.boot);
    }

    fn disks_changed(&mut self, news: bool, stamp: Option<Stamp>, now: Now) {
        if !news {
            return;
        }
        self.facts.disks = self.probes.unwell();
        let disks = &self.facts.disks;
        let look = DiskLook::Seen {
            slow: &disks.slow,
            stalled: &disks.stalled,
        };
        let changes = self.evaluator.observe_disks(look, now.boot);
        self.changed(&changes, stamp, now);
    }

    /// Says what changed, to the log and to the API server.
    fn changed(&mut self, changes: &[Change], stamp: Option<Stamp>, now: Now) {
        self.facts.pressures = self.evaluator.pressures();
        for change in changes {
            info!(
                resource = change.resource.as_str(),
                from = ?change.from,
                to = ?change.to,
                why = ?change.why,
                "pressure changed"
            );
            if let (Some(reporting), Some(stamp)) = (&mut self.reporting, stamp) {
                reporting.caused_by(change.resource, stamp);
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
        if let Report::Registered { stored } = &report {
            // What was True before a restart is held for a whole transition period from now on.
            for condition in &stored.conditions {
                let is_true = condition.status == crate::node_status::Status::True;
                if let Some(resource) = setters::resource(&condition.type_).filter(|_| is_true) {
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
