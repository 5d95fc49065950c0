//! Capacity and allocatable.

use std::time::Duration;

use nodepulse_core::units::quantity::Quantity;

use nodepulse::Overrides;
use nodepulse_tests::node::pass;
use serde_json::{Value, json};

use super::setters::{stage, status};

const MI: i64 = 1 << 20;

/// The value of a quantity, in bytes or pieces, rounded up.
fn value(quantity: &Value) -> i64 {
    let quantity: Quantity = quantity.as_str().unwrap().parse().unwrap();
    quantity.value()
}

/// The capacity of memory is `MemTotal`, in Ki.
#[tokio::test(start_paused = true)]
async fn a045_memory_is_memtotal() {
    let status = status(
        |host| {
            host.meminfo("MemTotal", 16_374_033);
        },
        |_| (),
    )
    .await;
    assert_eq!(status["capacity"]["memory"], "16374033Ki");
}

/// The capacity of cpu is the number of logical processors online.
#[tokio::test(start_paused = true)]
async fn a046_cpus_are_those_online() {
    const ONLINE: &str = "sys/devices/system/cpu/online";
    for (online, expected) in [("0-1\n", "2"), ("0\n", "1"), ("0,1\n", "2")] {
        let status = status(
            |host| {
                host.write(ONLINE, online);
            },
            |_| (),
        )
        .await;
        assert_eq!(status["capacity"]["cpu"], expected, "{online}");
    }
}

/// There is room for 110 pods, for `maxPods`, or for `podsPerCore` on each processor if that is
/// less.
#[tokio::test(start_paused = true)]
async fn a047_pods_by_node_and_by_processor() {
    let rows = [
        (None, None, "110"),
        (Some("250"), None, "250"),
        (None, Some("10"), "20"),
        (None, Some("100"), "110"),
        (Some("5"), Some("10"), "5"),
        (None, Some("0"), "110"),
    ];
    for (max, per_core, expected) in rows {
        let status = status(
            |_| (),
            |overrides| {
                overrides.max_pods = max.map(str::to_owned);
                overrides.pods_per_core = per_core.map(str::to_owned);
            },
        )
        .await;
        for map in ["capacity", "allocatable"] {
            assert_eq!(status[map]["pods"], expected, "{max:?} {per_core:?}");
        }
    }
}

/// By default all memory but 100Mi and all huge pages is allocatable, and never less than zero.
#[tokio::test(start_paused = true)]
async fn a048_allocatable_memory() {
    let (small, large) = ("2048kB", "1048576kB");
    let pages = |size: &str| format!("sys/kernel/mm/hugepages/hugepages-{size}/nr_hugepages");
    //  MiB of memory, huge pages of 2Mi and of 1Gi, MiB that are handed out
    let rows = [
        (16_384, 0, 0, 16_284),
        (16_384, 64, 0, 16_156),
        (16_384, 64, 2, 14_108),
        (1_024, 0, 1, 0),
        (64, 0, 0, 0),
    ];
    for (memory, of_2mi, of_1gi, expected) in rows {
        let status = status(
            |host| {
                host.meminfo("MemTotal", memory * 1024)
                    .write(&pages(small), format!("{of_2mi}\n"))
                    .write(&pages(large), format!("{of_1gi}\n"));
            },
            |_| (),
        )
        .await;
        let allocatable = value(&status["allocatable"]["memory"]);
        assert_eq!(allocatable, expected * MI, "{memory} {of_2mi} {of_1gi}");
    }
}

/// By default all storage but a tenth, in 32-bit floating point, is allocatable.
#[tokio::test(start_paused = true)]
async fn a049_allocatable_storage() {
    let thresholds = |overrides: &mut Overrides| overrides.eviction_hard = None;
    let status = status(|_| (), thresholds).await;
    let capacity = value(&status["capacity"]["ephemeral-storage"]);
    let reserved = (capacity as f64 * f64::from(10.0_f32 / 100.0)) as i64;
    let allocatable = value(&status["allocatable"]["ephemeral-storage"]);
    assert_eq!(allocatable, capacity - reserved);
}

/// Reservations for the system and for agents are not allocatable; the keys for PIDs are ignored.
#[tokio::test(start_paused = true)]
async fn a050_reservations_are_subtracted() {
    let status = status(
        |_| (),
        |overrides| {
            overrides.system_reserved = Some("cpu=500m,memory=1Gi,pid=100".to_owned());
            overrides.kube_reserved = Some("cpu=250m,memory=512Mi".to_owned());
        },
    )
    .await;
    assert_eq!(status["allocatable"]["cpu"], "1250m");
    let expected = (16 * 1024 - 1024 - 512 - 100) * MI;
    assert_eq!(value(&status["allocatable"]["memory"]), expected);
    for map in ["capacity", "allocatable"] {
        assert_eq!(status[map].get("pid"), None);
    }
}

/// Swap is reported in bytes, and omitted if there is none.
#[tokio::test(start_paused = true)]
async fn a053_swap_in_bytes() {
    for (kib, expected) in [(0, Value::Null), (2_097_148, json!(2_147_479_552_u64))] {
        let status = status(
            |host| {
                host.meminfo("SwapTotal", kib);
            },
            |_| (),
        )
        .await;
        assert_eq!(status["nodeInfo"]["swap"]["capacity"], expected);
        let there = status["nodeInfo"].get("swap").is_some();
        assert_eq!(there, kib > 0);
    }
}

/// No limit on volumes is written, unless one is configured for old schedulers.
#[tokio::test(start_paused = true)]
async fn a060_no_limits_on_volumes() {
    let stage = stage(|_| (), |_| ()).await;
    pass(Duration::from_mins(10)).await;
    for request in stage.api.requests() {
        let body = request.body.clone().unwrap_or_default().to_string();
        assert!(!body.contains("attachable-volumes"), "{request}: {body}");
    }
    let limits = |overrides: &mut Overrides| {
        overrides.volume_limits = Some("disk.csi.example.com=16".to_owned());
    };
    let status = status(|_| (), limits).await;
    for map in ["capacity", "allocatable"] {
        let limit = &status[map]["attachable-volumes-csi-disk.csi.example.com"];
        assert_eq!(limit, "16");
    }
}
