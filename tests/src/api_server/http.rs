//! Converts a request to a response.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use super::answer::{self, Broken, Drip, ServerAnswer, json_answer, plain, refuse, whole};
use super::auth::{Access, Identity};
use super::connection::{Control, Mode};
use super::discovery;
use super::failure::Failure;
use super::faults::Effect;
use super::pod_proxy;
use super::query::{QueryParameters, Selector};
use super::read::{Form, ReadRequest};
use super::record::Recorded;
use super::resource::{Part, Target};
use super::state::Inner;
use super::typed;
use super::watch::WatchStream;
use super::write::{Deleted, PatchKind, Write};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Serves one connection to its end, over HTTP/1.1 or HTTP/2 as the client begins.
pub(super) async fn serve<S>(
    stream: S,
    inner: Arc<Inner>,
    control: Arc<Control>,
    identity: Option<Identity>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handled = Arc::clone(&control);
    let max_streams = inner.state().max_streams;
    let service = service_fn(move |request| {
        handle(
            Arc::clone(&inner),
            Arc::clone(&handled),
            identity.clone(),
            request,
        )
    });
    let mut builder = Builder::new(TokioExecutor::new());
    if let Some(max_streams) = max_streams {
        builder.http2().max_concurrent_streams(max_streams);
    }
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    loop {
        tokio::select! {
            // The client's tests check why it closed the connection.
            _ended = connection.as_mut() => return,
            () = control.go_away.notified() => connection.as_mut().graceful_shutdown(),
        }
    }
}

/// A request with its body.
struct Call {
    identity: Identity,
    seen: Recorded,
}

async fn handle(
    inner: Arc<Inner>,
    control: Arc<Control>,
    identity: Option<Identity>,
    request: Request<Incoming>,
) -> Result<Response<ServerAnswer>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        // The client stopped within its request.
        return pending().await;
    };
    let body = body.to_bytes();
    let headers = head.headers.iter().map(|(name, value)| {
        (
            name.to_string(),
            String::from_utf8_lossy(value.as_bytes()).into_owned(),
        )
    });
    let mut seen = Recorded {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().unwrap_or_default().to_owned(),
        headers: headers.collect(),
        body: serde_json::from_slice(&body).ok(),
        connection: control.id,
        protocol: format!("{:?}", head.version),
        identity: String::new(),
        at: inner.clock.boot(),
        answered_at: None,
        status: None,
    };
    let identity = authenticate(&inner, identity, &seen);
    let identity = identity.and_then(|identity| impersonated(identity, &seen));
    seen.identity = identity
        .as_ref()
        .map_or("", |identity| &identity.user)
        .to_owned();
    let index = inner.record(seen.clone());
    let effects = inner.faults.take(&seen);
    let call = identity.map(|identity| Call { identity, seen });
    let served = match &call {
        Ok(call) => pod_proxy::answer(&inner, &call.identity, &call.seen).await,
        Err(_) => None,
    };
    let answer = || match call {
        Ok(call) => served.unwrap_or_else(|| answer(&inner, &call)),
        Err(failure) => refuse(&failure),
    };
    let response = suffer(&inner, &control, effects, answer).await;
    inner.answered(index, response.status().as_u16());
    Ok(response)
}

/// Answers, unless a fault prevents it. Does not return if there is no answer.
async fn suffer(
    inner: &Inner,
    control: &Arc<Control>,
    effects: Vec<Effect>,
    answer: impl FnOnce() -> Response<ServerAnswer>,
) -> Response<ServerAnswer> {
    for effect in effects {
        match effect {
            Effect::Latency(delay) => sleep(delay).await,
            Effect::Status(code) => return refuse(&Failure::scripted(code, None)),
            Effect::TooManyRequests(seconds) => {
                return refuse(&Failure::scripted(429, Some(seconds)));
            }
            Effect::HugeRetryAfter => return answer::huge_retry_after(),
            Effect::EndlessError => return answer::endless(500, &[b'x'; 4096]),
            Effect::EndlessLine => return answer::endless(200, &[b'['; 4096]),
            Effect::ManyMembers => return answer::many_members(),
            Effect::LargeHeaders => return answer::large_headers(),
            Effect::Empty => return whole(200, Bytes::new()),
            Effect::Bookmark => return answer::bookmark(),
            Effect::ErrorEvent => return answer::error_event(),
            Effect::Drip => return dripping(answer()).await,
            Effect::Hang => return pending().await,
            Effect::HangAfterwards => {
                drop(answer());
                return pending().await;
            }
            Effect::Reset => {
                control.set(Mode::Reset);
                return pending().await;
            }
            Effect::ResetAfterwards => {
                drop(answer());
                control.set(Mode::Reset);
                return pending().await;
            }
            Effect::ResetAfterHeaders => return broken(answer(), Some(Arc::clone(control))).await,
            Effect::Truncated => return broken(answer(), None).await,
            Effect::Garbage => {
                return whole(200, Bytes::from_static(b"<html>not what you asked</html>"));
            }
            Effect::FreezeConnection => {
                control.set(Mode::Frozen);
                return pending().await;
            }
            Effect::FreezeConnections => {
                inner.freeze_connections();
                return pending().await;
            }
            Effect::FreezeAll => {
                inner.freeze_all();
                return pending().await;
            }
            Effect::GoAway => control.go_away.notify_one(),
            Effect::Date(date) => return answer::dated(answer(), &date),
        }
    }
    answer()
}

