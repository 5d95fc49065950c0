//! The orderly exit: reports, saves and sends what is pending.

use nodepulse_core::subjects::{IncidentInput, Input, KillCounterInput, StateInput};
use nodepulse_linux::kernel::ring::LAST_RECORDS;
use tokio::time::timeout;
use tracing::warn;

use super::App;
use super::kernel_inputs::KernelInputs;
use crate::queries::blocking::LAST_ANSWERS;

pub(super) async fn shut_down(mut app: App, inputs: KernelInputs, was_stopped: bool) {
    app.service.heartbeat.notify.stopping();
    last_records(&mut app, inputs).await;
    last_counts(&mut app).await;
    app.feed(Input::Incident(IncidentInput::Stopping), app.clock.now());
    if let Some(reporting) = app.reporting.take() {
        app.history.hand_over().await;
        reporting.finish(&mut app.tasks).await;
    }
    app.history.flush().await;
    app.settle_kills(app.clock.now());
    save_state(&mut app).await;
    let now = app.clock.now();
    tokio::join!(app.history.finish(), app.black_box.finish(was_stopped, now));
}

async fn last_records(app: &mut App, mut inputs: KernelInputs) {
    // The next agent reads everything that the watchers report.
    drop(inputs.watchers.take());
    inputs.stop.send_replace(true);
    let (records, readers) = (&mut inputs.records, &mut inputs.readers);
    let rest = async {
        let mut reading = true;
        while reading {
            let received = tokio::select! {
                biased;
                Some(received) = records.recv() => received,
                ended = readers.join_next() => {
                    reading = ended.is_some();
                    continue;
                }
            };
            app.kernel_records(received, records, app.clock.now());
        }
        while let Ok(received) = records.try_recv() {
            app.kernel_records(received, records, app.clock.now());
        }
    };
    if timeout(LAST_RECORDS, rest).await.is_err() {
        warn!("kernel records were left unread at exit");
    }
}

/// Reports kills that only the counters show.
async fn last_counts(app: &mut App) {
    let stopping = Input::KillCounter(KillCounterInput::Stopping);
    app.feed(stopping, app.clock.now());
    let counted = async {
        while app.subjects.kill_counters.is_asked() {
            next_answer(app).await;
        }
    };
    if timeout(LAST_ANSWERS, counted).await.is_err() {
        warn!("OOM kills could not be counted before exit; the next start reports them");
    }
}

/// Saves what was acknowledged, and when each condition was last exceeded.
async fn save_state(app: &mut App) {
    let written = async {
        while app.subjects.kill_counters.is_saving() {
            next_answer(app).await;
        }
        app.feed(Input::State(StateInput::Stopped), app.clock.now());
        while app.subjects.kill_counters.is_saving() || app.subjects.saved.is_writing() {
            next_answer(app).await;
        }
    };
    if timeout(LAST_ANSWERS, written).await.is_err() {
        warn!("acknowledged OOM kills could not be saved; the next start reports them again");
    }
}

async fn next_answer(app: &mut App) {
    let answer = app.queries.blocking.answer().await;
    app.answered(answer, app.clock.now());
}
