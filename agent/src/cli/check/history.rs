//! Where incidents are recorded.

use nodepulse_linux::store::write_ahead::is_in_memory;

use super::report::Item;
use crate::config::{Config, key};

pub(super) fn recording(config: &Config) -> Item {
    let state = &config.state_directory;
    let Some(history) = &config.history_directory else {
        return Item::ok(format!("not recorded ({}: off)", key::history_directory));
    };
    // It is created at the start.
    let existing = state.ancestors().find(|directory| directory.exists());
    let is_in_memory = existing.is_some_and(|directory| is_in_memory(directory).is_ok_and(|is| is));
    let (state, history) = (state.display(), history.display());
    if is_in_memory {
        return Item::ok(format!("first in memory in {state}, then in {history}"));
    }
    let found = format!(
        "only in {history}, since {state} is not in memory (tmpfs): a SIGKILL can lose those that \
         the disk does not have yet, and a kill can be reported twice"
    );
    let cure = format!(
        "set {} to a directory on tmpfs, such as /run/nodepulse",
        key::state_directory
    );
    Item::degraded(found, cure)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::Path;

    use super::super::report::Verdict;
    use super::*;
    use crate::config::Overrides;

    #[test]
    fn a_state_directory_on_a_disk_is_degraded() {
        //  state directory, historyDirectory, verdict, in its text
        let rows = [
            (
                "/dev/shm/a/b",
                "/var/h",
                Verdict::Ok,
                "in /dev/shm/a/b, then in /var/h",
            ),
            (
                "/proc",
                "/var/h",
                Verdict::Degraded,
                "only in /var/h, since /proc is not",
            ),
            (
                "/proc",
                "off",
                Verdict::Ok,
                "not recorded (historyDirectory: off)",
            ),
        ];
        for (state, history, verdict, text) in rows {
            let flags = Overrides {
                state_directory: Some(state.to_owned()),
                history_directory: Some(history.to_owned()),
                ..Overrides::default()
            };
            let absent = |_: &Path| Err(io::ErrorKind::NotFound.into());
            let config = Config::load(&flags, &|_| None, &absent, "worker-1").unwrap();
            let item = recording(&config);
            assert_eq!(item.verdict, verdict, "{item}");
            assert!(item.found.contains(text), "{item}");
        }
    }
}
