//! Runs the first command of the README, `cargo xtask demo`, with the programs that are built
//! already. A test of `xtask` checks that it is the first.

use std::time::Duration;

use nodepulse_tests::process::program;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

/// Time limit of the demo, which takes about 20 seconds.
const LIMIT: Duration = Duration::from_mins(2);

#[tokio::test]
async fn the_demo_reports_a_kill_and_sets_conditions() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"));
    demo.arg("--json").arg("--agent").arg(program());
    let output = timeout(LIMIT, demo.kill_on_drop(true).output()).await;
    let output = output.expect("the demo ends").expect("start the demo");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let steps = report["steps"].as_array().unwrap();
    let killed = |step: &&Value| {
        let event = step["detail"]["event"].as_str();
        event.is_some_and(|event| event.contains("was killed because the pod reached"))
    };
    assert!(steps.iter().any(|step| killed(&step)), "{report:#}");
    for type_ in ["MemoryPressure", "PIDPressure"] {
        let is_true = |step: &Value| {
            let condition = &step["detail"]["condition"];
            condition["type"] == type_ && condition["status"] == "True"
        };
        assert!(steps.iter().any(is_true), "{type_}: {report:#}");
    }
}
