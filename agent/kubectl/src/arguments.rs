//! The command line.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::age;

/// Labels of the agent's pods, as the chart sets them.
const AGENT_SELECTOR: &str = "app.kubernetes.io/name=nodepulse,app.kubernetes.io/component=agent";

const EXAMPLES: &str = "\
Examples:
  kubectl nodepulse                        all nodes, those with problems first
  kubectl nodepulse -l zone=a --watch      changes of some nodes
  kubectl nodepulse -o wide                with the source of kernel data (tier)
  kubectl nodepulse worker-1               one node in full
  kubectl nodepulse kills -A --history     OOM kills, older ones included
  kubectl nodepulse why web-0 -n shop      the story of one pod, and what to do
  kubectl nodepulse top worker-1           live view of one node

Exit status: 0 success, 1 failure, 2 wrong usage. NO_COLOR turns colors off.";

/// Node conditions, OOM kills and pods, as nodepulse has reported them
#[derive(Debug, Parser)]
#[command(
    bin_name = "kubectl nodepulse",
    after_help = EXAMPLES,
    disable_help_subcommand = true
)]
struct CommandLine {
    /// Node to show in full; without it, all nodes
    node: Option<String>,
    #[command(flatten)]
    fleet: FleetOptions,
    #[command(subcommand)]
    command: Option<Subcommands>,
    #[command(flatten)]
    connection: Connection,
    /// Labels of the agent's pods
    #[arg(long, global = true, value_name = "LABELS", default_value = AGENT_SELECTOR,
          hide_default_value = true)]
    agent_selector: String,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// OOM kills by pod
    Kills(KillsOptions),
    /// The story of one pod
    Why(WhyOptions),
    /// Live view of one node
    Top(TopOptions),
}

/// The cluster, and the user.
#[derive(Debug, Args)]
pub struct Connection {
    /// Kubeconfig file
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Namespace of the agents
    #[arg(long, global = true, value_name = "NAME", default_value = "nodepulse")]
    pub agent_namespace: String,
    /// An agent without a report for longer is silent;
    /// at least 1.6 times the agents'
    /// nodeStatusReportFrequency
    #[arg(long, global = true, value_name = "DURATION", default_value = "15m",
          value_parser = age::parse_duration, verbatim_doc_comment)]
    pub silent_after: Duration,
}

/// An agent whose conditions do not change writes them after one and a half times
/// `nodeStatusReportFrequency` at the latest: with its default, after 7.5 minutes.
const LEAST_SILENT_AFTER: Duration = Duration::from_mins(8);

impl Connection {
    /// Returns a note if healthy agents may be called silent.
    pub fn note(&self) -> Option<String> {
        (self.silent_after < LEAST_SILENT_AFTER).then(|| {
            format!(
                "note: --silent-after {}s calls healthy agents silent, unless nodeStatusReportFrequency \
                 is set: by default, they report after 7.5 minutes at the latest; use {}m or more",
                self.silent_after.as_secs(),
                LEAST_SILENT_AFTER.as_secs() / 60
            )
        })
    }
}

/// Options of the table of nodes.
#[derive(Debug, Args)]
pub struct FleetOptions {
    /// Only nodes with these labels
    #[arg(short = 'l', long, value_name = "LABELS", conflicts_with = "node")]
    pub selector: Option<String>,
    /// Print changes until interrupted
    #[arg(short, long, conflicts_with_all = ["node", "output"])]
    pub watch: bool,
    /// Output format: json, or wide (with tiers)
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        hide_possible_values = true,
        conflicts_with = "node"
    )]
    pub output: Option<FleetFormat>,
    #[arg(skip)]
    pub agents: String,
}

impl FleetOptions {
    /// An empty selector selects all nodes.
    pub fn selector(&self) -> &str {
        self.selector.as_deref().unwrap_or_default()
    }
}

/// Other forms of the table of nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FleetFormat {
    Json,
    Wide,
}

/// Output for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Json,
}

