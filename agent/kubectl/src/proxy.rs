//! The proxy that kubectl would use: `proxy-url` of the cluster in the kubeconfig, or else
//! `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`. Only HTTP proxies are supported, by CONNECT.

use std::env::var_os;
use std::net::IpAddr;

use http::Uri;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioExecutor;
use kube::client::ConfigExt as _;
use tower::{BoxError, Layer as _, ServiceExt as _};

use crate::failure::{Failure, one_line};

/// Returns the proxy to this server, or `None` for a direct connection.
pub fn of(proxy_url: Option<&str>, server: &Uri) -> Result<Option<Intercept>, Failure> {
    let Some((name, url)) = setting(proxy_url, server) else {
        return Ok(None);
    };
    let proxy = Matcher::builder().all(url).build().intercept(server);
    let Some(proxy) = proxy else {
        return Err(Failure::Kubeconfig(format!(
            "{name} is not the URL of a proxy, such as http://proxy.example:3128"
        )));
    };
    // The failure does not contain the whole URL, which can include a password.
    match proxy.uri().scheme_str() {
        Some("http") => Ok(Some(proxy)),
        scheme => {
            let direct = if name == PROXY_URL {
                "remove the key".to_owned()
            } else {
                let host = one_line(server.host().unwrap_or_default());
                format!("add {host} to NO_PROXY")
            };
            Err(Failure::Kubeconfig(format!(
                "{name} is the URL of a proxy of the scheme {}, and only http is supported: set such \
                 a proxy, or {direct}",
                one_line(scheme.unwrap_or("-")),
            )))
        }
    }
}

const PROXY_URL: &str = "proxy-url of the kubeconfig";

/// Returns the name of the setting that requires a proxy, and the proxy's URL. The kubeconfig
/// applies to every server, variables to those that `NO_PROXY` does not contain.
fn setting(proxy_url: Option<&str>, server: &Uri) -> Option<(&'static str, String)> {
    if let Some(url) = proxy_url.filter(|url| !url.is_empty()) {
        return Some((PROXY_URL, url.to_owned()));
    }
    let names = match server.scheme_str() {
        Some("http") => ["HTTP_PROXY", "http_proxy"],
        _ => ["HTTPS_PROXY", "https_proxy"],
    };
    let mut set = names.into_iter();
    let (name, url) = set.find_map(|name| Some((name, variable(name)?)))?;
    let host = server.host().unwrap_or_default();
    let no_proxy = variable("NO_PROXY").or_else(|| variable("no_proxy"));
    if is_this_machine(host) || is_exempt(no_proxy.as_deref().unwrap_or_default(), server) {
        return None;
    }
    Some((name, url))
}

fn variable(name: &str) -> Option<String> {
    let value = var_os(name).filter(|value| !value.is_empty())?;
    Some(value.to_string_lossy().into_owned())
}

/// As in Go, variables do not apply to this machine.
fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let address: Option<IpAddr> = address.parse().ok();
    host == "localhost" || address.is_some_and(|address| address.is_loopback())
}

fn is_exempt(no_proxy: &str, server: &Uri) -> bool {
    // Any proxy will do: the question is whether there is one.
    let matcher = Matcher::builder().all("http://proxy").no(no_proxy).build();
    no_proxy.split(',').any(|entry| entry.trim() == "*") || matcher.intercept(server).is_none()
}

pub fn client(config: &kube::Config, proxy: &Intercept) -> Result<kube::Client, kube::Error> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(config.connect_timeout);
    let mut tunnel = Tunnel::new(proxy.uri().clone(), http);
    if let Some(credentials) = proxy.basic_auth() {
        tunnel = tunnel.with_auth(credentials.clone());
    }
    let https = config.rustls_https_connector_with_connector(tunnel)?;
    let client = legacy::Client::builder(TokioExecutor::new()).build(https);
    let service = config.extra_headers_layer()?.layer(client);
    let namespace = config.default_namespace.as_str();
    let base = config.base_uri_layer();
    Ok(match config.auth_layer()? {
        Some(auth) => kube::Client::new(
            base.layer(auth.layer(service.map_err(BoxError::from))),
            namespace,
        ),
        None => kube::Client::new(base.layer(service), namespace),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_proxy_contains_names_domains_addresses_and_networks() {
        let rows = [
            ("", "https://api.example:6443", false),
            ("api.example", "https://api.example:6443", true),
            (".example, other", "https://api.example:6443", true),
            ("example", "https://api.example:6443", true),
            ("ample", "https://api.example:6443", false),
            ("10.0.0.0/8", "https://10.1.2.3", true),
            ("10.0.0.0/8,", "https://11.1.2.3", false),
            ("*", "https://10.1.2.3", true),
        ];
        for (no_proxy, server, expected) in rows {
            let server = Uri::from_static(server);
            assert_eq!(
                is_exempt(no_proxy, &server),
                expected,
                "{no_proxy} {server}"
            );
        }
    }

    #[test]
    fn a_proxy_that_cannot_be_used_is_named_without_its_password() {
        let server = Uri::from_static("https://api.example:6443");
        for url in [
            "socks5://u:secret@p:1080",
            "https://u:secret@p:3128",
            "ftp://u:secret@p",
            "::",
        ] {
            let failure = of(Some(url), &server).unwrap_err().to_string();
            assert!(
                failure.starts_with("proxy-url of the kubeconfig is "),
                "{failure}"
            );
            assert!(!failure.contains("secret"), "{failure}");
        }
        let proxy = of(Some("proxy.example:3128"), &server).unwrap().unwrap();
        assert_eq!(proxy.uri(), "http://proxy.example:3128/");
    }
}
