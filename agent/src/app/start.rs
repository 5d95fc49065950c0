//! Builds the loop's state, and evaluates everything once.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use nodepulse_core::clock::Now;
use nodepulse_core::incident::{BootId, Position};
use nodepulse_core::node_status::ledger::Ledger;
use nodepulse_core::node_status::{NodeFact, Runtime};
use nodepulse_core::reading::{Stall, StallKind, StallOf};
use nodepulse_core::settings::{DiskIo, Mode};
use nodepulse_core::subjects::recording::{RecordedSubjects, RunRecorder};
use nodepulse_core::subjects::{
    BlockingQuery, DiskQuery, DiskSetup, IncidentInput, Input, IoTrigger, NodeSetup, RotationSetup,
    RuntimeUse, Settings, Setup, SignalSetup, StallSetup,
};
use nodepulse_io::lane::Lanes;
use nodepulse_io::names::Names;
use nodepulse_io::tasks::Tasks;
use nodepulse_kube::Client;
use nodepulse_linux::host::HostRoot;
use nodepulse_linux::logind::power::Power;
use tokio::sync::{mpsc, watch};

use super::kernel_inputs::KernelInputs;
use super::reload::{self, Reloading};
use super::service::Service;
use super::{Agent, App, CertificateSetup, RunMode, VERSION, facts};
use crate::black_box::{BlackBox, OpenBlackBox};
use crate::config::Config;
use crate::history::History;
use crate::notify::heartbeat::Heartbeat;
use crate::queries::Queries;
use crate::queries::blocking::nodefs::Directories;
use crate::queries::blocking::{Blocking, Initial, Question, Responder, RuntimeClient, saved};
use crate::queries::cgroups::{Cgroups, page_size};
use crate::queries::pod_updates::PodUpdates;
use crate::queries::pressure_files::{self, PressureFiles};
use crate::queries::probes::Probes;
use crate::queries::signals::SignalReader;
use crate::reporting::once::Once;
use crate::reporting::{ApiAccess, Reporting, Why};
use crate::serve::{Listener, Pages, Site};
use crate::sinks::kubernetes::Reported;
use crate::telemetry::Telemetry;
use crate::telemetry::metering::{self, Metering};

/// How long the conditions wait for the stored Node before they are compared with the history: what
/// is True there can be so here.
const NODE_READ: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Persistence {
    StateFile,
    None,
}

/// Returns the state of a running agent, whose first status is known and is being sent.
pub(super) async fn app(
    mut agent: Agent,
    persistence: Persistence,
    inputs: &mut KernelInputs,
) -> App {
    let (clock, setters) = (agent.clock, agent.setters);
    let certificate = agent.certificate.take();
    let once = agent.run_mode == RunMode::Once;
    let client = agent.client.clone();
    if let Some(client) = &client {
        client.spread_by(agent.jitter.clone());
    }
    let found = agent.black_box.as_mut();
    let found = found.and_then(OpenBlackBox::take_found);
    let mut app = state(agent, certificate.as_ref(), persistence, inputs);
    initial_evaluation(&mut app, once || client.is_none()).await;
    let now = clock.now();
    if let Some(found) = found {
        let happened = IncidentInput::Happened(vec![found]);
        app.feed(Input::Incident(happened), now);
    }
    app.ledger = Ledger::new(setters, &app.facts, now);
    if client.is_none() {
        app.compare_with_history(false, now);
    }
    app.telemetry.record_failed(app.ledger.failed());
    app.telemetry.metering.evaluated(client.is_some());
    let conditions = app.ledger.conditions();
    app.telemetry.metering.conditions(conditions, &[]);
    app.reporting = client.map(|client| {
        let computed = app.ledger.computed();
        let (outcomes, reported) = mpsc::unbounded_channel();
        let (written, seen) = watch::channel(Position::default());
        let access = ApiAccess {
            client,
            certificate,
            outcomes,
            written,
        };
        let reporting = Reporting::start(&app.config, access, clock, computed, &mut app.tasks);
        let reported = Reported {
            events: reporting.events.clone(),
            outcomes: reported,
            written: seen,
        };
        app.history.start_events(reported);
        reporting
    });
    app.sync(Why::Tick, now);
    app.notify_ready();
    app.service.once = once.then(|| Once::new(app.config.mode, now.boot));
    app
}

