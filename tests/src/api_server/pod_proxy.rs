//! Proxies `GET /api/v1/namespaces/…/pods/NAME:PORT/proxy/…` to the pod at its `status.podIP`.

use bytes::Bytes;
use http::Response;
use tokio::net::TcpStream;

use super::answer::{ServerAnswer, refuse, whole};
use super::auth::{Access, Identity};
use super::failure::Failure;
use super::query::{QueryParameters, Selector};
use super::record::Recorded;
use super::resource::{Part, Target};
use super::state::Inner;
use crate::http1::{exchange, request};

/// Answers a request for a proxy; `None` for any other request.
pub(super) async fn answer(
    inner: &Inner,
    identity: &Identity,
    seen: &Recorded,
) -> Option<Response<ServerAnswer>> {
    let (pod, path) = seen.path.split_once("/proxy/")?;
    let (pod, port) = pod.rsplit_once(':')?;
    let mut target = Target::parse(pod).ok()?;
    target.part = Part::Proxy;
    let port = port.parse().ok()?;
    Some(match address(inner, identity, &target) {
        Ok(ip) => forward(&ip, port, path).await,
        Err(failure) => refuse(&failure),
    })
}

fn address(inner: &Inner, identity: &Identity, target: &Target) -> Result<String, Failure> {
    let selector = Selector::of(target, &QueryParameters::parse(""))?;
    let state = inner.state();
    let access = Access {
        verb: "get",
        target,
        selector: &selector,
    };
    access.check(identity, &state.grants, &state.store)?;
    let key = (target.namespace.clone(), target.name.clone());
    let pod = state.store.get(target.resource, &key);
    let pod = pod.ok_or_else(|| Failure::not_found(target.resource, &target.name))?;
    Ok(pod["status"]["podIP"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

async fn forward(ip: &str, port: u16, path: &str) -> Response<ServerAnswer> {
    let stream = match TcpStream::connect((ip, port)).await {
        Ok(stream) => stream,
        Err(err) => {
            let message = format!("error trying to reach service: dial tcp {ip}:{port}: {err}");
            return refuse(&Failure::unavailable(message));
        }
    };
    let answer = exchange(stream, &request("GET", &format!("/{path}"))).await;
    whole(answer.code.unwrap_or(502), Bytes::from(answer.body))
}
