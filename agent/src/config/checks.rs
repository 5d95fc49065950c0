//! One check per kind of value. Each parses a text, or returns its fault.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use http::Uri;
use nodepulse_core::settings::SlowLimit;
use nodepulse_core::units::duration;
use nodepulse_core::units::quantity::Quantity;

use super::WebhookConfig;
use super::choices::{RuntimeEndpoint, names};
use super::nearest::nearest;

/// Parses the name of one of a closed set of values.
pub(super) fn one_of<N: ValueEnum + Into<T>, T>(text: &str) -> Result<T, String> {
    let name = N::from_str(text, false).map_err(|_| is_not_one_of(&names::<N>()))?;
    Ok(name.into())
}

/// Like [`one_of`], but an error suggests the nearest value.
pub(super) fn nearest_of<T: ValueEnum>(text: &str) -> Result<T, String> {
    T::from_str(text, false).map_err(|_| suggestion(text, &names::<T>()))
}

/// Returns an error that suggests the nearest of the valid values.
pub(super) fn suggestion(text: &str, valid: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = valid.iter().map(AsRef::as_ref).collect();
    let why = is_not_one_of(&names);
    format!("{why}; the nearest is {}", nearest(text, &names))
}

fn is_not_one_of(valid: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = valid.iter().map(AsRef::as_ref).collect();
    format!("is not one of {}", names.join(", "))
}

/// Parses `auto`, `none`, or the path of a UNIX socket after `unix://`, as the kubelet has it.
pub(super) fn runtime_endpoint(text: &str) -> Result<RuntimeEndpoint, String> {
    match text {
        "auto" => Ok(RuntimeEndpoint::Auto),
        "none" => Ok(RuntimeEndpoint::None),
        _ => {
            let path = text.strip_prefix("unix://").map(Path::new);
            let socket = path.filter(|path| path.is_absolute() && path.file_name().is_some());
            let socket = socket.ok_or("is not auto, none, or unix:// and an absolute path")?;
            let length = socket.as_os_str().len();
            if length > MAX_SOCKET_PATH {
                return Err(format!(
                    "has a path of {length} bytes; a UNIX socket has at most {MAX_SOCKET_PATH}"
                ));
            }
            Ok(RuntimeEndpoint::Socket(socket.to_owned()))
        }
    }
}

/// `sun_path` in `include/uapi/linux/un.h`, without the final zero.
const MAX_SOCKET_PATH: usize = 107;

/// Parses the number of images to report; `None` for -1, which means all.
pub(super) fn max_images(text: &str) -> Result<Option<usize>, String> {
    match text.parse::<i32>() {
        Ok(-1) => Ok(None),
        Ok(number) if number >= 0 => Ok(usize::try_from(number).ok()),
        Ok(_) | Err(_) => Err(format!("is not an integer from -1 to {MAX_COUNT}")),
    }
}

/// Accepts any text.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a check")]
pub(super) fn any(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

pub(super) fn boolean(text: &str) -> Result<bool, String> {
    text.parse()
        .map_err(|_| "is neither true nor false".to_owned())
}

/// The greatest [`count`]: the API server and the kubelet use a signed 32-bit integer.
pub(super) const MAX_COUNT: u32 = i32::MAX.unsigned_abs();

/// Parses an integer; `None` for zero, which the kubelet treats as "unset".
pub(super) fn count(text: &str) -> Result<Option<u32>, String> {
    match text.parse() {
        Ok(0) => Ok(None),
        Ok(n) if n <= MAX_COUNT => Ok(Some(n)),
        Ok(_) | Err(_) => Err(format!("is not an integer from 0 to {MAX_COUNT}")),
    }
}

/// The number of CPUs in a list such as `0-3,8`; `None` for an empty one, which means "unset".
pub(super) fn cpus(text: &str) -> Result<Option<u64>, String> {
    // More than any kernel supports (`CONFIG_NR_CPUS`).
    const MAX: usize = 1 << 16;

    let number = |text: &str| text.trim().parse().ok().filter(|n| *n < MAX);
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (number(first)?, number(last)?);
        (first <= last).then_some(first..=last)
    };
    if text.trim().is_empty() {
        return Ok(None);
    }
    let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
    let cpus: BTreeSet<usize> = ranges
        .ok_or_else(|| format!("is not a list of CPUs below {MAX}, each a number or first-last"))?
        .into_iter()
        .flatten()
        .collect();
    Ok(u64::try_from(cpus.len()).ok())
}

