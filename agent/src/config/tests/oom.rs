//! Invalid settings of OOM kills, of the file system of images, and of taints of stalls.

/// Rows as in [`super::table::BAD`].
pub(super) const BAD: &[(&str, &[&str])] = &[
    (
        "oom: {earlyWarning: true}",
        &[
            "oom.earlyWarning in",
            "line 3, was removed",
            "container_memory_working_set_bytes",
        ],
    ),
    (
        "oom: {nodeEvents: never}",
        &[
            "oom.nodeEvents",
            r#""never""#,
            "auto, true, false",
            "nodeEvents: false",
        ],
    ),
    (
        "oom: {frequent: {pods: 0}}",
        &["oom.frequent.pods", r#""0""#, "from 1 to 1000", "pods: 3"],
    ),
    (
        "oom: {frequent: {pods: 6}}",
        &[
            "oom.frequent.pods",
            r#""6""#,
            "oom.frequent.incidents, which is 5",
            "pods: 3",
        ],
    ),
    (
        "oom: {frequent: {window: 0s}}",
        &[
            "oom.frequent.window",
            r#""0s""#,
            "from 1s to 24h",
            "window: 10m",
        ],
    ),
    (
        "oom: {frequent: {window: 25h}}",
        &["oom.frequent.window", r#""25h""#, "from 1s to 24h"],
    ),
    (
        "oom: {frequent: {window: 10}}",
        &["oom.frequent.window", r#""10""#, "is not a duration"],
    ),
    (
        "imagefsDirectory: images",
        &[
            "imagefsDirectory",
            r#""images""#,
            "absolute path",
            "imagefsDirectory: /var/lib/",
        ],
    ),
    (
        "serve: {perPodMetrics: maybe}",
        &["serve.perPodMetrics", r#""maybe""#, "perPodMetrics: false"],
    ),
    // On a condition that is off, too.
    (
        "taints: {DiskStallPressure: NoExecute}",
        &[
            "taints.DiskStallPressure",
            r#""NoExecute""#,
            "evicts pods",
            "example: taints: {",
        ],
    ),
    (
        "evictionHard: {imagefs.available: 101%}",
        &[
            "evictionHard.imagefs.available",
            r#""101%""#,
            "between 0% and 100%",
            "example: ",
        ],
    ),
    (
        "evictionHard: {imagefs.inodesFree: -1}",
        &[
            "evictionHard.imagefs.inodesFree",
            r#""-1""#,
            "negative",
            "example: ",
        ],
    ),
];
