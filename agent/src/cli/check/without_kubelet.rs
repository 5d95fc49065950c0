//! Limitations of a Node without a kubelet, and its treatment by the control plane.

use nodepulse_core::settings::Mode;

use super::report::Item;
use crate::config::{Config, key};

/// Returns nothing in companion mode, which needs a kubelet on the node.
pub(super) fn items(config: &Config) -> Vec<Item> {
    match config.mode {
        Mode::Companion => Vec::new(),
        Mode::Node => vec![
            pods(config).named("pods of this Node"),
            lease(config).named("Lease"),
            Item::ok(
                "not served: kubectl logs, exec and port-forward, and metrics-server, fail for this Node",
            )
            .named("kubelet API (port 10250)"),
            Item::ok(
                "no CSINode is written: the scheduler does not place pods with CSI volumes here",
            )
            .named("CSINode and volumes"),
        ],
    }
}

/// A pod that is bound to the Node waits until it is deleted.
fn pods(config: &Config) -> Item {
    /// Also tolerated by pods that tolerate every taint, such as those of network plugins.
    const REPELS: [&str; 2] = ["NoSchedule", "NoExecute"];
    const NEVER: &str =
        "nodepulse starts no containers: a pod that is bound to this Node stays Pending";

    let of_runtime = config.runtime.taint();
    let mut taints = config.taints.iter().chain(&of_runtime);
    match taints.find(|taint| REPELS.contains(&taint.effect.as_str())) {
        Some(taint) => {
            let (name, effect) = (&taint.key, &taint.effect);
            let found = format!("{NEVER}; a new Node has the taint {name}:{effect}");
            Item::ok(found)
        }
        None => Item::degraded(
            NEVER,
            format!(
                "keep pods away: {}: [{{key: example.com/no-kubelet, effect: NoSchedule}}]",
                key::register_with_taints
            ),
        ),
    }
}

/// The defaults of kube-controller-manager 1.32 and newer (`--node-monitor-grace-period`), and of
/// the admission plugin `DefaultTolerationSeconds`.
fn lease(config: &Config) -> Item {
    let seconds = config.lease_duration.as_secs();
    let found = format!(
        "valid for {seconds} s; by default, 50 s after the last renewal the control plane sets Ready to \
         Unknown and taints the Node node.kubernetes.io/unreachable; 300 s later it evicts the pods, \
         which stay Terminating until the Node is deleted"
    );
    Item::ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;
    use crate::config::Overrides;

    fn checked(mode: &str, taints: &str) -> Vec<(String, Verdict)> {
        let overrides = Overrides {
            mode: Some(mode.to_owned()),
            register_with_taints: Some(taints.to_owned()),
            ..Overrides::default()
        };
        let absent = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        let config = Config::load(&overrides, &|_| None, &absent, "worker-1").unwrap();
        let items = items(&config).into_iter();
        items.map(|item| (item.name, item.verdict)).collect()
    }

    #[test]
    fn a_node_without_a_kubelet_needs_a_taint_that_repels_pods() {
        let rows = [
            ("", Verdict::Degraded),
            ("a=b:PreferNoSchedule", Verdict::Degraded),
            ("a=b:PreferNoSchedule,a=b:NoSchedule", Verdict::Ok),
            ("a=b:NoExecute", Verdict::Ok),
        ];
        for (taints, verdict) in rows {
            let checked = checked("node", taints);
            assert_eq!(
                checked[0],
                ("pods of this Node".to_owned(), verdict),
                "{taints}"
            );
            let others = checked[1..].iter();
            assert!(others.clone().count() > 0);
            assert!(others.clone().all(|(_, verdict)| *verdict == Verdict::Ok));
        }
        assert_eq!(checked("companion", ""), []);
    }
}
