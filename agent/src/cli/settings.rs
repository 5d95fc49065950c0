//! The configuration of every command: flags, environment, files.

use std::cell::Cell;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValue, PossibleValuesParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, ValueHint};
use nix::unistd::gethostname;
use nodepulse_core::escape::escape;
use nodepulse_core::node_status::capacity;
use nodepulse_core::settings::Mode;
use nodepulse_io::file::{self, FileError};
use nodepulse_kube::Client;
use nodepulse_kube::credentials::{CredentialSource, Programs};
use nodepulse_linux::host::{HostRoot, machine};
use nodepulse_linux::os::file_watch::{DropIns, WatchedFiles};
use tokio::runtime::{Builder, Runtime};

use super::obstacle::Obstacle;
use crate::config::{
    self, Config, ConfigError, Flag, Form, Json, KEYS, KeySpec, LoadedConfig, Overrides, Preset,
    Sandbox, Scalar, key,
};

/// Variable with the address of the API server, set in a pod with a service account.
const IN_CLUSTER: &str = "KUBERNETES_SERVICE_HOST";

/// Maximum total size of the configuration files in bytes.
const ALL_FILES: u64 = 4 * file::LIMIT;

/// Maximum number of drop-in files.
const MAX_DROP_INS: usize = 256;

const EXTENSION: &str = "yaml";

const FILE_VARIABLES: [&str; 2] = ["NODEPULSE_CONFIG", "NODEPULSE_KUBELET_CONFIG"];

const FILES: &str = "Configuration files";

/// Files of the configuration.
#[derive(Debug, Args)]
struct Files {
    /// Configuration file [default: /etc/nodepulse/config.yaml, if it exists].
    #[arg(long, value_name = "FILE", help_heading = FILES)]
    config: Option<PathBuf>,
    /// Kubelet configuration file; its keys apply unless nodepulse's configuration sets them.
    #[arg(long, value_name = "FILE", help_heading = FILES, hide_short_help = true)]
    kubelet_config: Option<PathBuf>,
}

/// Files, and the flags of the table of keys.
#[derive(Debug)]
pub struct Settings(Overrides);

impl Settings {
    pub fn overrides(self) -> Overrides {
        self.0
    }
}

