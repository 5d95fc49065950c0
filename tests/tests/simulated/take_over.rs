//! Node mode never competes with a kubelet.

use std::sync::Arc;
use std::time::Duration;

use nodepulse::AppError;
use nodepulse_tests::SOON;
use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::made_up::lease;
use nodepulse_tests::node::{Node, in_memory, pass};
use nodepulse_tests::view::View;

/// When simulated servers are started.
const START: &str = "2026-01-01T00:00:00.000000Z";

/// What was asked for other than by reading.
fn writes(api: &ApiServer) -> Vec<String> {
    let writes = api.requests_where(|request| request.method != "GET");
    let line = |request: &nodepulse_tests::api_server::Recorded| {
        format!("{} {}", request.method, request.path)
    };
    writes.iter().map(line).collect()
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_lease_a_kubelet_renews_is_not_changed() {
    //  the holder of the lease, after how long, --take-over, and whether that is another agent
    let rows = [
        ("a kubelet's", "kubelet", 10, false, true),
        ("a kubelet's, to be taken over", "kubelet", 10, true, false),
        (
            "that of a kubelet that is gone",
            "kubelet",
            41,
            false,
            false,
        ),
        ("that of our last run", "nodepulse", 10, false, false),
    ];
    for (name, manager, age, take_over, refused) in rows {
        let api = in_memory();
        api.put_object(lease(manager, START));
        pass(Duration::from_secs(age)).await;
        let node = Node::named("worker-1")
            .config(|overrides| overrides.take_over = Some(take_over.to_string()))
            .start(&api);
        if refused {
            let Err(AppError::OtherHolder(holder)) = node.ended().await else {
                panic!("{name}: it runs");
            };
            assert_eq!(holder.manager.as_deref(), Some(manager), "{name}");
            assert_eq!(holder.ago.as_secs(), age, "{name}");
            assert_eq!(writes(&api), Vec::<String>::new(), "{name}");
        } else {
            View::of(&api, "worker-1").settled(SOON).await;
            node.stop().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_ambiguous_lease_holder_is_read_again_before_anything_is_written() {
    let api = in_memory();
    api.put_object(lease("kubelet", START));
    let node = Node::named("worker-1").out_of_reach().start(&api);
    pass(Duration::from_secs(5)).await;
    node.reach();
    let Err(AppError::OtherHolder(_)) = node.ended().await else {
        panic!("it runs");
    };
    assert_eq!(writes(&api), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_kubelets_port_is_found_before_any_request() {
    let listening = "  sl  local_address rem_address   st\n   \
        0: 0100007F:2808 00000000:0000 0A 00000000:00000000\n";
    for (take_over, refused) in [(false, true), (true, false)] {
        let api = in_memory();
        let host = Arc::new(MadeUpHost::calm());
        host.write("proc/net/tcp", listening);
        let node = Node::named("worker-1")
            .host(host)
            .config(|overrides| overrides.take_over = Some(take_over.to_string()))
            .start(&api);
        if refused {
            let Err(AppError::Ports(ports)) = node.ended().await else {
                panic!("it runs");
            };
            assert_eq!(ports, [10248]);
            assert_eq!(api.requests(), []);
        } else {
            View::of(&api, "worker-1").settled(SOON).await;
            node.stop().await.unwrap();
        }
    }
}