/// Parses a port; `None` for 0.
pub(super) fn port(text: &str) -> Result<Option<u16>, String> {
    let port: Result<u16, _> = text.parse();
    let port = port.map_err(|_| "is not a port from 0 to 65535".to_owned())?;
    Ok((port != 0).then_some(port))
}

/// The greatest [`queue`].
pub(super) const MAX_QUEUE: u32 = 10_000;

/// Parses the capacity of a queue of Events, which take up to 2 KiB each.
pub(super) fn queue(text: &str) -> Result<usize, String> {
    from_one_to(MAX_QUEUE, text)
}

/// The greatest [`frequency`]: the number of incidents, or pods, that are remembered.
pub(super) const MAX_FREQUENCY: u32 = 1_000;

/// Parses the number of incidents, or pods, that counts as frequent.
pub(super) fn frequency(text: &str) -> Result<usize, String> {
    from_one_to(MAX_FREQUENCY, text)
}

fn from_one_to(max: u32, text: &str) -> Result<usize, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (1..=max).contains(number));
    number
        .and_then(|number| usize::try_from(number).ok())
        .ok_or_else(|| format!("is not an integer from 1 to {max}"))
}

/// Parses a duration; `None` for zero, which the kubelet treats as "unset".
pub(super) fn period(text: &str) -> Result<Option<Duration>, String> {
    duration::parse(text).map(|period| (!period.is_zero()).then_some(period))
}

/// Parses the interval of work without a cause; `None` for zero, as in [`period`].
pub(super) fn interval(text: &str) -> Result<Option<Duration>, String> {
    match period(text)? {
        Some(period) if period < Duration::from_secs(1) => {
            Err("must be at least 1s, because each time wakes the agent".to_owned())
        }
        period => Ok(period),
    }
}

/// Parses the time for which a disk must be slow: at least one window of the kernel program.
pub(super) fn slow_for(text: &str) -> Result<Duration, String> {
    let why = "must be from 1s to 10m, because the latency of a disk is judged once a second";
    between([Duration::from_secs(1), Duration::from_mins(10)], why, text)
}

/// Parses the time after which a disk without a completion is stalled.
pub(super) fn stalled_after(text: &str) -> Result<Duration, String> {
    let why = "must be from 2s to 10m, because healthy disks pause for up to a second";
    between([Duration::from_secs(2), Duration::from_mins(10)], why, text)
}

/// Parses the interval over which the latency of a disk is judged.
pub(super) fn window(text: &str) -> Result<Duration, String> {
    let why =
        "must be from 1s to 1m, because a healthy disk needs up to a second for five requests";
    between([Duration::from_secs(1), Duration::from_mins(1)], why, text)
}

/// Parses the time within which OOM incidents are frequent.
pub(super) fn frequent_window(text: &str) -> Result<Duration, String> {
    let why =
        "must be from 1s to 24h, because incidents of earlier days do not show how the node is now";
    between(
        [Duration::from_secs(1), Duration::from_hours(24)],
        why,
        text,
    )
}

fn between([min, max]: [Duration; 2], why: &str, text: &str) -> Result<Duration, String> {
    let duration = duration::parse(text)?;
    let valid = (min..=max).contains(&duration);
    valid.then_some(duration).ok_or_else(|| why.to_owned())
}

/// Parses `auto`, or a duration above zero.
pub(super) fn slow_limit(text: &str) -> Result<SlowLimit, String> {
    if text == "auto" {
        return Ok(SlowLimit::Auto);
    }
    let limit = period(text)?.ok_or("must be greater than zero")?;
    let valid = limit <= Duration::from_mins(1);
    let why = "must be at most 1m, because only a disk that does not respond needs longer";
    valid
        .then_some(SlowLimit::Fixed(limit))
        .ok_or_else(|| why.to_owned())
}

/// Parses a percentage of time above zero, such as `40%`.
pub(super) fn percent(text: &str) -> Result<f32, String> {
    let number = text.strip_suffix('%').and_then(|n| n.trim().parse().ok());
    number
        .filter(|percent| *percent > 0.0 && *percent <= 100.0)
        .ok_or_else(|| "is not a percentage above 0% and up to 100%".to_owned())
}

/// Parses an absolute path without `..`.
pub(super) fn absolute(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if !path.is_absolute() {
        return Err("is not an absolute path".to_owned());
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return Err("must not contain `..`".to_owned());
    }
    Ok(path)
}

/// Parses an absolute path; `None` for `off`.
pub(super) fn directory_or_off(text: &str) -> Result<Option<PathBuf>, String> {
    if text == "off" {
        return Ok(None);
    }
    absolute(text).map(Some)
}

