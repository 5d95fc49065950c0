//! The capacity of the node, and the part of it that pods can use.

use std::collections::BTreeMap;

use super::{Allocation, Facts};
use crate::pressure::threshold::ThresholdValue;
use crate::reading::{HugePages, Machine};
use crate::units::Bytes;
use crate::units::quantity::Quantity;

/// Returns the keys of `status.capacity` that nodepulse writes.
///
/// `ephemeral-storage` is absent while its file system cannot be read.
pub fn capacity(facts: &Facts) -> BTreeMap<String, Quantity> {
    let machine = &facts.machine;
    let mut capacity = BTreeMap::from([
        (
            "cpu".to_owned(),
            Quantity::from_count(u64::from(machine.cpus)),
        ),
        ("memory".to_owned(), Quantity::from_bytes(machine.memory)),
        (
            "pods".to_owned(),
            Quantity::from_count(pods(&facts.allocation, machine.cpus)),
        ),
    ]);
    for pool in &machine.huge_pages {
        capacity.insert(huge_pages_key(pool), Quantity::from_bytes(size(pool)));
    }
    if let Some(size) = facts.ephemeral_storage {
        capacity.insert("ephemeral-storage".to_owned(), Quantity::from_bytes(size));
    }
    capacity
}

/// Returns the keys of `status.allocatable` that nodepulse writes, and extended resources.
///
/// The amounts are the capacity less what is reserved for the system, for the agents, and by the
/// hard eviction thresholds. Memory is also reduced by all huge pages, used or not.
///
/// `stored` is the stored capacity: a component that adds an extended resource writes only its
/// capacity, and relies on the node to make it allocatable.
pub fn allocatable(
    facts: &Facts,
    capacity: &BTreeMap<String, Quantity>,
    stored: &BTreeMap<String, Quantity>,
) -> BTreeMap<String, Quantity> {
    let extended = stored
        .iter()
        .filter(|(key, _)| is_extended(key) && !capacity.contains_key(*key));
    let mut allocatable: BTreeMap<String, Quantity> = capacity
        .iter()
        .chain(extended)
        .map(|(key, &size)| (key.clone(), size.less(reservation(facts, key))))
        .collect();
    if let Some(memory) = allocatable.get_mut("memory") {
        for pool in &facts.machine.huge_pages {
            *memory = memory.less(Quantity::from_bytes(size(pool)));
        }
    }
    allocatable
}

fn pods(allocation: &Allocation, cpus: u32) -> u64 {
    let max = u64::from(allocation.max_pods);
    match allocation.pods_per_core {
        0 => max,
        per_core => max.min(u64::from(per_core).saturating_mul(u64::from(cpus))),
    }
}

/// Returns a resource with more reserved than available: key, reserved, available. A kubelet does
/// not start then. Storage is not checked, because reading its size may take long.
pub fn overdrawn(
    allocation: &Allocation,
    machine: &Machine,
) -> Option<(&'static str, Quantity, Quantity)> {
    let cpus = Quantity::from_count(u64::from(machine.cpus));
    let memory = Quantity::from_bytes(machine.memory);
    let threshold = eviction(allocation.memory_threshold, machine.memory);
    let of = |key, threshold| configured(allocation, key, threshold);
    let both = [
        ("cpu", of("cpu", Quantity::from_count(0)), cpus),
        ("memory", of("memory", threshold), memory),
    ];
    // A capacity of zero means that the amount is unknown.
    let over = |(_, reserved, there): &(_, Quantity, Quantity)| {
        !there.is_zero() && !reserved.less(*there).is_zero()
    };
    both.into_iter().find(over)
}

fn reservation(facts: &Facts, key: &str) -> Quantity {
    let allocation = &facts.allocation;
    let eviction = match key {
        "memory" => eviction(allocation.memory_threshold, facts.machine.memory),
        "ephemeral-storage" => eviction(
            allocation.nodefs_threshold,
            facts.ephemeral_storage.unwrap_or_default(),
        ),
        _ => Quantity::from_count(0),
    };
    configured(allocation, key, eviction)
}

fn configured(allocation: &Allocation, key: &str, eviction: Quantity) -> Quantity {
    let configured = allocation.reserved.get(key);
    configured.map_or(eviction, |configured| configured.saturating_add(eviction))
}

fn eviction(threshold: Option<ThresholdValue>, capacity: Bytes) -> Quantity {
    let bytes = threshold.map_or(0, |threshold| threshold.amount(capacity.get()));
    Quantity::from_bytes(Bytes::from_bytes(bytes))
}

/// Names the page size by the shortest quantity: `hugepages-2Mi`.
fn huge_pages_key(pool: &HugePages) -> String {
    format!("hugepages-{}", Quantity::from_bytes(pool.page_size))
}

const fn size(pool: &HugePages) -> Bytes {
    Bytes::from_pages(pool.pages, pool.page_size.get())
}

