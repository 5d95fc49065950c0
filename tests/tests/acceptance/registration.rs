//! The Node is created once, or adopted.

use nodepulse_tests::SOON;
use nodepulse_tests::node::{Node, in_memory};
use nodepulse_tests::view::View;

/// In an empty cluster one Node is created, once, by the name that was given.
#[tokio::test(start_paused = true)]
async fn a001_one_node_is_created_by_its_name() {
    let api = in_memory();
    let _node = Node::named(" Worker-1\n").start(&api);
    let view = View::of(&api, "worker-1");
    view.settled(SOON).await;
    let answers: Vec<_> = view.creates().iter().map(|post| post.status).collect();
    assert_eq!(answers, [Some(201)]);
    let body = view.creates()[0].body.clone().unwrap();
    assert_eq!(body["metadata"]["name"], "worker-1");
}
