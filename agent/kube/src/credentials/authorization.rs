//! The `Authorization` header of every request. A token in a file is replaced while requests are
//! sent.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::Request;
use http::header::{AUTHORIZATION, HeaderValue, InvalidHeaderValue};
use kube::config::AuthInfo;
use secrecy::ExposeSecret as _;
use tokio::time::Instant;

use super::files::{self, TokenFile};
use crate::lock;

/// Maximum age of a token before its file is read again, as in other clients: the kubelet replaces
/// it long before it expires.
const FRESH: Duration = Duration::from_mins(1);

/// Shared by all connections that use it.
#[derive(Clone)]
pub(crate) struct Authorization {
    /// Contains the token. `None`: the header never changes.
    file: Option<PathBuf>,
    current: Arc<Mutex<Current>>,
}

struct Current {
    header: HeaderValue,
    read: Instant,
}

impl Authorization {
    /// `token` precedes what `user` contains. `None` if neither has a token or a password. Fails if
    /// it is not valid in a header.
    pub(super) fn new(
        token: Option<TokenFile>,
        user: &AuthInfo,
    ) -> Result<Option<Self>, InvalidHeaderValue> {
        let (file, header) = match (token, &user.username, &user.password, &user.token) {
            (Some(TokenFile { path, token }), ..) => (Some(path), bearer(&token)?),
            (None, Some(name), Some(password), _) => {
                let pair = format!("{name}:{}", password.expose_secret());
                let pair = BASE64_STANDARD.encode(pair);
                (None, header(format!("Basic {pair}"))?)
            }
            (None, _, _, Some(token)) => (None, bearer(token.expose_secret())?),
            (None, ..) => return Ok(None),
        };
        let read = Instant::now();
        Ok(Some(Self {
            file,
            current: Arc::new(Mutex::new(Current { header, read })),
        }))
    }

    pub(crate) fn sign<Body>(&self, mut request: Request<Body>) -> Request<Body> {
        let header = lock(&self.current).header.clone();
        request.headers_mut().insert(AUTHORIZATION, header);
        request
    }

    /// Whether a file has to be read again, which is true for the first caller only.
    pub(crate) fn is_stale(&self) -> bool {
        let mut current = lock(&self.current);
        let stale = self.file.is_some() && FRESH <= current.read.elapsed();
        if stale {
            current.read = Instant::now();
        }
        stale
    }

    /// Reads the file again. Can wait for a disk. The old token stays if there is no other: some
    /// tools remove the file after it was read. Returns why there is no other token.
    pub(crate) fn refresh(&self) -> Result<(), String> {
        let Some(path) = &self.file else {
            return Ok(());
        };
        let file = files::read_token(path).map_err(|err| err.to_string())?;
        let header = bearer(&file.token).map_err(|err| err.to_string())?;
        lock(&self.current).header = header;
        Ok(())
    }
}

impl PartialEq for Authorization {
    fn eq(&self, other: &Self) -> bool {
        let header = |one: &Self| lock(&one.current).header.clone();
        self.file == other.file && header(self) == header(other)
    }
}

fn bearer(token: &str) -> Result<HeaderValue, InvalidHeaderValue> {
    header(format!("Bearer {token}"))
}

fn header(credentials: String) -> Result<HeaderValue, InvalidHeaderValue> {
    let mut header = HeaderValue::try_from(credentials)?;
    header.set_sensitive(true);
    Ok(header)
}