fn state(
    agent: Agent,
    certificate: Option<&CertificateSetup>,
    persistence: Persistence,
    inputs: &mut KernelInputs,
) -> App {
    let (config, clock) = (agent.config, agent.clock);
    let now = clock.now();
    let client = agent.client;
    let has_server = client.is_some();
    let certificate = certificate.zip(client.as_ref());
    let certificate = certificate.map(|(setup, client)| rotation_setup(setup, client, now));
    let mut sites = agent
        .sites
        .unwrap_or_else(|| metering::open(&config, client.is_some()));
    sites.extend(agent.control.map(|socket| Site {
        listener: Listener::Unix(socket),
        pages: Pages::Control,
    }));
    let tier = inputs.kills.tier(inputs.support.tier());
    let lanes = lanes(client.as_ref(), &agent.names);
    let name = &config.node_name;
    let mut metering = Metering::start(name, tier, sites, client.clone(), lanes.clone());
    metering.record_config(None, now);
    metering.record_support(&inputs.support);
    metering.set_per_pod(config.per_pod_metrics);
    let base = match persistence {
        Persistence::StateFile => saved::base(&config, tier, &inputs.support),
        Persistence::None => None,
    };
    let boot_known = base.is_some();
    let read = agent.reloads.as_ref().map(|reloads| reloads.read.clone());
    let mut tasks = Tasks::default();
    let absent = pressure_files::absent(&config, &agent.pods);
    let directories = directories(&config, has_server);
    let runtime = RuntimeClient::new(&config, agent.runtime_connector, &directories);
    let mut setup = agent.history;
    let responder = Responder::new(&config, directories, agent.pods.clone(), base, read)
        .recorded(setup.kills());
    let queries = Queries {
        signals: SignalReader::new(&config, agent.pods.clone()),
        probes: Probes::start(
            inputs.kernel.take(),
            inputs.simulated.take(),
            &inputs.support,
        ),
        cgroups: Cgroups::new(agent.pods.clone(), client.is_none()),
        pressure_files: PressureFiles::new(&config, agent.pods),
        blocking: Blocking::start(&responder, runtime, agent.names, &lanes, &mut tasks),
        pods: PodUpdates::new(&config, client, &mut tasks),
    };
    let boot = boot_id(&config);
    let conditions = setup.conditions();
    let server = (boot, has_server.then_some(config.node_name.as_str()));
    let history = History::start(setup, server, &lanes, &metering, &mut tasks);
    let settings = reload::settings(&config, &absent);
    let facts = facts::gather(&config, &queries.signals, absent);
    let triggers = &inputs.stalls;
    let setup = Setup {
        started: now.boot,
        boot,
        conditions,
        has_server,
        node: NodeSetup {
            mode: config.mode,
            page: page_size(),
            counters: queries.cgroups.kill_counters(inputs.kills, boot_known),
            node_events: settings.node_events,
            frequent_oom: settings.frequent_oom,
            refused_forks: queries.cgroups.announces_refused_forks(),
        },
        stalls: stall_setup(&config, &settings, triggers),
        signals: SignalSetup {
            policy: settings.policy,
            announced: queries.probes.announced(),
            pods_cgroup: queries.signals.pods_cgroup().to_owned(),
        },
        disks: disk_setup(settings.disk_io, &queries, triggers),
        runtime: runtime_use(&config),
        certificate,
    };
    let mut telemetry = Telemetry::new(metering);
    telemetry.record_omitted(config.mode, &facts);
    App {
        clock,
        subjects: subjects(&setup, agent.run_recorder),
        queries,
        ledger: Ledger::new(agent.setters, &facts, now),
        facts,
        recorded: Some((now.boot.plus(NODE_READ), setup.conditions)),
        causes: BTreeMap::new(),
        reporting: None,
        history,
        black_box: BlackBox::start(agent.black_box, &lanes, &mut tasks),
        journald: agent.journald,
        telemetry,
        service: Service {
            heartbeat: Heartbeat::new(agent.notify, now.boot),
            power: Power::new(agent.logind),
            reloading: agent.reloads.map(Reloading::new),
            once: None,
        },
        tasks,
        config,
    }
}

