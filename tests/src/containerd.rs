//! Runs a real containerd with its CRI plugin and separate files, and creates images for it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, interval};

use crate::process::Process;

/// Maximum time to start on a busy machine.
const START: Duration = Duration::from_mins(1);
const NAMESPACE: &str = "k8s.io";

/// Killed on drop.
#[derive(Debug)]
pub struct Containerd {
    directory: PathBuf,
    daemon: Option<Child>,
}

/// An entry in the output of `ctr`.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub name: String,
    /// Its size in KiB, rounded to a tenth.
    pub kib: f64,
}

impl Containerd {
    /// Prepares containerd with all of its files below `directory`, without starting it. `None` if
    /// it is not installed.
    pub fn new(directory: &Path) -> Option<Self> {
        let found = Command::new("containerd").arg("--version").output();
        found
            .is_ok_and(|found| found.status.success())
            .then(|| Self {
                directory: directory.to_owned(),
                daemon: None,
            })
    }

    fn at(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.at("containerd.sock")
    }

    pub fn images(&self) -> PathBuf {
        self.at("root")
    }

    /// Starts it, and waits until it answers.
    ///
    /// # Errors
    ///
    /// If it does not start within a minute.
    pub async fn start(&mut self) -> io::Result<()> {
        let text = |name: &str| self.at(name).display().to_string();
        let config = format!(
            "version = 2\n\
             [plugins.\"io.containerd.internal.v1.opt\"]\n  path = {opt:?}\n\
             [plugins.\"io.containerd.grpc.v1.cri\"]\n  stream_server_port = \"0\"\n\
             [plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = {bin:?}\n  conf_dir = {cni:?}\n\
             [plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  snapshotter = \"native\"\n",
            opt = text("opt"),
            bin = text("bin"),
            cni = text("cni"),
        );
        fs::write(self.at("config.toml"), config)?;
        fs::create_dir_all(self.at("cni"))?;
        // The plugin never runs, because no container does.
        let network =
            json!({ "cniVersion": "0.4.0", "name": "none", "plugins": [{ "type": "loopback" }] });
        fs::write(self.at("cni/10-none.conflist"), network.to_string())?;
        let log = fs::File::create(self.at("log"))?;
        let mut command = Command::new("containerd");
        for (flag, name) in [
            ("--config", "config.toml"),
            ("--root", "root"),
            ("--state", "state"),
            ("--address", "containerd.sock"),
        ] {
            command.arg(flag).arg(self.at(name));
        }
        let command = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.daemon = Some(command.spawn()?);
        let (started, mut attempts) = (Instant::now(), interval(Duration::from_millis(100)));
        while let Err(err) = self.control(["plugins", "ls"]) {
            if started.elapsed() > START {
                let log = fs::read_to_string(self.at("log")).unwrap_or_default();
                return Err(io::Error::other(format!("{err}; its log:\n{log}")));
            }
            attempts.tick().await;
        }
        Ok(())
    }

    /// Kills it, as the kernel does when memory is short. Its socket stays.
    ///
    /// # Errors
    ///
    /// If it cannot be waited for.
    pub fn kill(&mut self) -> io::Result<()> {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill()?;
            daemon.wait()?;
        }
        Ok(())
    }

    /// Imports `count` images that differ in their names and sizes, and share one layer.
    ///
    /// # Errors
    ///
    /// If a file cannot be written, or `ctr` fails.
    pub fn import(&self, first: u32, count: u32) -> io::Result<()> {
        let parts = self.at("parts");
        fs::create_dir_all(parts.join("empty"))?;
        fs::write(parts.join("empty/file"), "content")?;
        let (layer, tree) = (parts.join("layer.tar"), parts.join("empty"));
        let pack = |file: &Path, tree: &Path| {
            let mut tar = Command::new("tar");
            ran(tar.arg("-cf").arg(file).arg("-C").arg(tree).arg("."))
        };
        pack(&layer, &tree)?;
        let sum = ran(Command::new("sha256sum").arg(&layer))?;
        let digest = sum.split_whitespace().next().unwrap_or_default();
        let mut manifest = Vec::new();
        for number in first..first + count {
            let config = json!({
                "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
                "os": "linux",
                "author": "x".repeat(usize::try_from(number).unwrap_or(0) * 100),
                "config": {},
                "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
            });
            let name = format!("config-{number}.json");
            fs::write(parts.join(&name), config.to_string())?;
            manifest.push(json!({
                "Config": name,
                "RepoTags": [format!("example.com/image-{number}:1")],
                "Layers": ["layer.tar"],
            }));
        }
        fs::write(parts.join("manifest.json"), json!(manifest).to_string())?;
        let archive = self.at("images.tar");
        pack(&archive, &parts)?;
        fs::remove_dir_all(&parts)?;
        let import = ["images", "import", "--snapshotter", "native"].map(OsStr::new);
        let import = import.into_iter().chain([archive.as_os_str()]);
        self.control(import).map(drop)
    }

    /// Removes an image.
    ///
    /// # Errors
    ///
    /// If `ctr` fails.
    pub fn remove(&self, number: u32) -> io::Result<()> {
        let name = format!("example.com/image-{number}:1");
        self.control(["images", "rm", "--sync", &name]).map(drop)
    }

    /// The images with a name, as `ctr` lists them.
    ///
    /// # Errors
    ///
    /// If `ctr` fails.
    pub fn listed(&self) -> io::Result<Vec<Listed>> {
        let list = self.control(["images", "ls"])?;
        // Columns: REF TYPE DIGEST SIZE PLATFORMS LABELS, with the size as number and unit.
        let rows = list.lines().skip(1).filter_map(|line| {
            let mut columns = line.split_whitespace();
            let name = columns.next()?.to_owned();
            let size: f64 = columns.nth(2)?.parse().ok()?;
            let kib = match columns.next()? {
                "B" => size / 1024.0,
                "KiB" => size,
                "MiB" => size * 1024.0,
                _ => return None,
            };
            Some(Listed { name, kib })
        });
        Ok(rows
            .filter(|image| image.name.starts_with("example.com/"))
            .collect())
    }

    fn control<Arg: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = Arg>,
    ) -> io::Result<String> {
        let mut control = Command::new("ctr");
        control.arg("--address").arg(self.socket());
        ran(control.args(["--namespace", NAMESPACE]).args(arguments))
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        drop(self.kill());
    }
}

fn ran(command: &mut Command) -> io::Result<String> {
    let done = command.output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if done.status.success() {
        Ok(text(&done.stdout))
    } else {
        let program = command.get_program().display();
        Err(io::Error::other(format!(
            "{program}: {}",
            text(&done.stderr)
        )))
    }
}

/// Starts an agent in node mode that uses this runtime.
pub fn agent(kubeconfig: &Path, runtime: &Containerd, further: &[&str]) -> Process {
    let kubeconfig = kubeconfig.display().to_string();
    let endpoint = format!("unix://{}", runtime.socket().display());
    let arguments = [
        ["--mode", "node"],
        ["--node-name", "worker-1"],
        ["--node-ip", "0.0.0.0"],
        ["--kernel-tier", "files"],
        ["--kubeconfig", &kubeconfig],
        ["--runtime-endpoint", &endpoint],
    ];
    Process::start([&["run"][..], arguments.as_flattened(), further].concat())
}
