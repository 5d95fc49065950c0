//! Every default, and where it comes from.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::Mode;

/// Where the file is looked for when nobody names one. There it may be missing.
pub(super) const FILE: &str = "/etc/nodepulse/config.yaml";

/// The mode that can do no harm beside a kubelet: it writes nothing that a kubelet writes.
pub(super) const MODE: Mode = Mode::Companion;

/// The agent runs on the node itself, not in a container.
pub(super) const HOST_ROOT: &str = "/";

/// The kubelet's `--root-dir`.
pub(super) const ROOT_DIRECTORY: &str = "/var/lib/kubelet";

/// Gone with the boot that it tells of. In a container: a directory of the node, mounted there.
pub(super) const STATE_DIRECTORY: &str = "/run/nodepulse";

/// The kubelet's `cgroupRoot`.
pub(super) const CGROUP_ROOT: &str = "/";

/// The kubelet's `evictionHard`, and for `pid.available`, which a kubelet leaves without one, the
/// share that still lets an administrator log in.
pub(super) const HARD_NODE: [(&str, &str); 6] = [
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
    ("pid.available", "5%"),
];

/// Earlier than a kubelet's, or our own conditions would say nothing that it does not say.
pub(super) const HARD_COMPANION: [(&str, &str); 6] = [
    ("memory.available", "5%"),
    ("nodefs.available", "15%"),
    ("nodefs.inodesFree", "8%"),
    ("imagefs.available", "20%"),
    // Nobody has asked for an earlier one: the kubelet's.
    ("imagefs.inodesFree", "5%"),
    ("pid.available", "10%"),
];

/// The kubelet's `evictionPressureTransitionPeriod`.
pub(super) const TRANSITION_PERIOD: Duration = Duration::from_mins(5);

/// The kubelet's `nodeStatusUpdateFrequency`.
pub(super) const UPDATE_FREQUENCY: Duration = Duration::from_secs(10);

/// The kubelet's `nodeStatusReportFrequency`, where the update frequency is not set either.
pub(super) const REPORT_FREQUENCY: Duration = Duration::from_mins(5);

/// The kubelet's `nodeLeaseDurationSeconds`.
pub(super) const LEASE_SECONDS: u32 = 40;

/// The kubelet's `maxPods`.
pub(super) const MAX_PODS: u32 = 110;

/// The disk hook's: a solid-state disk that takes so long is not well.
pub(super) const SOLID_STATE_SLOW: Duration = Duration::from_millis(20);

/// The disk hook's: several full strokes and turns of a rotating disk.
pub(super) const ROTATIONAL_SLOW: Duration = Duration::from_millis(100);

/// The disk hook's: long enough for the slowest healthy disk to finish five requests.
pub(super) const DISK_WINDOW: Duration = Duration::from_secs(1);

/// KEP-5394's, in percent of the time.
pub(super) const STALL_THRESHOLD: f32 = 40.0;

/// The Kubernetes release whose node-status behaviour we follow and every supported API server knows.
pub(super) const KUBERNETES_VERSION: &str = "v1.33.0";

/// On the node itself only: metrics tell how a node is doing to whoever can reach them.
pub(super) const SERVE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 20260);
