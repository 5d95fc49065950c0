//! The contents of each field of the Node.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use nodepulse_core::node_status::NodeStatus;
use nodepulse_core::node_status::setters::{
    Context, SetterError, Setters, address, machine, ready,
};
use nodepulse_linux::host::addresses;

use nodepulse::Overrides;
use nodepulse_tests::days::Stage;
use nodepulse_tests::host_root::MadeUpHost;
use nodepulse_tests::node::{Node, in_memory, pass};
use nodepulse_tests::{SOON, skip};
use serde_json::{Value, json};

/// Ticks are stretched by up to a twenty-fifth.
pub const TICK: Duration = Duration::from_millis(10_400);

/// A node of this configuration on a calm host that was then changed, registered.
pub async fn stage(
    prepare: impl FnOnce(&MadeUpHost),
    configure: impl FnOnce(&mut Overrides),
) -> Stage {
    let host = Arc::new(MadeUpHost::calm());
    prepare(&host);
    let stage = Stage::on(&in_memory(), host, |node| node.config(configure));
    stage.view().settled(SOON).await;
    stage
}

/// The status that such a node is created with.
pub async fn status(
    prepare: impl FnOnce(&MadeUpHost),
    configure: impl FnOnce(&mut Overrides),
) -> Value {
    let stage = stage(prepare, configure).await;
    stage.view().node().unwrap()["status"].clone()
}

/// A Node that an agent left behind, changed; then another agent on another host.
pub async fn adopted(
    change: impl FnOnce(&mut Value),
    prepare: impl FnOnce(&MadeUpHost),
    configure: impl FnOnce(Node) -> Node,
) -> Stage {
    let first = stage(|_| (), |_| ()).await;
    let mut node = first.view().node().unwrap();
    first.node.stop().await.unwrap();
    change(&mut node);
    first.api.put_object(node);
    let host = Arc::new(MadeUpHost::calm());
    prepare(&host);
    let stage = Stage::on(&first.api, host, configure);
    pass(Duration::from_secs(1)).await;
    stage
}

pub fn internal(ip: &str) -> Value {
    json!({"type": "InternalIP", "address": ip})
}

pub fn hostname() -> Value {
    json!({"type": "Hostname", "address": "worker-1"})
}

/// An address of each family that this machine has, if it does.
pub fn local_addresses() -> [Option<IpAddr>; 2] {
    let host = MadeUpHost::calm();
    let all = addresses::network(&host.root()).unwrap().addresses;
    let usable = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    [true, false].map(|v4| {
        let of_family = |ip: &IpAddr| ip.is_ipv4() == v4 && usable(ip);
        all.iter().map(|address| address.ip).find(of_family)
    })
}

/// A new Node has its conditions in the kubelet's order, Ready the last. nodepulse has two more
/// before it.
#[tokio::test(start_paused = true)]
async fn a042_ready_is_the_last_condition() {
    let stage = stage(|_| (), |_| ()).await;
    let rows = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("DiskIOPressure", "False", "DisksResponsive"),
        ("DiskFailing", "False", "DisksHealthy"),
        ("Ready", "True", "KubeletReady"),
    ];
    let view = stage.view();
    assert_eq!(view.condition_types(), rows.map(|row| row.0));
    for (type_, status, reason) in rows {
        let condition = view.condition(type_);
        assert_eq!(condition["status"], status, "{type_}");
        assert_eq!(condition["reason"], reason, "{type_}");
    }
}

/// Addresses are InternalIP and Hostname; with an address of each family both, in the given order.
#[tokio::test(start_paused = true)]
async fn a043_addresses_in_their_order() {
    let status_of = |ips: String| status(|_| (), |overrides| overrides.node_ip = Some(ips));
    let [v4, v6] = local_addresses();
    let Some(v4) = v4.map(|ip| ip.to_string()) else {
        return skip("no further address", "IPv4");
    };
    let one = status_of(v4.clone()).await;
    assert_eq!(one["addresses"], json!([internal(&v4), hostname()]));
    let Some(v6) = v6.map(|ip| ip.to_string()) else {
        return skip("no further address", "IPv6");
    };
    let both = status_of(format!("{v4},{v6}")).await;
    let expected = json!([internal(&v4), internal(&v6), hostname()]);
    assert_eq!(both["addresses"], expected);
    let turned = status_of(format!("{v6},{v4}")).await;
    let expected = json!([internal(&v6), internal(&v4), hostname()]);
    assert_eq!(turned["addresses"], expected);
}

