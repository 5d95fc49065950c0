//! PURE: latency histograms of disks, from the metrics of an agent.

use std::collections::BTreeMap;

use nodepulse_core::units::latency::{Buckets, bucket_end};

/// Numbers of requests since the agent began to watch a disk, by device and operation.
pub type Histograms = BTreeMap<(String, String), Buckets>;

/// Parses `OpenMetrics` text. Lines that are not understood are ignored.
pub fn parse(text: &str) -> Histograms {
    let mut histograms = Histograms::new();
    let is_bucket = |line: &&str| line.starts_with("nodepulse_disk_latency_seconds_bucket{");
    for line in text.lines().filter(is_bucket) {
        let _added = add_bucket(&mut histograms, line);
    }
    for buckets in histograms.values_mut() {
        // The counts are cumulative.
        let mut before = 0;
        for bucket in buckets {
            (before, *bucket) = (before.max(*bucket), bucket.saturating_sub(before));
        }
    }
    histograms
}

fn add_bucket(histograms: &mut Histograms, line: &str) -> Option<()> {
    let end = label(line, "le")?;
    let value = line.rsplit(' ').next()?.parse().ok()?;
    let of = (label(line, "device")?, label(line, "operation")?);
    let name = |bucket| match bucket_end(bucket) {
        Some(end) => format!("{}.{:09}", end.as_secs(), end.subsec_nanos()),
        None => "+Inf".to_owned(),
    };
    let buckets = histograms.entry(of).or_default();
    let mut numbered = buckets.iter_mut().enumerate();
    let (_, bucket) = numbered.find(|(number, _)| end == name(*number))?;
    *bucket = value;
    Some(())
}

/// Returns the value of a label. Quotes in values are escaped, so that none imitates a label.
fn label(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!("{name}=\""))?;
    let (mut chars, mut value) = (rest.chars(), String::new());
    loop {
        match chars.next()? {
            '"' => return Some(value),
            '\\' => value.extend(chars.next().map(|c| if c == 'n' { '\n' } else { c })),
            c => value.push(c),
        }
    }
}

/// Returns the requests since `before`; all requests if the agent has started since then, or did
/// not watch the disk.
pub fn since(now: &Histograms, before: &Histograms) -> Histograms {
    let mut changes = now.clone();
    for (of, change) in &mut changes {
        let before = before.get(of).copied().unwrap_or_default();
        if change
            .iter()
            .zip(&before)
            .all(|(now, before)| before <= now)
        {
            change
                .iter_mut()
                .zip(before)
                .for_each(|(now, before)| *now -= before);
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = r#"# TYPE nodepulse_disk_latency_seconds histogram
nodepulse_disk_latency_seconds_bucket{node="a",device="s\"d\\a",operation="read",le="0.000065536"} 1
nodepulse_disk_latency_seconds_bucket{node="a",device="s\"d\\a",operation="read",le="0.000131072"} 3
nodepulse_disk_latency_seconds_bucket{node="a",device="s\"d\\a",operation="read",le="+Inf"} 7
nodepulse_disk_latency_seconds_bucket{node="a",device="s\"d\\a",operation="read",le="7"} 9
"#;

    fn of(device: &str, first: u64) -> Histograms {
        let mut buckets = Buckets::default();
        buckets[0] = first;
        [((device.to_owned(), "read".to_owned()), buckets)].into()
    }

    #[test]
    fn buckets_are_counted_one_by_one() {
        let histograms = parse(TEXT);
        let read = ("s\"d\\a".to_owned(), "read".to_owned());
        let buckets = histograms.get(&read).unwrap();
        let counted: Vec<u64> = buckets.iter().copied().filter(|n| *n > 0).collect();
        assert_eq!(counted, [1, 2, 4]);
    }

    #[test]
    fn the_change_begins_again_with_the_agent() {
        let rows = [
            (of("a", 5), of("a", 3), 2),
            (of("a", 5), Histograms::new(), 5),
            (of("a", 5), of("b", 3), 5),
            (of("a", 2), of("a", 3), 2),
        ];
        for (now, before, expected) in rows {
            assert_eq!(since(&now, &before), of("a", expected));
        }
    }

    proptest! {
        #[test]
        fn no_text_is_refused(noise in "\\PC*", cut in 0..TEXT.len(), byte in any::<char>()) {
            parse(&noise);
            let mut text: String = TEXT.chars().take(cut).collect();
            text.push(byte);
            text.extend(TEXT.chars().skip(cut));
            parse(&text);
            parse(&format!("nodepulse_disk_latency_seconds_bucket{{{noise}"));
        }
    }
}
