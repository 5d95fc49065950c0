//! Sources that appear late.

use std::fs;

use nodepulse_core::record::ScopeSource;

use nodepulse_tests::host_root::PODS;
use nodepulse_tests::node::{Kill, Limit, pass};

use super::*;

/// A kubelet that is started after us makes the cgroup of its pods when it likes.
#[tokio::test(start_paused = true)]
async fn the_pods_cgroup_is_detected_also_later_unless_its_driver_is_configured() {
    const SLICE: &str = "kubepods.slice";
    // What is configured, what there is, whether it comes later, what a former kubelet has left,
    // whether pressure in it is seen.
    let rows = [
        (None, PODS, false, None, "True"),
        (None, PODS, true, None, "True"),
        (None, SLICE, false, None, "True"),
        (None, SLICE, true, None, "True"),
        (None, PODS, false, Some(SLICE), "True"),
        (None, PODS, true, Some(SLICE), "True"),
        (None, SLICE, true, Some(PODS), "True"),
        (Some("systemd"), SLICE, true, None, "True"),
        (Some("cgroupfs"), SLICE, false, None, "False"),
    ];
    for (driver, name, later, left, expected) in rows {
        let host = Arc::new(MadeUpHost::calm());
        let cgroups = host.path().join("sys/fs/cgroup");
        let (aside, at) = (host.path().join("aside"), cgroups.join(name));
        host.pods_limit("15Gi").pods_working_set("14Gi");
        fs::rename(cgroups.join(PODS), &aside).unwrap();
        fs::write(aside.join("cgroup.events"), "populated 1\nfrozen 0\n").unwrap();
        if let Some(left) = left {
            fs::create_dir(cgroups.join(left)).unwrap();
            let empty = "populated 0\nfrozen 0\n";
            fs::write(cgroups.join(left).join("cgroup.events"), empty).unwrap();
        }
        let appear = || fs::rename(&aside, &at).unwrap();
        if !later {
            appear();
        }
        let sim = on(host, |node| {
            node.hard("memory.available<1Gi").config(|overrides| {
                overrides.cgroup_driver = driver.map(str::to_owned);
            })
        })
        .await;
        pass(Duration::from_mins(1)).await;
        if later {
            appear();
            pass(Duration::from_secs(11)).await;
        }
        let row = format!("{driver:?}, {name}, later: {later}, with {left:?}");
        assert_eq!(sim.view().status("MemoryPressure"), "False", "{row}");
        let kill = Kill {
            victim: ("stress", 4321),
            cgroup: &format!("{name}/pod1/ctr"),
            limit: Limit::Of(name),
            source: ScopeSource::Exact,
        };
        sim.node.kernel().oom_kill(kill).await;
        pass(AT_ONCE).await;
        let status = sim.view().status("MemoryPressure");
        assert_eq!(status, expected, "{row}: a kill at the limit of all pods");

        pass(TRANSITION * 2).await;
        assert_eq!(sim.view().status("MemoryPressure"), "False", "{row}");
        let used = fs::read_to_string(at.join("memory.max")).unwrap();
        fs::write(at.join("memory.current"), used).unwrap();
        pass(Duration::from_secs(11)).await;
        let status = sim.view().status("MemoryPressure");
        assert_eq!(status, expected, "{row}: at the limit of all pods");
        sim.node.stop().await.unwrap();
    }
}
