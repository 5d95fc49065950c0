//! Parses the OpenMetrics text format, 1.0.0, strictly: everything that the specification forbids
//! is an error here, even if every scraper accepts it.
//!
//! <https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md>

use std::collections::{BTreeMap, BTreeSet};

mod sample;

pub use sample::MetricSample;

#[derive(Debug, Default)]
pub struct Exposition {
    families: Vec<MetricFamily>,
}

/// The lines from one `# TYPE` line to the next.
#[derive(Debug)]
pub struct MetricFamily {
    /// Name without the suffixes of samples.
    pub name: String,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: String,
    help: bool,
    unit: Option<String>,
    /// In the order of the text.
    pub samples: Vec<MetricSample>,
}

impl Exposition {
    pub fn parse(text: &str) -> Result<Self, String> {
        let body = text
            .strip_suffix("# EOF\n")
            .ok_or("the text does not end with the line # EOF")?;
        let mut read = Self::default();
        for line in body.split_terminator('\n') {
            read.line(line).map_err(|why| format!("{why}: {line:?}"))?;
        }
        if !body.is_empty() && !body.ends_with('\n') {
            return Err("the last line is not ended".to_owned());
        }
        let mut names = BTreeSet::new();
        for family in &read.families {
            if !names.insert(&family.name) {
                return Err(format!("{} stands in two places", family.name));
            }
            family
                .check()
                .map_err(|why| format!("{}: {why}", family.name))?;
        }
        Ok(read)
    }

    /// Returns all families, in the order of the text.
    pub fn families(&self) -> &[MetricFamily] {
        &self.families
    }

    pub fn family(&self, name: &str) -> Option<&MetricFamily> {
        self.families.iter().find(|family| family.name == name)
    }

    /// Returns the value of a sample, by its whole name and some of its labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let all = self.families.iter().flat_map(|family| &family.samples);
        let fits = |sample: &&MetricSample| sample.name == name && sample.has(labels);
        let found: Vec<&MetricSample> = all.filter(fits).collect();
        assert!(found.len() < 2, "{name} {labels:?}: {found:?}");
        found.first().map(|sample| sample.value)
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let Some(meta) = line.strip_prefix("# ") else {
            let sample = MetricSample::parse(line)?;
            let family = self.families.last_mut().ok_or("a sample without a type")?;
            family.samples.push(sample);
            return Ok(());
        };
        let (key, rest) = meta.split_once(' ').ok_or("a comment")?;
        let (name, value) = rest.split_once(' ').ok_or("no value")?;
        sample::check_name(name)?;
        let opens = self.families.last().is_none_or(|last| last.name != name);
        if opens {
            self.families.push(MetricFamily::new(name));
        }
        let family = self.families.last_mut().ok_or("no family")?;
        if !family.samples.is_empty() {
            return Err("metadata below samples".to_owned());
        }
        match key {
            "HELP" if !family.help => {
                check_help(value)?;
                family.help = true;
            }
            "TYPE" if family.kind.is_empty() => value.clone_into(&mut family.kind),
            "UNIT" if family.unit.is_none() => family.unit = Some(value.to_owned()),
            _ => return Err("unknown, or there twice".to_owned()),
        }
        Ok(())
    }
}

fn check_help(text: &str) -> Result<(), String> {
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c == '\\' && !matches!(rest.next(), Some('\\' | 'n' | '"')) {
            return Err("a lone backslash".to_owned());
        }
    }
    Ok(())
}

