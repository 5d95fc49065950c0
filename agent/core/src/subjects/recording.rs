//! Records and replays a run of the subjects as text: one JSON document per line. The first line is
//! a [`Header`] with the state from which the run goes on, so a recording can begin at any time;
//! each of the others is a [`Step`], which is one call of [`Subjects::on`].

use std::env::consts::ARCH;
use std::fmt;
use std::ops::{ControlFlow, Deref};

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::{Effect, Input, Setup, Subjects};
use crate::checked_line;
use crate::clock::Now;

#[cfg(test)]
mod tests;

const FORMAT: &str = concat!(crate::domain!(), "/recording/v1");

/// Receives everything that passes through the subjects, in order.
pub trait RunRecorder: fmt::Debug + Send {
    /// Must be called once, before the first call that is recorded.
    fn start(&mut self, header: &Header<&Subjects>);
    /// Must be called after each call of the subjects. Break ends the recording.
    fn record(&mut self, step: &Step) -> ControlFlow<()>;
}

/// The first line of a recording. Later formats keep all fields but the subjects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header<S> {
    format: String,
    /// Of the agent.
    version: String,
    /// As in [`std::env::consts::ARCH`].
    architecture: String,
    pub subjects: S,
}

impl<'a> Header<&'a Subjects> {
    pub fn new(version: &str, subjects: &'a Subjects) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: version.to_owned(),
            architecture: ARCH.to_owned(),
            subjects,
        }
    }
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
    pub fn new(setup: &Setup) -> Self {
        Self {
            subjects: Subjects::new(setup),
            recorder: None,
        }
    }

    /// Records the calls from now on, until the recorder ends that. Another recorder is dropped.
    pub fn attach(&mut self, mut recorder: Box<dyn RunRecorder>, version: &str) {
        recorder.start(&Header::new(version, &self.subjects));
        self.recorder = Some(recorder);
    }

    /// See [`Subjects::on`]. Without a recorder, nothing is copied.
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
        if recorder.record(&step).is_break() {
            self.recorder = None;
        }
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

/// The reason for which a recording cannot be replayed. Lines are counted from 1.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error("the recording is empty: record again")]
    Empty,
    /// Every line before it was replayed without a difference.
    #[error("the recording is cut off at line {line}: only the lines before it can be replayed")]
    CutOff { line: usize },
    #[error("line {line} of the recording is not valid: it was changed, or is of another program")]
    Invalid {
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    #[error("line {line} of the recording was changed: it does not have its checksum")]
    Changed { line: usize },
    #[error(
        "the recording has the format {format}, made by a newer nodepulse (version {version}): \
         replay it with that version"
    )]
    Newer { format: String, version: String },
    #[error(
        "the recording was made on {recorded}, but this is {ARCH}: replay it on {recorded}, with \
         nodepulse {version}"
    )]
    OtherArchitecture { recorded: String, version: String },
    /// The state of another version, even if the format is the same.
    #[error(
        "line 1 of the recording has no state of this nodepulse, but of version {version}: replay \
         it with that version"
    )]
    OtherState {
        version: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("line {line} differs\nrecorded: {recorded}replayed: {replayed}")]
    Differs {
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

/// Passes the inputs of a recording, whose lines include their ends, to the recorded subjects.
/// Their effects must be the recorded ones, byte for byte; then the step is passed to `replayed`.
/// An error names the first line that is not valid, or that differs.
pub fn replay(
    lines: impl IntoIterator<Item: AsRef<str>>,
    mut replayed: impl FnMut(&Step),
) -> Result<Replayed, ReplayError> {
    let mut lines = (1..).zip(lines);
    let (_, first) = lines.next().ok_or(ReplayError::Empty)?;
    let mut subjects = begin(first.as_ref())?.subjects;
    let mut steps = 0;
    for (number, recorded) in lines {
        let recorded = recorded.as_ref();
        let step: Step = parse(number, recorded)?;
        let effects = subjects.on(step.input.clone(), step.now);
        let step = Step { effects, ..step };
        compare(number, recorded, &step)?;
        replayed(&step);
        steps += 1;
    }
    Ok(Replayed { subjects, steps })
}

fn begin(first: &str) -> Result<Header<Subjects>, ReplayError> {
    // Before the checksum, which another format may lack.
    let unread: Result<Header<Option<IgnoredAny>>, _> = serde_json::from_str(first);
    let Header {
        format,
        version,
        architecture: recorded,
        ..
    } = unread.or_else(|_| parse(1, first))?;
    if format != FORMAT {
        return Err(ReplayError::Newer { format, version });
    }
    if recorded != ARCH {
        return Err(ReplayError::OtherArchitecture { recorded, version });
    }
    let header = parse(1, first).map_err(|err| match err {
        ReplayError::Invalid { source, .. } => ReplayError::OtherState { version, source },
        err => err,
    })?;
    compare(1, first, &header)?;
    Ok(header)
}

fn parse<T: DeserializeOwned>(line: usize, text: &str) -> Result<T, ReplayError> {
    let whole = text.strip_suffix('\n').filter(|text| text.ends_with('}'));
    let whole = whole.ok_or(ReplayError::CutOff { line })?;
    if !checked_line::is_intact(whole) {
        return Err(ReplayError::Changed { line });
    }
    serde_json::from_str(text).map_err(|source| ReplayError::Invalid { line, source })
}

fn compare(number: usize, recorded: &str, replayed: &impl Serialize) -> Result<(), ReplayError> {
    let invalid = |source| ReplayError::Invalid {
        line: number,
        source,
    };
    let replayed = checked_line::line(replayed).map_err(invalid)?;
    if replayed == recorded {
        return Ok(());
    }
    Err(ReplayError::Differs {
        line: number,
        recorded: recorded.to_owned(),
        replayed,
    })
}
