//! Starts `testapi` of the tests package, the API server that the agent is measured against.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::{Context as _, Result};

use super::NODE;
use super::runs::Run;
use crate::files;

pub struct Api {
    child: Child,
    pub kubeconfig: PathBuf,
    /// Parsed from its standard error.
    requests: Arc<Mutex<Vec<Request>>>,
}

/// A request at the time of its response; for a watch, at the time it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub kind: RequestKind,
    /// Number of the connection, from 1.
    pub connection: u64,
    /// The line of the log, for messages.
    pub line: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Lease,
    Status,
    Watch,
    Other,
}

/// Number of images in the simulated container runtime.
pub const IMAGES: u32 = 500;

pub fn runtime_socket(dir: &Path) -> PathBuf {
    dir.join("cri.sock")
}

impl Api {
    /// Starts the server with the simulated cluster of `run`.
    pub fn start(testapi: &Path, dir: &Path, run: &Run) -> Result<Self> {
        files::create_dir(dir)?;
        let mut command = Command::new(testapi);
        command.arg("--log-requests").arg("--dir").arg(dir);
        command.args(["--node", NODE, "--pods", &run.pods.to_string()]);
        if run.is_alongside_a_kubelet() {
            command.arg("--registered");
        } else {
            let socket = runtime_socket(dir);
            // The last run may have left its socket.
            drop(std::fs::remove_file(&socket));
            command.arg("--cri-socket").arg(socket);
            command.args(["--cri-images", &IMAGES.to_string()]);
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", testapi.display()))?;
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        let requests = Arc::<Mutex<Vec<Request>>>::default();
        let mut api = Self {
            child,
            kubeconfig: PathBuf::new(),
            requests: Arc::clone(&requests),
        };

        let mut ready = String::new();
        BufReader::new(stdout.context("testapi has no output")?).read_line(&mut ready)?;
        api.kubeconfig = kubeconfig(&ready)?;
        let stderr = BufReader::new(stderr.context("testapi has no log")?);
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let request = Request::parse(line);
                let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
                requests.push(request);
            }
        });
        Ok(api)
    }

    pub fn requests(&self) -> Vec<Request> {
        let requests = self.requests.lock();
        requests.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Request {
    /// Parses `<seconds> <method> <path>?<query> -> <status> (connection <n>, <user>)`.
    fn parse(line: String) -> Self {
        let mut words = line.split(' ').skip(1);
        let (method, target) = (words.next(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let kind = match method {
            Some("GET") if query.contains("watch=") => RequestKind::Watch,
            Some("PUT") if path.contains("/leases/") => RequestKind::Lease,
            Some("PATCH") if path.ends_with("/status") => RequestKind::Status,
            _ => RequestKind::Other,
        };
        let connection = line.split_once("(connection ");
        let connection = connection.and_then(|(_, rest)| rest.split(',').next()?.parse().ok());
        Self {
            kind,
            connection: connection.unwrap_or(0),
            line,
        }
    }
}

/// Parses the line that testapi prints once it listens: `{"nodes": {"bench": …}, …}`.
fn kubeconfig(ready: &str) -> Result<PathBuf> {
    let json: serde_json::Value = serde_json::from_str(ready)
        .with_context(|| format!("testapi printed {ready:?} instead of a JSON line"))?;
    let path = json["nodes"][NODE].as_str();
    Ok(path
        .context("testapi's first line names no kubeconfig for our node")?
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_kubeconfig() {
        let line = "{\"url\":\"https://127.0.0.1:1\",\"nodes\":{\"bench\":\"/a/b\"}}\n";
        assert_eq!(kubeconfig(line).unwrap(), Path::new("/a/b"));
        assert_eq!(
            kubeconfig("").unwrap_err().to_string(),
            "testapi printed \"\" instead of a JSON line"
        );
    }

    #[test]
    fn a_logged_request_contains_its_kind_and_connection() {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
        let rows = [
            (format!("PUT {leases}/bench -> 200"), RequestKind::Lease),
            (format!("POST {leases} -> 201"), RequestKind::Other),
            (
                "PATCH /api/v1/nodes/bench/status -> 200".to_owned(),
                RequestKind::Status,
            ),
            (
                "PATCH /api/v1/nodes/bench -> 200".to_owned(),
                RequestKind::Other,
            ),
            (
                "GET /api/v1/pods?watch=true&x=y -> 200".to_owned(),
                RequestKind::Watch,
            ),
            (
                "GET /api/v1/pods?limit=5 -> 200".to_owned(),
                RequestKind::Other,
            ),
        ];
        for (words, kind) in rows {
            let line = format!("12.345 {words} (connection 7, system:node:bench)");
            let request = Request::parse(line.clone());
            assert_eq!((request.kind, request.connection), (kind, 7), "{line}");
        }
    }
}