/// Returns true for a vendor's resource, such as `example.com/dongle`.
fn is_extended(key: &str) -> bool {
    key.split_once('/')
        .is_some_and(|(domain, _)| domain != "kubernetes.io" && !domain.ends_with(".kubernetes.io"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node_status::fixture::facts;

    const MI: i64 = 1 << 20;

    fn values(of: &BTreeMap<String, Quantity>) -> Vec<(&str, i64)> {
        of.iter().map(|(k, v)| (k.as_str(), v.value())).collect()
    }

    fn pool(kib: u64, pages: u64) -> HugePages {
        HugePages {
            page_size: Bytes::from_kib(kib),
            pages,
        }
    }

    #[test]
    fn capacity_is_what_the_machine_has() {
        assert_eq!(
            values(&capacity(&facts())),
            [
                ("cpu", 8),
                ("ephemeral-storage", 100_000_000_000),
                ("hugepages-2Mi", 128 * MI),
                ("memory", 16 * 1024 * MI),
                ("pods", 110),
            ]
        );
    }

    #[test]
    fn storage_that_cannot_be_read_is_absent_and_an_unknown_machine_is_zero() {
        let mut facts = facts();
        facts.ephemeral_storage = None;
        facts.machine = crate::reading::Machine::default();
        assert_eq!(
            values(&capacity(&facts)),
            [("cpu", 0), ("memory", 0), ("pods", 110)]
        );
    }

    #[test]
    fn pods_are_limited_by_node_and_by_core() {
        //         max, per core, cpus, pods
        let rows = [
            (110, 0, 8, 110, "no limit by core"),
            (110, 10, 8, 80, "by core"),
            (110, 13, 8, 104, "by core, just below"),
            (110, 14, 8, 110, "by node, just above"),
            (110, u32::MAX, u32::MAX, 110, "no overflow"),
            (110, 10, 0, 0, "no CPU known"),
        ];
        for (max_pods, pods_per_core, cpus, expected, why) in rows {
            let allocation = Allocation {
                max_pods,
                pods_per_core,
                ..Allocation::default()
            };
            assert_eq!(pods(&allocation, cpus), expected, "{why}");
        }
    }

    #[test]
    fn huge_pages_are_named_by_the_shortest_size() {
        for (kib, expected) in [
            (64, "hugepages-64Ki"),
            (2048, "hugepages-2Mi"),
            (32_768, "hugepages-32Mi"),
            (1_048_576, "hugepages-1Gi"),
            (16_777_216, "hugepages-16Gi"),
        ] {
            assert_eq!(huge_pages_key(&pool(kib, 0)), expected);
        }
    }

    fn allocatable_of(facts: &Facts, key: &str) -> i64 {
        let capacity = capacity(facts);
        allocatable(facts, &capacity, &BTreeMap::new())[key].value()
    }

    #[test]
    fn memory_is_reduced_by_reservations_threshold_and_huge_pages() {
        let all = 16 * 1024 * MI;
        #[rustfmt::skip]
        let rows = [
            (None, 0, vec![], all, "nothing reserved"),
            (Some(ThresholdValue::Quantity(100 << 20)), 0, vec![], all - 100 * MI, "threshold"),
            (Some(ThresholdValue::Share(0.25)), 0, vec![], all / 4 * 3, "a share of the capacity"),
            (None, 512, vec![], all - 512 * MI, "reservation"),
            (Some(ThresholdValue::Quantity(100 << 20)), 512, vec![pool(2048, 64), pool(1 << 20, 2)],
                all - (100 + 512 + 128 + 2048) * MI, "all of them, and each pool"),
            (None, 16 * 1024, vec![], 0, "all reserved"),
            (None, 16 * 1024 + 1, vec![], 0, "never below zero"),
            (None, 0, vec![pool(1 << 20, 17)], 0, "never below zero for huge pages"),
        ];
        for (memory_threshold, reserved_mib, huge_pages, expected, why) in rows {
            let mut facts = facts();
            facts.machine.huge_pages = huge_pages;
            facts.allocation.memory_threshold = memory_threshold;
            facts.allocation.reserved = BTreeMap::from([(
                "memory".to_owned(),
                Quantity::from_bytes(Bytes::from_kib(reserved_mib << 10)),
            )]);
            assert_eq!(allocatable_of(&facts, "memory"), expected, "{why}");
        }
    }

    #[test]
    fn storage_is_reduced_by_the_nodefs_threshold_and_cpu_by_its_reservation_only() {
        let mut facts = facts();
        facts.allocation.nodefs_threshold = Some(ThresholdValue::Share(0.5));
        facts.allocation.memory_threshold = None;
        facts.allocation.reserved = BTreeMap::from([
            ("cpu".to_owned(), "1500m".parse().unwrap()),
            ("pid".to_owned(), Quantity::from_count(1000)),
        ]);
        let capacity = capacity(&facts);
        let allocatable = allocatable(&facts, &capacity, &BTreeMap::new());

        assert_eq!(allocatable["cpu"], "6500m".parse().unwrap());
        assert_eq!(allocatable["ephemeral-storage"].value(), 50_000_000_000);
        assert_eq!(allocatable["hugepages-2Mi"].value(), 128 * MI);
        assert_eq!(allocatable["memory"].value(), (16 * 1024 - 128) * MI);
        assert_eq!(allocatable["pods"].value(), 110);
        assert!(!allocatable.contains_key("pid"), "limits cgroups only");
    }

    #[test]
    fn extended_resources_are_allocatable_in_full_and_other_stored_keys_are_not() {
        let stored: BTreeMap<_, _> = [
            ("example.com/dongle", 4),
            ("memory", 1),
            ("hugepages-1Gi", 5),
            ("kubernetes.io/batch", 6),
            ("x.kubernetes.io/batch", 7),
            ("attachable-volumes-foo", 8),
        ]
        .into_iter()
        .map(|(key, n)| (key.to_owned(), Quantity::from_count(n)))
        .collect();
        let facts = facts();
        let allocatable = allocatable(&facts, &capacity(&facts), &stored);

        assert_eq!(
            allocatable.keys().map(String::as_str).collect::<Vec<_>>(),
            [
                "cpu",
                "ephemeral-storage",
                "example.com/dongle",
                "hugepages-2Mi",
                "memory",
                "pods"
            ]
        );
        assert_eq!(allocatable["example.com/dongle"].value(), 4);
        assert_eq!(
            allocatable["memory"].value(),
            (16 * 1024 - 100 - 128) * MI,
            "the value of the machine applies"
        );
    }
}
