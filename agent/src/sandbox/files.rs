//! Landlock: restricts the files that may be written, and the execution of programs.

use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, Scope,
};

use super::profile::{Plugin, Profile};

/// The newest tested ABI; an older kernel applies what it supports. This one also restricts
/// connections to UNIX sockets in the file system, but not sockets that are connected already.
const NEWEST: ABI = ABI::V9;

/// Restricts the calling thread. Returns the Landlock ABI, or why there is none.
pub(super) fn restrict(profile: &Profile) -> Result<String, RulesetError> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let everywhere = match profile.plugin {
        Plugin::None => read,
        Plugin::Runs => read | AccessFs::Execute | AccessFs::ResolveUnix,
    };
    let in_directories = read
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeDir
        | AccessFs::MakeReg
        | AccessFs::MakeSock
        | AccessFs::RemoveDir
        | AccessFs::RemoveFile;
    let in_history =
        read | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg | AccessFs::RemoveFile;
    let mut rules = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?;
    rules = allow(rules, Path::new("/"), everywhere)?;
    for directory in &profile.directories {
        rules = allow(rules, directory, in_directories)?;
    }
    if let Some(directory) = &profile.history {
        rules = allow(rules, directory, in_history)?;
    }
    if let Some(directory) = &profile.certificates {
        rules = allow(rules, directory, in_directories | AccessFs::MakeSym)?;
    }
    for file in &profile.files {
        rules = allow(rules, file, AccessFs::ReadFile | AccessFs::WriteFile)?;
    }
    for directory in profile.sockets.iter().chain(&profile.journal) {
        rules = allow(rules, directory, read | AccessFs::ResolveUnix)?;
    }
    Ok(match rules.restrict_self()?.landlock {
        LandlockStatus::Available { effective_abi, .. } => format!("{effective_abi:?}"),
        LandlockStatus::NotEnabled => "not enabled".to_owned(),
        LandlockStatus::NotImplemented => "not in this kernel".to_owned(),
    })
}

/// Adds a rule. A path that cannot be opened needs none.
fn allow(
    rules: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    match PathFd::new(path) {
        Ok(opened) => rules.add_rule(PathBeneath::new(opened, access)),
        Err(_) => Ok(rules),
    }
}
