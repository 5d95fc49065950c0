//! Runs Helm, which `cargo xtask setup` installs.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::skip;

/// Also defined in `xtask/src/setup/helm.rs`.
const PROGRAM: &str = "nodepulse/tools/helm-4.1.4/helm";

#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    chart: PathBuf,
}

impl Helm {
    /// Returns `None`, and counts the test as skipped, if Helm is not installed.
    pub fn find() -> Option<Self> {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let home = set("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = set("XDG_CACHE_HOME").map(PathBuf::from).or(home);
        let program = cache.map(|cache| cache.join(PROGRAM));
        let Some(program) = program.filter(|program| program.is_file()) else {
            skip("no Helm", "`cargo xtask setup` installs it");
            return None;
        };
        let chart = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/helm/nodepulse");
        Some(Self { program, chart })
    }

    /// Runs `helm template`; returns its output, or why it refused.
    pub fn template(&self, release: &str, values: &Value) -> Result<String, String> {
        self.run(&["template", release, "--namespace", "agents"], values)
    }

    /// Runs `helm install` or `helm upgrade` of a release, on a real cluster.
    pub fn apply(
        &self,
        kubeconfig: &Path,
        arguments: &[&str],
        values: &Value,
    ) -> Result<String, String> {
        let kubeconfig = kubeconfig.display().to_string();
        let arguments = [arguments, &["--kubeconfig", &kubeconfig]].concat();
        self.run(&arguments, values)
    }

    /// Runs any other command on a real cluster.
    pub fn on_cluster(&self, kubeconfig: &Path, arguments: &[&str]) -> Result<String, String> {
        let mut helm = Command::new(&self.program);
        helm.args(arguments).arg("--kubeconfig").arg(kubeconfig);
        self.printed(helm.env_remove("KUBECONFIG").output())
    }

    /// Runs `helm lint --strict`.
    pub fn lint(&self, values: &Value) -> Result<String, String> {
        self.run(&["lint", "--strict"], values)
    }

    fn run(&self, arguments: &[&str], values: &Value) -> Result<String, String> {
        self.printed(self.output(arguments, values))
    }

    fn printed(&self, output: io::Result<Output>) -> Result<String, String> {
        let output = output.map_err(|err| format!("{}: {err}", self.program.display()))?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        if output.status.success() {
            return Ok(text(output.stdout));
        }
        Err(text([output.stdout, output.stderr].concat()))
    }

    fn output(&self, arguments: &[&str], values: &Value) -> io::Result<Output> {
        // JSON is valid YAML.
        let file = tempfile::NamedTempFile::new()?;
        std::fs::write(file.path(), values.to_string())?;
        let mut helm = Command::new(&self.program);
        helm.args(arguments).arg(&self.chart).arg("--values");
        helm.arg(file.path()).env_remove("KUBECONFIG").output()
    }
}
