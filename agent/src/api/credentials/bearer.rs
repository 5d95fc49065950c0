//! A token in a file: part of every request, and replaced while requests are sent.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use http::header::{AUTHORIZATION, HeaderValue, InvalidHeaderValue};
use tokio::time::Instant;

use super::files::{self, TokenFile};
use crate::api::lock;

/// Maximum age of a token before its file is read again, as in other clients: the kubelet replaces
/// it long before it expires.
const FRESH: Duration = Duration::from_mins(1);

/// Shared by all connections that use the token.
#[derive(Clone)]
pub(in crate::api) struct Bearer {
    path: PathBuf,
    current: Arc<Mutex<Current>>,
}

struct Current {
    header: HeaderValue,
    read: Instant,
}

impl Bearer {
    /// Fails if the token is not valid in a header.
    pub(super) fn new(file: TokenFile) -> Result<Self, InvalidHeaderValue> {
        Ok(Self {
            path: file.path,
            current: Arc::new(Mutex::new(Current {
                header: header(&file.token)?,
                read: Instant::now(),
            })),
        })
    }

    pub(in crate::api) fn sign<Body>(&self, mut request: Request<Body>) -> Request<Body> {
        let header = lock(&self.current).header.clone();
        request.headers_mut().insert(AUTHORIZATION, header);
        request
    }

    /// Whether the file has to be read again, which is true for the first caller only.
    pub(in crate::api) fn is_stale(&self) -> bool {
        let mut current = lock(&self.current);
        let stale = FRESH <= current.read.elapsed();
        if stale {
            current.read = Instant::now();
        }
        stale
    }

    /// Reads the file again. Can wait for a disk. The old token stays if there is no other: some
    /// tools remove the file after it was read. Returns why there is no other token.
    pub(in crate::api) fn refresh(&self) -> Result<(), String> {
        let file = files::read_token(&self.path).map_err(|err| err.to_string())?;
        let header = header(&file.token).map_err(|err| err.to_string())?;
        lock(&self.current).header = header;
        Ok(())
    }
}

impl PartialEq for Bearer {
    fn eq(&self, other: &Self) -> bool {
        let header = |bearer: &Self| lock(&bearer.current).header.clone();
        self.path == other.path && header(self) == header(other)
    }
}

fn header(token: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut header = HeaderValue::try_from(format!("Bearer {token}"))?;
    header.set_sensitive(true);
    Ok(header)
}