fn rotation_setup(setup: &CertificateSetup, client: &Client, now: Now) -> RotationSetup {
    RotationSetup {
        found: setup.found.clone(),
        read_at: now,
        jitter: client.jitter(),
    }
}

fn directories(config: &Config, has_server: bool) -> Directories {
    let directories = Directories::new(config);
    if has_server || directories.has_kubelet() {
        directories
    } else {
        directories.without_pods()
    }
}

/// Returns the id of this boot, or one for this start if it is not known.
fn boot_id(config: &Config) -> BootId {
    let root = HostRoot::new(&config.host_root);
    let known = root.read_string(saved::BOOT_ID).ok();
    known
        .and_then(|id| id.trim().parse().ok())
        .unwrap_or_else(|| {
            // Differs in each process, which is all that is needed.
            let part = || u128::from(RandomState::new().hash_one(0));
            BootId(part() << 64 | part())
        })
}

fn subjects(setup: &Setup, recorder: Option<Box<dyn RunRecorder>>) -> RecordedSubjects {
    let mut subjects = RecordedSubjects::new(setup);
    if let Some(recorder) = recorder {
        subjects.attach(recorder, VERSION);
    }
    subjects
}

/// Creates the lanes of all purposes, or shares the client's and the resolver's.
fn lanes(client: Option<&Client>, names: &Names) -> Lanes {
    let of_client = client.and_then(Client::lane).into_iter();
    let shared: Vec<_> = of_client.chain([names.lane()]).collect();
    Lanes::new(&shared)
}

fn runtime_use(config: &Config) -> RuntimeUse {
    match config.runtime {
        _ if config.runtime_sockets().is_empty() => RuntimeUse::Unused,
        Runtime::Required => RuntimeUse::Required,
        Runtime::NotNeeded => RuntimeUse::Optional,
    }
}

/// `triggers` are the stalls with a trigger.
fn stall_setup(config: &Config, settings: &Settings, triggers: &[Stall]) -> StallSetup {
    let watched = settings.stalls.iter();
    StallSetup {
        thresholds: config.psi.thresholds,
        transition_period: settings.policy.transition_period,
        watched: watched.map(|one| (*one, triggers.contains(one))).collect(),
    }
}

/// `triggers` are the stalls with a trigger.
fn disk_setup(settings: DiskIo, queries: &Queries, triggers: &[Stall]) -> DiskSetup {
    let io = Stall::new(StallOf::Node, StallKind::Io);
    DiskSetup {
        settings,
        probe: queries.probes.disk_probe(),
        trigger: if triggers.contains(&io) {
            IoTrigger::Set
        } else {
            IoTrigger::Missing
        },
    }
}

/// Evaluates everything once before anything is reported, with the state of the previous agent.
/// Values that are not available within their time limit are missing from this evaluation.
///
/// With `is_only_status`, the status is computed once.
async fn initial_evaluation(app: &mut App, is_only_status: bool) {
    let blocking = &mut app.queries.blocking;
    // Asked before nodefs is read by the same thread, which may hang.
    blocking.ask(Question::Machine);
    blocking.ask(Question::Subject(BlockingQuery::Disk(DiskQuery::List)));
    let mut awaited = BTreeSet::from([
        Initial::Machine,
        Initial::Disks,
        // Both are queries of `Starting`.
        Initial::Storage,
        Initial::State,
    ]);
    // A kubelet writes the addresses of companion mode.
    if app.config.mode == Mode::Node && app.config.node_ips.is_empty() {
        let name = app.config.node_name.clone();
        blocking.ask(Question::Resolve { name });
        app.facts.set(NodeFact::Resolving);
        // Without a cluster DNS a lookup takes seconds: the status is published without the
        // addresses, unless it is the only one.
        if is_only_status {
            awaited.insert(Initial::Addresses);
        }
    }
    if app.subjects.runtime.is_used() {
        awaited.insert(Initial::Runtime);
    }
    app.feed(Input::Starting, app.clock.now());
    while !awaited.is_empty() {
        let answer = app.queries.blocking.answer().await;
        if let Some(initial) = answer.initial() {
            awaited.remove(&initial);
        }
        app.answered(answer, app.clock.now());
    }
    app.feed(Input::Started, app.clock.now());
}
