//! Opens a watch in turn with other requests, reads its events, classifies its end, and paces the
//! sequence of watches.

#![forbid(unsafe_code)]
// Sums and products of durations panic on overflow, and these numbers are external.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

use std::error::Error;
use std::time::Duration;

use http::header::{ACCEPT, ACCEPT_ENCODING};
use kube::client::Body;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::body::{self, BodyError, Limit, Lines};
use super::convert::text;
use super::presence::REFUSED_AT_START;
use super::tally;
use super::{Client, Generation, Refusal};
use nodepulse_core::backoff::{Backoff, Jitter};

/// The server ends a watch after this time to twice this time: at most twelve an hour, and not
/// those of all nodes at once.
pub const TIMEOUT: Duration = Duration::from_mins(5);

/// Maximum time after the requested end until the client ends a watch.
const MARGIN: Duration = Duration::from_secs(30);

/// Timeout of the body of an error.
const REFUSAL_TIME: Duration = Duration::from_secs(10);

/// A watch that was open this long has succeeded, whatever it contained: longer than the first
/// pauses between watches, and shorter than proxies keep an idle stream open, which is a minute or
/// more.
const SUCCEEDED_AFTER: Duration = Duration::from_secs(30);

/// Maximum wait after the server has answered another request after an outage. A random part of
/// it is taken. Kills wait 2 s for the names of their pods.
const RETURNED: Duration = Duration::from_secs(1);

/// Maximum length of a `resourceVersion`: it is a number of at most 20 digits, but clients may only
/// rely on it being a short text that is valid in a query.
const VERSION_LIMIT: usize = 64;

#[derive(Debug)]
pub struct WatchTarget {
    /// Name in metrics and log lines, such as `nodes`.
    pub resource: &'static str,
    pub path: &'static str,
    /// The selector in the form of a query, such as `fieldSelector=metadata.name%3Dworker-1`.
    pub selector: String,
    /// The requested media type of objects.
    pub accept: &'static str,
    /// Requests bookmarks, one a minute. Without them the server forgets a version without events,
    /// which costs a read before the next watch.
    pub bookmarks: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeType {
    /// The object exists, or the selector now matches it.
    Added,
    Modified,
    /// The object was deleted, or the selector no longer matches it.
    Deleted,
    /// The server reports its current version.
    Bookmark,
}

#[derive(Debug)]
pub struct WatchEvent {
    pub change: ChangeType,
    pub object: Value,
    pub version: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchEnd {
    Regular,
    /// The server no longer has the events after the version.
    Expired,
    Refused,
    /// The server cannot serve the watch as requested, or had another internal error.
    Failed,
    /// Any other reason: a watch may continue from its version.
    Broken,
}

/// The pauses between watches, the same for all: after any end, even a requested one, 0.8 to 1.6 s
/// at first and up to 30 to 60 s, but shorter at the end of an outage. They start again after a
/// watch that was open for `SUCCEEDED_AFTER` or received anything.
#[derive(Debug)]
pub struct Pace {
    backoff: Backoff,
    jitter: Jitter,
    opened: Instant,
    received: bool,
    /// The number of refusals that are tried again, because the server may have just started.
    refusals: u32,
}

impl Pace {
    /// `jitter` spreads the watches: a server that stops has many of them, and they must not return
    /// at the same time.
    pub fn new(jitter: Jitter) -> Self {
        Self {
            backoff: Backoff::WATCH,
            jitter,
            opened: Instant::now(),
            received: false,
            refusals: 0,
        }
    }

    /// Starts the time of a watch. Returns the time for which it is to be open.
    pub fn begin(&mut self) -> Duration {
        self.opened = Instant::now();
        self.received = false;
        self.jitter.stretch(TIMEOUT, 1.0)
    }

    /// Records an event or a bookmark.
    pub fn received(&mut self) {
        self.received = true;
    }

    /// Waits before the next watch. After an outage of the server that is at most `RETURNED` after
    /// any other request is answered.
    pub async fn pause(&mut self, client: &Client) {
        if std::mem::take(&mut self.received) || SUCCEEDED_AFTER <= self.opened.elapsed() {
            self.backoff.reset();
            self.refusals = 0;
        }
        let wait = self.jitter.stretch(self.backoff.advance(), 1.0);
        let spread = self.jitter.part(RETURNED);
        let began = Instant::now();
        client.back_off(wait).await;
        let left = wait.saturating_sub(began.elapsed());
        if !left.is_zero() {
            self.backoff.reset();
            self.refusals = REFUSED_AT_START;
        }
        tokio::time::sleep(left.min(spread)).await;
        // A failure before a watch was opened does not count as a watch.
        self.opened = Instant::now();
    }

    /// Returns true if a refusal is to be tried again after a pause, as the first ones after an
    /// outage are.
    pub fn retry_refusal(&mut self) -> bool {
        let is_retried = self.refusals > 0;
        self.refusals = self.refusals.saturating_sub(1);
        is_retried
    }

