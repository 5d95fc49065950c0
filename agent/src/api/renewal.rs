//! Credentials that changed since they were read.
//!
//! They are read anew after a 401, which waits for it; shortly before they end, if that is known,
//! while requests go on with those that are still good; and now and then while no connection can be opened, since the server's own certificate may be signed by another
//! authority. Nobody watches the files: a server that still takes the old ones loses nothing by it,
//! and one that does not says so with the first request, which is then sent again.

#![forbid(unsafe_code)]

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::credentials::{self, Credentials, Running, Source};
use super::{ApiError, Client, lock};
use crate::lane::{Lane, Purpose};

/// From the end of one reading to the next while the server refuses what we have.
const PAUSE: Duration = Duration::from_secs(10);
/// Between two looks while there is no connection.
const PAUSE_UNREACHABLE: Duration = Duration::from_mins(1);
/// For one look, the program that the kubeconfig may name included: a little more than that gets.
const LIMIT: Duration = credentials::PLUGIN_LIMIT.saturating_add(Duration::from_secs(2));

/// Reads credentials, on a thread that may wait.
type Read = Arc<dyn Fn() -> Result<Credentials, ApiError> + Send + Sync>;

/// How to read them again.
pub(super) struct Renewal {
    read: Read,
    /// The program that may issue them, while it runs.
    running: Running,
    /// The thread on which they are read.
    lane: Lane,
    /// When that was last done, well or not; locked while it is done, so that one does it for all.
    /// From its end, since a program may take longer than the pause.
    done: tokio::sync::Mutex<Option<Instant>>,
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.running.end();
    }
}

impl fmt::Debug for Renewal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Renewal").finish_non_exhaustive()
    }
}

impl Renewal {
    /// From where they came from.
    pub(super) fn of(source: Source<'_>) -> Self {
        let path = match source {
            Source::Kubeconfig(path) => Some(path.to_owned()),
            Source::InCluster => None,
        };
        let running = Running::default();
        let mut renewal = Self::by({
            let running = running.clone();
            move || read(path.as_ref(), &running)
        });
        renewal.running = running;
        renewal
    }

    /// Reads them the first time, on this thread.
    pub(super) async fn first(&self, source: Source<'_>) -> Result<Credentials, ApiError> {
        credentials::access(source, &self.running).await
    }

    /// By a function.
    pub(super) fn by(
        read: impl Fn() -> Result<Credentials, ApiError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            read: Arc::new(read),
            running: Running::default(),
            lane: Lane::new(Purpose::Credentials),
            done: tokio::sync::Mutex::default(),
        }
    }
}

fn read(kubeconfig: Option<&PathBuf>, running: &Running) -> Result<Credentials, ApiError> {
    let source = kubeconfig.map_or(Source::InCluster, |path| Source::Kubeconfig(path));
    let reading = credentials::access(source, running).now_or_never();
    reading.unwrap_or_else(|| {
        Err(ApiError::Setup {
            what: "the credentials",
            source: "they are not there at once".into(),
        })
    })
}

impl Client {
    /// Reads the credentials anew, unless that was done a moment ago. Whether connection `number`
    /// has been replaced by one with others.
    pub(super) async fn renew(&self, number: u64) -> bool {
        let Some(renewal) = &self.0.renewal else {
            return false;
        };
        let mut done = renewal.done.lock().await;
        if self.0.current.borrow().number() != number {
            return true;
        }
        if done.is_some_and(|done| done.elapsed() < PAUSE) {
            return false;
        }
        let read = Arc::clone(&renewal.read);
        let read = renewal.lane.run(LIMIT, move || read()).await;
        *done = Some(Instant::now());
        let access = match read {
            Ok(Ok(access)) => access,
            Ok(Err(err)) => {
                warn!(err = err.as_dyn(), "credentials not read anew");
                return false;
            }
            Err(err) => {
                warn!(
                    err = &err as &dyn std::error::Error,
                    "credentials not read anew"
                );
                return false;
            }
        };
        let changed = {
            let mut known = lock(&self.0.access);
            let changed = !known.is_as(&access);
            *known = access;
            changed
        };
        if changed {
            info!("credentials have changed");
            self.replace_connection(number);
        }
        changed
    }

    /// The same beside the requests, which go on with what there is: it ends soon, or the program
    /// that would issue another hangs, and a lease must not wait for either.
    pub(super) fn renew_ahead(&self) {
        self.renew_beside(PAUSE);
    }

    /// The same while no connection can be opened. A program is not run for that.
    pub(super) fn renew_in_passing(&self) {
        if !self.runs_a_plugin() {
            self.renew_beside(PAUSE_UNREACHABLE);
        }
    }

    fn renew_beside(&self, pause: Duration) {
        let Some(renewal) = &self.0.renewal else {
            return;
        };
        // Locked: it is being done.
        let Ok(done) = renewal.done.try_lock() else {
            return;
        };
        if done.is_some_and(|done| done.elapsed() < pause) {
            return;
        }
        drop(done);
        let client = self.clone();
        tokio::spawn(async move {
            let number = client.0.current.borrow().number();
            let renewed = client.renew(number).await;
            debug!(renewed, "credentials read beside requests");
        });
    }
}

