//! Requests to the receiver of a sink.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use nodepulse_core::escape::{chain, escape};
use nodepulse_kube::transport::Connector;
use serde_json::Value;
use tokio::time::timeout;

/// Time for a request, including the connection.
const LIMIT: Duration = Duration::from_secs(10);

/// Time for the body of an answer.
const BODY: Duration = Duration::from_secs(2);

/// An unused connection is closed after this time, which costs one wake-up.
const IDLE: Duration = Duration::from_secs(5);

/// Maximum size of an answer, in bytes.
const ANSWER: usize = 16 << 10;

/// Maximum length of an excerpt of an answer in the log, in characters.
const EXCERPT: usize = 200;

/// A body and its headers.
pub struct Body {
    pub content_type: &'static str,
    pub content_encoding: Option<&'static str>,
    pub bytes: Bytes,
}

/// The receiver's answer, with the reason unless it accepts.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    /// It has accepted all but some, which it will never accept.
    Partial {
        rejected: u64,
        why: String,
    },
    /// It will never accept this.
    Refused(String),
    /// It cannot process this. Another attempt may succeed.
    Failed(String),
    /// It cannot be reached, has no time, or is not configured for this agent.
    Later {
        why: String,
        after: Option<Duration>,
    },
}

/// A receiver, by its URL. Redirects are not followed, because headers can contain credentials.
#[derive(Debug)]
pub struct Receiver {
    url: Uri,
    headers: HeaderMap,
    client: legacy::Client<Connector, Full<Bytes>>,
}

impl Receiver {
    /// Must be called in a runtime.
    pub fn new(url: Uri, mut headers: HeaderMap, connector: Connector) -> Self {
        let agent = HeaderValue::from_static(concat!("nodepulse/", env!("CARGO_PKG_VERSION")));
        headers.entry(USER_AGENT).or_insert(agent);
        let client = legacy::Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(1)
            .http1_max_buf_size(64 << 10)
            .http2_max_header_list_size(16 << 10)
            .build(connector);
        Self {
            url,
            headers,
            client,
        }
    }

    pub async fn post(&self, body: Body) -> Answer {
        let later = |why| Answer::Later { why, after: None };
        match timeout(LIMIT, self.exchange(body)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(err)) => later(escape(chain(&*err))),
            Err(_) => later(format!("no answer within {}s", LIMIT.as_secs())),
        }
    }

    async fn exchange(&self, body: Body) -> Result<Answer, tower::BoxError> {
        let Body {
            content_type,
            content_encoding,
            bytes,
        } = body;
        let mut request = Request::post(self.url.clone()).body(Full::new(bytes))?;
        let headers = request.headers_mut();
        headers.extend(self.headers.clone());
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        if let Some(encoding) = content_encoding {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static(encoding));
        }
        let (answer, body) = self.client.request(request).await?.into_parts();
        // The status is the answer, also without the whole body.
        let body = timeout(BODY, Limited::new(body, ANSWER).collect()).await;
        let body = body.ok().and_then(Result::ok);
        let body = body.map_or_else(Bytes::new, http_body_util::Collected::to_bytes);
        Ok(judge(answer.status, &answer.headers, &self.redacted(&body)))
    }

    /// Returns an answer without the values of the headers file, which it may repeat.
    fn redacted(&self, body: &[u8]) -> String {
        let mut text = String::from_utf8_lossy(body).into_owned();
        let secret = self.headers.values().filter(|value| value.is_sensitive());
        for value in secret {
            let value = String::from_utf8_lossy(value.as_bytes());
            // A token is often repeated without its scheme.
            let parts = [&*value]
                .into_iter()
                .chain(value.split([' ', ',', ';', '=']));
            for part in parts.filter(|part| 3 <= part.len()) {
                text = text.replace(part, "…");
            }
        }
        text
    }
}

