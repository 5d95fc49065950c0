//! Requests to the API server. All of them read.

use std::ffi::OsString;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::DATE;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::jiff::fmt::rfc2822::DateTimeParser;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout, timeout_at};

use crate::age::Present;
use crate::arguments::Connection;
use crate::failure::{Failure, chain, one_line};
use crate::kubeconfig;
use crate::objects::{Page, Status};
use crate::place::Place;
use crate::proxy;

/// Objects per page, as requested with `limit`.
const PAGE: &str = "500";
/// Maximum number of objects in a page of a server that ignores [`PAGE`].
const PAGE_OBJECTS: usize = 20_000;
/// Maximum number of objects of one list: the largest supported cluster has 150,000 pods.
pub const OBJECTS: usize = 200_000;
/// Maximum number of pages of one list, of which some can be empty.
const PAGES: u32 = 2_000;
/// Maximum size of an answer in bytes: a page of 500 Nodes has 5 to 20 MiB.
const ANSWER: usize = 64 << 20;
/// Maximum size of an error in bytes.
const REFUSAL: usize = 64 << 10;
/// Maximum length of one line of a watch in bytes.
const LINE: usize = 4 << 20;
/// Maximum number of bytes that are read of a page of metrics.
const METRICS: usize = 64 << 10;
/// Timeout for an answer, and for its next bytes.
const PATIENCE: Duration = Duration::from_secs(30);
/// Timeout for the next byte of a watch: longer than the server keeps it open.
const WATCH_LIMIT: Duration = Duration::from_secs(330);
/// Maximum number of times that an expired list is started again.
const RESTARTS: u32 = 3;
/// Maximum number of retries of a request that the server was too busy to answer.
const BUSY: u32 = 3;
/// Longest wait in seconds that the server can request.
const WAIT: u64 = 5;
/// Ignored difference of clocks in seconds: the server's date has no fractions and arrives late.
const SAME_TIME: u64 = 2;

/// A cluster, with the credentials of one user.
pub struct Cluster {
    client: kube::Client,
    server: String,
    /// Namespace of the context, or as given.
    pub namespace: String,
    pub agent_namespace: String,
    silent_after: Duration,
    /// Seconds by which the API server's clock is ahead of this machine's.
    ahead: AtomicI64,
    /// Arguments with which kubectl finds the same cluster.
    pub kubectl: Vec<OsString>,
}

impl Cluster {
    /// Reads the kubeconfig. Opens no connection yet.
    pub async fn connect(connection: &Connection) -> Result<Self, Failure> {
        let (config, proxy) = kubeconfig::read(connection).await?;
        let mut server = one_line(config.cluster_url.to_string().trim_end_matches('/'));
        let namespace = config.default_namespace.clone();
        let client = match &proxy {
            Some(proxy) => {
                let url = one_line(proxy.uri().to_string().trim_end_matches('/'));
                server = format!("{server} through the proxy {url}");
                proxy::client(&config, proxy)
            }
            None => kube::Client::try_from(config),
        };
        let client =
            client.map_err(|err| Failure::Kubeconfig(format!("kubeconfig: {}", chain(&err))))?;
        let mut kubectl = Vec::new();
        if let Some(file) = &connection.kubeconfig {
            kubectl.extend([OsString::from("--kubeconfig"), file.into()]);
        }
        if let Some(context) = &connection.context {
            kubectl.extend(["--context".into(), context.into()]);
        }
        Ok(Self {
            client,
            server,
            namespace,
            agent_namespace: connection.agent_namespace.clone(),
            silent_after: connection.silent_after,
            ahead: AtomicI64::new(0),
            kubectl,
        })
    }

    /// The time by the API server's clock, which is nearer to those of the nodes than that of a
    /// workstation. Before the first answer, it is the time by the clock of this machine.
    pub fn now(&self) -> Timestamp {
        let ahead = SignedDuration::from_secs(self.ahead.load(Ordering::Relaxed));
        let now = Timestamp::now();
        now.checked_add(ahead).unwrap_or(now)
    }

