//! A kill becomes an Event, and `MemoryPressure` if the node itself was out of memory.

use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::record::ScopeSource::{Exact, Inferred};

use nodepulse_tests::SOON;
use nodepulse_tests::host_root::{Cgroups, MadeUpHost};
use nodepulse_tests::node::{Kill, Limit, Node, in_memory, pass};
use nodepulse_tests::pod::{CONTAINER, POD};
use nodepulse_tests::view::View;

/// Of 16 GiB: below 5 %, and above the threshold of 100 MiB.
const SHORT: &str = "15700Mi";

fn host() -> Arc<MadeUpHost> {
    let host = MadeUpHost::calm();
    host.container(CONTAINER);
    Arc::new(host)
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

/// A kill of this victim in the container, by one trigger.
fn in_the_container(pid: u32) -> Kill<'static> {
    Kill {
        victim: ("stress", pid),
        cgroup: CONTAINER,
        limit: Limit::Of(CONTAINER),
        source: Exact,
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
