use std::path::Path;
use std::time::Duration;

use nix::unistd::geteuid;
use nodepulse_tests::api_server::ApiServer;
use nodepulse_tests::containerd::{Containerd, agent};
use nodepulse_tests::process::Process;
use nodepulse_tests::skip;
use nodepulse_tests::view::View;
use serde_json::Value;
use tempfile::tempdir;

/// The real program checks every 10 s and lists images every 30 s; on a busy machine.
const LATE: Duration = Duration::from_mins(2);
/// As many as a Node reports.
const REPORTED: usize = 50;

/// `None` where containerd cannot run.
fn containerd(directory: &Path) -> Option<Containerd> {
    if !geteuid().is_root() {
        skip("needs root", "containerd requires it");
        return None;
    }
    let found = Containerd::new(directory);
    if found.is_none() {
        skip("no containerd", "install containerd and runc");
    }
    found
}

/// Waits until the Node has `count` images.
async fn images(api: &ApiServer, count: usize) -> Vec<Value> {
    let view = View::of(api, "worker-1");
    let what = format!("{count} images");
    api.wait_for(LATE, &what, |_| {
        let images = view.node()?["status"]["images"].as_array()?.clone();
        (images.len() == count).then_some(images)
    })
    .await
}

/// Images and sizes are those of `ctr`, the largest first, with 500 of them; and containerd is
/// killed and started again under an agent that has dropped its privileges.
#[tokio::test]
async fn a_real_containerd_is_reported_and_found_again_after_it_was_killed() {
    let dir = tempdir().unwrap();
    let Some(mut runtime) = containerd(dir.path()) else {
        return;
    };
    runtime.start().await.unwrap();
    runtime.import(0, 3).unwrap();
    let api = ApiServer::start().await;
    let kubeconfig = api.node_kubeconfig(dir.path(), "worker-1");
    let agent = agent(&kubeconfig, &runtime, &[]);
    let view = View::of(&api, "worker-1");
    view.becomes("Ready", "True", LATE).await;
    let status = &view.node().unwrap()["status"];
    let version = status["nodeInfo"]["containerRuntimeVersion"]
        .as_str()
        .unwrap();
    let numbers = version.strip_prefix("containerd://").unwrap_or_default();
    assert!(numbers.split('.').count() >= 3, "{version}");
    assert_eq!(
        names(&images(&api, 3).await),
        ["image-2", "image-1", "image-0"]
    );

    runtime.import(3, 497).unwrap();
    let reported = images(&api, REPORTED).await;
    let largest: Vec<_> = (450..500)
        .rev()
        .map(|number| format!("image-{number}"))
        .collect();
    assert_eq!(names(&reported), largest);
    let listed = runtime.listed().unwrap();
    assert_eq!(listed.len(), 500);
    for image in &reported {
        let name = tag(image);
        let listed = listed.iter().find(|listed| listed.name == name).unwrap();
        let kib = image["sizeBytes"].as_f64().unwrap() / 1024.0;
        assert!(
            (kib - listed.kib).abs() <= 0.051,
            "{name}: {kib} KiB, ctr: {listed:?}"
        );
    }

    runtime.kill().unwrap();
    agent
        .wait_for_line("container runtime does not answer", LATE)
        .await;
    runtime.start().await.unwrap();
    agent
        .wait_for_line_again("container runtime answers", 2, LATE)
        .await;
    assert_eq!(
        view.status("Ready"),
        "True",
        "it was away for less than 30 s"
    );
    runtime.remove(499).unwrap();
    // The runtime keeps the image by its id.
    api.wait_for(LATE, "the name of the image to be gone", |_| {
        let images = view.node()?["status"]["images"].as_array()?.clone();
        let is_named = |image| tag(image) == "example.com/image-499:1";
        (images.len() == REPORTED && !images.iter().any(is_named)).then_some(())
    })
    .await;

    let endpoint = format!("unix://{}", runtime.socket().display());
    let kubeconfig = kubeconfig.display().to_string();
    let arguments = ["check", "--mode", "node", "--kubeconfig", &kubeconfig];
    let arguments = [&arguments[..], &["--runtime-endpoint", &endpoint]].concat();
    let check = Process::output(Some(&agent), &arguments).await;
    let expected = format!("containerd {numbers} at {}", runtime.socket().display());
    assert!(check.stdout.contains(&expected), "{}", check.stdout);
    agent.terminate();
    assert_eq!(agent.ends(LATE).await.code, Some(0));
}

fn tag(image: &Value) -> String {
    let names = image["names"].as_array().into_iter().flatten();
    let mut names = names.filter_map(Value::as_str);
    let tag = names.find(|name| !name.contains('@'));
    tag.unwrap_or_default().to_owned()
}

/// The names without registry and tag.
fn names(images: &[Value]) -> Vec<String> {
    let name = |image| {
        let tag = tag(image);
        let name = tag.strip_prefix("example.com/").unwrap_or(&tag);
        name.trim_end_matches(":1").to_owned()
    };
    images.iter().map(name).collect()
}
