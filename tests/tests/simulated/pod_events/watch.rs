//! One watch reports the pods of the node, and is opened again after any end.

use std::time::Duration;

use nodepulse_tests::SOON;
use nodepulse_tests::api_server::{ApiServer, Effect, Fault, Recorded};
use nodepulse_tests::node::{Kill, Limit, Node, in_memory, pass};
use nodepulse_tests::pod::Pod;

use super::{AT_ONCE, CONTAINER, UID, WATCHED, cart, host, kill, of_node, reported, started};

#[tokio::test(start_paused = true)]
async fn without_permission_to_watch_events_are_on_the_node_and_the_watch_is_retried_rarely() {
    let api = in_memory();
    let pod = cart();
    pod.put(&api);
    let refused = Fault::when(|r| r.path == WATCHED, Effect::Status(403));
    api.faults().push(refused.always());
    let node = started(&api, Node::named("worker-1").host(host())).await;
    let killed = api.now();
    node.kernel()
        .oom_kill(kill(4321, Limit::Of(CONTAINER)))
        .await;
    let (on_node, at) = api
        .wait_for(SOON, "an event of the node", |api| {
            let events = of_node(api);
            (!events.is_empty()).then(|| (events, api.now()))
        })
        .await;
    assert!(at - killed <= AT_ONCE, "{:?} late", at - killed);
    assert!(
        on_node[0]
            .1
            .contains(&format!(" of pod with UID {UID} was killed ")),
        "{on_node:?}"
    );
    pass(Duration::from_hours(1)).await;
    let tries = api.requests_where(|r| r.path == WATCHED).len();
    assert!((5..=13).contains(&tries), "{tries} tries in an hour");
    // Granted, and used without a restart.
    api.faults().clear();
    pass(Duration::from_mins(10)).await;
    node.kernel()
        .oom_kill(kill(4322, Limit::Of(CONTAINER)))
        .await;
    reported(&api, &pod, 1, api.now()).await;
    node.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_watch_is_reopened_whatever_ends_it() {
    type Blow = fn(&ApiServer);
    let rows: [(&str, Blow); 5] = [
        ("nothing", |_| ()),
        ("the past is forgotten", ApiServer::expire_watches),
        ("the connection breaks", ApiServer::reset_connections),
        ("the connection is silent", ApiServer::freeze_connections),
        ("the server asks for a new one", ApiServer::go_away),
    ];
    for (name, blow) in rows {
        let api = in_memory();
        let (before, meanwhile, later) = (
            cart(),
            Pod::new("shop", "cart-1", "00000000-0000-4000-8000-00000000000b"),
            Pod::new("shop", "cart-2", "00000000-0000-4000-8000-00000000000c"),
        );
        before.put(&api);
        Pod::new("shop", "elsewhere", "00000000-0000-4000-8000-00000000000d")
            .on("worker-2")
            .put(&api);
        let node = started(&api, Node::named("worker-1").host(host())).await;
        pass(Duration::from_mins(2)).await;
        blow(&api);
        meanwhile.put(&api);
        pass(Duration::from_mins(1)).await;
        later.put(&api);
        pass(Duration::from_mins(9)).await;
        for pod in [&before, &meanwhile, &later] {
            let uid = pod_uid(&api, pod);
            let cgroup = format!("kubepods/pod{uid}");
            let kill = Kill {
                cgroup: &cgroup,
                ..kill(5, Limit::Of(&cgroup))
            };
            let killed = api.now();
            node.kernel().oom_kill(kill).await;
            let (_, late) = reported(&api, pod, 1, killed).await;
            assert!(late <= AT_ONCE, "{name}: {late:?} late");
        }
        let lists = api.requests_where(|r| r.path == WATCHED && !r.query.starts_with("watch"));
        assert_eq!(lists, [], "{name}: no list");
        assert!(
            api.connections().opened <= 2,
            "{name}: {:?}",
            api.connections()
        );
        node.stop().await.unwrap();
    }
}

/// With an old etcd, a server refuses a list and its continuation with bookmarks in one request.
#[tokio::test(start_paused = true)]
async fn pods_are_known_although_the_server_cannot_combine_a_list_with_bookmarks() {
    let api = in_memory();
    let (before, later) = (
        cart(),
        Pod::new("shop", "cart-1", "00000000-0000-4000-8000-00000000000b"),
    );
    before.put(&api);
    let combined = |r: &Recorded| {
        let has = |part: &str| r.query.split('&').any(|one| one == part);
        r.path == WATCHED && has("resourceVersion=0") && has("allowWatchBookmarks=true")
    };
    let refused = Fault::when(combined, Effect::ErrorEvent);
    api.faults().push(refused.always());
    let node = started(&api, Node::named("worker-1").host(host())).await;
    later.put(&api);
    pass(Duration::from_hours(1)).await;
    for pod in [&before, &later] {
        let cgroup = format!("kubepods/pod{}", pod_uid(&api, pod));
        let kill = Kill {
            cgroup: &cgroup,
            ..kill(5, Limit::Of(&cgroup))
        };
        let killed = api.now();
        node.kernel().oom_kill(kill).await;
        let (_, late) = reported(&api, pod, 1, killed).await;
        assert!(late <= AT_ONCE, "{late:?} late");
    }
    let watches = api.requests_where(|r| r.path == WATCHED).len();
    assert!((12..=26).contains(&watches), "{watches} watches in an hour");
    node.stop().await.unwrap();
}

fn pod_uid(api: &ApiServer, pod: &Pod) -> String {
    let stored = api.object(&pod.path()).unwrap();
    stored["metadata"]["uid"].as_str().unwrap().to_owned()
}

#[tokio::test(start_paused = true)]
async fn an_idle_hour_costs_at_most_thirteen_watches_and_nothing_else() {
    let api = in_memory();
    cart().put(&api);
    let node = started(&api, Node::named("worker-1").seed(7).host(host())).await;
    let about_pods = |api: &ApiServer| {
        let requests = api.requests_where(|r| r.path.contains("/pods"));
        requests.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let before = about_pods(&api).len();
    for _ in 0..60 {
        // A kubelet writes the status of a pod.
        cart().put(&api);
        pass(Duration::from_mins(1)).await;
    }
    let requests = about_pods(&api).split_off(before);
    assert!(requests.len() <= 13, "{requests:#?}");
    let watches = requests.iter().filter(|r| r.contains("watch=true")).count();
    assert_eq!(watches, requests.len(), "{requests:#?}");
    assert_eq!(api.connections().opened, 1);
    node.stop().await.unwrap();
}
