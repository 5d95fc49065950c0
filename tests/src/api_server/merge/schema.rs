//! Defines how each list of the known objects is merged.
//!
//! From the `patchStrategy` and `patchMergeKey` tags of the Go types. A list that is not here is
//! atomic, which is the default there too.
//!
//! <https://github.com/kubernetes/api/blob/v0.33.0/core/v1/types.go>

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// The patch's list replaces the list.
    Atomic,
    /// Values are added to a set of plain values.
    Set,
    /// Elements are merged if this field is equal.
    ByKey(&'static str),
}

/// Looks up the list at a dotted path. List elements add nothing to the path.
pub(super) fn strategy(kind: &str, path: &str) -> Strategy {
    use Strategy::{Atomic, ByKey, Set};
    match (kind, path) {
        (_, "metadata.finalizers") | ("Node", "spec.podCIDRs") => Set,
        (_, "metadata.ownerReferences") => ByKey("uid"),
        ("Node" | "Pod" | "Namespace", "status.conditions") | ("Node", "status.addresses") => {
            ByKey("type")
        }
        ("Pod", "status.podIPs") => ByKey("ip"),
        (
            "Pod",
            "spec.volumes" | "spec.containers" | "spec.initContainers" | "spec.ephemeralContainers",
        )
        | ("Pod", "spec.containers.env" | "spec.initContainers.env" | "spec.imagePullSecrets") => {
            ByKey("name")
        }
        ("Pod", "spec.containers.ports" | "spec.initContainers.ports") => ByKey("containerPort"),
        ("Pod", "spec.containers.volumeMounts" | "spec.initContainers.volumeMounts") => {
            ByKey("mountPath")
        }
        ("Pod", "spec.hostAliases") => ByKey("ip"),
        ("Pod", "spec.topologySpreadConstraints") => ByKey("topologyKey"),
        _ => Atomic,
    }
}
