//! Formats the results of the demo, as text and as data.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde_json::{Value, json};

use super::DemoMachine;

pub struct DemoReport {
    kernel: String,
    missing: Option<String>,
    probes: Vec<(String, String)>,
    api_server: String,
    steps: Vec<DemoStep>,
    conditions: Vec<Value>,
}

pub struct DemoStep {
    name: String,
    outcome: anyhow::Result<StepOutcome>,
}

pub enum StepOutcome {
    Kill {
        pid: u32,
        cgroup: String,
        limiting: String,
        event: String,
        /// `MemoryPressure` after the kill.
        condition: Value,
        times: StepTimes,
        /// `None` if the condition did not change.
        condition_times: Option<StepTimes>,
    },
    Condition {
        /// The provoked change.
        what: String,
        condition: Value,
        /// `None` if it was read from files.
        times: Option<StepTimes>,
    },
    /// The reason why this machine cannot provoke or observe it.
    Skipped(String),
}

/// Times on the boot clock.
#[derive(Debug, Clone, Copy)]
pub struct StepTimes {
    /// Time of the record in the kernel.
    pub kernel: Duration,
    /// Time at which the agent read the record from the ring.
    pub read: Duration,
    /// Time at which the agent started the request.
    pub sent: Duration,
    /// Time at which the agent read the API server's answer.
    pub acked: Duration,
}

impl StepTimes {
    fn since_kernel(&self) -> [(&'static str, f64); 3] {
        let ms = |at: Duration| at.saturating_sub(self.kernel).as_secs_f64() * 1e3;
        [
            ("ring_read", ms(self.read)),
            ("request_sent", ms(self.sent)),
            ("api_response", ms(self.acked)),
        ]
    }

    fn from_json(times: &Value) -> Option<Self> {
        let kernel = Duration::from_nanos(times["kernel_ns"].as_u64()?);
        let after = |key: &str| {
            let since = Duration::try_from_secs_f64(times[key].as_f64()? / 1e3);
            Some(kernel + since.ok()?)
        };
        Some(Self {
            kernel,
            read: after("ring_read_ms")?,
            sent: after("request_sent_ms")?,
            acked: after("api_response_ms")?,
        })
    }

    fn json(&self) -> Value {
        let since = self.since_kernel();
        let mut object = json!({ "kernel_ns": u64::try_from(self.kernel.as_nanos()).unwrap_or(0) });
        for (name, ms) in since {
            object[format!("{name}_ms")] = json!((ms * 1e3).round() / 1e3);
        }
        object
    }
}

impl DemoStep {
    pub(super) fn from(name: &str, outcome: anyhow::Result<StepOutcome>) -> Self {
        let name = name.to_owned();
        Self { name, outcome }
    }

    /// Parses a step of [`DemoReport::json`]; `None` if it was not reported.
    pub(super) fn from_json(step: &Value) -> Option<Self> {
        let detail = &step["detail"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let (condition, condition_times) = (
            detail["condition"].clone(),
            StepTimes::from_json(&detail["condition_times"]),
        );
        let outcome = if detail["victim"].is_null() {
            StepOutcome::Condition {
                what: text(&detail["provoked"])?,
                condition,
                times: condition_times,
            }
        } else {
            StepOutcome::Kill {
                pid: u32::try_from(detail["victim"].as_u64()?).ok()?,
                cgroup: text(&detail["cgroup"])?,
                limiting: text(&detail["limiting"])?,
                event: text(&detail["event"])?,
                condition,
                times: StepTimes::from_json(&detail["event_times"])?,
                condition_times,
            }
        };
        Some(Self::from(step["step"].as_str()?, Ok(outcome)))
    }

    fn json(&self) -> Value {
        let (result, detail) = match &self.outcome {
            Ok(StepOutcome::Kill {
                pid,
                cgroup,
                limiting,
                event,
                condition,
                times,
                condition_times,
            }) => (
                "reported",
                json!({
                    "victim": pid, "cgroup": cgroup, "limiting": limiting, "event": event,
                    "condition": condition, "event_times": times.json(),
                    "condition_times": condition_times.as_ref().map(StepTimes::json),
                }),
            ),
            Ok(StepOutcome::Condition {
                what,
                condition,
                times,
            }) => (
                "reported",
                json!({
                    "provoked": what, "condition": condition,
                    "condition_times": times.as_ref().map(StepTimes::json),
                }),
            ),
            Ok(StepOutcome::Skipped(why)) => ("skipped", json!({ "why": why })),
            Err(err) => ("failed", json!({ "why": format!("{err:#}") })),
        };
        json!({ "step": self.name, "result": result, "detail": detail })
    }
}

impl fmt::Display for DemoStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.name)?;
        match &self.outcome {
            Ok(StepOutcome::Kill {
                pid,
                cgroup,
                limiting,
                event,
                condition,
                times,
                condition_times,
            }) => {
                writeln!(f, "  victim    process {pid} in {cgroup}")?;
                writeln!(f, "  limit     {limiting}")?;
                timeline(f, &format!("Event OOMKilled: {event}"), times)?;
                match condition_times {
                    Some(times) => timeline(f, &line(condition), times),
                    None => writeln!(f, "  no pressure on the node: {}", line(condition)),
                }
            }
            Ok(StepOutcome::Condition {
                what,
                condition,
                times,
            }) => {
                writeln!(f, "  provoked  {what}")?;
                match times {
                    Some(times) => timeline(f, &line(condition), times),
                    None => writeln!(f, "  {} (read from files)", line(condition)),
                }
            }
            Ok(StepOutcome::Skipped(why)) => writeln!(f, "  skipped: {why}"),
            Err(err) => writeln!(f, "  FAILED: {err:#}"),
        }
    }
}