/// Accepts HTTP and HTTPS without credentials, which a URL would show in log lines.
pub(super) fn url(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|err| format!("is no URL: {err}"))?;
    if !matches!(url.scheme_str(), Some("http" | "https")) {
        return Err("does not begin with http:// or https://".to_owned());
    }
    if url
        .authority()
        .is_none_or(|authority| authority.as_str().contains('@'))
    {
        return Err("contains a user, whose credentials belong in a file with headers".to_owned());
    }
    Ok(url)
}

/// Parses `URL kinds=KIND+KIND headersFile=FILE`, of which only the URL is required.
pub(super) fn webhook<'a>(text: &'a str) -> Result<WebhookConfig, String> {
    let split = |text: &'a str, word| match text.split_once(word) {
        Some((text, value)) => (text, Some(value)),
        None => (text, None),
    };
    let (text, file) = split(text, " headersFile=");
    let (text, kinds) = split(text, " kinds=");
    let kind = |kind: &str| {
        let kind = nearest_of(kind);
        kind.map_err(|why| format!("has a kind that {why}"))
    };
    let kinds = kinds.into_iter().flat_map(|kinds| kinds.split('+'));
    let headers_file = file.map(absolute).transpose();
    Ok(WebhookConfig {
        url: url(text)?,
        headers_file: headers_file.map_err(|why| format!("has a headersFile that {why}"))?,
        kinds: kinds.map(kind).collect::<Result<_, _>>()?,
    })
}

/// Accepts any path that is not empty.
pub(super) fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("is empty".to_owned());
    }
    Ok(PathBuf::from(text))
}

/// Parses one address, or one of each family with a comma. An unspecified one must be alone.
pub(super) fn node_ips(text: &str) -> Result<Vec<IpAddr>, String> {
    let ips: Vec<IpAddr> = text
        .split(',')
        .map(|part| part.trim().parse())
        .collect::<Result<_, _>>()
        .map_err(|_| "is not an IP address or two separated by a comma".to_owned())?;
    match ips.as_slice() {
        [one, other] if one.is_ipv4() == other.is_ipv4() => {
            Err("contains two addresses of one family".to_owned())
        }
        [one, other] if one.is_unspecified() || other.is_unspecified() => {
            Err("contains an unspecified address and another one".to_owned())
        }
        [_] | [_, _] => Ok(ips),
        _ => Err("contains more than two addresses".to_owned()),
    }
}

/// Parses an address and port to listen on; `None` for `off`. Port 0 selects any free port.
///
/// IPv6 brackets are optional, because a manifest can only write `$(POD_IP):20260`.
pub(super) fn listen(text: &str) -> Result<Option<SocketAddr>, String> {
    if text == "off" {
        return Ok(None);
    }
    let without_brackets = || {
        let (ip, port) = text.rsplit_once(':')?;
        Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?))
    };
    let address = text.parse().ok().or_else(without_brackets);
    address
        .map(Some)
        .ok_or_else(|| "is neither an IP address with a port nor off".to_owned())
}

/// Parses a quantity that is not negative.
pub(super) fn reservation(text: &str) -> Result<Quantity, String> {
    let quantity: Quantity = text.parse().map_err(|err| format!("{err}"))?;
    if quantity.is_negative() {
        return Err("must not be negative".to_owned());
    }
    Ok(quantity)
}

/// Parses `v1.33.0` or `1.33.0`; the result has the `v`.
pub(super) fn version(text: &str) -> Result<String, String> {
    let numbers = text.strip_prefix('v').unwrap_or(text);
    let is_number = |part: &str| {
        let short = !part.is_empty() && part.len() <= 9;
        let leading_zero = part.len() > 1 && part.starts_with('0');
        short && !leading_zero && part.bytes().all(|b| b.is_ascii_digit())
    };
    let parts: Vec<&str> = numbers.split('.').collect();
    if parts.len() == 3 && parts.iter().all(|part| is_number(part)) {
        Ok(format!("v{numbers}"))
    } else {
        Err("is not a version of three numbers".to_owned())
    }
}

/// Checks the name of a whole disk as in `/sys/block`.
pub(super) fn device(name: &str) -> Result<(), String> {
    // The kernel's DISK_NAME_LEN without the final NUL.
    const LONGEST: usize = 31;

    let is_ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '!' | '.' | ':');
    if name.is_empty() || name.len() > LONGEST || !name.chars().all(is_ok) {
        return Err("has a key that is not a disk name as in /sys/block".to_owned());
    }
    Ok(())
}