    pub fn present(&self) -> Present {
        Present {
            now: self.now(),
            silent_after: self.silent_after,
        }
    }

    /// Sets the clock from an answer, which must not be one that a pod has served.
    fn set_clock(&self, answer: &Response<Body>) {
        let date = answer
            .headers()
            .get(DATE)
            .and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
        let Some(date) = date else { return };
        let ahead = date
            .as_second()
            .saturating_sub(Timestamp::now().as_second());
        let ahead = if ahead.unsigned_abs() > SAME_TIME {
            ahead
        } else {
            0
        };
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    pub async fn get<T: DeserializeOwned>(&self, place: &Place) -> Result<T, Failure> {
        let answer = self.answer("get", place, &[]).await?;
        self.set_clock(&answer);
        let body = self.body("get", place, answer.into_body(), ANSWER).await?;
        parse("get", place, &body)
    }

    /// Returns the results of `row` for each object, which are dropped with their page, and the
    /// list's resource version. Reads a list that expires again; one that does not end is an error.
    pub async fn list<T: DeserializeOwned, R>(
        &self,
        place: &Place,
        query: &[(&str, &str)],
        row: impl Fn(T) -> Option<R>,
    ) -> Result<(Vec<R>, String), Failure> {
        let mut rows = Vec::new();
        let mut from = String::new();
        let mut restarts = 0_u32;
        let mut objects = 0_usize;
        for _ in 0..PAGES {
            let mut all = query.to_vec();
            all.extend([("limit", PAGE), ("continue", from.as_str())]);
            let answer = match self.answer("list", place, &all).await {
                Ok(answer) => answer,
                Err(Failure::Expired { .. }) if restarts < RESTARTS => {
                    restarts = restarts.saturating_add(1);
                    rows.clear();
                    from.clear();
                    objects = 0;
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            self.set_clock(&answer);
            let body = self.body("list", place, answer.into_body(), ANSWER).await?;
            let page: Page<T, PAGE_OBJECTS> = parse("list", place, &body)?;
            drop(body);
            let items = page.items.map_or_else(Vec::new, |items| items.0);
            objects = objects.saturating_add(items.len());
            rows.extend(items.into_iter().filter_map(&row));
            match page.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) if next == from => {
                    return Err(endless(place, "it continues with the same page"));
                }
                Some(_) if objects > OBJECTS => {
                    return Err(endless(
                        place,
                        &format!("it has more than {OBJECTS} objects"),
                    ));
                }
                Some(next) => from = next,
                None => return Ok((rows, page.metadata.resource_version.unwrap_or_default())),
            }
        }
        Err(endless(place, &format!("it has more than {PAGES} pages")))
    }

    /// Watches a collection from this resource version on.
    pub async fn watch(
        &self,
        place: &Place,
        query: &[(&str, &str)],
        version: &str,
    ) -> Result<Lines, Failure> {
        let mut all = query.to_vec();
        all.extend([
            ("watch", "1"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", "300"),
            ("resourceVersion", version),
        ]);
        let answer = self.answer("watch", place, &all).await?;
        self.set_clock(&answer);
        Ok(Lines::of(answer.into_body(), LINE))
    }

    /// Returns the first line with the prefix `start` of what a pod serves. The rest is not read.
    pub async fn served_line(&self, place: &Place, start: &str) -> Result<Option<String>, Failure> {
        let answer = self.answer("get", place, &[]).await?;
        let mut lines = Lines::of(answer.into_body(), METRICS);
        let mut left = METRICS;
        while let Some(line) = lines.next().await {
            if line.starts_with(start.as_bytes()) {
                return Ok(Some(String::from_utf8_lossy(&line).into_owned()));
            }
            match left.checked_sub(line.len()) {
                Some(rest) => left = rest,
                None => break,
            }
        }
        Ok(None)
    }

    async fn answer(
        &self,
        verb: &'static str,
        place: &Place,
        query: &[(&str, &str)],
    ) -> Result<Response<Body>, Failure> {
        let path = place.path(query);
        let mut busy = 0_u32;
        loop {
            let request = Request::get(&path).header("Accept", "application/json");
            let request = request.body(Body::empty());
            let request = request.map_err(|err| Failure::Usage(chain(&err)))?;
            let answer = timeout(PATIENCE, self.client.send(request)).await;
            let answer = answer.map_err(|_| self.silent())?;
            let answer = answer.map_err(|err| self.unreachable(&err))?;
            if answer.status().is_success() {
                return Ok(answer);
            }
            let wait = answer.headers().get("Retry-After");
            let wait = wait.and_then(|wait| wait.to_str().ok()?.parse::<u64>().ok());
            match wait {
                Some(seconds) if busy < BUSY && is_busy(answer.status()) => {
                    busy = busy.saturating_add(1);
                    tokio::time::sleep(Duration::from_secs(seconds.min(WAIT))).await;
                }
                _ => return Err(self.refusal(verb, place, answer).await),
            }
        }
    }

    async fn refusal(&self, verb: &'static str, place: &Place, answer: Response<Body>) -> Failure {
        let code = answer.status();
        let body = self.body(verb, place, answer.into_body(), REFUSAL).await;
        let body = body.unwrap_or_default();
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        let message = status.message.unwrap_or_default();
        match code {
            StatusCode::UNAUTHORIZED => Failure::Unauthorized {
                server: self.server.clone(),
            },
            StatusCode::FORBIDDEN => Failure::Forbidden {
                user: user_of(&message),
                verb,
                resource: place.resource,
                group: place.group,
                place: place.whereabouts(),
            },
            StatusCode::NOT_FOUND => Failure::NotFound { what: place.what() },
            StatusCode::GONE => Failure::Expired {
                resource: place.resource,
            },
            _ => Failure::Refused {
                verb,
                resource: place.resource,
                code: code.as_u16(),
                message: one_line(&message),
            },
        }
    }

    async fn body(
        &self,
        verb: &'static str,
        place: &Place,
        mut body: Body,
        limit: usize,
    ) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        loop {
            let chunk = timeout(PATIENCE, next_chunk(&mut body)).await;
            match chunk.map_err(|_| self.silent())? {
                Err(err) => return Err(self.unreachable(&err)),
                Ok(None) => return Ok(bytes),
                Ok(Some(chunk)) if limit.saturating_sub(bytes.len()) < chunk.len() => {
                    let why = format!("the answer exceeds {} MiB", limit >> 20);
                    return Err(garbled(verb, place, why));
                }
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
            }
        }
    }

    fn silent(&self) -> Failure {
        Failure::Unreachable {
            server: self.server.clone(),
            why: format!("no answer within {} s", PATIENCE.as_secs()),
        }
    }

    fn unreachable(&self, err: &kube::Error) -> Failure {
        // The cause is more useful than what a library was doing.
        let why = match err {
            kube::Error::Service(_) | kube::Error::HyperError(_) => root_cause(err),
            _ => chain(err),
        };
        Failure::Unreachable {
            server: self.server.clone(),
            why,
        }
    }
}

fn root_cause(err: &(dyn std::error::Error + 'static)) -> String {
    let mut root = err;
    while let Some(cause) = root.source() {
        root = cause;
    }
    one_line(&root.to_string())
}

fn is_busy(code: StatusCode) -> bool {
    matches!(
        code,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE
    )
}

pub struct Lines {
    body: Body,
    /// Maximum length of a line in bytes.
    limit: usize,
    received: Vec<u8>,
    /// Number of received bytes that are known to contain no line feed.
    checked: usize,
    /// Deadline for the next bytes.
    end: Instant,
}

impl Lines {
    fn of(body: Body, limit: usize) -> Self {
        Self {
            body,
            limit,
            received: Vec::new(),
            checked: 0,
            end: Instant::now() + WATCH_LIMIT,
        }
    }

    /// Returns the next line; `None` at the end or if the connection breaks. Cancel safe.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            let rest = self.received.get(self.checked..)?;
            if let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let end = self.checked.saturating_add(end);
                let rest = self.received.split_off(end.saturating_add(1));
                self.checked = 0;
                return Some(std::mem::replace(&mut self.received, rest));
            }
            self.checked = self.received.len();
            if self.checked > self.limit {
                return None;
            }
            // The deadline also ends a connection that broke without being closed.
            let chunk = timeout_at(self.end, next_chunk(&mut self.body)).await;
            let chunk = chunk.ok()?.ok()??;
            self.end = Instant::now() + WATCH_LIMIT;
            self.received.extend_from_slice(&chunk);
        }
    }
}

