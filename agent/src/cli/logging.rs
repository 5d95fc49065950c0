//! Log level and format, which can change at run time.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use super::line_limit::LineLimit;
use super::log::LogSender;
use crate::app::SetLogging;
use crate::config::{LogFormat, LogLevel};

type FormatLayer = Box<dyn Layer<Registry> + Send + Sync>;

/// Starts logging to `lines`; returns a function that changes level and format.
pub fn start(level: LogLevel, format: LogFormat, lines: LogSender) -> SetLogging {
    let (layer, formats) = reload::Layer::new(formatted(format, lines.clone()));
    let (filter, levels) = reload::Layer::new(filter(level));
    tracing_subscriber::registry()
        .with(layer)
        .with(filter)
        .with(LineLimit::default())
        .init();
    Box::new(move |level, format| {
        // Fails only after the subscriber was dropped.
        let _dropped: Result<(), reload::Error> = levels.reload(self::filter(level));
        let _dropped: Result<(), reload::Error> = formats.reload(formatted(format, lines.clone()));
    })
}

fn formatted(format: LogFormat, lines: LogSender) -> FormatLayer {
    let layer = fmt::layer().with_writer(lines);
    match format {
        LogFormat::Text => Box::new(layer.with_ansi(false)),
        LogFormat::Json => Box::new(layer.json()),
    }
}

/// Libraries log at most at level `info`: below that, `h2` has several lines for each frame.
fn filter(level: LogLevel) -> Targets {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(level.min(LevelFilter::INFO))
        .with_target("nodepulse", level)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_do_not_log_details() {
        use tracing::Level;
        let table = [
            (LogLevel::Trace, "nodepulse_kube", Level::TRACE, true),
            (LogLevel::Debug, "nodepulse_kube", Level::DEBUG, true),
            (
                LogLevel::Debug,
                "h2::codec::framed_read",
                Level::DEBUG,
                false,
            ),
            (LogLevel::Trace, "hyper_util::client", Level::DEBUG, false),
            (LogLevel::Debug, "rustls::client", Level::WARN, true),
            (LogLevel::Error, "h2", Level::INFO, false),
        ];
        for (level, target, of, expected) in table {
            let got = filter(level).would_enable(target, &of);
            assert_eq!(got, expected, "{target} {of} at {level:?}");
        }
    }
}
