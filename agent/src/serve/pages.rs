//! From a request to an answer.

use std::borrow::Cow;
use std::convert::Infallible;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;

use super::{Front, Pages, QueryKind};
use crate::metrics;

/// The whole of an answer.
type Answer = Response<Full<Bytes>>;

/// Answers one request, whose body nobody reads. `asks` is called before the loop is asked.
pub(super) async fn answer<Body>(
    request: Request<Body>,
    pages: Pages,
    front: &Front,
    asks: &impl Fn(QueryKind),
) -> Result<Answer, Infallible> {
    let Some(page) = page(request.uri().path()).filter(|page| page.is_among(pages)) else {
        return Ok(plain(StatusCode::NOT_FOUND, "not found"));
    };
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
        let allowed = HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(ALLOW, allowed);
        return Ok(refused);
    }
    Ok(match page {
        Page::Asked(subject) => {
            asks(subject);
            asked(subject, front).await
        }
        Page::Ready => match front.ready() {
            Ok(()) => plain(StatusCode::OK, "ok"),
            Err(why) => plain(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        // The thread that answers here is the one that everything else runs on.
        Page::Live | Page::Healthy => plain(StatusCode::OK, "ok"),
    })
}

#[derive(Debug, Clone, Copy)]
enum Page {
    Live,
    Healthy,
    Ready,
    Asked(QueryKind),
}

fn page(path: &str) -> Option<Page> {
    Some(match path {
        "/livez" => Page::Live,
        "/healthz" => Page::Healthy,
        "/readyz" => Page::Ready,
        "/metrics" => Page::Asked(QueryKind::Metrics),
        "/v1/status" => Page::Asked(QueryKind::Status),
        "/v1/explain" => Page::Asked(QueryKind::Explain),
        _ => return None,
    })
}

impl Page {
    fn is_among(self, pages: Pages) -> bool {
        match (pages, self) {
            (Pages::Control, _)
            | (
                Pages::All,
                Self::Live | Self::Healthy | Self::Ready | Self::Asked(QueryKind::Metrics),
            )
            | (Pages::Healthz, Self::Healthy) => true,
            (Pages::All, Self::Asked(QueryKind::Status | QueryKind::Explain))
            | (Pages::Healthz, Self::Live | Self::Ready | Self::Asked(_)) => false,
        }
    }
}

async fn asked(subject: QueryKind, front: &Front) -> Answer {
    let content_type = match subject {
        QueryKind::Metrics => metrics::CONTENT_TYPE,
        QueryKind::Status | QueryKind::Explain => "application/json",
    };
    match front.ask(subject).await {
        Some(text) => typed(StatusCode::OK, content_type, text.into()),
        None => plain(StatusCode::SERVICE_UNAVAILABLE, "the agent is busy"),
    }
}

fn plain(code: StatusCode, text: impl Into<Cow<'static, str>>) -> Answer {
    let text = match text.into() {
        Cow::Borrowed(text) => Bytes::from_static(text.as_bytes()),
        Cow::Owned(text) => text.into(),
    };
    typed(code, "text/plain; charset=utf-8", text)
}

fn typed(code: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = code;
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}