/// With an address of no interface the stored addresses remain, and the rest is written.
#[tokio::test(start_paused = true)]
async fn a044_an_address_of_another_host_does_not_replace_the_stored_ones() {
    let stored = json!([internal("198.51.100.7"), hostname()]);
    let stage = adopted(
        |node| {
            node["status"]["addresses"] = stored.clone();
            node["status"]["nodeInfo"]["kernelVersion"] = json!("2.6.32");
        },
        |_| (),
        |node| node.config(|overrides| overrides.node_ip = Some("198.51.100.9".to_owned())),
    )
    .await;
    let status = &stage.view().node().unwrap()["status"];
    assert_eq!(status["addresses"], stored);
    assert_ne!(status["nodeInfo"]["kernelVersion"], "2.6.32");
}

/// The three IDs are the trimmed contents of their files; without a file they are empty.
#[tokio::test(start_paused = true)]
async fn a051_ids_are_those_of_the_machine() {
    const FILES: [(&str, &str); 3] = [
        ("machineID", "etc/machine-id"),
        ("systemUUID", "sys/class/dmi/id/product_uuid"),
        ("bootID", "proc/sys/kernel/random/boot_id"),
    ];
    let there = status(
        |host| {
            for (key, file) in FILES {
                host.write(file, format!(" The-{key}\t\n\n"));
            }
        },
        |_| (),
    )
    .await;
    let without_files = status(
        |host| {
            for (_, file) in FILES {
                host.remove(file);
            }
        },
        |_| (),
    )
    .await;
    for (key, _) in FILES {
        assert_eq!(there["nodeInfo"][key], format!("The-{key}"));
        assert_eq!(without_files["nodeInfo"][key], "", "{key}");
    }
    assert_eq!(without_files["conditions"][5]["status"], "True");
}

/// A boot ID other than the stored one is one `Rebooted` in the life of a process, and is stored.
#[tokio::test(start_paused = true)]
async fn a052_a_reboot_is_reported_once() {
    const BOOT_ID: &str = "00000000-0000-4000-8000-000000000003";
    let before = |node: &mut Value| node["status"]["nodeInfo"]["bootID"] = json!("before");
    let stage = adopted(before, |_| (), |node| node).await;
    let view = stage.view();
    let event = view.event("Rebooted", SOON).await;
    assert_eq!(event["type"], "Warning");
    let expected = format!("Node worker-1 has been rebooted, boot id: {BOOT_ID}");
    assert_eq!(event["message"], expected);
    let stored = || view.node().unwrap()["status"]["nodeInfo"]["bootID"].clone();
    assert_eq!(stored(), BOOT_ID);

    let mut node = view.node().unwrap();
    before(&mut node);
    stage.api.put_object(node);
    pass(TICK * 2).await;
    assert_eq!(stored(), BOOT_ID);
    let reasons = view.event_reasons();
    assert_eq!(reasons.iter().filter(|r| *r == "Rebooted").count(), 1);
    assert_eq!(view.event("Rebooted", SOON).await["count"], 1);
}

/// The version of kube-proxy is empty, and a value written by older agents is cleared.
#[tokio::test(start_paused = true)]
async fn a054_no_kube_proxy() {
    let old = |node: &mut Value| node["status"]["nodeInfo"]["kubeProxyVersion"] = json!("v1.20.0");
    let stage = adopted(old, |_| (), |node| node).await;
    let info = &stage.view().node().unwrap()["status"]["nodeInfo"];
    assert_eq!(info["kubeProxyVersion"], "");
}

/// The name of the system is `PRETTY_NAME` of os-release, without its quotes.
#[tokio::test(start_paused = true)]
async fn a055_the_name_of_the_system() {
    const FILE: &str = "etc/os-release";
    let rows = [
        (
            "ID=x\nPRETTY_NAME=\"Some OS 7 (seven)\"\n",
            "Some OS 7 (seven)",
        ),
        ("PRETTY_NAME=Plain\n", "Plain"),
        ("ID=x\n", "Linux"),
    ];
    for (text, expected) in rows {
        let status = status(
            |host| {
                host.write(FILE, text);
            },
            |_| (),
        )
        .await;
        assert_eq!(status["nodeInfo"]["osImage"], expected);
    }
    let status = status(
        |host| {
            host.remove(FILE);
        },
        |_| (),
    )
    .await;
    assert_eq!(status["nodeInfo"]["osImage"], "Unknown");
}

/// The port of the kubelet endpoint is as configured, under a key with a capital. nodepulse omits
/// it unless it is set, because nothing listens there.
#[tokio::test(start_paused = true)]
async fn a056_the_port_is_as_configured() {
    for (port, expected) in [
        (None, Value::Null),
        (Some("0"), Value::Null),
        (Some("10250"), json!({"kubeletEndpoint": {"Port": 10250}})),
    ] {
        let configure = |overrides: &mut Overrides| overrides.port = port.map(str::to_owned);
        let status = status(|_| (), configure).await;
        assert_eq!(status["daemonEndpoints"], expected, "{port:?}");
    }
}

