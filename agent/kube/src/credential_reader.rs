//! Reads credentials again that may have changed.
//!
//! This happens after a 401, which waits for it; shortly before the credentials expire, while
//! requests use those that are still valid; and from time to time while no connection can be
//! opened, because the server's certificate may have a new authority. The files are not watched: a
//! server that accepts the old credentials needs no change, and one that does not rejects the first
//! request, which is then sent again.

#![forbid(unsafe_code)]

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use nix::unistd::gettid;
use nodepulse_io::lane::{Lane, Purpose};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::credentials::{self, CredentialSource, Credentials, RunningPlugin};
use super::tally::RequestEnd;
use super::{ApiError, Client, lock};

/// Minimum time from the end of one read to the next while the server rejects the credentials.
const PAUSE: Duration = Duration::from_secs(10);
/// Interval of reads while there are no credentials: conditions reach the server within ten
/// seconds.
const PAUSE_MISSING: Duration = Duration::from_secs(4);
/// Interval of reads while there is no connection.
const PAUSE_UNREACHABLE: Duration = Duration::from_mins(1);
/// Timeout of one read, including the program of a kubeconfig: a little more than the program's.
const LIMIT: Duration = credentials::PLUGIN_LIMIT.saturating_add(Duration::from_secs(2));

/// Runs on a thread that may block.
type ReadCredentials = Arc<dyn Fn() -> Result<Credentials, ApiError> + Send + Sync>;

pub(super) struct CredentialReader {
    read: ReadCredentials,
    /// The program that issues the credentials, while it runs.
    running: RunningPlugin,
    lane: Lane,
    /// End of the last read, successful or not. Locked during a read, so that one read serves all.
    /// Pauses count from this end, because a program may take longer than the pause.
    done: tokio::sync::Mutex<Option<Instant>>,
}

impl Drop for CredentialReader {
    fn drop(&mut self) {
        self.running.end();
    }
}

impl fmt::Debug for CredentialReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialReader").finish_non_exhaustive()
    }
}

impl CredentialReader {
    pub(super) fn new(source: CredentialSource<'_>) -> Self {
        Self::with_plugin(source, RunningPlugin::default())
    }

    /// Like [`CredentialReader::new`], but no program may be run: only a new start of the agent
    /// could use its credentials.
    pub(super) fn without_programs(source: CredentialSource<'_>) -> Self {
        Self::with_plugin(source, RunningPlugin::forbidden())
    }

    fn with_plugin(source: CredentialSource<'_>, running: RunningPlugin) -> Self {
        let files = match source {
            CredentialSource::Kubeconfig(path) => Some((path.to_owned(), None)),
            CredentialSource::Pair { kubeconfig, pair } => {
                Some((kubeconfig.to_owned(), Some(pair.to_owned())))
            }
            CredentialSource::InCluster => None,
        };
        let mut reader = Self::with({
            let running = running.clone();
            move || {
                let source = match &files {
                    Some((path, None)) => CredentialSource::Kubeconfig(path),
                    Some((kubeconfig, Some(pair))) => CredentialSource::Pair { kubeconfig, pair },
                    None => CredentialSource::InCluster,
                };
                read(source, &running)
            }
        });
        reader.running = running;
        reader
    }

    /// Reads the credentials of `source` once, on `lane`. Runs no program.
    pub(super) async fn read_once(
        source: CredentialSource<'_>,
        lane: &Lane,
    ) -> Result<Credentials, ApiError> {
        let mut reader = Self::without_programs(source);
        reader.lane = lane.clone();
        reader.read(&mut None).await
    }

    /// Reads the credentials for the first time, on this thread.
    pub(super) async fn first(
        &self,
        source: CredentialSource<'_>,
    ) -> Result<Credentials, ApiError> {
        credentials::access(source, &self.running).await
    }

    /// Reads the credentials for the first time, on a thread that has ended afterwards, unlike that
    /// of the lane: a sandbox is entered while there is only one thread.
    pub(super) async fn first_apart(&self) -> Result<Credentials, ApiError> {
        let failed = |why: String| ApiError::Unreadable {
            what: "the credentials".to_owned(),
            why,
        };
        let read = Arc::clone(&self.read);
        let (answered, answer) = oneshot::channel();
        let _thread = std::thread::Builder::new()
            .spawn(move || drop(answered.send((gettid(), read()))))
            .map_err(|err| failed(format!("cannot start a thread ({err})")))?;
        let answer = answer.await;
        let (id, credentials) = answer.map_err(|_| failed("the thread ended early".to_owned()))?;
        // The thread can be listed for a moment longer.
        while Path::new(&format!("/proc/self/task/{id}")).exists() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        credentials
    }