#[derive(Debug)]
pub struct NodeOptions {
    /// `metadata.name` of the Node.
    pub name: String,
    /// Label selector of the agent's pods.
    pub agents: String,
}

/// Options of the table of OOM kills.
#[derive(Debug, Args)]
pub struct KillsOptions {
    /// All namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only kills of the last time, such as 30m or 2h
    #[arg(long, value_name = "DURATION", value_parser = age::parse_duration)]
    pub since: Option<Duration>,
    /// Read the agents' histories, which go back further than Events
    #[arg(long)]
    pub history: bool,
    /// Output format: json
    #[arg(short, long, value_name = "FORMAT", hide_possible_values = true)]
    pub output: Option<Format>,
    #[arg(skip)]
    pub agents: String,
}

/// Options of one pod.
#[derive(Debug, Args)]
pub struct WhyOptions {
    /// Name of the pod
    pub pod: String,
    /// Read the OOM kills from the agents' histories, which go back further than Events
    #[arg(long)]
    pub history: bool,
    #[arg(skip)]
    pub agents: String,
}

/// Options of the live view.
#[derive(Debug, Args)]
pub struct TopOptions {
    /// Name of the node
    pub node: String,
}

#[derive(Debug)]
pub struct Arguments {
    pub connection: Connection,
    pub command: Command,
}

#[derive(Debug)]
pub enum Command {
    Fleet(FleetOptions),
    Node(NodeOptions),
    Kills(KillsOptions),
    Why(WhyOptions),
    Top(NodeOptions),
}

/// Help, or a usage error.
#[derive(Debug)]
pub struct Message(clap::Error);

impl Message {
    /// Prints the help with exit code 0, or the error with exit code 2.
    pub fn print(&self) -> ExitCode {
        if self.0.use_stderr() {
            let text = self.0.to_string();
            // clap adds the usage and a tip: the first line names the argument.
            let line = text.lines().find(|line| !line.trim().is_empty());
            let line = line.unwrap_or("error: invalid arguments");
            let line = nodepulse_core::escape::escape(line.as_bytes());
            // Nothing can be reported if stderr is closed.
            drop(writeln!(
                std::io::stderr(),
                "{line}; see kubectl nodepulse --help"
            ));
            return ExitCode::from(2);
        }
        drop(std::io::stdout().write_all(self.0.to_string().as_bytes()));
        ExitCode::SUCCESS
    }
}

impl Arguments {
    pub fn of(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, Message> {
        let parsed = CommandLine::try_parse_from(arguments).map_err(Message)?;
        let agents = parsed.agent_selector;
        let fleet = &parsed.fleet;
        let is_fleet = parsed.node.is_some()
            || fleet.selector.is_some()
            || fleet.output.is_some()
            || fleet.watch;
        if parsed.command.is_some() && is_fleet {
            let why = "a node and options before a command are not used by it";
            let err = CommandLine::command().error(ErrorKind::ArgumentConflict, why);
            return Err(Message(err));
        }
        let command = match (parsed.command, parsed.node) {
            (Some(Subcommands::Kills(options)), _) => {
                Command::Kills(KillsOptions { agents, ..options })
            }
            (Some(Subcommands::Why(options)), _) => Command::Why(WhyOptions { agents, ..options }),
            (Some(Subcommands::Top(TopOptions { node: name })), _) => {
                Command::Top(NodeOptions { name, agents })
            }
            (None, Some(name)) => Command::Node(NodeOptions { name, agents }),
            (None, None) => Command::Fleet(FleetOptions {
                agents,
                ..parsed.fleet
            }),
        };
        Ok(Self {
            connection: parsed.connection,
            command,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_fits_a_screen() {
        let help = Arguments::of(["kubectl-nodepulse", "--help"].map(Into::into));
        let help = help.unwrap_err().0.to_string();
        assert!(help.lines().count() <= 36, "{help}");
        let long = help.lines().find(|line| line.chars().count() > 80);
        assert_eq!(long, None);
        assert!(help.contains("Usage: kubectl nodepulse"), "{help}");
    }
}
