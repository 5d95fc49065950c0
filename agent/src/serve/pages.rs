//! From a request to an answer.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;

use super::{Front, Pages, Readiness};
use crate::metrics;

/// The whole of an answer.
type Answer = Response<Full<Bytes>>;

/// Answers one request, whose body nobody reads.
pub(super) async fn answer<Body>(
    request: Request<Body>,
    pages: Pages,
    front: &Front,
) -> Result<Answer, Infallible> {
    let path = request.uri().path();
    let known = match pages {
        Pages::All => matches!(path, "/metrics" | "/livez" | "/readyz" | "/healthz"),
        Pages::Healthz => path == "/healthz",
    };
    if !known {
        return Ok(plain(StatusCode::NOT_FOUND, "not found"));
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
        let allowed = HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(ALLOW, allowed);
        return Ok(refused);
    }
    Ok(match path {
        "/metrics" => metrics(front).await,
        "/readyz" => match *front.readiness.borrow() {
            Readiness::Ready => plain(StatusCode::OK, "ok"),
            Readiness::NotReady(why) => plain(StatusCode::SERVICE_UNAVAILABLE, why),
        },
        // The thread that answers here is the one that everything else runs on.
        _ => plain(StatusCode::OK, "ok"),
    })
}

async fn metrics(front: &Front) -> Answer {
    match front.scrape().await {
        Some(text) => typed(StatusCode::OK, metrics::CONTENT_TYPE, text.into()),
        None => plain(StatusCode::SERVICE_UNAVAILABLE, "the agent is busy"),
    }
}

fn plain(code: StatusCode, text: &'static str) -> Answer {
    typed(code, "text/plain; charset=utf-8", text.into())
}

fn typed(code: StatusCode, content_type: &'static str, body: Bytes) -> Answer {
    let mut answer = Response::new(Full::new(body));
    *answer.status_mut() = code;
    let content_type = HeaderValue::from_static(content_type);
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
}