    /// Waits as long as a watch would be open: a missing permission is not granted soon.
    pub async fn rest(&mut self) {
        tokio::time::sleep(self.jitter.stretch(TIMEOUT, 1.0)).await;
    }
}

pub struct Watch {
    resource: &'static str,
    generation: Generation,
    /// Dropping the last client closes the connection.
    _connection: kube::Client,
    lines: Lines,
    /// The time at which the client closes the watch.
    end: Instant,
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch")
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}

impl Watch {
    pub async fn open(
        generation: &Generation,
        subject: &WatchTarget,
        from: &str,
        timeout: Duration,
    ) -> Result<Self, WatchEnd> {
        let resource = subject.resource;
        let request = request(subject, from, timeout).map_err(|err| {
            debug!(resource, err = &err as &dyn Error, "invalid path");
            WatchEnd::Broken
        })?;
        let opened = generation.watch(resource, request).await;
        let (response, connection) = opened.ok_or(WatchEnd::Broken)?;
        let (head, body) = response.into_parts();
        let code = head.status.as_u16();
        if !head.status.is_success() {
            log_refusal(resource, code, body).await;
            return Err(WatchEnd::refused(code));
        }
        let open = timeout.saturating_add(MARGIN);
        let now = Instant::now();
        Ok(Self {
            resource,
            generation: generation.clone(),
            _connection: connection,
            lines: Lines::new(body, Limit::OBJECT),
            end: now.checked_add(open).unwrap_or(now),
        })
    }

    /// Returns the next event. Can be cancelled without loss.
    pub async fn next(&mut self) -> Result<WatchEvent, WatchEnd> {
        let resource = self.resource;
        let line = match timeout_at(self.end, self.lines.next()).await {
            Ok(Ok(Some(line))) => line,
            Ok(Ok(None)) => return Err(WatchEnd::Regular),
            Ok(Err(err)) => return Err(self.broken(&err)),
            Err(_) => {
                debug!(resource, "the server did not end the watch in time");
                return Err(WatchEnd::Broken);
            }
        };
        let event = body::parse(&line, Limit::OBJECT);
        let event = event.map_err(|err| {
            debug!(resource, err = &err as &dyn Error, "cannot parse the event");
            WatchEnd::Broken
        })?;
        WatchEvent::of(event)
            .inspect_err(|end| debug!(resource, end = end.as_str(), "watch ended by an event"))
    }

    fn broken(&self, err: &BodyError) -> WatchEnd {
        let resource = self.resource;
        debug!(resource, err = err as &dyn Error, "watch ended");
        if let BodyError::TooLarge { .. } = err {
            let counts = self.generation.counts();
            counts.ended("WATCH", resource, tally::RequestEnd::TooLarge);
        }
        if err.is_end_of_stream() {
            WatchEnd::Regular
        } else {
            WatchEnd::Broken
        }
    }
}

fn request(
    subject: &WatchTarget,
    from: &str,
    timeout: Duration,
) -> Result<http::Request<Body>, http::Error> {
    let WatchTarget {
        path,
        selector,
        bookmarks,
        ..
    } = subject;
    let uri = format!(
        "{path}?watch=true&allowWatchBookmarks={bookmarks}&{selector}\
         &resourceVersion={from}&timeoutSeconds={}",
        timeout.as_secs()
    );
    http::Request::get(uri)
        .header(ACCEPT, subject.accept)
        .header(ACCEPT_ENCODING, "identity")
        .body(Body::empty())
}

async fn log_refusal(resource: &str, code: u16, body: Body) {
    let body = tokio::time::timeout(REFUSAL_TIME, body::start(body, Limit::REFUSAL)).await;
    let body = body.map_or_else(|_| Vec::new(), Result::unwrap_or_default);
    let message = super::error::message(&body);
    debug!(resource, code, message, "watch refused");
}

impl WatchEnd {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Regular => "regular",
            Self::Expired => "expired",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Broken => "broken",
        }
    }

    fn refused(code: u16) -> Self {
        match Refusal::new(code, None) {
            Refusal::Forbidden => Self::Refused,
            Refusal::Expired => Self::Expired,
            // The server does not know the version: it was restored from a backup.
            _ if matches!(code, 400 | 504) => Self::Expired,
            _ if code == 500 => Self::Failed,
            _ => Self::Broken,
        }
    }
}

impl WatchEvent {
    pub fn of(mut event: Value) -> Result<Self, WatchEnd> {
        let change = match text(&event, "/type").as_str() {
            "ADDED" => ChangeType::Added,
            "MODIFIED" => ChangeType::Modified,
            "DELETED" => ChangeType::Deleted,
            "BOOKMARK" => ChangeType::Bookmark,
            "ERROR" => return Err(WatchEnd::of_error(event.get("object"))),
            _ => return Err(WatchEnd::Broken),
        };
        let object = event.get_mut("object").map(Value::take);
        let object = object.filter(Value::is_object).ok_or(WatchEnd::Broken)?;
        let version = version(&object).ok_or(WatchEnd::Expired)?;
        let object = match change {
            ChangeType::Bookmark => Value::Null,
            ChangeType::Added | ChangeType::Modified | ChangeType::Deleted => object,
        };
        Ok(Self {
            change,
            object,
            version,
        })
    }
}

