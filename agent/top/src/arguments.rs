//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use nodepulse_core::units::duration;

const SOCKET: &str = "/run/nodepulse/nodepulse.sock";
const HISTORY: &str = "/var/lib/nodepulse/history";

const KEYS: &str = "\
Keys: q, Esc or Ctrl-C to end; Up, Down, PgUp and PgDn to scroll the incidents.

Exit status: 0 ended by a key or SIGTERM; 1 failure, or with --once no answer of
the agent; 2 wrong usage.";

/// Live view of this machine, from its nodepulse agent
#[derive(Debug, Parser)]
#[command(version, after_help = KEYS, max_term_width = 80)]
pub struct Arguments {
    /// Control socket of the agent
    #[arg(long, value_name = "PATH", default_value = SOCKET)]
    pub socket: PathBuf,
    /// Directory of the history
    #[arg(long, value_name = "DIR", default_value = HISTORY)]
    pub history_directory: PathBuf,
    /// Time between two readings, at least 500ms
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    pub interval: Duration,
    /// Prints one frame as text, of the terminal's size or 80x24
    #[arg(long)]
    pub once: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration::parse(text);
    let interval = interval.map_err(|why| format!("{text:?} {why}; examples are 500ms and 5s"))?;
    let limits = Duration::from_millis(500)..=Duration::from_hours(1);
    let outside = || format!("{text:?} is not from 500ms to 1h; an example is 5s");
    limits
        .contains(&interval)
        .then_some(interval)
        .ok_or_else(outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_limits() {
        for (text, expected) in [
            ("500ms", true),
            ("1h", true),
            ("499ms", false),
            ("2h", false),
            ("2", false),
        ] {
            assert_eq!(interval(text).is_ok(), expected, "{text}");
        }
    }
}