impl MetricFamily {
    fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: String::new(),
            help: false,
            unit: None,
            samples: Vec::new(),
        }
    }

    /// Returns whether it has been updated: an info exists, any other value is not zero.
    pub fn moved(&self) -> bool {
        self.samples.iter().any(|sample| sample.value != 0.0)
    }

    fn check(&self) -> Result<(), String> {
        if !self.help || self.samples.is_empty() {
            return Err("no help, or no samples".to_owned());
        }
        if let Some(unit) = &self.unit
            && !self.name.ends_with(&format!("_{unit}"))
        {
            return Err(format!("does not end with its unit {unit}"));
        }
        let mut seen = BTreeSet::new();
        for sample in &self.samples {
            let suffix = sample.name.strip_prefix(&self.name);
            let suffix = suffix.ok_or_else(|| format!("contains {}", sample.name))?;
            if !self.suffixes()?.contains(&suffix) {
                return Err(format!("is a {} and contains {}", self.kind, sample.name));
            }
            if !seen.insert((&sample.name, &sample.labels)) {
                return Err(format!("contains twice {sample:?}"));
            }
            self.check_value(suffix, sample)?;
        }
        if self.kind == "histogram" {
            self.check_buckets()?;
        }
        Ok(())
    }

    fn suffixes(&self) -> Result<&'static [&'static str], String> {
        match self.kind.as_str() {
            "counter" => Ok(&["_total", "_created"]),
            "gauge" => Ok(&[""]),
            "histogram" => Ok(&["_bucket", "_sum", "_count", "_created"]),
            "info" => Ok(&["_info"]),
            other => Err(format!("is of type {other:?}")),
        }
    }

    fn check_value(&self, suffix: &str, sample: &MetricSample) -> Result<(), String> {
        let value = sample.value;
        let whole = value.fract() == 0.0;
        let good = match suffix {
            "_info" => (value - 1.0).abs() < f64::EPSILON,
            "_total" | "_sum" => value.is_finite() && value >= 0.0,
            "_bucket" | "_count" => whole && value >= 0.0,
            _ => !value.is_nan(),
        };
        let bucket = sample.labels.contains_key("le");
        if bucket != (suffix == "_bucket") || !good {
            return Err(format!("contains {sample:?}"));
        }
        Ok(())
    }

    /// Checks histograms: bounds increase, counts never decrease, the last bucket is open, and a
    /// sum has a count, which is that of the last bucket.
    fn check_buckets(&self) -> Result<(), String> {
        let mut points: BTreeMap<_, Vec<&MetricSample>> = BTreeMap::new();
        for sample in &self.samples {
            let mut labels = sample.labels.clone();
            labels.remove("le");
            points.entry(labels).or_default().push(sample);
        }
        for (labels, samples) in points {
            let of = |suffix: &str| {
                let name = format!("{}_{suffix}", self.name);
                let fits = samples.iter().filter(move |sample| sample.name == name);
                fits.copied().collect::<Vec<_>>()
            };
            let mut last = (f64::NEG_INFINITY, 0.0);
            for bucket in of("bucket") {
                let le = sample::number(&bucket.labels["le"])?;
                if le <= last.0 || bucket.value < last.1 {
                    return Err(format!("{bucket:?} does not follow {last:?}"));
                }
                last = (le, bucket.value);
            }
            let count = of("count").first().map(|sample| sample.value);
            if last.0 != f64::INFINITY {
                return Err(format!("{labels:?} has no open bucket"));
            }
            if count.is_some() == of("sum").is_empty() || count.is_some_and(|n| n != last.1) {
                return Err(format!("{labels:?}: sum and count do not fit"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# HELP a Text \\\\ with \\n.\n# TYPE a counter\na_total{x=\"1\"} 2\n\
        a_total{x=\"q\\\"\\\\\\n\"} 0\n# HELP b_seconds B.\n# TYPE b_seconds histogram\n\
        # UNIT b_seconds seconds\nb_seconds_bucket{le=\"0.5\"} 1\nb_seconds_bucket{le=\"+Inf\"} 3\n\
        # HELP c C.\n# TYPE c info\nc_info{v=\"1\"} 1\n# HELP d D.\n# TYPE d gauge\nd -1.5e3\n# EOF\n";

    #[test]
    fn valid_openmetrics_is_parsed() {
        let read = Exposition::parse(GOOD).unwrap();
        assert_eq!(read.value("a_total", &[("x", "1")]), Some(2.0));
        assert_eq!(read.value("a_total", &[("x", "q\"\\\n")]), Some(0.0));
        assert_eq!(read.value("d", &[]), Some(-1500.0));
        assert_eq!(read.value("e", &[]), None);
        assert!(read.family("c").unwrap().moved());
    }

    #[test]
    fn forbidden_operations_are_denied() {
        // text of the valid exposition, its replacement
        let rows = [
            ("# EOF\n", ""),
            ("# EOF\n", "# EOF\n\n"),
            ("# EOF\n", "# EOF"),
            ("# TYPE d gauge", "# TYPE d number"),
            ("# TYPE d gauge\n", ""),
            ("# HELP d D.\n", ""),
            ("# HELP d D.", "# HELP d D\\x"),
            ("# HELP d D.", "\n# HELP d D."),
            ("# HELP d D.", "# a comment here"),
            ("# HELP d D.\n", "# HELP d D.\n# HELP d D.\n"),
            ("# HELP d D.\n# TYPE d", "# HELP a A.\n# TYPE a"),
            ("d -1.5e3\n", ""),
            ("d -1.5e3", "d  -1.5e3"),
            ("d -1.5e3", "d many"),
            ("d -1.5e3", "d_total 1"),
            ("d -1.5e3", "d 1\nd 2"),
            ("d -1.5e3", "e 1"),
            ("d -1.5e3", "d{le=\"1\"} 1"),
            ("c_info{v=\"1\"} 1", "c_info{v=\"1\"} 2"),
            ("a_total{x=\"1\"} 2", "a{x=\"1\"} 2"),
            ("a_total{x=\"1\"} 2", "a_total{x=\"1\"} -2"),
            ("a_total{x=\"1\"} 2", "a_total{x=\"1\",} 2"),
            ("a_total{x=\"1\"} 2", "a_total{x=\"1\",x=\"2\"} 2"),
            ("a_total{x=\"1\"} 2", "a_total{1x=\"1\"} 2"),
            ("a_total{x=\"1\"} 2", "a_total{x=1} 2"),
            ("a_total{x=\"1\"} 2", "a_total{x=\"\\t\"} 2"),
            ("# UNIT b_seconds seconds", "# UNIT b_seconds bytes"),
            (
                "b_seconds_bucket{le=\"0.5\"} 1",
                "b_seconds_bucket{le=\"0.5\"} 4",
            ),
            (
                "b_seconds_bucket{le=\"0.5\"} 1",
                "b_seconds_bucket{le=\"0.5\"} 0.5",
            ),
            ("b_seconds_bucket{le=\"+Inf\"} 3\n", ""),
            (
                "b_seconds_bucket{le=\"+Inf\"} 3",
                "b_seconds_bucket{le=\"+Inf\"} 3\nb_seconds_sum 1",
            ),
            (
                "b_seconds_bucket{le=\"+Inf\"} 3",
                "b_seconds_bucket{le=\"+Inf\"} 3\nb_seconds_sum 1\nb_seconds_count 2",
            ),
        ];
        for (good, bad) in rows {
            assert!(GOOD.contains(good), "{good:?}");
            let read = Exposition::parse(&GOOD.replacen(good, bad, 1));
            assert!(read.is_err(), "{bad:?} for {good:?}");
        }
    }
}