    async fn read(&self, done: &mut Option<Instant>) -> Result<Credentials, ApiError> {
        let read = Arc::clone(&self.read);
        let read = self.lane.run(LIMIT, move || read()).await;
        *done = Some(Instant::now());
        read.unwrap_or_else(|err| {
            Err(ApiError::Unreadable {
                what: "the credentials".to_owned(),
                why: err.to_string(),
            })
        })
    }

    /// Reads the credentials again; logs the reason if they cannot be used.
    async fn read_again(&self, done: &mut Option<Instant>) -> Option<Credentials> {
        let read = self.read(done).await;
        let warn = |err: &ApiError| warn!(err = err.as_dyn(), "cannot read the credentials again");
        read.inspect_err(warn).ok()
    }

    pub(super) fn with(
        read: impl Fn() -> Result<Credentials, ApiError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            read: Arc::new(read),
            running: RunningPlugin::default(),
            lane: Lane::new(Purpose::Credentials),
            done: tokio::sync::Mutex::default(),
        }
    }
}

fn read(source: CredentialSource<'_>, running: &RunningPlugin) -> Result<Credentials, ApiError> {
    let reading = credentials::access(source, running).now_or_never();
    reading.unwrap_or_else(|| {
        Err(ApiError::Setup {
            what: "the credentials",
            source: "they are not available at once".into(),
        })
    })
}

impl Client {
    /// Reads the credentials again, unless that was done a moment ago. Returns true if connection
    /// `number` was replaced by one with other credentials.
    pub(super) async fn renew(&self, number: u64) -> bool {
        let Some(reader) = &self.0.reader else {
            return false;
        };
        let mut done = reader.done.lock().await;
        if self.0.current.borrow().number() != number {
            return true;
        }
        if done.is_some_and(|done| done.elapsed() < PAUSE) {
            return false;
        }
        let Some(access) = reader.read_again(&mut done).await else {
            return false;
        };
        let changed = {
            let mut known = lock(&self.0.access);
            let access = if self.0.keeps_user.load(Ordering::Relaxed) {
                access.with_user_of(&known)
            } else {
                Ok(access)
            };
            let access = match access {
                Ok(access) => access,
                Err(err) => {
                    warn!(err = err.as_dyn(), "cannot use the credentials");
                    return false;
                }
            };
            let changed = !known.is_same(&access);
            *known = access;
            changed
        };
        if changed {
            info!("credentials have changed");
            self.replace_connection(number);
        }
        changed
    }

    /// Reads the credentials again now, because they were replaced, and uses them for a new
    /// connection. Requests that waited for credentials are sent. Returns true if the credentials
    /// can be used.
    pub async fn use_stored(&self) -> bool {
        if let Some(reader) = &self.0.reader {
            let mut done = reader.done.lock().await;
            let Some(access) = reader.read_again(&mut done).await else {
                return false;
            };
            *lock(&self.0.access) = access;
        }
        self.connect_and_send();
        true
    }

    /// Opens a new connection, and lets requests that waited for credentials be sent.
    fn connect_and_send(&self) {
        let number = self.0.current.borrow().number();
        self.replace_connection(number);
        self.0.available.send_replace(true);
        self.0.rejected.send_replace(false);
        self.0.missing.send_replace(None);
    }

    /// Reads the credentials of [`Client::from_late_credentials`] repeatedly until they can be
    /// used, and then waits for ever. Each failure counts as an unanswered request. Returns if only
    /// a new start of the agent can use them.
    pub async fn load(self) {
        if let (Some(reader), true) = (&self.0.reader, self.0.late) {
            loop {
                let read = reader.read(&mut *reader.done.lock().await).await;
                match read {
                    Ok(access) => {
                        *lock(&self.0.access) = access;
                        // As if they had been read at the start: the first rejection reads them
                        // again.
                        *reader.done.lock().await = None;
                        info!("credentials can be used");
                        self.connect_and_send();
                        break;
                    }
                    Err(err @ ApiError::NeedsRestart) => {
                        error!(err = err.as_dyn(), "the agent has to be started again");
                        return;
                    }
                    Err(err) => self.record_missing(&err),
                }
                tokio::time::sleep(PAUSE_MISSING).await;
            }
        }
        std::future::pending::<()>().await;
    }

