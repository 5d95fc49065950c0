//! Checks the reports of the number of pids: crossings, and trends.

use std::io;

use agent_common::PidSettings;
use nodepulse_core::record::{Record, Side};

use super::Loaded;
use crate::provoke::{Provoke, tasks};

/// Checks that forks above the threshold are reported once, at the threshold; and again after user
/// space reset the state. Half of the `crowd` is room for other tasks that may end meanwhile.
pub async fn crossing(loaded: &mut Loaded, provoke: &Provoke, crowd: u32) -> io::Result<String> {
    let first = tasks()? + crowd / 2;
    let settings = PidSettings {
        high: first,
        low: first - crowd / 3,
        trend_step: 0,
        pad: 0,
    };
    let over = |event: &Record| match event {
        Record::PidCrossing {
            value,
            side: Side::Over,
            ..
        } => Some(*value),
        _ => None,
    };
    loaded.kernel.set_pid_settings(settings)?;
    let forked = provoke.crowd(crowd)?;
    assert_eq!(loaded.next("crossing", over).await, first);

    drop(forked);
    loaded.kernel.end_pid_state()?;
    let high = tasks()? + crowd / 2;
    let settings = PidSettings { high, ..settings };
    loaded.kernel.set_pid_settings(settings)?;
    let _forked = provoke.crowd(crowd)?;
    assert_eq!(loaded.next("crossing", over).await, high);
    loaded.kernel.set_pid_settings(PidSettings::default())?;
    loaded.kernel.end_pid_state()?;
    Ok(format!("over at {first}, then at {high}"))
}

/// Forks above the threshold and exits below it, repeatedly: every crossing is reported, over and
/// under alternating, and each one over at exactly the threshold. On a machine without other forks.
pub async fn storm(loaded: &mut Loaded, provoke: &Provoke, crowd: u32) -> io::Result<String> {
    const ROUNDS: u32 = 20;
    let high = tasks()? + crowd / 2;
    let settings = PidSettings {
        high,
        low: high - crowd / 3,
        trend_step: 0,
        pad: 0,
    };
    loaded.kernel.set_pid_settings(settings)?;
    provoke.storm(crowd, ROUNDS)?;
    // The program detects the last end at the next fork.
    provoke.storm(1, 1)?;
    let mut reported = Vec::new();
    loaded
        .next("crossings of every round", |event| {
            if let Record::PidCrossing { side, value, .. } = event {
                reported.push((*side, *value));
            }
            (reported.len() == 2 * ROUNDS as usize).then_some(())
        })
        .await;
    for (n, (side, value)) in reported.iter().enumerate() {
        match side {
            Side::Over => assert_eq!((n % 2, *value), (0, high), "{reported:?}"),
            Side::Under => assert!(n % 2 == 1 && *value <= settings.low, "{reported:?}"),
        }
    }
    loaded.kernel.set_pid_settings(PidSettings::default())?;
    loaded.kernel.end_pid_state()?;
    Ok(format!(
        "{ROUNDS} times over at {high}, and under in between"
    ))
}

/// Checks that the count is reported as it changes, with a third of the `crowd` as room.
pub async fn trend(loaded: &mut Loaded, provoke: &Provoke, crowd: u32) -> io::Result<String> {
    let settings = PidSettings {
        high: 0,
        low: 0,
        trend_step: crowd / 6,
        pad: 0,
    };
    loaded.kernel.set_pid_settings(settings)?;
    let before = tasks()?;
    let _forked = provoke.crowd(crowd)?;
    let reached = loaded
        .next("trend", |event| match event {
            Record::PidTrend { value, .. } if *value >= before + crowd * 2 / 3 => Some(*value),
            _ => None,
        })
        .await;
    assert!(
        reached <= before + crowd * 4 / 3,
        "{before} before, then {reached}"
    );
    loaded.kernel.set_pid_settings(PidSettings::default())?;
    Ok(format!("{before}, then {reached}"))
}
