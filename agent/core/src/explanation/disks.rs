//! Explains the conditions of disks.

use std::time::Duration;

use super::{
    ComputedLimit, ExplainedDisk, ExplainedIoUser, ExplainedIoWait, ExplainedIoWaiter,
    RequestLatency, SlowWindows,
};
use crate::pressure::disks::{DiskCounts, DiskDetails, ERRORS, SlowRequests};
use crate::pressure::io_wait::{IoUser, IoWait, IoWaiter};
use crate::reading::{DiskRole, Resource};
use crate::units::latency::{MEDIAN, Median, quantile, total};
use crate::units::rate::Rate;

/// Explains the disks, as far as they matter to the condition of `resource`; `None` if no condition
/// of disks is of this resource.
pub(super) fn explain(resource: Resource, disks: &[DiskDetails]) -> Option<Vec<ExplainedDisk>> {
    let explain = match resource {
        Resource::DiskIo => latency,
        Resource::DiskFailing => failures,
        _ => return None,
    };
    let explained = disks.iter().map(|disk| ExplainedDisk {
        name: disk.name.clone(),
        role: match disk.role {
            DiskRole::Node => "node",
            DiskRole::Volume => "volume",
        }
        .to_owned(),
        health: disk.health.as_str().to_owned(),
        ..explain(disk)
    });
    Some(explained.collect())
}

fn latency(disk: &DiskDetails) -> ExplainedDisk {
    let limit = disk.limit;
    let mut lines = vec![match &disk.slow {
        Some(slow) => slow.describe(limit.limit),
        None => "no slow windows".to_owned(),
    }];
    lines.push(format!("limit {limit}"));
    let since_watched = disk.counts.map(|counts| {
        let (requests, median) = (total(&counts.judged), quantile(&counts.judged, MEDIAN));
        let shown = median.map(|median| format!(", median {}", Median(median)));
        lines.push(format!(
            "{requests} latency-sensitive requests since it is watched{}",
            shown.unwrap_or_default()
        ));
        RequestLatency {
            requests,
            median_seconds: median.map(|median| median.as_secs_f64()),
        }
    });
    let io_wait = disk.io_wait.as_ref().map(|(read, ago)| {
        let text = read.to_string();
        if !text.is_empty() {
            lines.push(format!("{text} ({} s ago)", ago.as_secs()));
        }
        io_wait(read, ago.as_secs())
    });
    ExplainedDisk {
        limit_seconds: Some(limit.limit.as_secs_f64()),
        limit_computed: limit.computed.map(|(fixed, auto)| ComputedLimit {
            least_seconds: fixed.as_secs_f64(),
            percentile_seconds: auto.percentile.map(|usual| usual.as_secs_f64()),
            requests: auto.requests,
            hours: auto.hours,
        }),
        slow_windows: disk.slow.map(|slow| slow_windows(slow, limit.limit)),
        since_watched,
        io_wait,
        lines,
        ..ExplainedDisk::default()
    }
}

fn slow_windows(slow: SlowRequests, limit: Duration) -> SlowWindows {
    SlowWindows {
        judged: slow.all.judged.into(),
        slow: slow.all.slow.into(),
        median_seconds: slow.median(limit).map(|median| median.as_secs_f64()),
        largest_seconds: slow.all.longest.as_secs_f64(),
        bytes_per_second: slow.rate.map(|Rate(bytes)| bytes.get()),
        seconds: slow.all.length.as_secs_f64(),
        within_seconds: slow.period.as_secs_f64(),
    }
}

fn io_wait(read: &IoWait, seconds_ago: u64) -> ExplainedIoWait {
    let user = |user: &IoUser| ExplainedIoUser {
        name: user.owner.to_string(),
        read_bytes_per_second: user.read.get(),
        written_bytes_per_second: user.written.get(),
    };
    let waiter = |waiter: &IoWaiter| ExplainedIoWaiter {
        name: waiter.owner.to_string(),
        percent: waiter.share.percent(),
    };
    ExplainedIoWait {
        users: read.users.iter().map(user).collect(),
        waiters: read.waiters.iter().map(waiter).collect(),
        seconds_ago,
    }
}