async fn dripping(response: Response<ServerAnswer>) -> Response<ServerAnswer> {
    let (head, body) = response.into_parts();
    Response::from_parts(head, ServerAnswer::Drip(Drip::new(first_bytes(body).await)))
}

/// Returns all of a body, or the first line of a watch, which may be late.
async fn first_bytes(body: ServerAnswer) -> Bytes {
    match body {
        ServerAnswer::Whole(bytes) => bytes.unwrap_or_default(),
        ServerAnswer::Stream(mut lines) => lines.recv().await.unwrap_or_default(),
        ServerAnswer::Broken(_) | ServerAnswer::Endless(_) | ServerAnswer::Drip(_) => Bytes::new(),
    }
}

async fn broken(
    response: Response<ServerAnswer>,
    reset: Option<Arc<Control>>,
) -> Response<ServerAnswer> {
    let (head, body) = response.into_parts();
    let bytes = first_bytes(body).await;
    let body = Broken {
        length: bytes.len() as u64,
        start: Some(bytes.slice(..bytes.len() / 2)),
        reset,
        turns: 3,
    };
    Response::from_parts(head, ServerAnswer::Broken(body))
}

fn authenticate(
    inner: &Inner,
    identity: Option<Identity>,
    seen: &Recorded,
) -> Result<Identity, Failure> {
    let header = seen.headers.get("authorization");
    match header.and_then(|header| header.strip_prefix("Bearer ")) {
        Some(token) => {
            let state = inner.state();
            state
                .tokens
                .get(token)
                .cloned()
                .ok_or_else(Failure::unauthorized)
        }
        None => match identity {
            Some(identity) if identity == Identity::unknown() => Err(Failure::unauthorized()),
            Some(identity) => Ok(identity),
            None => Ok(Identity::anonymous()),
        },
    }
}

/// Returns the user that the request is to be sent as: only administrators may choose one.
fn impersonated(identity: Identity, seen: &Recorded) -> Result<Identity, Failure> {
    let Some(user) = seen.headers.get("impersonate-user") else {
        return Ok(identity);
    };
    if !identity.is_in("system:masters") {
        return Err(Failure::may_not_impersonate(&identity.user, user));
    }
    let groups = seen.headers.get("impersonate-group").cloned();
    let user = Identity::user(user);
    Ok(Identity {
        groups: user.groups.into_iter().chain(groups).collect(),
        ..user
    })
}

fn answer(inner: &Arc<Inner>, call: &Call) -> Response<ServerAnswer> {
    let path = call.seen.path.as_str();
    let reads = call.seen.method == "GET";
    if reads && matches!(path, "/readyz" | "/livez" | "/healthz") {
        return plain("ok");
    }
    let answer = if path != "/version" && call.identity == Identity::anonymous() {
        Err(Failure::forbidden_path(&call.identity.user, path))
    } else if let (true, Some(document)) = (reads, discovery::answer(path)) {
        Ok(json_answer(200, &document))
    } else if path == REVIEWS && call.seen.method == "POST" {
        review(inner, call)
    } else {
        Target::parse(path).and_then(|target| on_target(inner, call, &target))
    };
    answer.unwrap_or_else(|failure| refuse(&failure))
}

