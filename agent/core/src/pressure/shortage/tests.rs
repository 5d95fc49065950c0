use super::*;
use crate::pressure::threshold::ThresholdValue;
use crate::reading::{Reading, Signal};

const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

fn counts(readings: &[(u64, u64)]) -> Vec<ReclaimCounts> {
    let counts = |(direct, kswapd): &(u64, u64)| ReclaimCounts {
        direct: *direct,
        kswapd: *kswapd,
    };
    readings.iter().map(counts).collect()
}

#[test]
fn reclaim_rose_if_one_of_the_sums_did_from_the_first_reading_to_the_last() {
    type Row<'a> = (&'a [(u64, u64)], bool, usize, &'a str);

    // `allocstall` and `pgscan_kswapd` of each reading, rose, intervals with direct reclaim, name.
    #[rustfmt::skip]
    let rows: [Row; 6] = [
        (&[(5, 9), (5, 9), (5, 9)], false, 0, "neither"),
        (&[(5, 9), (6, 9), (6, 9)], true, 1, "direct reclaim once"),
        (&[(5, 9), (6, 9), (7, 9)], true, 2, "direct reclaim always"),
        (&[(5, 9), (5, 9), (5, 10)], true, 0, "only kswapd"),
        (&[(5, 9), (4, 8), (4, 8)], false, 0, "both decrease"),
        (&[(5, 9), (3, 9), (4, 9)], false, 1, "below the first reading"),
    ];
    for (readings, rose, direct, name) in rows {
        let expected = Reclaim {
            rose,
            intervals: 2,
            direct,
        };
        assert_eq!(
            Reclaim::between(&counts(readings)),
            Some(expected),
            "{name}"
        );
    }
    assert_eq!(Reclaim::between(&counts(&[(1, 1)])), None, "one reading");
}

