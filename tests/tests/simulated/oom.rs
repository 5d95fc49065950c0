//! A kill becomes an Event, and `MemoryPressure` if the node itself was out of memory.

use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::record::ScopeSource::{self, Exact, Inferred};

use nodepulse_tests::SOON;
use nodepulse_tests::host_root::{Cgroups, MadeUpHost, PODS};
use nodepulse_tests::node::{Kill, Limit, Node, in_memory, pass};
use nodepulse_tests::pod::{CONTAINER, POD};
use nodepulse_tests::view::View;

/// Of 16 GiB: below 5 %, and above the threshold of 100 MiB.
const SHORT: &str = "15700Mi";
const PLENTY: &str = "4Gi";

/// What happens, and what comes of it.
struct Row {
    name: &'static str,
    limit: Limit<'static>,
    source: ScopeSource,
    /// The cgroup that counts a hit of its limit.
    hits: Option<&'static str>,
    used: &'static str,
    pressure: &'static str,
    reason: &'static str,
}

const fn row(
    name: &'static str,
    (limit, source): (Limit<'static>, ScopeSource),
    (hits, used): (Option<&'static str>, &'static str),
    (pressure, reason): (&'static str, &'static str),
) -> Row {
    Row {
        name,
        limit,
        source,
        hits,
        used,
        pressure,
        reason,
    }
}

const ROWS: [Row; 9] = [
    row(
        "at the limit of all pods",
        (Limit::Of(PODS), Inferred),
        (Some(PODS), PLENTY),
        ("True", "OOMKilled"),
    ),
    row(
        "at the limit of all pods, as the kernel reports",
        (Limit::Of(PODS), Exact),
        (None, PLENTY),
        ("True", "OOMKilled"),
    ),
    row(
        "at the limit of its container",
        (Limit::Of(CONTAINER), Inferred),
        (Some(CONTAINER), PLENTY),
        ("False", "OOMKilled"),
    ),
    row(
        "at the limit of its container while memory is short",
        (Limit::Of(CONTAINER), Inferred),
        (Some(CONTAINER), SHORT),
        ("False", "OOMKilled"),
    ),
    row(
        "at the limit of its pod",
        (Limit::Of(POD), Inferred),
        (Some(POD), PLENTY),
        ("False", "OOMKilled"),
    ),
    row(
        "seemingly global, with memory left",
        (Limit::Machine, Inferred),
        (None, PLENTY),
        ("False", "SystemOOM"),
    ),
    row(
        "seemingly global, and memory is short",
        (Limit::Machine, Inferred),
        (None, SHORT),
        ("True", "SystemOOM"),
    ),
    row(
        "seemingly global, but a limit was hit",
        (Limit::Machine, Inferred),
        (Some(CONTAINER), SHORT),
        ("False", "SystemOOM"),
    ),
    row(
        "global as the kernel reports, and memory is low",
        (Limit::Machine, Exact),
        (None, SHORT),
        ("True", "SystemOOM"),
    ),
];

fn host() -> Arc<MadeUpHost> {
    let host = MadeUpHost::calm();
    host.container(CONTAINER);
    Arc::new(host)
}

#[tokio::test(start_paused = true)]
async fn a_kill_is_an_event_and_node_pressure_only_if_the_node_was_out_of_memory() {
    for row in ROWS {
        let Row { name, .. } = row;
        let (api, host) = (in_memory(), host());
        let node = Node::named("worker-1").host(Arc::clone(&host)).start(&api);
        let view = View::of(&api, "worker-1");
        view.settled(SOON).await;
        pass(Duration::from_millis(1_500)).await;

        if let Some(cgroup) = row.hits {
            host.oom(cgroup, 1, 1);
        }
        host.mem_working_set(row.used);
        let killed = api.now();
        let kill = Kill {
            victim: ("stress\u{1b}[2J", 4321),
            cgroup: CONTAINER,
            limit: row.limit,
            source: row.source,
        };
        node.kernel().oom_kill(kill).await;
        // The memory that the kill freed is available before the second sample.
        if row.pressure == "True" {
            let (_, at) = view.becomes("MemoryPressure", "True", SOON).await;
            let late = at - killed;
            assert!(late <= Duration::from_millis(5), "{name}: {late:?} late");
        }
        let event = view.event(row.reason, SOON).await;
        host.mem_working_set(PLENTY);
        pass(Duration::from_mins(1)).await;

        assert_eq!(view.status("MemoryPressure"), row.pressure, "{name}");
        let edge = (row.pressure == "True").then_some("NodeHasInsufficientMemory");
        let expected: Vec<_> = edge.into_iter().chain([row.reason]).collect();
        assert_eq!(view.event_reasons(), expected, "{name}");
        assert_eq!(event["type"], "Warning", "{name}");
        assert_eq!(event["involvedObject"]["kind"], "Node", "{name}");
        assert_eq!(event["firstTimestamp"], "2026-01-01T00:00:01Z", "{name}");
        let message = event["message"].as_str().unwrap();
        let complete = message.contains("4321") && message.contains("stress");
        assert!(
            complete && !message.contains('\u{1b}'),
            "{name}: {message:?}"
        );
        node.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_was_reached_long_ago_does_not_exclude_a_global_kill() {
    let (api, host) = (in_memory(), host());
    let node = Node::named("worker-1").host(Arc::clone(&host)).start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    // The kernel reports the scope of this one, so that its counters need not be read.
    host.oom(CONTAINER, 1, 1);
    node.kernel().oom_kill(in_the_container(1)).await;
    pass(Duration::from_secs(30)).await;
    assert_eq!(view.status("MemoryPressure"), "False");
    host.mem_working_set(SHORT);
    let global = Kill {
        limit: Limit::Machine,
        source: Inferred,
        ..in_the_container(2)
    };
    node.kernel().oom_kill(global).await;
    view.becomes("MemoryPressure", "True", SOON).await;
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_victims_cgroup_may_be_removed() {
    let (api, host) = (in_memory(), host());
    let node = Node::named("worker-1").host(Arc::clone(&host)).start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    let removed = "kubepods/podaaaa/ctr";
    let kill = Kill {
        victim: ("short-lived", 77),
        cgroup: removed,
        limit: Limit::Of(removed),
        source: Inferred,
    };
    node.kernel().oom_kill(kill).await;
    let event = view.event("OOMKilled", SOON).await;
    let message = event["message"].as_str().unwrap();
    assert!(message.contains("kubepods/podaaaa/ctr"), "{message}");
    pass(Duration::from_mins(1)).await;
    assert_eq!(view.status("MemoryPressure"), "False");
}

/// A kill of this victim in the container, by one trigger.
fn in_the_container(pid: u32) -> Kill<'static> {
    Kill {
        victim: ("stress", pid),
        cgroup: CONTAINER,
        limit: Limit::Of(CONTAINER),
        source: Exact,
    }
}

/// Number of kills that an Event reports, and how its message begins.
type Expected = (u64, &'static str);

/// What becomes of the file, or of the machine, while the agent is down.
type Change = fn(&MadeUpHost);

#[tokio::test(start_paused = true)]
async fn kills_while_the_agent_was_down_are_reported_by_number() {
    let other = "kubepods/pod00000000-0000-4000-8000-00000000000b";
    let new = "kubepods/pod00000000-0000-4000-8000-00000000000c";
    //  what happens to the file, and what is reported
    let rows: [(&str, Change, &[Expected]); 5] = [
        (
            "as it was left",
            |_| (),
            &[
                (1, "OOM kills in cgroup /kubepods while the agent was down"),
                (
                    1,
                    "OOM kills in cgroup /kubepods/pod00000000-0000-4000-8000-00000000000c while",
                ),
                (3, "OOM kills in cgroup /kubepods/burstable/pod"),
            ],
        ),
        (
            "removed",
            |host| {
                host.remove("run/nodepulse/state");
            },
            &[],
        ),
        (
            "torn",
            |host| {
                host.write("run/nodepulse/state", "nodepulse state 1\nboot");
            },
            &[],
        ),
        (
            "garbage",
            |host| {
                host.write("run/nodepulse/state", b"\xff\x00\x1b");
            },
            &[],
        ),
        (
            "of another boot",
            |host| {
                host.write("proc/sys/kernel/random/boot_id", "another\n");
            },
            &[],
        ),
    ];
    for (name, change, expected) in rows {
        let (api, host) = (in_memory(), host());
        host.oom(POD, 2, 2).oom(other, 5, 5).pods_oom(0, 7);
        let node = Node::named("worker-1").host(Arc::clone(&host)).start(&api);
        let view = View::of(&api, "worker-1");
        view.settled(SOON).await;
        // This one is reported when it happens, and so not again after the restart.
        host.oom(POD, 3, 3).pods_oom(0, 8);
        node.kernel().oom_kill(in_the_container(7)).await;
        view.event("OOMKilled", SOON).await;
        node.stop().await.unwrap();
        assert_eq!(
            view.counted_kills(),
            [],
            "{name}: at the first start of a boot"
        );

        // Three in a pod that was known, one in a new pod, one in a pod that is removed.
        host.oom(POD, 6, 6).oom(new, 1, 1).pods_oom(0, 13);
        change(&host);
        let node = Node::named("worker-1").host(Arc::clone(&host)).start(&api);
        pass(Duration::from_mins(1)).await;
        node.stop().await.unwrap();
        let reported = view.counted_kills();
        assert_eq!(reported.len(), expected.len(), "{name}: {reported:?}");
        for ((count, message), (kills, expected)) in reported.iter().zip(expected) {
            assert!(message.starts_with(expected), "{name}: {message}");
            assert_eq!(count, kills, "{name}: {message}");
        }
        pass(Duration::from_mins(1)).await;
        let node = Node::named("worker-1").host(Arc::clone(&host)).start(&api);
        pass(Duration::from_mins(1)).await;
        node.stop().await.unwrap();
        assert_eq!(view.counted_kills(), reported, "{name}: reported once");
    }
}

#[tokio::test(start_paused = true)]
async fn without_programs_and_log_the_counters_report_kills() {
    for cgroups in [Cgroups::V2, Cgroups::V1, Cgroups::Hybrid] {
        let (api, host) = (in_memory(), Arc::new(MadeUpHost::with(cgroups)));
        host.oom(POD, 2, 2).oom(CONTAINER, 2, 0).pods_oom(0, 2);
        let files = Node::named("worker-1").host(Arc::clone(&host)).on_files();
        let node = files.start(&api);
        let view = View::of(&api, "worker-1");
        view.settled(SOON).await;
        pass(Duration::from_secs(20)).await;
        assert_eq!(
            view.counted_kills(),
            [],
            "{cgroups:?}: what was there at start"
        );
        host.oom(POD, 4, 4).pods_oom(0, 4);
        pass(Duration::from_mins(1)).await;
        let expected = format!(
            "OOM kills in cgroup /{POD}: the victims are unknown; the count of this Event is \
             the number of kills"
        );
        assert_eq!(view.counted_kills(), [(2, expected)], "{cgroups:?}");
        assert_eq!(view.status("MemoryPressure"), "False", "{cgroups:?}");
        node.stop().await.unwrap();
    }
}
