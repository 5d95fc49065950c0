use super::*;

const UID: &str = "6d8a4d2e-1f4b-4a62-9b0e-0f7c0f5d8a11";
const SLICE: &str = "6d8a4d2e_1f4b_4a62_9b0e_0f7c0f5d8a11";
const OTHER: &str = "00000000-0000-0000-0000-000000000000";
const HASH: &str = "a9f3c1d20b8e4f5a96d7c8b1e2f30415";
const ID: &str = "3b5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c";
/// The pods cgroup of kind, and of every kubelet with `--cgroup-root=/kubelet`.
const NESTED: &str = "/kubelet.slice/kubelet-kubepods.slice";

fn pod() -> CgroupKind {
    CgroupKind::Pod {
        pod: PodId::Uid(UID.into()),
    }
}

fn container(id: Option<&str>) -> CgroupKind {
    CgroupKind::Container {
        pod: PodId::Uid(UID.into()),
        container: id.map(str::to_owned),
    }
}

/// Names in the forms of each project: kubelet v1.33 `pkg/kubelet/cm`, containerd 2.0
/// `internal/cri/server/helpers.go` (`getCgroupsPath`), CRI-O 1.33 `internal/config/cgmgr`,
/// cri-dockerd with Docker 28 `daemon/oci_linux.go`, crun 1.21 `src/libcrun/cgroup-systemd.c`.
#[test]
fn every_form_of_name_is_recognized() {
    let id = || container(Some(ID));
    let (fs, sd) = ("/kubepods", "/kubepods.slice");
    let bu = format!("kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice");
    let be = format!("kubepods-besteffort.slice/kubepods-besteffort-pod{SLICE}.slice");
    let g = format!("kubepods-pod{SLICE}.slice");
    let nested =
        format!("kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{SLICE}.slice");
    let hash = || PodId::ConfigHash(HASH.into());
    #[rustfmt::skip]
    let rows = [
        (fs, String::new(), CgroupKind::Pods, "all pods"),
        (sd, String::new(), CgroupKind::Pods, "all pods, systemd"),
        (NESTED, String::new(), CgroupKind::Pods, "all pods, nested"),
        (fs, "/burstable".into(), CgroupKind::Other, "a class itself"),
        (sd, "/kubepods-burstable.slice".into(), CgroupKind::Other, "a class itself"),
        (fs, format!("/burstable/pod{UID}"), pod(), "kubelet, cgroupfs"),
        (fs, format!("/besteffort/pod{UID}"), pod(), "kubelet, cgroupfs"),
        (fs, format!("/system/pod{UID}"), pod(), "a system pod"),
        (sd, format!("/kubepods-system.slice/kubepods-system-pod{SLICE}.slice"), pod(), "a system pod, systemd"),
        (fs, format!("/pod{UID}"), pod(), "kubelet, cgroupfs, guaranteed"),
        (sd, format!("/{bu}"), pod(), "kubelet, systemd"),
        (sd, format!("/{be}"), pod(), "kubelet, systemd"),
        (sd, format!("/{g}"), pod(), "kubelet, systemd, guaranteed"),
        (NESTED, format!("/{nested}"), pod(), "kubelet in kind, systemd"),
        ("/kubelet/kubepods", format!("/burstable/pod{UID}/{ID}"), id(), "kubelet in kind"),
        (fs, format!("/pod{HASH}"), CgroupKind::Pod { pod: hash() }, "static pod"),
        (sd, format!("/kubepods-pod{HASH}.slice/crio-{ID}.scope"),
            CgroupKind::Container { pod: hash(), container: Some(ID.into()) }, "static pod, CRI-O"),
        (fs, format!("/pod{UID}/{ID}"), id(), "containerd and cri-dockerd, cgroupfs"),
        (sd, format!("/{g}/cri-containerd-{ID}.scope"), id(), "containerd, systemd"),
        (NESTED, format!("/{nested}/cri-containerd-{ID}.scope"), id(), "containerd in kind"),
        (fs, format!("/pod{UID}/crio-{ID}"), id(), "CRI-O, cgroupfs"),
        (sd, format!("/{bu}/crio-{ID}.scope"), id(), "CRI-O, systemd"),
        (sd, format!("/{bu}/crio-{ID}.scope/container"), id(), "crun's extra level"),
        (sd, format!("/{bu}/crio-conmon-{ID}.scope"), container(None), "CRI-O's monitor"),
        (fs, format!("/pod{UID}/crio-conmon-{ID}"), container(None), "CRI-O's monitor"),
        (sd, format!("/{be}/docker-{ID}.scope"), id(), "cri-dockerd, systemd"),
        (fs, format!("/pod{UID}/{ID}/system.slice/x.service"), id(), "systemd in it"),
        (fs, format!("/pod{UID}/init"), container(None), "another name"),
        (fs, format!("/pod{UID}/{ID}0"), container(None), "longer than an id"),
    ];
    for (pods, below, expected, source) in rows {
        let path = format!("{pods}{below}");
        assert_eq!(classify(&path, pods), expected, "{source}: {path}");
    }
}