/// A unit by number: its path, the milliseconds for which its tasks waited in the last second, and
/// its limit hits in the three snapshots.
struct Row(u32, &'static str, u64, [Option<u64>; 3]);

fn owner(n: u32, path: &str) -> Owner {
    if path.starts_with("/kubepods") {
        PodId::Uid(format!("{n:08x}-1f4b-4a62-9b0e-0f7c0f5d8a11")).into()
    } else {
        Owner::from_path(path, "/kubepods")
    }
}

fn snapshots(rows: &[Row]) -> [UnitSnapshot; 3] {
    [0, 1, 2].map(|time| {
        let unit = |Row(n, path, waited, hits): &Row| {
            let unit = MemoryUnit {
                owner: owner(*n, path),
                path: (*path).to_owned(),
                stalled: 40 * SECOND + Duration::from_millis(if time == 2 { *waited } else { 0 }),
                limit_hits: hits[time],
            };
            (CgroupId(u64::from(*n)), unit)
        };
        rows.iter().map(unit).collect()
    })
}

fn between(rows: &[Row]) -> UnitStalls {
    let [earlier, before, after] = snapshots(rows);
    UnitStalls::between(&earlier, &before, &after, SECOND)
}

const NEVER: [Option<u64>; 3] = [Some(7); 3];

#[test]
fn the_units_that_wait_most_are_named_with_whether_they_are_at_their_limits() {
    let stalls = between(&[
        Row(1, "/kubepods/pod1", 970, [Some(7), Some(7), Some(8)]),
        Row(2, "/kubepods/pod2", 140, NEVER),
        Row(3, "/system.slice", 999, NEVER),
        Row(
            4,
            "/system.slice/a.service",
            500,
            [Some(7), Some(9), Some(9)],
        ),
        Row(5, "/init.scope", 300, [Some(7), None, None]),
        Row(6, "/kubepods/pod6", 0, NEVER),
        Row(7, "/user.slice", 310, [Some(9), Some(8), Some(8)]),
    ]);
    let units: Vec<String> = stalls.units().iter().map(ToString::to_string).collect();
    let expected = [
        "pod with id 00000001-1f4b-4a62-9b0e-0f7c0f5d8a11 (97% of the time, at its own limit)",
        "a.service (50% of the time, at its own limit)",
        "user.slice (31% of the time)",
    ];
    assert_eq!(units, expected, "a slice is not a unit if its services are");
    let UnitStalls::Read { unlimited, .. } = stalls else {
        panic!("{stalls:?}");
    };
    let expected = StallShare::from_percent(31.0);
    assert_eq!(unlimited, expected, "a counter that decreases is no hit");
}

#[test]
fn a_unit_that_is_not_in_all_snapshots_does_not_count() {
    let all = snapshots(&[Row(1, "/kubepods/pod1", 900, NEVER)]);
    for missing in 0..all.len() {
        let mut some = all.clone();
        some[missing].clear();
        let [earlier, before, after] = some;
        let stalls = UnitStalls::between(&earlier, &before, &after, SECOND);
        let none = UnitStalls::Read {
            units: Vec::new(),
            unlimited: StallShare::default(),
        };
        assert_eq!(stalls, none, "not in snapshot {missing}");
    }
    let [earlier, before, after] = all;
    let backwards = UnitStalls::between(&earlier, &after, &before, SECOND);
    assert_eq!(backwards.units(), [], "the time decreases");
}

#[expect(clippy::unnecessary_wraps, reason = "as it is passed")]
fn left(available: u64, threshold: Option<u64>) -> Option<RemainingMemory> {
    Some(RemainingMemory {
        memory: Some(Reading {
            signal: Signal::MemoryAvailable,
            available: i64::try_from(available * MIB).unwrap(),
            capacity: 24_000 * MIB,
        }),
        threshold: threshold.map(|mib| ThresholdValue::Quantity(mib * MIB)),
    })
}

#[expect(clippy::unnecessary_wraps, reason = "as it is passed")]
const fn reclaim(rose: bool, direct: usize) -> Option<Reclaim> {
    Some(Reclaim {
        rose,
        intervals: 10,
        direct,
    })
}

#[test]
fn a_stall_is_one_of_the_node_only_if_the_node_is_short_of_memory() {
    let of_node = |waited| between(&[Row(1, "/kubepods/pod1", waited, NEVER)]);
    let at_limit = || between(&[Row(1, "/kubepods/pod1", 970, [Some(7), Some(7), Some(8)])]);
    let unread = || between(&[Row(1, "/kubepods/pod1", 970, [None; 3])]);
    let both = || {
        between(&[
            Row(1, "/kubepods/pod1", 970, [Some(7), Some(7), Some(8)]),
            Row(2, "/system.slice/a.service", 150, NEVER),
        ])
    };
    let (plenty, low) = (left(17_600, Some(1000)), left(1999, Some(1000)));
    let short = ShortageVerdict::Short;
    let [not_read, no_reclaim, at_limits] =
        [Withheld::NotRead, Withheld::NoReclaim, Withheld::AtLimits].map(ShortageVerdict::Withheld);
    let v1 = || UnitStalls::CgroupV1;
    // Reclaim, units, memory, verdict, name.
    #[rustfmt::skip]
    let rows = [
        (None, of_node(970), low, not_read, "no /proc/vmstat"),
        (reclaim(false, 0), of_node(970), low, no_reclaim, "gate closed"),
        (reclaim(false, 0), v1(), low, no_reclaim, "gate closed on v1"),
        (reclaim(true, 0), v1(), plenty, short, "gate open on v1"),
        (reclaim(true, 0), of_node(150), plenty, short, "a unit at the threshold"),
        (reclaim(true, 0), of_node(149), plenty, at_limits, "a unit below it"),
        (reclaim(true, 0), both(), plenty, short, "another at its own limit"),
        (reclaim(true, 10), at_limit(), plenty, at_limits, "a tenant, with enough memory"),
        (reclaim(true, 6), at_limit(), low, short, "a tenant, and the node is short"),
        (reclaim(true, 5), at_limit(), low, at_limits, "reclaim half of the time"),
        (reclaim(true, 10), at_limit(), left(2000, Some(1000)), at_limits, "twice the threshold"),
        (reclaim(true, 10), at_limit(), left(1, None), at_limits, "no threshold"),
        (reclaim(true, 10), at_limit(), None, at_limits, "memory not read"),
        (reclaim(true, 10), unread(), plenty, at_limits, "its limit cannot be read"),
        (reclaim(true, 10), UnitStalls::NotRead, plenty, at_limits, "units not read"),
        (reclaim(true, 10), UnitStalls::NotRead, low, short, "units not read, the node is short"),
        (reclaim(true, 10), between(&[]), low, short, "many units wait a little"),
    ];
    for (reclaim, units, memory, expected, name) in rows {
        let evidence = ShortageEvidence { reclaim, units };
        assert_eq!(evidence.judge(memory, 15.0), expected, "{name}");
    }
}