impl FromArgMatches for Settings {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let files = Files::from_arg_matches(matches)?;
        let mut overrides = Overrides {
            config: files.config,
            kubelet_config: files.kubelet_config,
            ..Overrides::default()
        };
        for spec in KEYS {
            let text = match spec.flag {
                Flag::None => None,
                Flag::Switch => matches.get_flag(spec.name).then(|| "true".to_owned()),
                Flag::Value(_) => matches.get_one::<String>(spec.name).cloned(),
            };
            if let Some(field) = overrides.field(spec) {
                *field = text;
            }
        }
        Ok(Self(overrides))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Settings {
    fn augment_args(command: Command) -> Command {
        let command = Files::augment_args(command);
        command.args(KEYS.iter().copied().filter_map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// The flag of a key. Its identifier is the key's name.
fn flag(spec: &KeySpec) -> Option<Arg> {
    let arg = Arg::new(spec.name)
        .long(spec.flag_name())
        .help_heading(spec.heading)
        .hide_short_help(!spec.common);
    let arg = match spec.alias {
        Some(alias) => arg.alias(alias),
        None => arg,
    };
    match (spec.flag, spec.form) {
        (Flag::None, _) => None,
        (Flag::Switch, _) => Some(arg.action(ArgAction::SetTrue)),
        (Flag::Value(name), Form::One(value)) => {
            let arg = arg.value_name(name).value_hint(match name {
                "FILE" => ValueHint::FilePath,
                "DIR" | "PATH" => ValueHint::DirPath,
                _ => ValueHint::Other,
            });
            Some(match value.json {
                Json::Boolean => arg
                    .num_args(0..=1)
                    .require_equals(true)
                    .default_missing_value("true")
                    .value_parser(["true", "false"]),
                Json::Values(_) => arg.value_parser(one_of(spec)),
                Json::Integer { .. } | Json::Text { .. } | Json::Duration { .. } => arg,
            })
        }
        (Flag::Value(name), _) => Some(arg.value_name(name).value_hint(ValueHint::Other)),
    }
}

/// Adds the help of a key to its flag, unless the command has one for it.
pub(super) fn described(arg: Arg) -> Arg {
    let spec = KEYS.iter().find(|spec| spec.name == arg.get_id().as_str());
    let Some(spec) = spec.filter(|_| arg.get_help().is_none()) else {
        return arg;
    };
    let default = default(spec).map(|default| format!(" [default: {default}]"));
    let default = default.unwrap_or_default();
    let details = format!("{}. {}", spec.help, spec.details);
    let details = details.trim_end();
    let names = format!("Key `{}`, variable `{}`.", spec.name, spec.variable());
    arg.help(format!("{}{default}", spec.help))
        .long_help(format!("{details} {names}{default}"))
}

/// Returns the default of a flag that takes a value, as text.
fn default(spec: &KeySpec) -> Option<String> {
    match (spec.flag, spec.preset) {
        (Flag::Value(_), Preset::Text { text, .. } | Preset::Derived(text)) => {
            Some(text.to_owned())
        }
        (Flag::Value(_), Preset::List { texts, .. }) => Some(texts.join(",")),
        _ => None,
    }
}

/// Hides the flags of keys that `command` does not use. It accepts them too, so that it can be
/// called with the flags of `run`.
pub(super) fn shown(command: Command, used: &[&KeySpec]) -> Command {
    command.mut_args(|arg| {
        let id = arg.get_id().as_str();
        let is = |spec: &&KeySpec| spec.name == id;
        let hide = KEYS.iter().any(is) && !used.iter().any(is);
        arg.hide(hide)
    })
}

/// A parser for a key with a closed set of values, for help, errors and completion.
pub(super) fn one_of(spec: &KeySpec) -> ValueParser {
    match spec.form {
        Form::One(Scalar {
            json: Json::Values(values),
            ..
        }) => {
            // Their help is left out, because it would make every flag take several lines.
            let names = values().into_iter();
            let names = names.map(|value| PossibleValue::new(value.get_name().to_owned()));
            PossibleValuesParser::new(names).into()
        }
        _ => ValueParser::string(),
    }
}

/// Merges all layers and checks the result. `Err` is a message of one line.
pub(super) fn configuration(overrides: &Overrides) -> Result<LoadedConfig, String> {
    loaded(overrides).map_err(|obstacle| obstacle.to_string())
}

/// Like [`configuration`], for a daemon, which is started again after an obstacle that passes.
pub(super) fn loaded(overrides: &Overrides) -> Result<LoadedConfig, Obstacle> {
    let hostname = gethostname().map_err(|err| {
        Obstacle::Lasting(format!("cannot read the host name: {err}; set --node-name"))
    })?;
    let hostname = hostname.to_string_lossy();
    let drop_ins = match config::drop_in_directory(overrides, &variable) {
        Some(directory) => drop_ins(&directory).map_err(|err| {
            let directory = escape(directory.as_os_str().as_encoded_bytes());
            let why = format!("cannot list {directory} ({err}); make it readable, or remove it");
            of_file(&err, why)
        })?,
        None => Vec::new(),
    };
    let overrides = Overrides {
        drop_ins,
        ..overrides.clone()
    };
    let left = Cell::new(ALL_FILES);
    let read = |path: &Path| read(path, &left);
    let loaded = config::load(&overrides, &variable, &read, &hostname);
    loaded.map_err(|err| match &err {
        ConfigError::Read { source, .. } => of_file(source, err.to_string()),
        _ => Obstacle::Lasting(err.to_string()),
    })
}

/// Classifies the error of a file: a person has to write it or permit to read it; any other error
/// of the kernel passes, such as too many open files.
fn of_file(err: &io::Error, why: String) -> Obstacle {
    let lasting = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
    match err.raw_os_error() {
        Some(_) if !lasting.contains(&err.kind()) => Obstacle::Passing(why),
        Some(_) | None => Obstacle::Lasting(why),
    }
}

/// The configuration without files: of the flags, the environment and the defaults.
pub(super) fn without_files(overrides: &Overrides) -> Result<Config, String> {
    let overrides = Overrides {
        config: None,
        kubelet_config: None,
        drop_ins: Vec::new(),
        ..overrides.clone()
    };
    let of_no_file = |name: &str| variable(name).filter(|_| !FILE_VARIABLES.contains(&name));
    let absent = |_: &Path| Err(io::ErrorKind::NotFound.into());
    let loaded = config::load(&overrides, &of_no_file, &absent, "localhost");
    loaded
        .map(|loaded| loaded.config)
        .map_err(|err| err.to_string())
}

/// The configuration and a runtime, for a command that is not the daemon.
pub(super) fn configuration_and_runtime(settings: Settings) -> Result<(Config, Runtime), String> {
    let config = configuration(&settings.overrides())?.config;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|err| format!("cannot start a runtime: {err}"))?;
    Ok((config, runtime))
}

/// Returns why the reservations exceed the capacity of this machine, if they do.
pub(super) fn excessive_reservations(config: &Config) -> Option<String> {
    // If the machine cannot be read, that is reported later.
    let machine = machine::read(&HostRoot::new(&config.host_root)).ok();
    let machine = machine.filter(|_| config.mode == Mode::Node)?;
    let (resource, reserved, capacity) = capacity::overdrawn(&config.allocation, &machine)?;
    Some(format!(
        "{system}, {} and {} reserve {reserved} of {resource}, but this machine has {capacity}; \
         example: {system}: {{cpu: 100m, memory: 1Gi}}",
        key::kube_reserved,
        key::eviction_hard,
        system = key::system_reserved
    ))
}

/// The configuration files to watch; `None` for standard input.
pub(super) fn files(overrides: &Overrides) -> Option<WatchedFiles> {
    Some(WatchedFiles {
        file: config::file(overrides, &variable).0,
        drop_ins: Some(DropIns {
            directory: config::drop_in_directory(overrides, &variable)?,
            extension: EXTENSION,
        }),
    })
}

/// Returns the source of the credentials for the API server, if one is configured.
fn credentials(config: &Config) -> Option<CredentialSource<'_>> {
    if let Some(path) = &config.kubeconfig {
        return Some(CredentialSource::Kubeconfig(path));
    }
    let host = variable(IN_CLUSTER).filter(|host| !host.is_empty());
    host.map(|_| CredentialSource::InCluster)
}

/// Returns true if an API server is configured.
pub(super) fn connects(config: &Config) -> bool {
    credentials(config).is_some()
}

/// A client of the API server, if one is configured. `deadline` applies to each request. Opens no
/// connection.
pub(super) async fn client(
    config: &Config,
    deadline: Duration,
) -> Result<Option<Client>, Obstacle> {
    let Some(source) = credentials(config) else {
        return Ok(None);
    };
    let client = Client::from_credentials(source, deadline).await;
    client.map(Some).map_err(Obstacle::from)
}

/// Like [`client`], for the daemon, which also starts if the credentials cannot be read yet. Runs
/// no program.
pub(super) async fn late_client(
    config: &Config,
    deadline: Duration,
) -> Result<Option<Client>, Obstacle> {
    let Some(source) = credentials(config) else {
        return Ok(None);
    };
    let unknown = match config.sandbox {
        Sandbox::Off => Programs::Permitted,
        // A sandbox for programs permits more, and cannot be entered later.
        Sandbox::Auto | Sandbox::Require => Programs::Refused,
    };
    let client = Client::from_late_credentials(source, deadline, unknown).await;
    client.map(Some).map_err(Obstacle::from)
}

/// Reads a file, or standard input for `-`. `left` is the remaining size limit.
fn read(path: &Path, left: &Cell<u64>) -> io::Result<String> {
    let text = if path == Path::new("-") {
        let mut bytes = Vec::new();
        file::up_to(io::stdin(), file::LIMIT, &mut bytes)?;
        String::from_utf8(bytes).map_err(|_| FileError::NotText)?
    } else {
        file::text(path).map_err(|err| match err {
            // Process substitution of a shell.
            FileError::NotRegular("FIFO") => io::Error::other(format!(
                "{err}; to read the output of another command, use standard input: --config -"
            )),
            err => err.into(),
        })?
    };
    let rest = u64::try_from(text.len()).map_or(None, |len| left.get().checked_sub(len));
    left.set(rest.ok_or_else(|| {
        io::Error::other(format!(
            "the configuration files together exceed {ALL_FILES} bytes"
        ))
    })?);
    Ok(text)
}

/// Lists `*.yaml` in a directory that may be missing, sorted by name. Names with a leading dot are
/// skipped, because editors and `ConfigMap`s use them.
fn drop_ins(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(err) => return Err(err),
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let hidden = path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
        if !hidden && path.extension().is_some_and(|end| end == EXTENSION) {
            if found.len() == MAX_DROP_INS {
                return Err(io::Error::other(format!(
                    "it contains more than {MAX_DROP_INS} files"
                )));
            }
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the only access to the environment"
)]
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}
