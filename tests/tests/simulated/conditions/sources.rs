//! Sources that cannot be read, and sources that appear late.

use std::fs;

use nodepulse_core::record::ScopeSource;

use nodepulse_tests::host_root::PODS;
use nodepulse_tests::node::{Kill, Limit, pass};

use super::*;

/// How a source of a condition is broken, and mended.
struct Source {
    type_: &'static str,
    /// Its message while the source is lost.
    message: &'static str,
    broken: fn(&MadeUpHost),
    mended: fn(&MadeUpHost),
}

const SOURCES: [Source; 4] = [
    Source {
        type_: "MemoryPressure",
        message: "memory.available cannot be read",
        broken: |host| unreadable(host, "sys/fs/cgroup/memory.stat"),
        mended: |host| {
            _ = host
                .remove("sys/fs/cgroup/memory.stat")
                .mem_working_set("4Gi")
        },
    },
    Source {
        type_: "MemoryPressure",
        message: "memory.available of the pods cgroup /kubepods cannot be read",
        broken: |host| unreadable(host, "sys/fs/cgroup/kubepods/memory.current"),
        mended: |host| {
            host.remove("sys/fs/cgroup/kubepods/memory.current");
            host.pods_working_set("2Gi");
        },
    },
    Source {
        type_: "PIDPressure",
        message: "pid.available cannot be read",
        broken: |host| unreadable(host, "proc/loadavg"),
        mended: |host| _ = host.remove("proc/loadavg").tasks(FEW),
    },
    Source {
        type_: "DiskPressure",
        message: "nodefs.available cannot be read",
        broken: |host| unreadable(host, "var/lib/kubelet"),
        mended: |host| {
            host.remove("var/lib/kubelet");
            fs::create_dir(host.path().join("var/lib/kubelet")).unwrap();
        },
    },
];

/// With thresholds on all signals.
fn judged(node: Node) -> Node {
    let hard = "memory.available<1Gi,pid.available<500,nodefs.available<1Ki,nodefs.inodesFree<0%";
    node.config(|overrides| overrides.eviction_hard = Some(hard.to_owned()))
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_lost_leaves_its_condition_unknown_after_two_sampling_periods() {
    for Source {
        type_,
        message,
        broken,
        mended,
        ..
    } in SOURCES
    {
        let sim = Sim::start(judged).await;
        let view = sim.view();
        pass(Duration::from_secs(33)).await;
        assert_eq!(view.status(type_), "False", "{message}");

        // For less than two periods nothing is reported.
        broken(&sim.host);
        pass(LOST - Duration::from_secs(1)).await;
        mended(&sim.host);
        pass(LOST * 2).await;
        assert_eq!(view.status(type_), "False", "{message}");
        assert_eq!(view.event_reasons(), [""; 0], "{message}");

        broken(&sim.host);
        let lost = sim.api.now();
        let longest = SAMPLE_INTERVAL + LOST + REGULAR;
        let (condition, at) = view.becomes(type_, "Unknown", longest).await;
        let took = at - lost;
        assert!(
            (LOST..=LOST + SAMPLE_INTERVAL + REGULAR).contains(&took),
            "{took:?}: {message}"
        );
        assert_eq!(condition["reason"], "SourceUnavailable");
        assert_eq!(condition["message"], message);
        pass(TRANSITION).await;
        assert_eq!(view.status(type_), "Unknown", "{message}");
        assert_eq!(view.event_reasons(), ["SourceUnavailable"], "{message}");
        let others = view.condition_types().into_iter();
        let others = others.filter(|other| other != type_ && view.status(other) == "Unknown");
        assert_eq!(others.count(), 0, "{message}");

        mended(&sim.host);
        view.becomes(type_, "False", SAMPLE_INTERVAL * 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_was_never_there_leaves_its_condition_unknown_from_the_start() {
    for source in SOURCES {
        let host = Arc::new(MadeUpHost::calm());
        (source.broken)(&host);
        let sim = Sim::on(&in_memory(), host, judged).await;
        let condition = sim.view().condition(source.type_);
        assert_eq!(condition["status"], "Unknown", "{}", source.message);
        assert_eq!(condition["message"], source.message);
        pass(Duration::from_mins(1)).await;
        (source.mended)(&sim.host);
        sim.view()
            .becomes(source.type_, "False", SAMPLE_INTERVAL * 2)
            .await;
    }
}

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
        let sim = Sim::on(&in_memory(), host, |node| {
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
