//! Disk latency, as counted in the kernel.
//!
//! Encoded without the library, which does not accept the counts of another histogram.

use std::fmt::{self, Write};

use nodepulse_core::units::latency::{DiskLatency, OperationLatency, bucket_end};

use super::declare::MetricDescription;
use super::{NODE_LABEL, PREFIX};

/// Name without the prefix.
const NAME: &str = "disk_latency_seconds";
const HELP: &str = "Latency of reads and writes; short requests are sampled";

pub(super) fn description() -> MetricDescription {
    MetricDescription {
        name: format!("{PREFIX}_{NAME}"),
        kind: "histogram",
        labels: vec!["device", "operation"],
        help: HELP,
    }
}

pub(super) fn encode(
    to: &mut impl Write,
    prefix: &str,
    node: &str,
    disks: &[(&str, &DiskLatency)],
) -> fmt::Result {
    if disks.is_empty() {
        return Ok(());
    }
    writeln!(to, "# HELP {prefix}_{NAME} {HELP}.")?;
    writeln!(to, "# TYPE {prefix}_{NAME} histogram")?;
    writeln!(to, "# UNIT {prefix}_{NAME} seconds")?;
    for (device, latency) in disks {
        for (operation, latency) in [("read", latency.reads), ("write", latency.writes)] {
            let mut labels = String::new();
            write!(labels, "{NODE_LABEL}=\"")?;
            escaped(&mut labels, node)?;
            labels.write_str("\",device=\"")?;
            escaped(&mut labels, device)?;
            write!(labels, "\",operation=\"{operation}\"")?;
            histogram(to, prefix, &labels, &latency)?;
        }
    }
    Ok(())
}

fn histogram(
    to: &mut impl Write,
    prefix: &str,
    labels: &str,
    latency: &OperationLatency,
) -> fmt::Result {
    let mut count = 0_u64;
    for (bucket, requests) in latency.buckets.iter().enumerate() {
        count = count.saturating_add(*requests);
        write!(to, "{prefix}_{NAME}_bucket{{{labels},le=\"")?;
        match bucket_end(bucket) {
            Some(end) => write!(to, "{}.{:09}", end.as_secs(), end.subsec_nanos())?,
            None => to.write_str("+Inf")?,
        }
        writeln!(to, "\"}} {count}")?;
    }
    let (seconds, nanos) = (latency.sum.as_secs(), latency.sum.subsec_nanos());
    writeln!(to, "{prefix}_{NAME}_sum{{{labels}}} {seconds}.{nanos:09}")?;
    writeln!(to, "{prefix}_{NAME}_count{{{labels}}} {count}")
}

/// Writes a label value in the text format.
fn escaped(to: &mut impl Write, text: &str) -> fmt::Result {
    for c in text.chars() {
        match c {
            '\\' => to.write_str("\\\\")?,
            '"' => to.write_str("\\\"")?,
            '\n' => to.write_str("\\n")?,
            c => to.write_char(c)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn buckets_are_cumulative_and_have_a_sum_and_a_count() {
        let mut latency = DiskLatency::default();
        let writes = &mut latency.writes;
        (writes.buckets[0], writes.buckets[9], writes.buckets[15]) = (1, 2, 4);
        writes.sum = Duration::from_millis(8070);
        let mut text = String::new();
        encode(&mut text, "x", "worker-1", &[("s\"d\\a\n", &latency)]).unwrap();

        let lines: Vec<&str> = text.lines().collect();
        let labels = r#"node="worker-1",device="s\"d\\a\n",operation="write""#;
        let bucket = |le: &str, count| {
            format!("x_disk_latency_seconds_bucket{{{labels},le=\"{le}\"}} {count}")
        };
        let of_writes = 3 + 18;
        assert!(lines[of_writes - 1].contains("operation=\"read\"}"));
        assert_eq!(lines[of_writes], bucket("0.000065536", 1));
        assert_eq!(lines[of_writes + 8], bucket("0.016777216", 1));
        assert_eq!(lines[of_writes + 9], bucket("0.033554432", 3));
        assert_eq!(lines[of_writes + 14], bucket("1.073741824", 3));
        assert_eq!(lines[of_writes + 15], bucket("+Inf", 7));
        let total = |name, value| format!("x_disk_latency_seconds_{name}{{{labels}}} {value}");
        assert_eq!(lines[of_writes + 16], total("sum", "8.070000000"));
        assert_eq!(lines[of_writes + 17], total("count", "7"));
        assert_eq!(lines.len(), of_writes + 18);
    }

    #[test]
    fn without_disks_nothing_is_encoded() {
        let mut text = String::new();
        encode(&mut text, "x", "worker-1", &[]).unwrap();
        assert_eq!(text, "");
    }
}