#[test]
fn a_tenant_cannot_imitate_another_pod() {
    let (fs, sd) = ("/kubepods", "/kubepods.slice");
    let other = OTHER.replace('-', "_");
    #[rustfmt::skip]
    let rows = [
        (fs, format!("/kubepods/pod{UID}/pod{OTHER}/{ID}"), container(None), "in its own pod"),
        (fs, format!("/kubepods/pod{UID}/{ID}/kubepods/burstable/pod{OTHER}/{ID}"), container(Some(ID)),
            "a whole tree in its container"),
        (sd, format!("/kubepods.slice/kubepods-pod{SLICE}.slice/kubepods-pod{other}.slice"), container(None),
            "a slice in its own"),
        (fs, format!("/kubepods2/pod{OTHER}"), CgroupKind::Other, "a common prefix"),
        (fs, format!("/system.slice/kubepods/pod{OTHER}"), CgroupKind::Other, "elsewhere"),
        (sd, format!("/system.slice/containerd.service/kubepods-pod{other}.slice:cri-containerd:{ID}"),
            CgroupKind::Other, "containerd and kubelet with different drivers: not in the pods cgroup"),
        (fs, "/kubepods/podx\n".into(), CgroupKind::Other, "not a UID"),
        (fs, "/kubepods/pod".into(), CgroupKind::Other, "no UID"),
        (fs, format!("/kubepods/pod{UID}0"), CgroupKind::Other, "longer than a UID"),
        (fs, format!("/kubepods/../pod{UID}"), CgroupKind::Other, "upwards"),
        (fs, format!("/kubepods/kubepods-pod{SLICE}.slice"), CgroupKind::Other, "the other driver"),
        (sd, format!("/kubepods.slice/pod{UID}"), CgroupKind::Other, "the other driver"),
        (sd, format!("/kubepods.slice/kubepods-burstable.slice/kubepods-pod{SLICE}.slice"), CgroupKind::Other,
            "the class of another pod"),
        (sd, format!("/kubepods.slice/kubepods-burstable-pod{SLICE}.slice"), CgroupKind::Other, "outside its class"),
    ];
    for (pods, path, expected, why) in rows {
        assert_eq!(classify(&path, pods), expected, "{why}: {path}");
    }
}

#[test]
fn the_last_three_names_claim_a_pod() {
    let (fs, sd) = ("/kubepods", "/kubepods.slice");
    let pod_slice = format!("kubepods-burstable-pod{SLICE}.slice");
    let pod_name = format!("pod{UID}");
    let scope = format!("crio-{ID}.scope");
    let (fs_id, long) = (ID.to_owned(), "x".repeat(95));
    #[rustfmt::skip]
    let rows = [
        (fs, [&*fs_id, &pod_name, "burstable"], true, "a container"),
        (fs, [&*fs_id, &pod_name, "kubepods"], true, "guaranteed"),
        (sd, [&*scope, &pod_slice, "kubepods-burstable.slice"], true, "systemd"),
        (sd, ["container", &scope, &pod_slice], true, "crun's extra level"),
        (fs, ["x", &fs_id, &pod_name], true, "one level below a container"),
        (fs, [&*pod_name, "burstable", "kubepods"], true, "the pod itself"),
        (fs, [&*pod_name, "kubepods2", ""], false, "nothing above, and no pod"),
        (fs, ["", "", ""], false, "the top"),
        (fs, ["x", "y", &fs_id], false, "two levels below a container"),
        (fs, [&*fs_id, &pod_name, &fs_id], false, "a made-up pod in a container"),
        (sd, [&*scope, &pod_slice, "kubepods-besteffort.slice"], false, "not its class"),
        (fs, [&*long, &fs_id, &pod_name], false, "a name that was cut"),
        (fs, ["\n", &fs_id, &pod_name], true, "hostile below the container"),
    ];
    for (pods, names, expected, why) in rows {
        let names = names.map(|name| name.as_bytes().to_vec());
        assert_eq!(claims_pod(&names, pods), expected, "{why}");
    }
    let bytes = [vec![0xff], ID.into(), pod_name.into_bytes()];
    assert!(!claims_pod(&bytes, fs), "not UTF-8");
}

#[test]
fn names_that_reach_the_top_are_the_whole_path() {
    let long = "x".repeat(95);
    let rows = [
        (
            ["a.service", "system.slice", ""],
            Some("/system.slice/a.service"),
        ),
        (["kubepods", "", ""], Some("/kubepods")),
        (["", "", ""], None),
        (["a.service", "b.slice", "system.slice"], None),
        ([&*long, "", ""], None),
    ];
    for (names, expected) in rows {
        let names = names.map(|name| name.as_bytes().to_vec());
        assert_eq!(whole_path(&names).as_deref(), expected);
    }
}

#[test]
fn the_class_of_a_pod_is_that_of_the_cgroup_above() {
    use QosClass::{BestEffort, Burstable, Guaranteed};
    let uid = SLICE;
    #[rustfmt::skip]
    let rows = [
        (format!("/kubepods/pod{UID}"), "/kubepods", Some(Guaranteed)),
        (format!("/kubepods/burstable/pod{UID}"), "/kubepods", Some(Burstable)),
        (format!("/kubepods/besteffort/pod{UID}"), "/kubepods", Some(BestEffort)),
        (format!("/a/kubepods.slice/kubepods-pod{uid}.slice"), "/a/kubepods.slice", Some(Guaranteed)),
        (format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice"), "/kubepods.slice", Some(Burstable)),
        (format!("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{uid}.slice"), "/kubepods.slice", Some(BestEffort)),
        (format!("/kubepods/system/pod{UID}"), "/kubepods", Some(Burstable)),
        (format!("/kubepods.slice/kubepods-system.slice/kubepods-system-pod{uid}.slice"), "/kubepods.slice", Some(Burstable)),
        // A pods cgroup that is named like a class.
        (format!("/burstable/pod{UID}"), "/burstable", Some(Guaranteed)),
        (format!("/kubepods/burstable/pod{UID}/c"), "/kubepods", None),
        ("/kubepods/burstable".to_owned(), "/kubepods", None),
        ("/kubepods".to_owned(), "/kubepods", None),
        (format!("/other/pod{UID}"), "/kubepods", None),
    ];
    for (path, pods, expected) in rows {
        assert_eq!(qos_class(&path, pods), expected, "{path}");
    }
}