fn failures(disk: &DiskDetails) -> ExplainedDisk {
    let pending = disk.pending.map(|pending| pending.as_secs_f64());
    let mut lines = vec![pending.map_or_else(
        || "no request is known to be stuck".to_owned(),
        |seconds| format!("requests in flight, and none completed for {seconds:.1} s"),
    )];
    // Errors are known only with the completion probe.
    let errors = disk.counts.map(|DiskCounts { errors, .. }| {
        let recent = disk.recent_errors;
        let or_more = if recent >= ERRORS { " or more" } else { "" };
        lines.push(format!(
            "{recent}{or_more} errors in the last minute, {errors} since it is watched"
        ));
        (recent, errors)
    });
    ExplainedDisk {
        in_flight_seconds: pending,
        errors_last_minute: errors.map(|(recent, _)| recent),
        errors_since_watched: errors.map(|(_, all)| all),
        lines,
        ..ExplainedDisk::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pods::Owner;
    use crate::pressure::disks::{AutoLimit, DiskLimit, Health, LatencySource};
    use crate::pressure::io_wait::{OthersStall, StallShare};
    use crate::reading::SlowWindow;
    use crate::units::Bytes;
    use crate::units::latency::Buckets;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn slow_disk() -> DiskDetails {
        let mut judged = Buckets::default();
        judged[3] = 1000;
        let owner = |name: &str| Owner::NamedPod {
            namespace: "shop".into(),
            name: name.into(),
            container: None,
        };
        let io_wait = IoWait {
            users: vec![IoUser {
                owner: owner("writer"),
                read: Bytes::from_bytes(0),
                written: Bytes::from_bytes(11_000_000),
            }],
            waiters: vec![IoWaiter {
                owner: owner("database"),
                share: StallShare::from_percent(61.5),
            }],
            others: OthersStall::Share(StallShare::from_percent(61.5)),
        };
        DiskDetails {
            name: "vda".to_owned(),
            role: DiskRole::Node,
            health: Health::Slow,
            limit: DiskLimit {
                limit: ms(48),
                computed: Some((
                    ms(20),
                    AutoLimit {
                        limit: ms(48),
                        percentile: Some(ms(12)),
                        requests: 90_000,
                        hours: 24,
                    },
                )),
            },
            slow: Some(SlowRequests {
                all: SlowWindow {
                    judged: 40,
                    slow: 34,
                    length: ms(15_000),
                    longest: ms(210),
                },
                median: Some(ms(64)),
                rate: Some(Rate(Bytes::from_bytes(12_000_000))),
                period: ms(15_400),
                source: LatencySource::Program,
            }),
            counts: Some(DiskCounts { judged, errors: 7 }),
            pending: Some(ms(1200)),
            recent_errors: 3,
            io_wait: Some((io_wait, ms(5000))),
        }
    }

    #[test]
    fn latency_limit_and_causes_of_a_slow_disk_are_numbers_and_text() {
        let explained = explain(Resource::DiskIo, &[slow_disk()]).unwrap();
        let expected = json!([{
            "name": "vda", "role": "node", "health": "slow",
            "limitSeconds": 0.048,
            "limitComputed": { "leastSeconds": 0.02, "percentileSeconds": 0.012, "requests": 90_000, "hours": 24 },
            "slowWindows": {
                "judged": 40, "slow": 34, "medianSeconds": 0.064, "largestSeconds": 0.21,
                "bytesPerSecond": 12_000_000, "seconds": 15.0, "withinSeconds": 15.4,
            },
            "sinceWatched": { "requests": 1000, "medianSeconds": 0.000_393_216 },
            "ioWait": {
                "users": [{
                    "name": "pod shop/writer", "readBytesPerSecond": 0,
                    "writtenBytesPerSecond": 11_000_000,
                }],
                "waiters": [{ "name": "pod shop/database", "percent": 61.5 }],
                "secondsAgo": 5,
            },
            "lines": [
                "34 of 40 latency-sensitive requests took 48 ms or longer in the last 15 s (median 64 ms, \
                 largest 210 ms), 12 MB/s",
                "limit 48 ms (auto: 4 × 12 ms, the 99.9th percentile of 90000 latency-sensitive requests, \
                 counted once an hour for the last 24 h, at least 20 ms and at most 200 ms)",
                "1000 latency-sensitive requests since it is watched, median 0.4 ms",
                "used most by pod shop/writer (11 MB/s written); waiting most: pod shop/database (62% of the \
                 time) (5 s ago)",
            ],
        }]);
        assert_eq!(json!(explained), expected);
    }

    #[test]
    fn stuck_requests_and_errors_belong_to_a_failing_disk_only() {
        let healthy = DiskDetails {
            name: "vdb".to_owned(),
            role: DiskRole::Volume,
            health: Health::Healthy,
            slow: None,
            counts: None,
            pending: None,
            recent_errors: 0,
            io_wait: None,
            ..slow_disk()
        };
        let disks = [slow_disk(), healthy];
        let lines = |resource| {
            let explained = explain(resource, &disks).unwrap_or_default();
            let lines = explained.into_iter().map(|disk| disk.lines);
            lines.collect::<Vec<_>>()
        };
        let failing = lines(Resource::DiskFailing);
        let first = vec![
            "requests in flight, and none completed for 1.2 s",
            "3 or more errors in the last minute, 7 since it is watched",
        ];
        assert_eq!(failing, [first, vec!["no request is known to be stuck"]]);
        let slow = lines(Resource::DiskIo);
        assert_eq!(slow[1][0], "no slow windows");
        assert_eq!(explain(Resource::Memory, &disks), None);
    }

    #[test]
    fn errors_are_numbers_and_text() {
        let disk = DiskDetails {
            recent_errors: 2,
            ..slow_disk()
        };
        let errors = explain(Resource::DiskFailing, &[disk]).unwrap().remove(0);
        assert_eq!(errors.in_flight_seconds, Some(1.2));
        assert_eq!(errors.errors_last_minute, Some(2));
        assert_eq!(errors.errors_since_watched, Some(7));
        let line = "2 errors in the last minute, 7 since it is watched";
        assert_eq!(errors.lines[1], line);
    }

    #[test]
    fn a_disk_that_no_cgroup_uses_or_waits_for_has_no_line_about_them() {
        let none = IoWait {
            others: OthersStall::NoPsi,
            ..IoWait::default()
        };
        let unused = DiskDetails {
            io_wait: Some((none, ms(5000))),
            ..slow_disk()
        };
        let explained = explain(Resource::DiskIo, &[unused]).unwrap().remove(0);
        assert_eq!(explained.lines.len(), 3, "{:?}", explained.lines);
        assert_eq!(explained.io_wait.unwrap().seconds_ago, 5);
    }
}
