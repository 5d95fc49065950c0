//! Log level and format, which can change at run time.

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt, reload};

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

const fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}