fn on_target(
    inner: &Arc<Inner>,
    call: &Call,
    target: &Target,
) -> Result<Response<ServerAnswer>, Failure> {
    let query = QueryParameters::parse(&call.seen.query);
    let selector = Selector::of(target, &query)?;
    let one = !target.name.is_empty();
    let verb = match (call.seen.method.as_str(), one) {
        ("GET", true) => "get",
        ("GET", false) if query.is_true("watch") => "watch",
        ("GET", false) => "list",
        ("POST", false) => "create",
        ("PUT", true) => "update",
        ("PATCH", true) => "patch",
        ("DELETE", true) if target.part == Part::Object => "delete",
        _ => return Err(Failure::method_not_allowed()),
    };
    {
        let state = inner.state();
        let access = Access {
            verb,
            target,
            selector: &selector,
        };
        access.check(&call.identity, &state.grants, &state.store)?;
    }
    let accept = call.seen.headers.get("accept").map_or("", String::as_str);
    let form = Form::of(accept);
    let wall = inner.clock.wall();
    let read = ReadRequest {
        target,
        query: &query,
        form,
        wall: wall.as_secs(),
    };
    match verb {
        "get" => Ok(json_answer(200, &read.get(&inner.state().store)?)),
        "list" => Ok(json_answer(
            200,
            &read.list(&inner.state().store, &selector)?,
        )),
        "watch" => {
            let lines = WatchStream::start(inner, target.resource, selector, form, &query)?;
            Ok(answer::typed(
                200,
                ServerAnswer::Stream(lines),
                "application/json",
            ))
        }
        _ => {
            let write = Write {
                target,
                identity: &call.identity,
                wall,
            };
            let (code, object) = written(inner, call, verb, &write)?;
            inner.touch();
            if object["kind"] == "Status" {
                return Ok(json_answer(code, &object));
            }
            let object = form.object(target.resource, &object, wall.as_secs());
            Ok(json_answer(code, &object))
        }
    }
}

/// Performs a write; returns the status code and the object.
fn written(
    inner: &Inner,
    call: &Call,
    verb: &str,
    write: &Write<'_>,
) -> Result<(u16, Value), Failure> {
    let store = &mut inner.state().store;
    let strict = QueryParameters::parse(&call.seen.query).get("fieldValidation") == Some("Strict");
    let body = || {
        let body = json_body(&call.seen)?;
        if strict {
            typed::strict(write.target.resource, &body)?;
        }
        Ok(body)
    };
    match verb {
        "create" => Ok((201, Value::clone(&*write.create(store, body()?)?))),
        "update" => {
            let (code, object) = write.update(store, body()?)?;
            Ok((code, Value::clone(&object)))
        }
        "patch" => {
            let kind = patch_kind(&call.seen)?;
            let patch = json_body(&call.seen)?;
            Ok((200, Value::clone(&*write.patch(store, kind, &patch)?)))
        }
        _ => {
            let options = call.seen.body.clone().unwrap_or(Value::Null);
            Ok((200, deletion(write.target, write.delete(store, &options)?)))
        }
    }
}

fn json_body(seen: &Recorded) -> Result<Value, Failure> {
    let media = seen
        .headers
        .get("content-type")
        .map_or("application/json", String::as_str);
    if !media.contains("json") {
        return Err(Failure::unsupported_media_type());
    }
    let body = seen.body.clone();
    body.ok_or_else(|| Failure::bad_request("the body of the request is not JSON"))
}

fn patch_kind(seen: &Recorded) -> Result<PatchKind, Failure> {
    let media = seen.headers.get("content-type").map_or("", String::as_str);
    match media.split(';').next().unwrap_or_default().trim() {
        "application/merge-patch+json" => Ok(PatchKind::Merge),
        "application/strategic-merge-patch+json" => Ok(PatchKind::Strategic),
        _ => Err(Failure::unsupported_media_type()),
    }
}

/// Returns a pod, and any object that still exists, unchanged; otherwise a `Status`.
fn deletion(target: &Target, deleted: Deleted) -> Value {
    match deleted {
        Deleted::Later(object) => Value::clone(&object),
        Deleted::Now(object) if target.resource.kind == "Pod" => Value::clone(&object),
        Deleted::Now(object) => json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": {
                "name": target.name,
                "kind": target.resource.plural,
                "uid": object["metadata"]["uid"],
            },
        }),
    }
}

/// Answers a SelfSubjectAccessReview with the authorizer that requests are checked by.
fn review(inner: &Inner, call: &Call) -> Result<Response<ServerAnswer>, Failure> {
    let mut review = json_body(&call.seen)?;
    let asked = review["spec"]["resourceAttributes"].clone();
    let text = |field: &str| asked[field].as_str().unwrap_or_default();
    let mut path = match text("group") {
        "" => "/api/v1".to_owned(),
        group => format!("/apis/{group}/v1"),
    };
    if !text("namespace").is_empty() {
        path.push_str(&format!("/namespaces/{}", text("namespace")));
    }
    path.push_str(&format!("/{}", text("resource")));
    let mut target = Target::parse(&path)?;
    target.name = text("name").to_owned();
    if text("subresource") == "status" {
        target.part = Part::Status;
    }
    let state = inner.state();
    let selector = Selector::asked(&asked["fieldSelector"]["requirements"]);
    let access = Access {
        verb: text("verb"),
        target: &target,
        selector: &selector,
    };
    let allowed = access.allowed(&call.identity, &state.grants, &state.store);
    review["status"] = json!({"allowed": allowed});
    Ok(json_answer(201, &review))
}