async fn next_chunk(body: &mut Body) -> Result<Option<Bytes>, kube::Error> {
    while let Some(frame) = body.frame().await {
        // The other kind of frame is trailers.
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

fn parse<'a, T: Deserialize<'a>>(
    verb: &'static str,
    place: &Place,
    body: &'a [u8],
) -> Result<T, Failure> {
    let wrong = |err: serde_json::Error| {
        let why = format!("the answer is not what an API server sends ({err})");
        garbled(verb, place, one_line(&why))
    };
    serde_json::from_slice(body).map_err(wrong)
}

fn endless(place: &Place, why: &str) -> Failure {
    let why = format!("the list does not end: {why}; check what answers at this address");
    garbled("list", place, why)
}

fn garbled(verb: &'static str, place: &Place, why: String) -> Failure {
    Failure::Garbled {
        verb,
        resource: place.resource,
        why,
    }
}

/// Returns the user that a refusal names: `nodes is forbidden: User "jane" cannot list …`.
fn user_of(message: &str) -> String {
    let name = message
        .split_once("User \"")
        .and_then(|(_, rest)| rest.split_once('"'));
    match name {
        Some((name, _)) => format!("user \"{}\"", one_line(name)),
        None => "the kubeconfig's user".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use http_body_util::Full;
    use serde_json::{Value, json};

    use super::*;
    use crate::objects::Node;

    /// `page(n)` is the answer to request `n`.
    fn cluster(page: fn(usize) -> Value) -> Cluster {
        let requests = Arc::new(AtomicUsize::new(0));
        let service = tower::service_fn(move |_: Request<Body>| {
            let body = page(requests.fetch_add(1, Ordering::Relaxed)).to_string();
            let answer = Response::new(Full::new(Bytes::from(body)));
            async move { Ok::<_, Infallible>(answer) }
        });
        Cluster {
            client: kube::Client::new(service, "default"),
            server: "https://api.example".to_owned(),
            namespace: "default".to_owned(),
            agent_namespace: "nodepulse".to_owned(),
            silent_after: Duration::ZERO,
            ahead: AtomicI64::new(0),
            kubectl: Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_list_without_an_end_is_an_error_and_one_with_many_pages_is_not() {
        type Row = (fn(usize) -> Value, Result<usize, &'static str>);

        /// `next` is the token of the next page.
        fn page(objects: usize, next: &str) -> Value {
            json!({ "metadata": { "continue": next }, "items": vec![json!({}); objects] })
        }
        //  the pages, the number of objects or what the error contains
        #[rustfmt::skip]
        let rows: [Row; 5] = [
            (|n| page(500, if n < 9 { ["a", "b"][n % 2] } else { "" }), Ok(5_000)),
            (|_| page(1, "same"), Err("the list does not end: it continues with the same page")),
            (|n| page(0, &n.to_string()), Err("it has more than 2000 pages")),
            (|n| page(5_000, &n.to_string()), Err("it has more than 200000 objects")),
            (|_| page(PAGE_OBJECTS + 1, ""), Err("more than 20000 objects in a page")),
        ];
        for (pages, expected) in rows {
            let list = cluster(pages)
                .list(&Place::nodes(), &[], |_: Node| Some(()))
                .await;
            match (list, expected) {
                (Ok((rows, _)), Ok(count)) => assert_eq!(rows.len(), count),
                (Err(failure), Err(part)) => {
                    let text = failure.to_string();
                    assert!(text.contains(part), "{text}");
                }
                (got, expected) => panic!("{expected:?}: {:?}", got.map(|(rows, _)| rows.len())),
            }
        }
    }
}
