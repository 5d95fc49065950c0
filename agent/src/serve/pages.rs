//! Answers requests.

use std::borrow::Cow;
use std::convert::Infallible;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;

use super::{PageResponder, Pages, StatePage};
use crate::metrics;

type PageResponse = Response<Full<Bytes>>;

/// Answers one request and ignores its body. Calls `on_state_page` before a request to the loop.
pub(super) async fn answer<Body>(
    request: Request<Body>,
    pages: Pages,
    responder: &PageResponder,
    on_state_page: &impl Fn(),
) -> Result<PageResponse, Infallible> {
    let Some(page) = page(request.uri().path(), pages) else {
        return Ok(plain(StatusCode::NOT_FOUND, "not found"));
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
        let allowed = HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(ALLOW, allowed);
        return Ok(refused);
    }
    Ok(match page {
        Page::State(page) => {
            on_state_page();
            state(page, responder).await
        }
        Page::Ready => match responder.ready() {
            Ok(()) => plain(StatusCode::OK, "ok"),
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        Page::Live => plain(StatusCode::OK, "ok"),
    })
}

enum Page {
    /// The agent has one thread, so an answer proves that it runs.
    Live,
    Ready,
    State(StatePage),
}

/// Returns the page at `path`, if it is one of `pages`.
fn page(path: &str, pages: Pages) -> Option<Page> {
    Some(match (path, pages) {
        ("/healthz", _) | ("/livez", Pages::All | Pages::Control) => Page::Live,
        ("/readyz", Pages::All | Pages::Control) => Page::Ready,
        ("/metrics", Pages::All | Pages::Control) => Page::State(StatePage::Metrics),
        ("/v1/status", Pages::Control) => Page::State(StatePage::Status),
        ("/v1/explain", Pages::Control) => Page::State(StatePage::Explain),
        _ => return None,
    })
}

async fn state(page: StatePage, responder: &PageResponder) -> PageResponse {
    let content_type = match page {
        StatePage::Metrics => metrics::CONTENT_TYPE,
        StatePage::Status | StatePage::Explain => "application/json",
    };
    match responder.ask(page).await {
        Some(text) => typed(StatusCode::OK, content_type, text),
        None => plain(StatusCode::SERVICE_UNAVAILABLE, "the agent is busy"),
    }
}

fn plain(code: StatusCode, text: impl Into<Cow<'static, str>>) -> PageResponse {
    let text = match text.into() {
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => text.into(),
    };
    typed(code, "text/plain; charset=utf-8", text)
}

fn typed(code: StatusCode, content_type: &'static str, body: Bytes) -> PageResponse {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = code;
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}