/// A machine whose storage cannot be read.
pub const WITHOUT_STORAGE: Setters = &[
    ("NodeAddress", address::set),
    ("MachineInfo", machine::set),
    ("NoStorage", no_storage),
    ("Ready", ready::set),
];

pub fn no_storage(_: &Context<'_>, status: &mut NodeStatus) -> Result<(), SetterError> {
    status.capacity.remove("ephemeral-storage");
    Ok(())
}

/// Several reasons not to be Ready are reported as a list, in the documented order.
#[tokio::test(start_paused = true)]
async fn a058_every_reason_not_to_be_ready() {
    let no_runtime = "no container runtime configured";
    let no_storage = "missing node capacity for resources: ephemeral-storage";
    //  Ready without a runtime, storage, then in the message
    let rows = [
        ("false", true, no_runtime.to_owned()),
        ("true", false, no_storage.to_owned()),
        ("false", false, format!("[{no_runtime}, {no_storage}]")),
    ];
    for (allowed, storage, expected) in rows {
        let stage = Stage::open(|node| {
            let node = node.config(|overrides| {
                overrides.allow_ready_without_runtime = Some(allowed.to_owned());
            });
            if storage {
                node
            } else {
                node.setters(WITHOUT_STORAGE)
            }
        });
        stage.view().settled(SOON).await;
        let ready = stage.view().condition("Ready");
        assert_eq!(ready["status"], "False");
        assert_eq!(ready["reason"], "KubeletNotReady");
        assert_eq!(ready["message"], expected);
    }
}

/// Without such a reason Ready is True, with the kubelet's message.
#[tokio::test(start_paused = true)]
async fn a059_no_reason_not_to_be_ready() {
    let stage = stage(|_| (), |_| ()).await;
    let ready = stage.view().condition("Ready");
    assert_eq!(ready["status"], "True");
    assert_eq!(ready["reason"], "KubeletReady");
    assert_eq!(ready["message"], "kubelet is posting ready status");
}

/// Below the kubelet's directory: a CSI volume that is staged and mounted.
pub fn stage_volume(host: &MadeUpHost, hash: &str, handle: &str) {
    let at = format!("var/lib/kubelet/plugins/kubernetes.io/csi/d.example.com/{hash}");
    let data = json!({"driverName": "d.example.com", "volumeHandle": handle});
    host.write(&format!("{at}/vol_data.json"), data.to_string())
        .mount(&format!("/{at}/globalmount"));
}

#[tokio::test(start_paused = true)]
async fn mounted_volumes_are_in_use_from_the_first_status_on() {
    let name = |handle: &str| format!("kubernetes.io/csi/d.example.com^{handle}");
    let stage = stage(|host| stage_volume(host, "2b", "vol-b"), |_| ()).await;
    let view = stage.view();
    let in_use = || view.node().unwrap()["status"]["volumesInUse"].clone();
    assert_eq!(in_use(), json!([name("vol-b")]));
    stage_volume(&stage.host, "1a", "vol-z");
    stage_volume(&stage.host, "3c", "vol-a");
    pass(TICK * 2).await;
    assert_eq!(
        in_use(),
        json!([name("vol-a"), name("vol-b"), name("vol-z")])
    );

    // A volume that cannot be named: better one too many than one torn off.
    let before = view.patches().len();
    stage.host.write(
        "var/lib/kubelet/plugins/kubernetes.io/csi/d.example.com/2b/vol_data.json",
        "{",
    );
    pass(TICK * 2).await;
    assert_eq!(view.patches().len(), before);

    stage.host.remove("var/lib/kubelet/plugins/kubernetes.io");
    pass(TICK * 2).await;
    assert_eq!(in_use(), Value::Null);
    let before = view.patches().len();
    pass(Duration::from_mins(1)).await;
    assert_eq!(view.patches().len(), before, "none and none is no change");
}

#[tokio::test(start_paused = true)]
async fn volumes_in_use_are_not_reported_if_the_node_attaches_them() {
    let theirs = json!(["kubernetes.io/csi/other^x"]);
    let stage = adopted(
        |node| node["status"]["volumesInUse"] = theirs.clone(),
        |host| stage_volume(host, "1a", "vol-a"),
        |node| {
            node.config(|overrides| {
                overrides.enable_controller_attach_detach = Some("false".to_owned());
            })
        },
    )
    .await;
    pass(TICK).await;
    assert_eq!(
        stage.view().node().unwrap()["status"]["volumesInUse"],
        theirs
    );
}
