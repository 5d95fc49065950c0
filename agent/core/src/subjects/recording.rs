//! Records and replays a run of the subjects as text: one JSON document per line. The first line is
//! the [`Setup`]; each of the others is a [`Step`], which is one call of [`Subjects::on`].

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::{Effect, Input, Setup, Subjects};
use crate::clock::Now;

#[cfg(test)]
mod tests;

/// Receives everything that passes through the subjects, in order.
pub trait RunRecorder: fmt::Debug + Send {
    /// Must be called once, with the setup of the subjects.
    fn start(&mut self, setup: &Setup);
    /// Must be called after each call of the subjects.
    fn record(&mut self, step: &Step);
}

/// One call of [`Subjects::on`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    pub now: Now,
    pub input: Input,
    pub effects: Vec<Effect>,
}

/// Subjects whose calls can be recorded.
#[derive(Debug)]
pub struct RecordedSubjects {
    subjects: Subjects,
    recorder: Option<Box<dyn RunRecorder>>,
}

impl RecordedSubjects {
    /// Without a recorder, nothing is copied.
    pub fn new(setup: &Setup, mut recorder: Option<Box<dyn RunRecorder>>) -> Self {
        if let Some(recorder) = &mut recorder {
            recorder.start(setup);
        }
        Self {
            subjects: Subjects::new(setup),
            recorder,
        }
    }

    /// See [`Subjects::on`].
    pub fn on(&mut self, input: Input, now: Now) -> Vec<Effect> {
        let Some(recorder) = &mut self.recorder else {
            return self.subjects.on(input, now);
        };
        let effects = self.subjects.on(input.clone(), now);
        let step = Step {
            now,
            input,
            effects,
        };
        recorder.record(&step);
        step.effects
    }
}

/// Read-only access: the subjects change only by recorded calls.
impl Deref for RecordedSubjects {
    type Target = Subjects;

    fn deref(&self) -> &Subjects {
        &self.subjects
    }
}

/// Converts a setup or a step to a line of text. A time before 1970 has no JSON.
pub fn line(entry: &impl Serialize) -> Result<String, serde_json::Error> {
    serde_json::to_string(entry)
}

/// The reason for which a recording cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("the recording is empty")]
    Empty,
    /// A line is neither a setup nor a step.
    #[error("line {line} of the recording is not valid")]
    Invalid {
        /// Counted from 1.
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    #[error("line {line} differs\nrecorded: {recorded}\nreplayed: {replayed}")]
    Differs {
        /// Counted from 1.
        line: usize,
        /// The recorded line.
        recorded: String,
        /// The line of the replay.
        replayed: String,
    },
}

/// A run that was replayed without a difference.
#[derive(Debug)]
pub struct Replayed {
    pub subjects: Subjects,
    pub steps: usize,
}

/// Passes the inputs of a recording to new subjects. Their effects must be the recorded ones, byte
/// for byte. An error names the first line that is not valid, or that differs.
pub fn replay<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Replayed, ReplayError> {
    let mut lines = (1..).zip(lines);
    let (number, first) = lines.next().ok_or(ReplayError::Empty)?;
    let setup: Setup = parse(number, first)?;
    compare(number, first, &setup)?;
    let mut subjects = Subjects::new(&setup);
    let mut steps = 0;
    for (number, recorded) in lines {
        let step: Step = parse(number, recorded)?;
        let effects = subjects.on(step.input.clone(), step.now);
        compare(number, recorded, &Step { effects, ..step })?;
        steps += 1;
    }
    Ok(Replayed { subjects, steps })
}

fn parse<'a, T: Deserialize<'a>>(line: usize, text: &'a str) -> Result<T, ReplayError> {
    serde_json::from_str(text).map_err(|source| ReplayError::Invalid { line, source })
}

fn compare(number: usize, recorded: &str, replayed: &impl Serialize) -> Result<(), ReplayError> {
    let invalid = |source| ReplayError::Invalid {
        line: number,
        source,
    };
    let replayed = line(replayed).map_err(invalid)?;
    if replayed == recorded {
        return Ok(());
    }
    Err(ReplayError::Differs {
        line: number,
        recorded: recorded.to_owned(),
        replayed,
    })
}
