//! One look without a daemon: files are read once, nothing is attached, sent or kept.

use tokio::task::JoinSet;

use super::App;
use super::blocking::Memory;
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

/// The status that an agent of this configuration would begin with. Must be called in a runtime.
///
/// Takes as long as the disk under the root directory, at most five seconds; as long again where
/// DNS is asked for the node's addresses.
pub async fn status_now(config: Config, clock: Clock) -> NodeStatus {
    let support = Support::none(&Missing::TurnedOff);
    let sources = Sources {
        sites: Vec::new(),
        figures: None,
        client: None,
        lanes: Lanes::new(None),
        per_pod: config.per_pod_metrics,
    };
    let beside = AppParts {
        pods: pods_path(&config),
        metering: Metering::start(sources, &support, KillSource::Counters),
        memory: Memory::None,
        setters: setters_of(config.mode),
        reloads: None,
        notify: Notify::default(),
        run_mode: RunMode::Once,
        power: Power::listening_to(None),
    };
    let mut doors = LoopInputs {
        kernel: None,
        support,
        kills: KillSource::Counters,
        stalls: Vec::new(),
        readers: JoinSet::new(),
        leaving: tokio::sync::watch::Sender::new(false),
        _watchers: None,
        _records: None,
    };
    let app = App::new(config, None, clock, beside, &mut doors).await;
    app.ledger.status(clock.now())
}
