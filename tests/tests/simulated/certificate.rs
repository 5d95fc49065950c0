//! The client certificate of node mode, from the first request to its replacement: the whole agent
//! under simulated time, and the real program with TLS.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use nodepulse_linux::certificate_store::CURRENT;

use nodepulse_tests::api_server::{ApiServer, Issue};
use nodepulse_tests::node::{BOOTSTRAP, Node, Running, in_memory};
use nodepulse_tests::view::View;
use serde_json::Value;

mod files;
mod life;
mod process;
mod refused;

/// Of a certificate.
const HOUR: Duration = Duration::from_hours(1);
/// Longer than any pause between two requests for a certificate.
const LATER: Duration = Duration::from_hours(3);
/// The key of a request without a certificate.
const PENDING_KEY: &str = "kubelet-client.key.tmp";

/// A server at which a bootstrap token may request certificates.
fn server() -> Arc<ApiServer> {
    let api = in_memory();
    let resource = "certificatesigningrequests";
    api.grant_all(BOOTSTRAP, &[("create", resource), ("get", resource)]);
    api
}

fn start(api: &Arc<ApiServer>, name: &str, directory: &Path) -> Running {
    Node::named(name).requests_certificate(directory).start(api)
}

/// The next request that is neither approved nor denied.
async fn next_request(api: &ApiServer) -> Value {
    next_request_within(api, LATER).await
}

async fn next_request_within(api: &ApiServer, deadline: Duration) -> Value {
    let pending = |api: &ApiServer| api.pending_requests().pop();
    api.wait_for(deadline, "a request for a certificate", pending)
        .await
}

/// Starts `worker-1` with a certificate of an hour, and waits until it is settled.
async fn settled(api: &Arc<ApiServer>, directory: &Path) -> Running {
    let node = start(api, "worker-1", directory);
    let request = next_request(api).await;
    api.issue(&request, &Issue::now(api, HOUR));
    View::of(api, "worker-1").settled(LATER).await;
    node
}

/// The longest time between two renewals of the Lease after `from`, and from the last one to now.
fn longest_gap(api: &ApiServer, from: Duration) -> Duration {
    let renewals = View::of(api, "worker-1").renewals().into_iter();
    let mut longest = Duration::ZERO;
    let mut last = from;
    for renewal in renewals.filter(|renewal| from < renewal.at) {
        assert_eq!(renewal.status, Some(200));
        longest = longest.max(renewal.at - last);
        last = renewal.at;
    }
    longest.max(api.now() - last)
}

/// Ten seconds, and 4 % of jitter.
const RENEWED: Duration = Duration::from_millis(10_400);

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The names in a directory, sorted.
fn names(directory: &Path) -> Vec<String> {
    let entries: io::Result<Vec<_>> = fs::read_dir(directory).unwrap().collect();
    let entries = entries.unwrap().into_iter();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// The file that the link to the current pair names.
fn current(directory: &Path) -> String {
    let target = fs::read_link(directory.join(CURRENT)).unwrap();
    target.into_os_string().into_string().unwrap()
}
