//! The API server that the agent is measured against: `testapi` of the tests package.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Context as _, Result};

pub struct Api {
    child: Child,
    pub kubeconfig: PathBuf,
    /// Lines on its standard error, where it logs one for each request.
    requests: Arc<AtomicU64>,
}

impl Api {
    pub fn start(testapi: &Path, dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut child = Command::new(testapi)
            .arg("--log-requests")
            .arg("--dir")
            .arg(dir)
            .args(["--node", super::NODE])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", testapi.display()))?;
        let stdout = child.stdout.take();
        let stderr = child.stderr.take();
        let requests = Arc::new(AtomicU64::new(0));
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
            for _ in stderr.lines().map_while(Result::ok) {
                requests.fetch_add(1, Ordering::Relaxed);
            }
        });
        Ok(api)
    }

    /// How many it has answered so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// From the line that testapi prints once it listens: `{"nodes": {"bench": …}, …}`.
fn kubeconfig(ready: &str) -> Result<PathBuf> {
    let json: serde_json::Value = serde_json::from_str(ready)
        .with_context(|| format!("testapi printed no JSON line, but {ready:?}"))?;
    let path = json["nodes"][super::NODE].as_str();
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
            "testapi printed no JSON line, but \"\""
        );
    }
}
