//! Checks what an operator writes: quantities, thresholds, durations, files of settings.

use std::io;
use std::path::Path;

use nodepulse::testing::{KEYS, load};
use nodepulse::{Config, ConfigError, Overrides};
use nodepulse_core::pressure::threshold::{Threshold, ThresholdValue, parse_signal, split_list};
use nodepulse_core::units::quantity::Quantity;

use super::text::safe;

/// Maximum length of an error.
const LONGEST: usize = 4000;

/// A quantity.
///
/// # Panics
///
/// If its canonical spelling has another value, or that spelling another one. Two things are as
/// in the Kubernetes library: the binary spelling rounds a part of a byte away from zero, and where
/// it ends without a suffix it is read as a decimal one (`0.54Ti`, `593736279000`, `593736279k`).
pub fn quantity(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let Ok(quantity) = text.parse::<Quantity>() else {
        return;
    };
    let spelt = quantity.to_string();
    let again: Quantity = spelt.parse().expect("its own spelling");
    let same = again == quantity || text.ends_with('i');
    assert!(same, "{text:?} is spelt {spelt:?}");
    let respelt = again.to_string();
    let last: Quantity = respelt.parse().expect("its own spelling");
    assert_eq!((last, last.to_string()), (again, respelt), "of {text:?}");
    assert!(
        again.to_string() == spelt || text.ends_with('i'),
        "{text:?}, {spelt:?}"
    );
    assert_eq!(again.value(), quantity.value());
    let zero = quantity.saturating_sub(quantity);
    assert!(zero.is_zero() && !quantity.less(quantity).is_negative());
    assert_eq!(zero.saturating_add(quantity), quantity);
}

/// One threshold, and a list of them in the form of a flag.
///
/// # Panics
///
/// If a threshold is not between nothing and all of the capacity, or a list loses a part.
pub fn threshold(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    for separator in ['<', '='] {
        let Ok(pairs) = split_list(text, separator) else {
            continue;
        };
        for (name, value) in pairs {
            assert!(text.contains(name) && text.contains(value), "{text:?}");
            let _ = parse_signal(name);
            if let Ok(Some(threshold)) = Threshold::parse(name, value) {
                amount(threshold.value);
            }
        }
    }
    let hard = ThresholdValue::parse(text).ok().flatten();
    let reclaim = ThresholdValue::parse_reclaim(text).ok();
    hard.into_iter().chain(reclaim).for_each(amount);
}

fn amount(value: ThresholdValue) {
    for capacity in [0, 1, 1_000_000_000, 1 << 40] {
        match value {
            ThresholdValue::Quantity(n) => assert_eq!(value.amount(capacity), n),
            ThresholdValue::Capped { share, most } => {
                let least = ThresholdValue::Share(share).amount(capacity).min(most);
                assert_eq!(value.amount(capacity), least);
            }
            ThresholdValue::Share(share) => {
                assert!((0.0..=1.0).contains(&share), "{share}");
                assert!(value.amount(capacity) <= capacity, "{share} of {capacity}");
            }
        }
    }
}

/// A file of settings, and the same as a kubelet's.
///
/// # Panics
///
/// If the error is not one short line, or the printed configuration differs.
pub fn config_text(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let read = |_: &Path| Ok(text.to_owned());
    let loaded = load(&Overrides::default(), &|_| None, &read, "node");
    if let Ok(loaded) = &loaded {
        let yaml = loaded.effective.to_yaml();
        let read = |_: &Path| Ok(yaml.clone());
        let again = Config::load(&Overrides::default(), &|_| None, &read, "node");
        let again = again.unwrap_or_else(|err| panic!("{err}\n{yaml}"));
        assert_eq!(again, loaded.config, "{yaml}");
    }
    check_error(&loaded.map(|loaded| loaded.config));

    let overrides = Overrides {
        kubelet_config: Some("kubelet.yaml".into()),
        ..Overrides::default()
    };
    let read = |path: &Path| match path.to_str() {
        Some("kubelet.yaml") => Ok(text.to_owned()),
        _ => Err(io::ErrorKind::NotFound.into()),
    };
    check_error(&Config::load(&overrides, &|_| None, &read, "node"));
}

/// The value of a flag, and of its environment variable: the first byte selects the flag.
/// Durations, counts, addresses, labels, taints, reservations.
///
/// # Panics
///
/// If the error is not one short line.
pub fn flag(input: &[u8]) {
    let Some((which, Ok(text))) = input
        .split_first()
        .map(|(which, text)| (which, str::from_utf8(text)))
    else {
        return;
    };
    let mut overrides = Overrides {
        mode: Some("node".to_owned()),
        ..Overrides::default()
    };
    let key = KEYS.get(usize::from(*which) % KEYS.len());
    let field = key.and_then(|key| overrides.field(key));
    *field.expect("less than their number") = Some(text.to_owned());
    let absent = |_: &Path| Err(io::ErrorKind::NotFound.into());
    check_error(&Config::load(&overrides, &|_| None, &absent, "node"));

    let hostname = Config::load(&Overrides::default(), &|_| None, &absent, text);
    check_error(&hostname);
}

fn check_error(loaded: &Result<Config, ConfigError>) {
    if let Err(err) = loaded {
        let line = err.to_string();
        safe(&line);
        assert!(line.len() <= LONGEST, "{} bytes: {line}", line.len());
    }
}
