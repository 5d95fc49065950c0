//! What is logged and how, which can change while the agent runs.

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use super::log::Lines;
use crate::app::SetLogging;
use crate::config::{LogFormat, LogLevel};

type Format = Box<dyn Layer<Registry> + Send + Sync>;

/// Begins to log to `lines`; gives what changes it.
pub fn start(level: LogLevel, format: LogFormat, lines: Lines) -> SetLogging {
    let (layer, formats) = reload::Layer::new(formatted(format, lines.clone()));
    let (filter, levels) = reload::Layer::new(filter(level));
    tracing_subscriber::registry()
        .with(layer)
        .with(filter)
        .init();
    Box::new(move |level, format| {
        // Fails only where the subscriber is gone, and then nothing is logged at all.
        let _gone: Result<(), reload::Error> = levels.reload(self::filter(level));
        let _gone: Result<(), reload::Error> = formats.reload(formatted(format, lines.clone()));
    })
}

fn formatted(format: LogFormat, lines: Lines) -> Format {
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
