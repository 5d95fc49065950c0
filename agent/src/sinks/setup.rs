//! The sinks of a configuration.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use clap::ValueEnum as _;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use nodepulse_io::file::{self, Links, OTHERS, is_trusted_owner};
use nodepulse_kube::transport;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::otlp::Otlp;
use super::receiver::Receiver;
use super::webhook::Webhook;
use super::{Form, Sink};
use crate::config::{Config, KeySpec, WEBHOOK_NAMES, key};

/// Maximum size of a file of the configuration, in bytes.
const LIMIT: u64 = 1 << 20;

/// Opens the sinks of `config`. `is_kubernetes`: there is an API server.
///
/// Must be called in a runtime.
///
/// # Errors
///
/// Fails with the key of a file that cannot be used.
pub fn open(config: &Config, is_kubernetes: bool) -> Result<Vec<Sink>, String> {
    let sinks = &config.sinks;
    let authorities = sinks.authorities.as_deref().map(certificates).transpose();
    let authorities = authorities.map_err(|why| format!("{}: {why}", key::sinks_ca_file))?;
    if sinks.otlp.is_none() && sinks.webhooks.is_empty() {
        return Ok(Vec::new());
    }
    // The certificates of the host take 100 KiB of memory.
    let mut tls = kube::Config::new(Uri::default());
    tls.root_cert = authorities;
    let connector = transport::tcp_tls(&tls)
        .map_err(|err| format!("{}: {}", key::sinks_ca_file, err.chain()))?;
    let receiver = |url: Uri, file: Option<&Path>, key: &KeySpec| {
        let headers = file.map(headers).transpose();
        let headers = headers.map_err(|why| format!("{}: {why}", key.name))?;
        let headers = headers.unwrap_or_default();
        Ok::<_, String>(Receiver::new(url, headers, connector.clone()))
    };
    let mut found = Vec::new();
    if let Some(url) = &sinks.otlp {
        let url = with_path(url, "/v1/logs");
        let file = sinks.otlp_headers.as_deref();
        found.push(Sink {
            name: "otlp",
            form: Form::Otlp(Otlp {
                host_name: config.node_name.clone(),
                is_kubernetes,
            }),
            receiver: receiver(url, file, &key::sinks_otlp_headers_file.spec)?,
            kinds: Vec::new(),
        });
    }
    for (webhook, name) in sinks.webhooks.iter().zip(WEBHOOK_NAMES) {
        let file = webhook.headers_file.as_deref();
        let kinds = webhook.kinds.iter();
        let kinds = kinds.filter_map(|kind| Some(kind.to_possible_value()?.get_name().to_owned()));
        found.push(Sink {
            name,
            form: Form::Webhook(Webhook {
                source: format!("/nodes/{}", config.node_name),
            }),
            receiver: receiver(webhook.url.clone(), file, &key::sinks_webhooks.spec)?,
            kinds: kinds.collect(),
        });
    }
    Ok(found)
}

/// Adds a path to a URL without one.
fn with_path(url: &Uri, path: &'static str) -> Uri {
    if !matches!(url.path(), "" | "/") {
        return url.clone();
    }
    let mut parts = url.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::from_static(path));
    // All parts are those of a URL.
    Uri::from_parts(parts).unwrap_or_else(|_| url.clone())
}

fn headers(path: &Path) -> Result<HeaderMap, String> {
    let shown = path.display();
    let mut bytes = Vec::new();
    let found = file::read_with_metadata(path, LIMIT, Links::Followed, &mut bytes)
        .map_err(|err| format!("{shown}: {err}"))?;
    if found.mode() & OTHERS != 0 || !is_trusted_owner(found.uid()) {
        return Err(format!(
            "{shown} is accessible to other users: chmod 0600 {shown}, and in a pod, mount the \
             Secret with defaultMode: 0400"
        ));
    }
    let mut headers = HeaderMap::new();
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let (name, value) = header(line).ok_or_else(|| {
            let number = number + 1;
            format!("line {number} of {shown} is not of the form `Name: value`")
        })?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn header(line: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = line.split_at_checked(colon)?;
    let mut value = HeaderValue::from_bytes(value.get(1..)?.trim_ascii()).ok()?;
    value.set_sensitive(true);
    Some((HeaderName::from_bytes(name.trim_ascii()).ok()?, value))
}

fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, String> {
    let shown = path.display();
    let bytes = file::read(path).map_err(|err| format!("{shown}: {err}"))?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.unwrap_or_default();
    if found.is_empty() {
        return Err(format!("{shown} contains no certificate in PEM"));
    }
    Ok(found.iter().map(|one| one.to_vec()).collect())
}
