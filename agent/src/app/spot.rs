//! The status without a daemon: reads files once; attaches, sends and saves nothing.

use tokio::task::JoinSet;

use super::App;
use super::control::AppParts;
use super::parts::LoopInputs;
use super::{Agent, RunMode};
use crate::kernel::Support;
use crate::kernel::support::Missing;
use crate::logind::power::Power;
use crate::node_status::NodeStatus;
use crate::notify::Notify;
use crate::queries::blocking::Persistence;
use crate::subjects::KillSource;
use crate::telemetry::metering::{Metering, Sources};

impl Agent {
    /// The first status that this agent would compute, from files only. Attaches, sends and saves
    /// nothing. Must be called in a runtime.
    ///
    /// Waits for the disk under the root directory for up to five seconds, and for as long again if
    /// the node's addresses are resolved with DNS.
    pub async fn status(self) -> NodeStatus {
        let Self {
            config,
            clock,
            pods,
            setters,
            ..
        } = self;
        let support = Support::none(&Missing::TurnedOff);
        let sources = Sources {
            sites: Vec::new(),
            figures: None,
            client: None,
            lanes: super::lanes(None),
            per_pod: config.per_pod_metrics,
        };
        let app_parts = AppParts {
            pods,
            metering: Metering::start(sources, &support, KillSource::Counters),
            persistence: Persistence::None,
            setters,
            reloads: None,
            notify: Notify::default(),
            run_mode: RunMode::Once,
            power: Power::new(None),
            recorder: None,
        };
        let mut inputs = LoopInputs {
            kernel: None,
            support,
            kills: KillSource::Counters,
            stalls: Vec::new(),
            readers: JoinSet::new(),
            stop: tokio::sync::watch::Sender::new(false),
            _watchers: None,
            _records: None,
        };
        let app = App::new(config, None, clock, app_parts, &mut inputs).await;
        app.ledger.status(clock.now())
    }
}
