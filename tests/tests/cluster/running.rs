//! What runs in a scenario: the agent, its commands, and a client that writes all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nodepulse_tests::process::{Output, Process};
use serde_json::Value;
use tokio::task::JoinHandle;

use super::caller::{Caller, SOON};

/// Runs a command to its end, which must be good, with a daemon or without one.
pub async fn done(daemon: Option<&Process>, args: &[String], more: &[&str]) -> Output {
    let args: Vec<&str> = args
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    let output = Process::output(daemon, &args).await;
    assert_eq!(output.code, Some(0), "{args:?}: {output:?}");
    output
}

/// Ends it. Nothing may have been refused to it.
pub async fn stop(agent: Process) {
    agent.terminate();
    let ended = agent.ends(SOON).await;
    assert_eq!(ended.code, Some(0), "{:#?}", ended.stderr);
    let signs = ["orbidden", "denied", "nvalid", "nprocessable"];
    let refused = |line: &&String| signs.iter().any(|sign| line.contains(sign));
    let refused: Vec<_> = ended.stderr.iter().filter(refused).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// Writes something twenty times a second until it is stopped.
pub struct Scribbler {
    enough: Arc<AtomicBool>,
    writing: JoinHandle<u32>,
}

impl Scribbler {
    /// `patches` is what is written the `n`th time: path, media type and patch.
    pub fn start<P>(admin: &Caller, patches: P) -> Self
    where
        P: Fn(u32) -> Vec<(String, &'static str, Value)> + Send + 'static,
    {
        let (admin, enough) = (admin.clone(), Arc::new(AtomicBool::new(false)));
        let stop = Arc::clone(&enough);
        let writing = tokio::spawn(async move {
            let mut turns = tokio::time::interval(Duration::from_millis(50));
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                turns.tick().await;
                n += 1;
                for (path, media, patch) in patches(n) {
                    admin.change(&path, media, &patch).await;
                }
            }
            n
        });
        Self { enough, writing }
    }

    /// Ends it between two writes; returns their number.
    pub async fn stop(self) -> u32 {
        self.enough.store(true, Ordering::Relaxed);
        self.writing.await.unwrap()
    }
}
