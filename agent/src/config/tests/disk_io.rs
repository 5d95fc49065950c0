//! Invalid settings of disks.

/// Rows as in [`super::table::BAD`].
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
    (
        "diskIO: {minStall: 10}",
        &["diskIO.minStall", r#""10""#, "percentage", "minStall: 10%"],
    ),
    (
        "diskIO: {slowFor: 15}",
        &["diskIO.slowFor", r#""15""#, "slowFor: 15s"],
    ),
    (
        "diskIO: {stalledAfter: 11m}",
        &["diskIO.stalledAfter", r#""11m""#, "from 2s to 10m"],
    ),
    (
        "diskIO: {window: 61s}",
        &["diskIO.window", r#""61s""#, "from 1s to 1m", "window: 1s"],
    ),
    (
        "diskIO: {solidState: {slow: 61s}}",
        &[
            "diskIO.solidState.slow",
            r#""61s""#,
            "at most 1m",
            "slow: 20ms",
        ],
    ),
    (
        "diskIO: {rotational: {slow: 1h}}",
        &[
            "diskIO.rotational.slow",
            r#""1h""#,
            "at most 1m",
            "slow: 100ms",
        ],
    ),
    (
        "diskIO: {devices: {sda: {slow: 2m}}}",
        &[
            "diskIO.devices.sda.slow",
            r#""2m""#,
            "at most 1m",
            "sda: {slow: 50ms}",
        ],
    ),
    (
        "diskIO: {raisesDiskPressure: maybe}",
        &[
            "diskIO.raisesDiskPressure",
            r#""maybe""#,
            "raisesDiskPressure: false",
        ],
    ),
];
