//! Disk latency, as counted in the kernel.
//!
//! Encoded without the library, which would write a sum that the kernel does not count. Without a
//! sum the format permits no count; the last bucket has the same value.

use std::fmt::{self, Write};

use super::NODE_LABEL;

/// Name without the prefix.
pub(super) const NAME: &str = "disk_latency_seconds";

/// Upper bound of the first slot. The bound doubles with each slot; the last one is unbounded.
const FIRST_NS: u64 = 1024;

pub(super) fn encode(
    to: &mut impl Write,
    prefix: &str,
    node: &str,
    disks: &[(&str, &[u64])],
) -> fmt::Result {
    if disks.is_empty() {
        return Ok(());
    }
    writeln!(
        to,
        "# HELP {prefix}_{NAME} Latency of reads and writes; short requests are sampled."
    )?;
    writeln!(to, "# TYPE {prefix}_{NAME} histogram")?;
    writeln!(to, "# UNIT {prefix}_{NAME} seconds")?;
    for (device, slots) in disks {
        let mut sum = 0_u64;
        for (slot, count) in slots.iter().enumerate() {
            sum = sum.saturating_add(*count);
            write!(to, "{prefix}_{NAME}_bucket{{{NODE_LABEL}=\"")?;
            escaped(to, node)?;
            to.write_str("\",device=\"")?;
            escaped(to, device)?;
            if slot + 1 == slots.len() {
                writeln!(to, "\",le=\"+Inf\"}} {sum}")?;
            } else {
                let end = FIRST_NS << slot;
                let (seconds, nanos) = (end / 1_000_000_000, end % 1_000_000_000);
                writeln!(to, "\",le=\"{seconds}.{nanos:09}\"}} {sum}")?;
            }
        }
    }
    Ok(())
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
    use super::*;

    #[test]
    fn slots_become_cumulative_buckets_without_a_sum() {
        let mut slots = [0; 32];
        slots[0] = 1;
        slots[15] = 2;
        slots[31] = 4;
        let mut text = String::new();
        encode(&mut text, "x", "worker-1", &[("s\"d\\a\n", &slots)]).unwrap();

        let lines: Vec<&str> = text.lines().collect();
        let name = r#"x_disk_latency_seconds_bucket{node="worker-1",device="s\"d\\a\n",le="#;
        let bucket = |le: &str, count| format!("{name}\"{le}\"}} {count}");
        assert_eq!(lines[3], bucket("0.000001024", 1));
        assert_eq!(lines[3 + 14], bucket("0.016777216", 1));
        assert_eq!(lines[3 + 15], bucket("0.033554432", 3));
        assert_eq!(lines[3 + 30], bucket("1099.511627776", 3));
        assert_eq!(lines[3 + 31], bucket("+Inf", 7));
        assert_eq!(lines.len(), 3 + 32);
        assert!(!text.contains("_sum") && !text.contains("_count"));
    }

    #[test]
    fn without_disks_nothing_is_encoded() {
        let mut text = String::new();
        encode(&mut text, "x", "worker-1", &[]).unwrap();
        assert_eq!(text, "");
    }
}
