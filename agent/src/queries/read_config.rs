//! The function that reads the configuration again.

use std::fmt;
use std::sync::Arc;

use crate::config::Config;

/// Reads all layers of the configuration. Can block on a disk.
#[derive(Clone)]
pub struct ReadConfig(Arc<dyn Fn() -> Result<Config, String> + Send + Sync>);

impl ReadConfig {
    /// `read` returns an error as one line.
    pub fn new(read: impl Fn() -> Result<Config, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }

    pub fn read(&self) -> Result<Config, String> {
        (self.0)()
    }
}

impl fmt::Debug for ReadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ReadConfig")
    }
}