/// What is wrong with this agent, with the receiver or between them can be mended without losing
/// incidents, so that only an answer about the body is final. 400 is also the answer of a TLS port
/// that is addressed without TLS, and of firewalls.
fn judge(status: StatusCode, headers: &HeaderMap, body: &str) -> Answer {
    let why = || {
        let excerpt: String = body.trim().chars().take(EXCERPT).collect();
        let separator = if excerpt.is_empty() { "" } else { ": " };
        format!("{status}{separator}{}", escape(&excerpt))
    };
    match status.as_u16() {
        200..=299 => rejected(body).unwrap_or(Answer::Accepted),
        413 | 422 => Answer::Refused(why()),
        400 | 500 => Answer::Failed(why()),
        300..=399 => Answer::Later {
            why: format!("{status}: redirects are not followed; configure the final URL"),
            after: None,
        },
        _ => Answer::Later {
            why: why(),
            after: retry_after(headers),
        },
    }
}

/// Returns how many log records a collector has rejected that it was able to read.
/// <https://opentelemetry.io/docs/specs/otlp/#partial-success-1>
fn rejected(body: &str) -> Option<Answer> {
    let answer: Value = serde_json::from_str(body).ok()?;
    let partial = answer.get("partialSuccess")?;
    let number = partial.get("rejectedLogRecords")?;
    let number = number.as_u64().or_else(|| number.as_str()?.parse().ok())?;
    let message = partial.get("errorMessage").and_then(Value::as_str);
    let message: String = message.unwrap_or_default().chars().take(EXCERPT).collect();
    (0 < number).then(|| Answer::Partial {
        rejected: number,
        why: format!("{number} log records rejected: {}", escape(&message)),
    })
}

/// Only in seconds: a date depends on the clocks of both sides.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    seconds.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use nodepulse_kube::transport;

    use super::*;

    #[test]
    fn only_an_answer_about_the_incident_is_final() {
        let refused = |why: &str| Answer::Refused(why.to_owned());
        let later = |why: &str, after: Option<u64>| Answer::Later {
            why: why.to_owned(),
            after: after.map(Duration::from_secs),
        };
        let partial =
            r#"{"partialSuccess": {"rejectedLogRecords": "2", "errorMessage": "too\nold"}}"#;
        //  status, Retry-After, body, and the answer
        #[rustfmt::skip]
        let rows: [(u16, &str, &str, Answer); 13] = [
            (200, "", "", Answer::Accepted),
            (202, "", "\u{0}garbage", Answer::Accepted),
            (200, "", r#"{"partialSuccess": {"rejectedLogRecords": "0"}}"#, Answer::Accepted),
            (200, "", partial, Answer::Partial {
                rejected: 2,
                why: "2 log records rejected: too\\nold".to_owned(),
            }),
            (400, "", "no\r\nJSON", Answer::Failed("400 Bad Request: no\\r\\nJSON".to_owned())),
            (413, "", "", refused("413 Payload Too Large")),
            (500, "", "", Answer::Failed("500 Internal Server Error".to_owned())),
            (401, "", "", later("401 Unauthorized", None)),
            (404, "", "", later("404 Not Found", None)),
            (429, "7", "", later("429 Too Many Requests", Some(7))),
            (503, "Wed, 21 Oct 2015 07:28:00 GMT", "", later("503 Service Unavailable", None)),
            (503, "99999999999999999999", "", later("503 Service Unavailable", None)),
            (307, "1", "", later("307 Temporary Redirect: redirects are not followed; \
                                  configure the final URL", None)),
        ];
        for (status, after, body, answer) in rows {
            let mut headers = HeaderMap::new();
            if !after.is_empty() {
                headers.insert(RETRY_AFTER, after.parse().unwrap());
            }
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(judge(status, &headers, body), answer);
        }
    }

    #[tokio::test]
    async fn an_answer_that_repeats_a_secret_is_shown_without_it() {
        let url: Uri = "http://127.0.0.1:9".parse().unwrap();
        let connector = transport::tcp_tls(&kube::Config::new(url.clone())).unwrap();
        let mut headers = HeaderMap::new();
        for (name, value) in [("authorization", "Bearer s3cr3t.Value"), ("x-key", "abc")] {
            let mut value = HeaderValue::from_static(value);
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        headers.insert("x-shown", HeaderValue::from_static("forbidden"));
        let receiver = Receiver::new(url, headers, connector);
        let rows = [
            ("forbidden", "forbidden"),
            ("got 'Bearer s3cr3t.Value'", "got '…'"),
            ("token s3cr3t.Value, key abc", "token …, key …"),
        ];
        for (body, shown) in rows {
            assert_eq!(receiver.redacted(body.as_bytes()), shown);
        }
    }
}
