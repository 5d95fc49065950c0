//! The status without a daemon: reads files once; attaches, sends and saves nothing.

use tokio::task::JoinSet;

use super::App;
use super::blocking::Persistence;
use super::control::AppParts;
use super::lanes::Lanes;
use super::metering::{Metering, Sources};
use super::observe::pods_path;
use super::parts::{LoopInputs, RunMode, setters_of};
use super::power::Power;
use crate::clock::Clock;
use crate::config::Config;
use crate::kernel::Support;
use crate::kernel::support::Missing;
use crate::node_status::NodeStatus;
use crate::notify::Notify;
use crate::subjects::KillSource;

/// The first status that an agent with this configuration would compute. Must be called in a runtime.
///
/// Waits for the disk under the root directory for up to five seconds, and for as long again if the
/// node's addresses are resolved with DNS.
pub async fn status_now(config: Config, clock: Clock) -> NodeStatus {
    let support = Support::none(&Missing::TurnedOff);
    let sources = Sources {
        sites: Vec::new(),
        figures: None,
        client: None,
        lanes: Lanes::new(None),
        per_pod: config.per_pod_metrics,
    };
    let app_parts = AppParts {
        recorder: None,
        pods: pods_path(&config),
        metering: Metering::start(sources, &support, KillSource::Counters),
        persistence: Persistence::None,
        setters: setters_of(config.mode),
        reloads: None,
        notify: Notify::default(),
        run_mode: RunMode::Once,
        power: Power::new(None),
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
