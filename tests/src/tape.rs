//! Records the calls of an agent's subjects, and counts the kinds of inputs and effects.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nodepulse_core::checked_line::line;
use nodepulse_core::subjects::Subjects;
use nodepulse_core::subjects::recording::{
    Header, ReplayError, Replayed, RunRecorder, Step, replay,
};
use serde::Serialize;
use serde_json::Value;

/// The lines of a recording. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Tape(Arc<Mutex<Vec<String>>>);

impl Tape {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, entry: &impl Serialize) {
        let line = line(entry).expect("a time after 1970");
        self.lock().push(line);
    }

    pub fn lines(&self) -> Vec<String> {
        self.lock().clone()
    }
}

impl RunRecorder for Tape {
    fn start(&mut self, header: &Header<&Subjects>) {
        self.push(header);
    }

    fn record(&mut self, step: &Step) -> ControlFlow<()> {
        self.push(step);
        ControlFlow::Continue(())
    }
}

/// Passes the inputs of a recording to its subjects, whose effects must be the same.
pub fn replayed(lines: &[String]) -> Result<Replayed, ReplayError> {
    replay(lines, |_| {})
}

/// Checks that a recording of kills is not replayed if it lacks one record, or a line was changed.
pub fn assert_changes_are_found(lines: &[String]) {
    const EFFECT: &str = r#"{"Input":{"OomIncident":{"pod":{"Uid":""#;
    let first = |text: &str| lines.iter().position(|line| line.contains(text));
    let record = first(r#""input":{"Kill":{"Recorded":"#).expect("a kill");
    let mut lacking = lines.to_vec();
    lacking.remove(record);
    let differs = replayed(&lacking);
    assert!(
        matches!(&differs, Err(ReplayError::Differs { line, .. }) if *line == record + 1),
        "line {} is not named: {differs:?}",
        record + 1
    );
    let counted = first(EFFECT).expect("an incident in a pod");
    let mut changed = lines.to_vec();
    if let Some(line) = changed.get_mut(counted) {
        *line = line.replace(EFFECT, r#"{"Input":{"OomIncident":{"pod":{"Uid":"not-"#);
    }
    let changed = replayed(&changed);
    assert!(
        matches!(changed, Err(ReplayError::Changed { line }) if line == counted + 1),
        "line {} is not named: {changed:?}",
        counted + 1
    );
}

/// The number of inputs and effects of each kind.
#[derive(Debug, Default)]
pub struct Kinds {
    /// Numbers by the names of the variants: `Disk.Listed`.
    pub inputs: BTreeMap<String, usize>,
    /// Numbers by the names of the variants.
    pub effects: BTreeMap<String, usize>,
}

impl Kinds {
    /// Counts those of a recording.
    pub fn of(lines: &[String]) -> Self {
        let mut kinds = Self::default();
        for line in lines.iter().skip(1) {
            let step: Value = serde_json::from_str(line).expect("a step");
            *kinds.inputs.entry(kind(&step["input"])).or_default() += 1;
            for effect in step["effects"].as_array().into_iter().flatten() {
                *kinds.effects.entry(kind(effect)).or_default() += 1;
            }
        }
        kinds
    }

    /// Returns the kinds in `expected` that occur less often than required.
    pub fn missing(found: &BTreeMap<String, usize>, expected: &[(&str, usize)]) -> Vec<String> {
        let few = expected.iter().filter_map(|(kind, least)| {
            let found = found.get(*kind).copied().unwrap_or_default();
            (found < *least).then(|| format!("{kind}: {found} of {least}"))
        });
        few.collect()
    }
}

/// Joins the names of the variants from the outermost inwards. Fields begin with a small letter.
fn kind(value: &Value) -> String {
    let is_variant = |name: &str| name.starts_with(|first: char| first.is_ascii_uppercase());
    match value {
        Value::String(name) if is_variant(name) => name.clone(),
        Value::Object(one) => match one.iter().next() {
            Some((name, inner)) if is_variant(name) => match kind(inner) {
                inner if inner.is_empty() => name.clone(),
                inner => format!("{name}.{inner}"),
            },
            _ => String::new(),
        },
        _ => String::new(),
    }
}