impl Client {
    /// Reads a token that is in a file again, now and then, while requests go on with the old one.
    pub(super) fn refresh_token(&self) {
        let bearer = self.access().bearer.clone();
        let (Some(renewal), Some(bearer)) = (&self.0.renewal, bearer) else {
            return;
        };
        if !bearer.is_stale() {
            return;
        }
        let lane = renewal.lane.clone();
        tokio::spawn(async move {
            match lane.run(LIMIT, move || bearer.refresh()).await {
                Ok(Ok(())) => {}
                Ok(Err(why)) => debug!(why, "the last token stays"),
                Err(err) => {
                    let err = &err as &dyn std::error::Error;
                    debug!(err, "the last token stays");
                }
            }
        });
    }

    /// The thread on which credentials are read; `None` where they never change.
    #[must_use]
    pub fn lane(&self) -> Option<Lane> {
        let renewal = self.0.renewal.as_ref()?;
        Some(renewal.lane.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;

    use super::*;
    use crate::api::scripted::{Reply, Scripted, refusal};
    use crate::api::{Endpoint, Refusal};

    fn node() -> Endpoint {
        Endpoint::node("worker-1")
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_refused_with_401_is_sent_again_once_with_credentials_that_have_changed() {
        let (no, yes) = (
            || refusal(401, "Unauthorized"),
            || Reply::json(200, json!({})),
        );
        //  credentials, answers, requests, connections given up, whether it ended well
        let rows = [
            (
                "changed",
                vec![Some(1), Some(2)],
                vec![no(), yes()],
                2,
                1,
                true,
            ),
            (
                "changed, and no better",
                vec![Some(1), Some(2)],
                vec![no(), no()],
                2,
                1,
                false,
            ),
            ("the same", vec![Some(1), Some(1)], vec![no()], 1, 0, false),
            (
                "not to be read",
                vec![Some(1), None],
                vec![no()],
                1,
                0,
                false,
            ),
        ];
        for (name, prints, replies, requests, generation, well) in rows {
            let server = Scripted::new(replies);
            let client = server.client_that_renews(&prints);
            let result = client.get(&node()).await;
            assert_eq!(result.is_ok(), well, "{name}");
            let refusal = result.err().and_then(|err| err.refusal());
            assert_eq!(refusal, (!well).then_some(Refusal::Unauthorized), "{name}");
            assert_eq!(server.lines().len(), requests, "{name}");
            assert_eq!(client.generations().borrow().number(), generation, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_that_are_refused_together_read_once_and_later_ones_not_at_once_again() {
        let replies = vec![refusal(401, ""); 4].into_iter();
        let server = Scripted::new(replies.chain([Reply::json(200, json!({}))]));
        // Read a third time the script would be at its end.
        let client = server.client_that_renews(&[Some(1), Some(2), Some(3)]);
        let place = node();
        let (one, two) = tokio::join!(client.get(&place), client.get(&place));
        assert!(one.is_err() && two.is_err());
        assert_eq!(server.lines().len(), 4);
        assert_eq!(client.generations().borrow().number(), 1);
        tokio::time::sleep(PAUSE).await;
        client.get(&place).await.unwrap();
        assert_eq!(client.generations().borrow().number(), 1);
    }

    /// What reads credentials: each reading waits for a message, which says whether there are any.
    fn slow_reading() -> (
        std::sync::mpsc::Sender<bool>,
        Arc<AtomicU32>,
        impl Fn() -> bool,
    ) {
        let (finish, finished) = std::sync::mpsc::channel();
        let finished = std::sync::Mutex::new(finished);
        let readings = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&readings);
        let read = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            finished.lock().unwrap().recv().unwrap()
        };
        (finish, readings, read)
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_does_not_wait_for_a_program_while_its_credentials_are_accepted() {
        let server = Scripted::new(vec![Reply::json(200, json!({})); 3]);
        let (finish, readings, read) = slow_reading();
        let client = server.client_with_ending_credentials(read);
        // The program never ends by itself: nobody lets it.
        for n in 1..=3 {
            let before = Instant::now();
            client.get(&node()).await.unwrap();
            assert_eq!(before.elapsed(), Duration::ZERO, "request {n}");
            tokio::time::advance(Duration::from_secs(1)).await;
            while readings.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(readings.load(Ordering::Relaxed), 1, "one at a time");
        finish.send(false).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_pause_between_readings_counts_from_the_end_of_one() {
        let server = Scripted::new(vec![refusal(401, "Unauthorized"); 3]);
        let (finish, readings, read) = slow_reading();
        let client = server.client_with_ending_credentials(read);
        // Longer than the pause, and shorter than the limit.
        let first = tokio::spawn({
            let client = client.clone();
            async move { client.get(&node()).await.is_ok() }
        });
        while readings.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        tokio::time::advance(Duration::from_secs(11)).await;
        finish.send(false).unwrap();
        assert!(!first.await.unwrap());
        assert!(client.get(&node()).await.is_err());
        assert_eq!(readings.load(Ordering::Relaxed), 1, "at once");
        tokio::time::advance(PAUSE).await;
        finish.send(false).unwrap();
        assert!(client.get(&node()).await.is_err());
        assert_eq!(readings.load(Ordering::Relaxed), 2, "after the pause");
    }

    #[tokio::test(start_paused = true)]
    async fn while_there_is_no_connection_the_files_are_read_once_a_minute() {
        let server = Scripted::new(vec![Reply::Cut; 14]);
        let client = server.client_that_renews(&[Some(1), Some(1), Some(2), Some(2)]);
        for n in 0..14 {
            assert!(client.get(&node()).await.is_err());
            tokio::time::sleep(Duration::from_secs(10)).await;
            // One for each that broke, and from the second look on, after a minute, one more.
            let given_up = n + 1 + u64::from(n >= 6);
            assert_eq!(client.generations().borrow().number(), given_up, "{n}");
        }
    }
}
