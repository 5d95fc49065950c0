//! Runs promtool, Prometheus' program that tests rules.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Path of the program.
pub struct Promtool(PathBuf);

impl Promtool {
    /// Finds it on the search path, or in the directory of `cargo xtask setup`.
    pub fn find() -> Option<Self> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let path = set("PATH").unwrap_or_default();
        let home = set("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = set("XDG_CACHE_HOME").map(PathBuf::from).or(home);
        let cache = cache.map(|cache| cache.join("nodepulse/tools/promtool"));
        std::env::split_paths(&path)
            .chain(cache)
            .map(|dir| dir.join("promtool"))
            .find(|file| file.is_file())
            .map(Self)
    }

    /// Runs tests, whose rule file is `alerts.yaml`; an error is the output of promtool.
    pub fn test(&self, rules: &str, tests: &str) -> Result<(), String> {
        self.run(&["test", "rules"], rules, tests)
    }

    /// Checks a configuration of Prometheus, whose rule file is `alerts.yaml`.
    pub fn check_config(&self, rules: &str, config: &str) -> Result<(), String> {
        self.run(&["check", "config"], rules, config)
    }

    fn run(&self, command: &[&str], rules: &str, file: &str) -> Result<(), String> {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("alerts.yaml"), rules).unwrap();
        fs::write(dir.path().join("file.yaml"), file).unwrap();
        let mut promtool = Command::new(&self.0);
        promtool.args(command).arg("file.yaml");
        let done = promtool.current_dir(dir.path()).output().unwrap();
        let printed = [done.stdout, done.stderr].concat();
        let printed = String::from_utf8_lossy(&printed).into_owned();
        if done.status.success() {
            Ok(())
        } else {
            Err(printed)
        }
    }
}
