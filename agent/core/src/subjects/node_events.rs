//! Decides which program records OOM kills on the Node: this agent, or node-problem-detector
//! (`oom.nodeEvents`).
//!
//! node-problem-detector's kernel monitor records each kill on the Node (`OOMKilling`). It also
//! maintains the condition `KernelDeadlock`, which the same file configures in every release, and
//! renews it every five minutes. So the Node shows if it runs:
//! <https://github.com/kubernetes/node-problem-detector/blob/06c4b903acbdf4739f12326d183c142766c86f8e/config/kernel-monitor.json>

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{Decision, Effect};
use crate::clock::Now;
use crate::kube_event::NodeEvents;
use crate::node_status::{Condition, KERNEL_MONITOR};
use crate::settings::{Mode, OomNodeEvents};

/// A condition that was renewed this recently belongs to a kernel monitor that runs: two of its
/// periods, and some delay.
const RENEWED_WITHIN: Duration = Duration::from_mins(11);

/// A time may be this far in the future: times are written in whole seconds, and the clock may be
/// adjusted.
const AHEAD: Duration = Duration::from_mins(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeEventInput {
    /// The Node was just read, or returned by a patch: the time at which the kernel monitor renewed
    /// its condition. `None` if there is no such condition.
    NodeSeen(Option<SystemTime>),
    Configured(OomNodeEvents),
}

impl NodeEventInput {
    pub fn node_seen(conditions: &[Condition]) -> Self {
        let mut all = conditions.iter();
        let renewed = all.find(|condition| condition.type_ == KERNEL_MONITOR);
        Self::NodeSeen(renewed.map(|condition| condition.last_heartbeat_time))
    }
}

/// The choice between this agent and node-problem-detector.
#[derive(Debug, Serialize, Deserialize)]
pub struct NodeEventChoice {
    mode: Mode,
    setting: OomNodeEvents,
    /// The kernel monitor ran when the Node was last seen. False if unknown: an Event that is
    /// recorded twice is better than none.
    monitored: bool,
}

impl NodeEventChoice {
    pub const fn new(mode: Mode, setting: OomNodeEvents) -> Self {
        Self {
            mode,
            setting,
            monitored: false,
        }
    }

    /// Returns the component as which this agent records Events on the Node.
    pub const fn current(&self) -> NodeEvents {
        match (self.mode, self.setting) {
            (_, OomNodeEvents::Off) => NodeEvents::Off,
            // node-problem-detector records no `SystemOOM`.
            (Mode::Node, OomNodeEvents::Auto | OomNodeEvents::On) => NodeEvents::Kubelet,
            (Mode::Companion, OomNodeEvents::Auto) if self.monitored => NodeEvents::Off,
            (Mode::Companion, OomNodeEvents::Auto | OomNodeEvents::On) => NodeEvents::Companion,
        }
    }

    pub fn on(&mut self, input: NodeEventInput, now: Now) -> Vec<Effect> {
        let (before, was_monitored) = (self.current(), self.monitored);
        match input {
            NodeEventInput::NodeSeen(renewed) => {
                self.monitored = renewed.is_some_and(|at| is_recent(at, now.wall));
            }
            NodeEventInput::Configured(setting) => self.setting = setting,
        }
        let current = self.current();
        let mut effects = Vec::new();
        if current != before {
            effects.push(Effect::NodeEvents(current));
            if self.monitored != was_monitored {
                let recorded_by_monitor = self.monitored;
                effects.push(Effect::Log(Decision::NodeEventsBy {
                    recorded_by_monitor,
                }));
            }
        }
        effects
    }
}

/// A time far in the future is that of a clock that was wrong, not of a monitor that runs.
fn is_recent(renewed: SystemTime, now: SystemTime) -> bool {
    match now.duration_since(renewed) {
        Ok(age) => age <= RENEWED_WITHIN,
        Err(ahead) => ahead.duration() <= AHEAD,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::BootNanos;
    use crate::node_status::Status;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn on(choice: &mut NodeEventChoice, seconds: u64, input: NodeEventInput) -> Vec<Effect> {
        let boot = BootNanos(1);
        let wall = at(seconds);
        choice.on(input, Now { boot, wall })
    }

    #[test]
    fn a_kernel_monitor_that_renews_its_condition_turns_the_events_off_until_it_ends() {
        use NodeEventInput::{Configured, NodeSeen};
        let seen = |seconds| NodeSeen(Some(at(seconds)));
        // At s, input, Events afterwards, name.
        #[rustfmt::skip]
        let script = [
            (10_000, NodeSeen(None), NodeEvents::Companion, "no condition"),
            (10_300, seen(10_290), NodeEvents::Off, "it appears"),
            (10_600, seen(10_590), NodeEvents::Off, "renewed"),
            (11_250, seen(10_590), NodeEvents::Off, "11 minutes ago"),
            (11_251, seen(10_590), NodeEvents::Companion, "stale: it ended"),
            (11_900, seen(11_890), NodeEvents::Off, "it is back"),
            (12_000, seen(12_060), NodeEvents::Off, "a minute ahead"),
            (12_000, seen(12_061), NodeEvents::Companion, "by a wrong clock"),
            (12_100, seen(12_099), NodeEvents::Off, "again"),
            (12_100, NodeSeen(None), NodeEvents::Companion, "removed"),
            (12_200, seen(12_199), NodeEvents::Off, "again"),
            (12_201, Configured(OomNodeEvents::On), NodeEvents::Companion, "by configuration"),
            (12_202, seen(12_199), NodeEvents::Companion, "whatever the Node has"),
            (12_203, Configured(OomNodeEvents::Auto), NodeEvents::Off, "remembered"),
            (12_204, Configured(OomNodeEvents::Off), NodeEvents::Off, "never"),
            (12_205, NodeSeen(None), NodeEvents::Off, "whatever the Node has"),
        ];
        let mut choice = NodeEventChoice::new(Mode::Companion, OomNodeEvents::Auto);
        let mut before = choice.current();
        assert_eq!(before, NodeEvents::Companion, "the Node was not seen yet");
        for (seconds, input, expected, name) in script {
            let effects = on(&mut choice, seconds, input);
            assert_eq!(choice.current(), expected, "{name}");
            let mut applied = Vec::new();
            let mut logged = None;
            for effect in effects {
                match effect {
                    Effect::NodeEvents(to) => applied.push(to),
                    Effect::Log(Decision::NodeEventsBy {
                        recorded_by_monitor,
                    }) => {
                        logged = Some(recorded_by_monitor);
                    }
                    other => panic!("{name}: {other:?}"),
                }
            }
            let changed = (expected != before).then_some(expected);
            assert_eq!(applied, Vec::from_iter(changed), "{name}");
            let is_by_node = matches!(input, NodeSeen(_)) && expected != before;
            assert_eq!(
                logged,
                is_by_node.then_some(expected == NodeEvents::Off),
                "{name}"
            );
            before = expected;
        }
    }

    #[test]
    fn node_mode_records_events_unless_configured_otherwise() {
        let rows = [
            (OomNodeEvents::Auto, NodeEvents::Kubelet),
            (OomNodeEvents::On, NodeEvents::Kubelet),
            (OomNodeEvents::Off, NodeEvents::Off),
        ];
        for (setting, expected) in rows {
            let mut choice = NodeEventChoice::new(Mode::Node, setting);
            let effects = on(&mut choice, 100, NodeEventInput::NodeSeen(Some(at(99))));
            assert_eq!(
                (choice.current(), effects),
                (expected, Vec::new()),
                "{setting:?}"
            );
        }
    }

    #[test]
    fn only_the_condition_of_the_kernel_monitor_counts() {
        let condition = |type_: &str| Condition {
            type_: type_.to_owned(),
            status: Status::False,
            reason: String::new(),
            message: String::new(),
            last_heartbeat_time: at(7),
            last_transition_time: at(1),
        };
        let others = [condition("Ready"), condition("ReadonlyFilesystem")];
        let none = NodeEventInput::NodeSeen(None);
        assert_eq!(NodeEventInput::node_seen(&others), none);
        let with = [condition("Ready"), condition(KERNEL_MONITOR)];
        let seen = NodeEventInput::NodeSeen(Some(at(7)));
        assert_eq!(NodeEventInput::node_seen(&with), seen);
    }
}
