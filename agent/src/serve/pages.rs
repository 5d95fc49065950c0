//! Answers requests.

use std::borrow::Cow;
use std::convert::Infallible;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{Either, Full};

use super::{PageResponder, Pages, RecordedLines, StatePage};
use crate::metrics;

type PageResponse = Response<Either<Full<Bytes>, RecordedLines>>;

/// What a connection waits for, once the loop answers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoopAnswer {
    Page,
    /// It ends with the client.
    Recording,
}

/// Answers one request and ignores its body. Calls `on_loop_answer` before a page of the
/// loop is requested, and after a recording has begun.
pub(super) async fn answer<Body>(
    request: Request<Body>,
    pages: Pages,
    responder: &PageResponder,
    on_loop_answer: &impl Fn(LoopAnswer),
) -> Result<PageResponse, Infallible> {
    let Some(page) = page(request.uri().path(), pages) else {
        return Ok(plain(StatusCode::NOT_FOUND, "not found"));
    };
    let allowed = match page {
        // A HEAD request would end another recording.
        Page::Record => "GET",
        _ => "GET, HEAD",
    };
    if !allowed
        .split(", ")
        .any(|method| *request.method() == method)
    {
        let text = format!("only {}", allowed.replace(", ", " and "));
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, text);
        let allowed = HeaderValue::from_static(allowed);
        refused.headers_mut().insert(ALLOW, allowed);
        return Ok(refused);
    }
    Ok(match page {
        Page::State(page) => {
            on_loop_answer(LoopAnswer::Page);
            state(page, responder).await
        }
        Page::Record => match responder.record().await {
            Some(lines) => {
                on_loop_answer(LoopAnswer::Recording);
                let content_type = "application/jsonl";
                typed(StatusCode::OK, content_type, Either::Right(lines))
            }
            None => busy(),
        },
        Page::Ready => {
            let (code, text) = match responder.ready() {
                Ok(()) => (StatusCode::OK, "ok".into()),
                Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
            };
            let mut query = request.uri().query().unwrap_or_default().split(['&', '=']);
            if query.any(|part| part == "verbose") {
                plain(code, text.into_owned() + &responder.sinks())
            } else {
                plain(code, text)
            }
        }
        Page::Live => plain(StatusCode::OK, "ok"),
    })
}

enum Page {
    /// The agent has one thread, so an answer proves that it runs.
    Live,
    Ready,
    State(StatePage),
    Record,
}

/// Returns the page at `path`, if it is one of `pages`.
fn page(path: &str, pages: Pages) -> Option<Page> {
    Some(match (path, pages) {
        ("/healthz", _) | ("/livez", Pages::All | Pages::Control) => Page::Live,
        ("/readyz", Pages::All | Pages::Control) => Page::Ready,
        ("/metrics", Pages::All | Pages::Control) => Page::State(StatePage::Metrics),
        ("/v1/status", Pages::Control) => Page::State(StatePage::Status),
        ("/v1/explain", Pages::Control) => Page::State(StatePage::Explain),
        ("/v1/record", Pages::Control) => Page::Record,
        _ => return None,
    })
}

async fn state(page: StatePage, responder: &PageResponder) -> PageResponse {
    let content_type = match page {
        StatePage::Metrics => metrics::CONTENT_TYPE,
        StatePage::Status | StatePage::Explain => "application/json",
    };
    match responder.ask(page).await {
        Some(text) => typed(StatusCode::OK, content_type, Either::Left(text.into())),
        None => busy(),
    }
}

fn busy() -> PageResponse {
    plain(StatusCode::SERVICE_UNAVAILABLE, "the agent is busy")
}

fn plain(code: StatusCode, text: impl Into<Cow<'static, str>>) -> PageResponse {
    let text = match text.into() {
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => text.into(),
    };
    typed(code, "text/plain; charset=utf-8", Either::Left(text.into()))
}

fn typed(
    code: StatusCode,
    content_type: &'static str,
    body: Either<Full<Bytes>, RecordedLines>,
) -> PageResponse {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}
