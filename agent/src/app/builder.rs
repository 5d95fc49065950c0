//! The builder of an agent.

use std::fs::File;

use nodepulse_core::backoff::Jitter;
use nodepulse_core::node_status::setters::{COMPANION, SETTERS, Setters};
use nodepulse_core::record::Received;
use nodepulse_core::settings::Mode;
use nodepulse_core::subjects::recording::RunRecorder;
use nodepulse_io::clock::Clock;
use nodepulse_io::names::Names;
use nodepulse_kube::Client;
use nodepulse_linux::cri::Connector;
use nodepulse_linux::host::cgroup::pods::PodsPath;
use nodepulse_linux::kernel::counters::ProbeCounters;
use nodepulse_linux::kernel::support::Missing;
use nodepulse_linux::kernel::{LoadedKernel, Support};
use nodepulse_linux::logind::PowerMessage;
use nodepulse_linux::os::psi::Trigger;
use tokio::sync::{mpsc, watch};

use super::reload::Reloads;
use crate::black_box::OpenBlackBox;
use crate::config::Config;
use crate::history::HistorySetup;
use crate::notify::Notify;
use crate::queries::pressure_files;
use crate::queries::signals::pods_path;
use crate::serve::{Site, socket::Socket};
use crate::telemetry::Journald;

pub use crate::reporting::certificate::CertificateSetup;

#[derive(Debug)]
pub enum KernelSource {
    Attached(Box<LoadedKernel>),
    Simulated {
        records: mpsc::Receiver<Received>,
        counters: watch::Receiver<ProbeCounters>,
    },
    /// No kernel events, only files. The state of each probe contains the reason.
    None(Support),
}

impl KernelSource {
    pub fn support(&self) -> Support {
        match self {
            Self::Attached(loaded) => loaded.kernel.support().clone(),
            Self::Simulated { .. } => Support::all(),
            Self::None(support) => support.clone(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunMode {
    UntilStopped,
    /// The agent ends after it has written the status once.
    Once,
}

/// An agent that has not started.
///
/// Needs a configuration and a clock. Without further settings it reads only files, evaluates them,
/// logs the results, and opens no connection to an API server.
#[derive(Debug)]
#[must_use = "an agent does nothing before it runs"]
pub struct Agent {
    pub(super) config: Config,
    pub(super) clock: Clock,
    pub(super) pods: PodsPath,
    pub(super) kernel: KernelSource,
    pub(super) kernel_log: Option<File>,
    pub(super) triggers: Vec<Trigger>,
    pub(super) client: Option<Client>,
    pub(super) certificate: Option<CertificateSetup>,
    pub(super) runtime_connector: Connector,
    pub(super) names: Names,
    pub(super) setters: Setters,
    pub(super) jitter: Jitter,
    pub(super) sites: Option<Vec<Site>>,
    pub(super) control: Option<Socket>,
    pub(super) history: HistorySetup,
    pub(super) black_box: Option<OpenBlackBox>,
    pub(super) journald: Option<Journald>,
    pub(super) reloads: Option<Reloads>,
    pub(super) notify: Notify,
    pub(super) run_mode: RunMode,
    pub(super) logind: Option<mpsc::Receiver<PowerMessage>>,
    pub(super) run_recorder: Option<Box<dyn RunRecorder>>,
}

/// Methods that set the field of their name.
macro_rules! setters {
    ($($(#[$doc:meta])* $field:ident($value:ident: $type:ty) = $set:expr;)*) => {
        $(
            $(#[$doc])*
            pub fn $field(mut self, $value: $type) -> Self {
                self.$field = $set;
                self
            }
        )*
    };
}

impl Agent {
    pub fn new(config: Config, clock: Clock) -> Self {
        Self {
            pods: pods_path(&config),
            kernel: KernelSource::None(Support::none(&Missing::TurnedOff)),
            kernel_log: None,
            triggers: Vec::new(),
            client: None,
            certificate: None,
            runtime_connector: Connector::unix(),
            names: Names::system(),
            setters: match config.mode {
                Mode::Companion => COMPANION,
                Mode::Node => SETTERS,
            },
            jitter: Jitter::seeded(clock.now().boot.0 | 1),
            sites: None,
            control: None,
            history: HistorySetup::default(),
            black_box: None,
            journald: None,
            reloads: None,
            notify: Notify::default(),
            run_mode: RunMode::UntilStopped,
            logind: None,
            run_recorder: None,
            config,
            clock,
        }
    }

    setters! {
        /// Sets the source of kernel events. Default: none, only files.
        kernel(source: KernelSource) = source;
        /// Sets the kernel's log, from which OOM kills are read if no program reports them.
        /// Default: they are counted by the cgroups' counters.
        kernel_log(log: impl Into<Option<File>>) = log.into();
        /// Sets the client of the API server. Default: none; the status is evaluated and logged.
        client(client: impl Into<Option<Client>>) = client.into();
        /// Sets how the certificate of the client is requested, in node mode. Default: it is not.
        certificate(setup: impl Into<Option<CertificateSetup>>) = setup.into();
        /// Sets how the sockets of the container runtime are opened. Default: as UNIX sockets.
        runtime_connector(connector: Connector) = connector;
        /// Sets how the node's name is resolved. Default: as by the C library.
        names(names: Names) = names;
        /// Replaces the setters of the status. Default: [`COMPANION`] or [`SETTERS`], by mode.
        setters(setters: Setters) = setters;
        /// Sets the jitter of periodic requests. Default: seeded by the clock.
        jitter(jitter: Jitter) = jitter;
        /// Sets where metrics and health are served. Default: at the configured addresses.
        sites(sites: Vec<Site>) = Some(sites);
        /// Sets the control socket, for `status` and `explain`. Default: none.
        control(socket: impl Into<Option<Socket>>) = socket.into();
        /// Sets where incidents are recorded. Default: nowhere.
        history(setup: HistorySetup) = setup;
        /// Sets where readings are kept for the next boot. Default: nowhere.
        black_box(opened: Option<OpenBlackBox>) = opened;
        /// Sets the journal that has incidents as well. Default: none.
        journald(journald: Option<Journald>) = journald;
        /// Sets how the configuration is reloaded. Default: it is not.
        reloads(reloads: Reloads) = Some(reloads);
        /// Sets the service manager to notify. Default: none.
        notify(manager: Notify) = manager;
        /// Default: [`RunMode::UntilStopped`].
        run_mode(mode: RunMode) = mode;
        /// Sets the source of logind's messages. Default: shutdowns of the machine are not
        /// announced.
        logind(messages: impl Into<Option<mpsc::Receiver<PowerMessage>>>) = messages.into();
        /// Sets a recorder of all inputs and effects of the subjects. Default: none.
        run_recorder(recorder: impl Into<Option<Box<dyn RunRecorder>>>) = recorder.into();
    }

    /// Sets PSI triggers for the node and its pods, and logs each failure. Must be called before
    /// privileges are dropped, because the kernel checks them when a trigger is set. Default: the
    /// pressure files are read every ten seconds.
    pub fn set_triggers(mut self) -> Self {
        self.triggers = pressure_files::triggers(&self.config, &self.pods);
        self
    }

    pub const fn config(&self) -> &Config {
        &self.config
    }

    pub const fn has_client(&self) -> bool {
        self.client.is_some()
    }
}
