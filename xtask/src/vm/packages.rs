//! Installs, starts, upgrades, removes and purges the deb on a Debian with systemd, in a virtual
//! machine; then runs it in node mode, with containerd, until logind shuts the machine down.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::initramfs::pack_root;
use crate::archive::File;
use crate::repo::{Repo, command, run};
use crate::setup;
use crate::{dist, files};

/// Debian's release of the root directory. Its kernel is [`KERNEL`].
const SUITE: &str = "bookworm";

/// Name in xtask/kernels.toml.
pub const KERNEL: &str = "6.1";

/// Packages that the scripts need and that are not essential.
const INCLUDE: &str =
    "systemd,systemd-sysv,init-system-helpers,procps,dbus,iproute2,containerd,kmod,dmsetup";

/// The API server of the tests, and the plugin, with which the checks read the Node.
pub const PROGRAMS: [&str; 2] = ["testapi", "kubectl-nodepulse"];

/// Documentation, and programs that only containers need.
const EXCLUDE: &[&str] = &[
    "/usr/bin/containerd-*",
    "/usr/sbin/runc",
    "/usr/share/doc/*",
    "/usr/share/locale/*",
    "/usr/share/man/*",
];

const SCRIPT: &str = include_str!("packages.sh");

const UNIT: &str = "\
[Unit]
Description=checks of the packages
After=multi-user.target

[Service]
Type=oneshot
ExecStart=/bin/sh /packages/check
StandardOutput=tty
StandardError=tty
TTYPath=/dev/console
ExecStopPost=/bin/systemctl --no-block poweroff
TimeoutStartSec=infinity
";

/// Gives the checks time between the announcement of the shutdown and the shutdown: the default is
/// 5 s.
const LOGIND: &str = "[Login]\nInhibitDelayMaxSec=60\n";

/// A network for pods, without which the runtime is not ready.
const CNI: &str = r#"{"cniVersion": "0.4.0", "name": "packages", "type": "loopback"}"#;

/// Configures another snapshotter: overlays need a module, which is not part of the kernel's image.
const CONTAINERD: &str = "\
version = 2
[plugins.'io.containerd.grpc.v1.cri'.containerd]
snapshotter = 'native'
";

/// Packs the initramfs: Debian, the packages of this binary, [`PROGRAMS`], the module of the device
/// mapper, and a service that checks the packages.
pub fn archive(
    repo: &Repo,
    agent: &Path,
    programs: Vec<(&'static str, Vec<u8>)>,
    dm_mod: Option<&Path>,
) -> Result<Vec<u8>> {
    let root = root()?;
    let root = fs::File::open(&root).with_context(|| root.display().to_string())?;
    let of_release = dist::for_machine(repo, agent)?;
    let wants = "[Install]\nWantedBy=multi-user.target\n";
    let mut packed = vec![
        File::new("packages/check", 0o755, SCRIPT),
        File::new("packages/old.deb", 0o644, of_release.old),
        File::new("packages/new.deb", 0o644, of_release.new),
        File::new("packages/image.tar", 0o644, of_release.image),
        File::new(
            "etc/systemd/system/packages.service",
            0o644,
            format!("{UNIT}{wants}"),
        ),
        // Enables the service.
        File::new(
            "etc/systemd/system-preset/packages.preset",
            0o644,
            "enable packages.service\n",
        ),
        // With this content, systemd treats the boot as the first, and applies presets.
        File::new("etc/machine-id", 0o644, "uninitialized\n"),
        File::new("etc/hostname", 0o644, "packages\n"),
        File::new("etc/systemd/logind.conf.d/delay.conf", 0o644, LOGIND),
        File::new("etc/cni/net.d/packages.conf", 0o644, CNI),
        File::new("etc/containerd/config.toml", 0o644, CONTAINERD),
    ];
    if let Some(dm_mod) = dm_mod {
        let module = files::read(dm_mod)?;
        packed.push(File::new("packages/dm-mod.ko", 0o644, module));
    }
    let programs = programs.into_iter();
    packed
        .extend(programs.map(|(name, bytes)| File::new(format!("packages/{name}"), 0o755, bytes)));
    pack_root(root, &packed)
}

/// Creates the root directory once; its packages are not updated later.
fn root() -> Result<PathBuf> {
    let file = setup::cache()?.join(format!("debian-{SUITE}-dmsetup.tar"));
    if file.is_file() {
        return Ok(file);
    }
    let parts = file.with_extension("part.tar");
    let mut bootstrap = command("mmdebstrap");
    bootstrap.args(["--variant=minbase", &format!("--include={INCLUDE}")]);
    for path in EXCLUDE {
        bootstrap.arg(format!("--dpkgopt=path-exclude={path}"));
    }
    run(bootstrap.arg(SUITE).arg(&parts))?;
    files::rename(&parts, &file)?;
    Ok(file)
}
