//! The sinks of a configuration.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use clap::ValueEnum as _;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use nodepulse_io::file::{self, FileError, Links, OTHERS, is_trusted_owner};
use nodepulse_kube::transport;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use super::otlp::Otlp;
use super::receiver::Receiver;
use super::webhook::Webhook;
use super::{Form, Sink};
use crate::config::{Config, WEBHOOK_NAMES, key};

/// Maximum size of a file of the configuration, in bytes.
const LIMIT: u64 = 1 << 20;

/// Why a sink cannot be used, with the key.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error("{key}: {path}: {source}")]
    Read {
        key: &'static str,
        path: String,
        source: FileError,
    },
    #[error(
        "{key}: {path} is accessible to other users: chmod 0600 {path}, and in a pod, mount \
             the Secret with defaultMode: 0400"
    )]
    Shared { key: &'static str, path: String },
    #[error("{key}: line {line} of {path} is not of the form `Name: value`")]
    Header {
        key: &'static str,
        path: String,
        line: usize,
    },
    #[error("{key}: {path} contains no certificate in PEM")]
    Certificates { key: &'static str, path: String },
    #[error("{key}: {why}")]
    Setup { key: &'static str, why: String },
}

/// Opens the sinks of `config`. `is_kubernetes`: there is an API server.
///
/// Must be called in a runtime.
pub fn open(config: &Config, is_kubernetes: bool) -> Result<Vec<Sink>, SinkError> {
    let sinks = &config.sinks;
    let mut found = Vec::new();
    if let Some(url) = &sinks.otlp {
        let headers = headers(
            sinks.otlp_headers.as_deref(),
            key::sinks_otlp_headers_file.spec.name,
        )?;
        let form = Form::Otlp(Otlp {
            host_name: config.node_name.clone(),
            is_kubernetes,
        });
        let url = with_path(url, "/v1/logs");
        let key = key::sinks_otlp_endpoint.spec.name;
        found.push(("otlp", form, url, headers, Vec::new(), key));
    }
    for (webhook, name) in sinks.webhooks.iter().zip(WEBHOOK_NAMES) {
        let key = key::sinks_webhooks.spec.name;
        let headers = headers(webhook.headers_file.as_deref(), key)?;
        let form = Form::Webhook(Webhook {
            source: format!("/nodes/{}", config.node_name),
        });
        let kinds = webhook.kinds.iter();
        let kinds = kinds.filter_map(|kind| Some(kind.to_possible_value()?.get_name().to_owned()));
        let kinds = kinds.collect();
        found.push((name, form, webhook.url.clone(), headers, kinds, key));
    }
    let authorities = sinks.authorities.as_deref().map(certificates).transpose()?;
    let sink = |(name, form, url, headers, kinds, key): (_, _, Uri, _, _, _)| {
        let mut tls = kube::Config::new(url.clone());
        tls.root_cert.clone_from(&authorities);
        let connector = transport::tcp_tls(&tls).map_err(|err| SinkError::Setup {
            key,
            why: err.chain(),
        })?;
        Ok(Sink {
            name,
            form,
            receiver: Receiver::new(url, headers, connector),
            kinds,
        })
    };
    found.into_iter().map(sink).collect()
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

fn headers(path: Option<&Path>, key: &'static str) -> Result<HeaderMap, SinkError> {
    let mut headers = HeaderMap::new();
    let Some(path) = path else {
        return Ok(headers);
    };
    let shown = || path.display().to_string();
    let mut bytes = Vec::new();
    let found = file::read_with_metadata(path, LIMIT, Links::Followed, &mut bytes);
    let found = found.map_err(|source| SinkError::Read {
        key,
        path: shown(),
        source,
    })?;
    if found.mode() & OTHERS != 0 || !is_trusted_owner(found.uid()) {
        return Err(SinkError::Shared { key, path: shown() });
    }
    for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        let header = line
            .iter()
            .position(|byte| *byte == b':')
            .and_then(|colon| {
                let (name, value) = line.split_at_checked(colon)?;
                let mut value = HeaderValue::from_bytes(value.get(1..)?.trim_ascii()).ok()?;
                value.set_sensitive(true);
                Some((HeaderName::from_bytes(name.trim_ascii()).ok()?, value))
            });
        let (name, value) = header.ok_or_else(|| SinkError::Header {
            key,
            path: shown(),
            line: number + 1,
        })?;
        headers.append(name, value);
    }
    Ok(headers)
}

fn certificates(path: &Path) -> Result<Vec<Vec<u8>>, SinkError> {
    let key = key::sinks_ca_file.spec.name;
    let shown = || path.display().to_string();
    let bytes = file::read(path).map_err(|source| SinkError::Read {
        key,
        path: shown(),
        source,
    })?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    let found = found.unwrap_or_default();
    if found.is_empty() {
        return Err(SinkError::Certificates { key, path: shown() });
    }
    Ok(found.iter().map(|one| one.to_vec()).collect())
}