fn timeline(f: &mut fmt::Formatter<'_>, what: &str, times: &StepTimes) -> fmt::Result {
    write!(f, "  {:>12.6} s kernel", times.kernel.as_secs_f64())?;
    for (name, ms) in times.since_kernel() {
        write!(f, " │ +{ms:.3} ms {}", name.replace('_', " "))?;
    }
    writeln!(f, "\n  → {what}")
}

/// Formats `type=status (reason)`.
fn line(condition: &Value) -> String {
    let text = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or("?");
    format!("{}={} ({})", text("type"), text("status"), text("reason"))
}

impl DemoReport {
    pub(super) fn new(
        machine: &DemoMachine,
        probes: Vec<(String, String)>,
        api_server: String,
        steps: Vec<DemoStep>,
        node: &Value,
    ) -> Self {
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let conditions = node.pointer("/status/conditions").and_then(Value::as_array);
        Self {
            kernel: kernel.trim().to_owned(),
            missing: machine.missing(),
            probes,
            api_server,
            steps,
            conditions: conditions.cloned().unwrap_or_default(),
        }
    }

    /// Returns whether every step was either reported, or skipped on a machine that lacks
    /// something.
    pub fn succeeded(&self) -> bool {
        self.steps.iter().all(|step| match &step.outcome {
            Ok(StepOutcome::Skipped(_)) => self.missing.is_some(),
            Ok(_) => true,
            Err(_) => false,
        })
    }

    pub fn json(&self) -> Value {
        let probes: Vec<Value> = self
            .probes
            .iter()
            .map(|(program, state)| json!({ "program": program, "state": state }))
            .collect();
        json!({
            "kernel": self.kernel,
            "api_server": self.api_server,
            "missing": self.missing,
            "probes": probes,
            "steps": self.steps.iter().map(DemoStep::json).collect::<Vec<_>>(),
            "conditions": self.conditions,
            "ok": self.succeeded(),
        })
    }

    /// Formats the Node's conditions as a table, and the programs in the kernel.
    pub fn summary(&self) -> String {
        let mut out = format!(
            "Node {} on kernel {}, at {}\n",
            super::NODE,
            self.kernel,
            self.api_server
        );
        for (program, state) in &self.probes {
            let _ = writeln!(out, "  probe {program}: {state}");
        }
        let _ = writeln!(
            out,
            "\n  {:<16} {:<8} {:<30} MESSAGE",
            "CONDITION", "STATUS", "REASON"
        );
        for condition in &self.conditions {
            let text = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or("?");
            let (type_, status) = (text("type"), text("status"));
            let (reason, message) = (text("reason"), text("message"));
            let _ = writeln!(out, "  {type_:<16} {status:<8} {reason:<30} {message}");
        }
        out
    }
}
