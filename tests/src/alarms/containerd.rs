//! Runs containerd with separate files, and creates an image for it. Without the program, its
//! workload is skipped.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::cannot_run;
use super::healthy::ran;

/// Number of attempts to connect, and the time between two of them.
const ATTEMPTS: u32 = 200;
const INTERVAL: Duration = Duration::from_millis(50);
const IMAGE: &str = "localhost/alarms:1";

/// Killed on drop.
pub(super) struct Containerd {
    daemon: Child,
    address: PathBuf,
}

impl Containerd {
    /// Starts containerd with all of its files below `directory`.
    pub(super) fn start(directory: &Path) -> io::Result<Self> {
        let at = |name: &str| directory.join(name);
        let config = at("containerd.toml");
        fs::write(
            &config,
            "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n",
        )?;
        let address = at("containerd.sock");
        let mut command = Command::new("containerd");
        for (flag, path) in [
            ("--config", &config),
            ("--root", &at("containerd")),
            ("--state", &at("containerd-state")),
            ("--address", &address),
        ] {
            command.arg(flag).arg(path);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let daemon = match command.stderr(Stdio::null()).spawn() {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                return Err(cannot_run("containerd is not installed"));
            }
            other => other?,
        };
        let started = Self { daemon, address };
        for _ in 0..ATTEMPTS {
            if started.control(["version"]).is_ok() {
                return Ok(started);
            }
            thread::park_timeout(INTERVAL);
        }
        Err(io::Error::other("containerd does not answer"))
    }

    /// Imports and unpacks an image.
    pub(super) fn import(self, image: &Path) -> io::Result<String> {
        let import = [
            OsStr::new("images"),
            OsStr::new("import"),
            image.as_os_str(),
        ];
        self.control(import)?;
        let listed = self.control(["images", "list", "--quiet"])?;
        if listed.contains(IMAGE) {
            Ok(format!("{listed} was imported"))
        } else {
            Err(io::Error::other(format!("no {IMAGE} in {listed:?}")))
        }
    }

    fn control<Arg: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = Arg>,
    ) -> io::Result<String> {
        let mut control = Command::new("ctr");
        ran(control.arg("--address").arg(&self.address).args(arguments))
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        // It may have ended already; `wait` below returns its status.
        drop(self.daemon.kill());
        drop(self.daemon.wait());
    }
}

/// Creates an image in the format of `docker save`, with one layer that contains `tree`.
pub(super) fn image(directory: &Path, tree: &Path) -> io::Result<PathBuf> {
    let parts = directory.join("image");
    fs::create_dir(&parts)?;
    let layer = parts.join("layer.tar");
    let pack = |file: &Path, tree: &Path| {
        let mut tar = Command::new("tar");
        ran(tar.arg("-cf").arg(file).arg("-C").arg(tree).arg("."))
    };
    pack(&layer, tree)?;
    let sum = ran(Command::new("sha256sum").arg(&layer))?;
    let digest = sum.split_whitespace().next().unwrap_or_default();
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {},
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
    });
    let manifest = json!([
        { "Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"] }
    ]);
    fs::write(parts.join("config.json"), config.to_string())?;
    fs::write(parts.join("manifest.json"), manifest.to_string())?;
    let image = directory.join("image.tar");
    pack(&image, &parts)?;
    fs::remove_dir_all(&parts)?;
    Ok(image)
}