impl WatchEnd {
    fn of_error(status: Option<&Value>) -> Self {
        let code = status.and_then(|status| status.get("code")?.as_u64());
        code.and_then(|code| u16::try_from(code).ok())
            .map_or(Self::Broken, Self::refused)
    }
}

/// Returns the version of an object; empty if it has none. `None` if it cannot be sent back.
pub(super) fn version(object: &Value) -> Option<String> {
    let version = object.pointer("/metadata/resourceVersion");
    let version = version.and_then(Value::as_str).unwrap_or_default();
    let fits = version.len() <= VERSION_LIMIT;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    (fits && version.bytes().all(plain)).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Endpoint;
    use crate::scripted::{Reply, Scripted};

    #[test]
    fn a_line_is_an_event_or_ends_the_watch() {
        let object = json!({ "metadata": { "resourceVersion": "7" } });
        let long = "7".repeat(65);
        #[rustfmt::skip]
        let rows = [
            ("added", json!({ "type": "ADDED", "object": object }), Ok((ChangeType::Added, "7"))),
            ("a bookmark", json!({ "type": "BOOKMARK", "object": object }), Ok((ChangeType::Bookmark, "7"))),
            ("without a version", json!({ "type": "MODIFIED", "object": {} }), Ok((ChangeType::Modified, ""))),
            ("another type", json!({ "type": "ADDEDX", "object": object }), Err(WatchEnd::Broken)),
            ("no object", json!({ "type": "DELETED" }), Err(WatchEnd::Broken)),
            ("not a map", json!({ "type": "DELETED", "object": [] }), Err(WatchEnd::Broken)),
            ("no event", json!(7), Err(WatchEnd::Broken)),
            ("expired", json!({ "type": "ERROR", "object": { "code": 410 } }), Err(WatchEnd::Expired)),
            ("forbidden", json!({ "type": "ERROR", "object": { "code": 403 } }), Err(WatchEnd::Refused)),
            ("without support of the storage", json!({ "type": "ERROR", "object": { "code": 500 } }),
                Err(WatchEnd::Failed)),
            ("a large code", json!({ "type": "ERROR", "object": { "code": 65_946 } }), Err(WatchEnd::Broken)),
            ("an error without a code", json!({ "type": "ERROR" }), Err(WatchEnd::Broken)),
            ("a version that is a query",
                json!({ "type": "ADDED", "object": { "metadata": { "resourceVersion": "1&x=" } } }),
                Err(WatchEnd::Expired)),
            ("a long version",
                json!({ "type": "ADDED", "object": { "metadata": { "resourceVersion": long } } }),
                Err(WatchEnd::Expired)),
        ];
        for (name, event, expected) in rows {
            let read = WatchEvent::of(event);
            let read = read
                .as_ref()
                .map(|event| (event.change, event.version.as_str()));
            assert_eq!(read, expected.as_ref().map(|known| *known), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_a_pause_after_any_end_and_it_grows_until_a_watch_succeeds() {
        // open for s, received something, pause in ms
        let rows = [
            (0, false, 800),
            (0, false, 1600),
            (29, false, 3200),
            (30, false, 800),
            (1, false, 1600),
            (0, true, 800),
            (0, true, 800),
            (0, false, 1600),
        ];
        let client = Scripted::new([]).client();
        let mut pace = Pace::new(Jitter::NONE);
        for (n, (open, received, pause)) in rows.into_iter().enumerate() {
            pace.begin();
            tokio::time::sleep(Duration::from_secs(open)).await;
            if received {
                pace.received();
            }
            let ended = Instant::now();
            pace.pause(&client).await;
            assert_eq!(ended.elapsed(), Duration::from_millis(pause), "number {n}");
        }
        let mut failing = Pace::new(Jitter::seeded(7));
        let mut last = Duration::ZERO;
        for _ in 0..20 {
            let before = Instant::now();
            failing.pause(&client).await;
            last = before.elapsed();
        }
        assert!(
            Duration::from_secs(30) <= last && last < Duration::from_mins(1),
            "{last:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_follows_soon_after_an_outage() {
        let server = Scripted::new([Reply::Cut, Reply::json(200, json!({}))]);
        let client = server.client();
        let node = Endpoint::node("worker-1");
        let get = || client.get(&node);
        get().await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(10)).await;
        let mut pace = Pace::new(Jitter::seeded(7));
        for _ in 0..7 {
            pace.backoff.advance();
        }
        let began = Instant::now();
        let back = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            get().await.unwrap();
        };
        tokio::join!(pace.pause(&client), back);
        let took = began.elapsed();
        let latest = Duration::from_secs(6);
        assert!(Duration::from_secs(5) < took && took < latest, "{took:?}");

        let refused = [(); 6].map(|()| pace.retry_refusal());
        assert_eq!(refused, [true, true, true, true, true, false]);
        let began = Instant::now();
        pace.pause(&client).await;
        assert!(began.elapsed() < Duration::from_secs(2), "from the start");
        pace.refusals = REFUSED_AT_START;
        pace.received();
        pace.pause(&client).await;
        assert!(!pace.retry_refusal(), "a watch has succeeded since");
    }
}
