//! Invalid settings of disks.

/// As [`super::table::BAD`].
pub(super) const BAD: &[(&str, &[&str])] = &[
    (
        "diskIO: {solidState: {slow: automatic}}",
        &["diskIO.solidState.slow", "is not a duration"],
    ),
    (
        "diskIO: {slowFor: 0s}",
        &["diskIO.slowFor", "from 1s to 10m", "slowFor: 15s"],
    ),
    (
        "diskIO: {slowFor: 11m}",
        &["diskIO.slowFor", "from 1s to 10m"],
    ),
    (
        "diskIO: {stalledAfter: 1999ms}",
        &["diskIO.stalledAfter", "from 2s to 10m", "stalledAfter: 10s"],
    ),
    (
        "diskIO: {minStall: 101%}",
        &["diskIO.minStall", "up to 100%", "minStall: 10%"],
    ),
    ("diskIO: {minStall: 0%}", &["diskIO.minStall", "above 0%"]),
];