    /// Counts a failure to read the credentials, and logs each reason once.
    pub(super) fn record_missing(&self, err: &ApiError) {
        let counts = Arc::clone(self.0.current.borrow().counts());
        // The first request of either mode.
        counts.ended("GET", "nodes", RequestEnd::Credentials);
        let why = Some(err.chain());
        self.0.missing.send_if_modified(|missing| {
            if *missing == why {
                return false;
            }
            warn!(
                err = err.as_dyn(),
                "cannot read the credentials; requests wait, and they are read again"
            );
            *missing = why;
            true
        });
    }

    /// Renews in the background, while requests use the current credentials, which expire soon: the
    /// program that issues new ones may hang, and a lease must not wait for it.
    pub(super) fn renew_ahead(&self) {
        self.renew_in_background(PAUSE);
    }

    /// Renews in the background while no connection can be opened. Runs no program.
    pub(super) fn renew_without_connection(&self) {
        if !self.runs_a_plugin() {
            self.renew_in_background(PAUSE_UNREACHABLE);
        }
    }

    fn renew_in_background(&self, pause: Duration) {
        let Some(reader) = &self.0.reader else {
            return;
        };
        // Locked: a read is in progress.
        let Ok(done) = reader.done.try_lock() else {
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
            debug!(renewed, "credentials read in the background");
        });
    }
}

impl Client {
    /// Reads a token file again from time to time, while requests use the old token.
    pub(super) fn refresh_token(&self) {
        let authorization = self.access().authorization.clone();
        let (Some(reader), Some(authorization)) = (&self.0.reader, authorization) else {
            return;
        };
        if !authorization.is_stale() {
            return;
        }
        let lane = reader.lane.clone();
        tokio::spawn(async move {
            match lane.run(LIMIT, move || authorization.refresh()).await {
                Ok(Ok(())) => {}
                Ok(Err(err)) => debug!(err, "the token is unchanged"),
                Err(err) => {
                    let err = &err as &dyn std::error::Error;
                    debug!(err, "the token is unchanged");
                }
            }
        });
    }

    /// Returns the thread on which credentials are read; `None` if they never change.
    pub fn lane(&self) -> Option<Lane> {
        let reader = self.0.reader.as_ref()?;
        Some(reader.lane.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use serde_json::json;

    use super::*;
    use crate::scripted::{Reply, Scripted, refusal};
    use crate::{Endpoint, Refusal};

    fn node() -> Endpoint {
        Endpoint::node("worker-1")
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_refused_with_401_is_sent_again_once_with_credentials_that_have_changed() {
        let (no, yes) = (
            || refusal(401, "Unauthorized"),
            || Reply::json(200, json!({})),
        );
        // credentials, answers, requests, replaced connections, success
        #[rustfmt::skip]
        let rows = [
            ("changed", vec![Some(1), Some(2)], vec![no(), yes()], 2, 1, true),
            ("changed, and rejected too", vec![Some(1), Some(2)], vec![no(), no()], 2, 1, false),
            ("the same", vec![Some(1), Some(1)], vec![no()], 1, 0, false),
            ("unreadable", vec![Some(1), None], vec![no()], 1, 0, false),
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
    async fn requests_rejected_together_cause_one_read_and_later_ones_none_at_once() {
        let replies = vec![refusal(401, ""); 4].into_iter();
        let server = Scripted::new(replies.chain([Reply::json(200, json!({}))]));
        // A third read would exceed the script.
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

    /// Returns a reader that waits for a message before each read. The message decides if the read
    /// succeeds.
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
        // The program does not end before the test allows it.
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
            // One for each failure, and from the second read on, after a minute, one more.
            let given_up = n + 1 + u64::from(n >= 6);
            assert_eq!(client.generations().borrow().number(), given_up, "{n}");
        }
    }
}
