//! `nodepulse config` prints and validates a configuration.

use std::fs;

use nodepulse_tests::process::finished;
use tempfile::tempdir;

use super::{HEAD, text};

#[tokio::test]
async fn the_printed_configuration_is_valid_and_equivalent() {
    let dir = tempdir().unwrap();
    let file = dir.path().join("config.yaml");
    let part = dir.path().join("conf.d/10-edge.yaml");
    let kubelet = dir.path().join("kubelet.yaml");
    fs::create_dir(dir.path().join("conf.d")).unwrap();
    fs::write(
        &file,
        format!("{HEAD}mode: node\nnodeName: worker-1\nmaxPods: 5\n"),
    )
    .unwrap();
    fs::write(
        &part,
        format!("{HEAD}maxPods: 6\nproviderID: '- a: \"b\" # c'\n"),
    )
    .unwrap();
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    fs::write(
        &kubelet,
        format!("{head}maxPods: 7\npodsPerCore: 8\nport: 10250\n"),
    )
    .unwrap();
    // The variables of other programs.
    fs::write(dir.path().join("conf.d/.10.yaml"), "nonsense").unwrap();
    fs::write(dir.path().join("conf.d/10.yaml~"), "nonsense").unwrap();

    let (file, kubelet) = (text(&file), text(&kubelet));
    let args = [
        "config",
        "print",
        "--config",
        &file,
        "--kubelet-config",
        &kubelet,
    ];
    let printed = finished(args, "").await;
    assert_eq!(
        (printed.code, printed.stderr.len()),
        (Some(0), 0),
        "{printed:?}"
    );
    let yaml = printed.stdout;
    for line in [
        &format!("maxPods: 6  # {}", part.display()),
        &format!("podsPerCore: 8  # {kubelet}"),
        "podsPerCore: 8",
    ] {
        assert!(yaml.contains(line), "{line} is not in {yaml}");
    }
    let validated = finished(["config", "validate", "--config", "-"], &yaml).await;
    assert_eq!(validated.code, Some(0), "{validated:?}");
    let again = finished(["config", "print", "--config", "-"], &yaml).await;
    let values = |yaml: &str| {
        let lines = yaml
            .lines()
            .map(|line| line.split("  # ").next().unwrap().to_owned());
        lines.collect::<Vec<_>>()
    };
    assert_eq!(values(&again.stdout), values(&yaml));

    let defaults = finished(["config", "defaults", "--mode", "node"], "").await;
    assert!(
        defaults
            .stdout
            .contains("maxPods: 110  # default: the kubelet's"),
        "{defaults:?}"
    );
    let validated = finished(["config", "validate", "--config", "-"], &defaults.stdout).await;
    assert_eq!(validated.code, Some(0), "{validated:?}");
}

#[tokio::test]
async fn the_default_threshold_on_memory_is_printed_with_its_computation() {
    let dir = tempdir().unwrap();
    fs::create_dir(dir.path().join("proc")).unwrap();
    let meminfo = dir.path().join("proc/meminfo");
    let file = format!("{HEAD}hostRoot: {}\n", dir.path().display());
    let rows = [
        (
            24_684_084,
            "min(5% of 23.5Gi, 2.0Gi) = 1.1Gi; default: reached before the kubelet's",
        ),
        (0, "default: reached before the kubelet's"),
    ];
    for (kib, comment) in rows {
        match kib {
            0 => fs::remove_file(&meminfo).unwrap(),
            _ => fs::write(&meminfo, format!("MemTotal: {kib} kB\n")).unwrap(),
        }
        let printed = finished(["config", "print", "--config", "-"], &file).await;
        let line = format!("  memory.available: \"min(5%,2Gi)\"  # {comment}\n");
        assert!(
            printed.stdout.contains(&line),
            "{line} is not in {printed:?}"
        );
        let validated = finished(["config", "validate", "--config", "-"], &printed.stdout).await;
        assert_eq!(validated.code, Some(0), "{validated:?}");
    }
}

/// The flags that a kubelet has too, by its name if that differs.
#[tokio::test]
async fn a_kubelets_flag_is_applied() {
    //  flag, its value, what is printed, and after whom
    let rows = [
        ("--enforce-node-allocatable", "none", "- none"),
        ("--max-pods", "7", "maxPods: 7"),
        ("--system-reserved", "cpu=250m", "cpu: 250m"),
        ("--reserved-cpus", "0-3", "reservedSystemCPUs: 0-3"),
    ];
    let flags = rows.map(|(flag, value, _)| format!("{flag}={value}"));
    let args = ["config", "print", "--mode", "node"].into_iter();
    let args = args.chain(flags.iter().map(String::as_str));
    let printed = finished(args, "").await;
    assert_eq!(printed.code, Some(0), "{printed:?}");
    for (flag, _, line) in rows {
        let flag = flag.replace("--reserved-cpus", "--reserved-system-cpus");
        let line = format!("{line}  # {flag}");
        assert!(printed.stdout.contains(&line), "{line:?}: {printed:?}");
    }
}

/// As a kubelet takes them, which knows them as switches.
#[tokio::test]
async fn a_switch_of_a_kubelet_needs_no_value() {
    const FILE: &str = "apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\n\
                        registerNode: false\nenableControllerAttachDetach: false\n";
    let config = ["--mode", "node", "--config", "-"];
    let flags = ["--register-node", "--enable-controller-attach-detach"];
    let args = ["config", "print"].into_iter().chain(flags).chain(config);
    let printed = finished(args, FILE).await;
    assert_eq!(printed.code, Some(0), "{printed:?}");
    for (flag, key) in flags
        .iter()
        .zip(["registerNode", "enableControllerAttachDetach"])
    {
        let line = format!("{key}: true  # {flag}");
        assert!(printed.stdout.contains(&line), "{line:?}: {printed:?}");
    }
}
