//! The parts of help and manual pages that the command line does not contain.
// tidy: long: a table of texts

use clap::Command;

use super::settings;

#[derive(Debug)]
struct Texts {
    /// Name of a command below `nodepulse`, or `nodepulse`.
    command: &'static str,
    /// Paragraphs after the first sentence.
    description: &'static [&'static str],
    exit: &'static [Pair],
    environment: &'static [&'static [Pair]],
    files: &'static [Pair],
    examples: &'static [Pair],
    /// Other pages.
    see_also: &'static str,
}

/// A term and its meaning.
type Pair = (&'static str, &'static str);

/// A section of a page.
#[derive(Debug)]
pub struct Section {
    pub heading: &'static str,
    /// A text without a term has an empty one.
    pub entries: Vec<Pair>,
}

/// Returns the sections of the page of a command that follow its options.
pub fn sections(command: &str) -> Vec<Section> {
    let Some(texts) = texts(command) else {
        return Vec::new();
    };
    let all = [
        ("EXIT STATUS", texts.exit.to_vec()),
        ("ENVIRONMENT", texts.environment.concat()),
        ("FILES", texts.files.to_vec()),
        ("EXAMPLES", texts.examples.to_vec()),
        ("SEE ALSO", vec![("", texts.see_also)]),
    ];
    let all = all.map(|(heading, entries)| Section { heading, entries });
    all.into_iter()
        .filter(|section| !section.entries.is_empty())
        .collect()
}

fn texts(command: &str) -> Option<&'static Texts> {
    ALL.iter().find(|texts| texts.command == command)
}

/// Adds the texts to the help of a command and of those below it.
pub(super) fn described(command: Command) -> Command {
    let mut command = command.mut_args(settings::described);
    if let Some(texts) = texts(command.get_name()) {
        let about = command.get_about().map(|about| format!("{about}."));
        let description = texts.description.iter().map(ToString::to_string);
        let paragraphs: Vec<String> = about.into_iter().chain(description).collect();
        let sections = sections(texts.command).into_iter().map(|section| {
            let entries = section.entries.into_iter();
            let entries = entries.map(|(term, text)| match term {
                "" => format!("  {text}\n"),
                term => format!("  {term}\n          {text}\n"),
            });
            format!("{}:\n{}", section.heading, entries.collect::<String>())
        });
        let sections: Vec<String> = sections.collect();
        command = command
            .long_about(paragraphs.join("\n\n"))
            .after_long_help(sections.join("\n"));
    }
    command.mut_subcommands(described)
}

const SUCCESS: Pair = ("0", "Success.");
const USAGE: Pair = ("2", "A flag, a variable or a file is invalid.");

/// Variables of commands that read the whole configuration.
const SETTINGS: &[Pair] = &[
    (
        "NODEPULSE_*",
        "Each configuration key has a variable: `NODEPULSE_` and the key in capitals, with \
         an underscore between words. A flag takes precedence over a variable, a variable over \
         a file.",
    ),
    ("NODEPULSE_CONFIG", "The configuration file."),
    (
        "NODEPULSE_KUBELET_CONFIG",
        "The kubelet's configuration file.",
    ),
    (
        "NODE_NAME",
        "Name of the Node, if `NODEPULSE_NODE_NAME` is not set.",
    ),
    (
        "KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT",
        "Address of the API server in a pod with a service account.",
    ),
];

/// Variables of commands that only find the daemon.
const LOCATION: &[Pair] = &[
    ("NODEPULSE_CONFIG", "The configuration file."),
    (
        "NODEPULSE_STATE_DIRECTORY",
        "Directory of the daemon's control socket.",
    ),
];

const HISTORY: &[Pair] = &[
    ("NODEPULSE_CONFIG", "The configuration file."),
    ("NODEPULSE_HISTORY_DIRECTORY", "Directory of the history."),
];

const TERMINAL: &[Pair] = &[
    ("NO_COLOR", "If it is set, nothing is printed in color."),
    (
        "COLUMNS",
        "Columns of the terminal, which override those that it reports.",
    ),
];

const SUPERVISION: &[Pair] = &[(
    "NOTIFY_SOCKET, WATCHDOG_USEC",
    "Set by systemd(1): where and how often to report that the daemon runs.",
)];

const CONFIG_FILE: Pair = (
    "/etc/nodepulse/config.yaml",
    "The configuration file (optional).",
);
const DROP_INS: Pair = (
    "/etc/nodepulse/conf.d/*.yaml",
    "Merged over the configuration in alphabetical order.",
);
const SOCKET: Pair = (
    "/run/nodepulse/nodepulse.sock",
    "The control socket of the daemon, for its user only.",
);
const HISTORY_FILES: Pair = (
    "/var/lib/nodepulse/history/incidents-*.jsonl",
    "The history, for root only.",
);
const STATE: Pair = (
    "/run/nodepulse/state",
    "What the next start in the same boot must know.",
);
const BTF: Pair = (
    "/sys/kernel/btf/vmlinux",
    "The types of the kernel, which eBPF programs need.",
);

const ALL: &[Texts] = &[
    Texts {
        command: "nodepulse",
        description: &[
            "nodepulse turns OOM kills, PID counts, memory, disk space and slow disks into the node \
             conditions and Events of Kubernetes, without polling. `nodepulse run` is the daemon; the \
             other commands examine a node or a daemon, or remove what it has written.",
        ],
        exit: &[
            ("0", "Success, or the daemon stopped on request."),
            ("1", "A failure at run time."),
            USAGE,
            ("3", "`check` found that a required item is missing."),
        ],
        environment: &[SETTINGS, TERMINAL],
        files: &[CONFIG_FILE, DROP_INS, SOCKET],
        examples: &[
            (
                "nodepulse check",
                "Check whether this machine supports nodepulse.",
            ),
            (
                "nodepulse run --dry-run",
                "Print what would be sent to the API server.",
            ),
            (
                "kubectl exec -n nodepulse ds/nodepulse -- /nodepulse explain",
                "Ask a running agent why each condition has its status.",
            ),
        ],
        see_also: "nodepulse(8), nodepulse-check(1), nodepulse-status(1), nodepulse-explain(1), nodepulse-record(1), nodepulse-config(1), nodepulse-cleanup(1), nodepulse-completion(1), nodepulse-man(1), nodepulse-version(1).",
    },
    Texts {
        command: "run",
        description: &[
            "In companion mode, the default, nodepulse runs alongside a kubelet and writes only \
             nodepulse's conditions, Events and taints. In node mode it maintains the whole Node and its \
             Lease on a machine without a kubelet, and refuses to start next to one.",
            "Without a kubeconfig and outside a cluster, it evaluates, logs and serves metrics, and \
             opens no connection. SIGTERM and SIGINT stop it; SIGHUP, and a change of its files, make \
             it read the configuration again. An invalid configuration is then refused, and the last \
             valid one stays in effect.",
        ],
        exit: &[
            ("0", "Stopped on request, or synchronized once."),
            ("1", "A failure at run time."),
            (
                "2",
                "A flag, a variable or a file is invalid, or another agent manages this Node. No \
                 request was sent.",
            ),
        ],
        environment: &[SETTINGS, SUPERVISION],
        files: &[CONFIG_FILE, DROP_INS, SOCKET, STATE, BTF],
        examples: &[
            (
                "nodepulse run --dry-run --once",
                "Print the requests of one synchronization, and exit.",
            ),
            (
                "nodepulse run --mode node --kubeconfig /etc/nodepulse/kubeconfig",
                "Manage the Node of a machine without a kubelet.",
            ),
            (
                "nodepulse run --eviction-hard 'memory.available<1Gi'",
                "Set `MemoryLow` if less than 1 GiB is available.",
            ),
        ],
        see_also: "nodepulse(1), nodepulse-check(1), nodepulse-explain(1), nodepulse-config(1).",
    },
    Texts {
        command: "check",
        description: &[
            "Each line is ok, degraded (a fallback is used or a feature is missing) or missing (the \
             mode requires it), with a remedy if there is one. Each eBPF program is attached and \
             detached again, each pressure trigger is set and removed, and the API server is asked \
             about each permission with a SelfSubjectAccessReview. Nothing is written.",
            "The flags of `run` that do not matter here are accepted too, so that a command line can \
             be checked as it is.",
        ],
        exit: &[
            ("0", "Nothing that the mode requires is missing."),
            USAGE,
            ("3", "A required item is missing."),
        ],
        environment: &[SETTINGS, TERMINAL],
        files: &[CONFIG_FILE, DROP_INS, BTF],
        examples: &[
            ("nodepulse check", "Check this machine for companion mode."),
            (
                "nodepulse check --mode node -o json | jq '.items[] | select(.verdict != \"ok\")'",
                "Print what does not work in node mode.",
            ),
        ],
        see_also: "nodepulse(8), nodepulse-explain(1), nodepulse-config(1).",
    },
    Texts {
        command: "status",
        description: &[
            "The daemon answers over its control socket. If none is running, the status is computed as \
             the daemon would, and nothing is sent.",
        ],
        exit: &[
            SUCCESS,
            ("1", "A daemon does not respond correctly."),
            USAGE,
        ],
        environment: &[LOCATION],
        files: &[CONFIG_FILE, SOCKET],
        examples: &[(
            "nodepulse status -o json | jq '.conditions[].type'",
            "Print the types of all conditions.",
        )],
        see_also: "nodepulse-explain(1), nodepulse(8).",
    },
    Texts {
        command: "explain",
        description: &[
            "For each condition of the running daemon: its signals, the thresholds and how each was \
             computed, the last readings, the cause and the last changes, when a condition that is \
             True can end, and the numbers of each disk.",
        ],
        exit: &[
            SUCCESS,
            ("1", "No daemon runs, or it does not respond correctly."),
            USAGE,
        ],
        environment: &[LOCATION, TERMINAL],
        files: &[CONFIG_FILE, SOCKET],
        examples: &[
            ("nodepulse explain MemoryLow", "Explain one condition."),
            (
                "kubectl exec -n nodepulse ds/nodepulse -- /nodepulse explain",
                "Ask the agent of a node in a cluster.",
            ),
        ],
        see_also: "nodepulse-status(1), nodepulse-check(1), nodepulse(8).",
    },
    Texts {
        command: "history",
        description: &[
            "Prints what the agents of this machine have recorded, also before a reboot, and while \
             none runs: the time, the pod or the systemd unit, what happened, and the number at the end \
             of the incident's id. With an ID, it prints everything that is known about one, and with \
             --boot how a boot ended.",
        ],
        exit: &[
            SUCCESS,
            (
                "1",
                "There is no history or no such incident, or a file of the history cannot be read.",
            ),
            USAGE,
        ],
        environment: &[HISTORY],
        files: &[CONFIG_FILE, HISTORY_FILES],
        examples: &[
            (
                "nodepulse history --since 24h",
                "What happened since yesterday.",
            ),
            (
                "nodepulse history --boot=-1",
                "How the last boot ended, and what was read in its last ten minutes.",
            ),
            (
                "nodepulse history --follow --output json",
                "Each incident as a line of JSON when it is complete.",
            ),
            (
                "kubectl exec -n nodepulse POD -- /nodepulse history --pod shop/web-0",
                "What happened to a pod on the node of this agent.",
            ),
        ],
        see_also: "nodepulse-explain(1), nodepulse(8).",
    },
    Texts {
        command: "provoke",
        description: &[
            "Causes one real incident, so that its report can be seen: `oom` has a child process killed, \
             `pids` has forks refused, and `disk` writes to a file. The limit is that of the container or \
             the service in which the command runs, at most 1 GiB or 4096 tasks. Without one, under \
             systemd, it runs itself as a transient service with 64 MiB or 32 tasks (systemd-run). \
             Nothing outside of that limit is killed or refused.",
        ],
        exit: &[
            (
                "0",
                "The incident happened; of `disk`, the file was written.",
            ),
            ("1", "It did not happen."),
            (
                "2",
                "A flag is invalid, there is no limit, or the file exists.",
            ),
        ],
        environment: &[],
        files: &[],
        examples: &[
            (
                "nodepulse provoke oom",
                "On a machine with systemd, as root. Then: nodepulse history.",
            ),
            (
                "nodepulse provoke disk --file /data/provoke",
                "On the disk of /data, which becomes slower for a minute.",
            ),
        ],
        see_also: "nodepulse-history(1), nodepulse-explain(1), nodepulse(8).",
    },
    Texts {
        command: "record",
        description: &[
            "Writes what the running daemon observes from now on, and what it decides from that, \
             until it is interrupted. A report of a fault can carry the file. It contains names of \
             pods, images, cgroups, processes, disks and users, texts of errors, and no credentials. \
             Only one recording is served at a time: another one ends it.",
        ],
        exit: &[
            ("0", "Interrupted, or the time is over."),
            (
                "1",
                "No daemon runs, it ended the recording, or FILE cannot be written.",
            ),
            USAGE,
        ],
        environment: &[LOCATION],
        files: &[CONFIG_FILE, SOCKET],
        examples: &[
            (
                "nodepulse record --duration 10m kills.jsonl",
                "Record for ten minutes.",
            ),
            (
                "kubectl exec -n nodepulse POD -- /nodepulse record --duration 10m - > kills.jsonl",
                "Record the agent of a node in a cluster.",
            ),
        ],
        see_also: "nodepulse-explain(1), nodepulse(8).",
    },
    Texts {
        command: "config",
        description: &[
            "`print` prints the effective configuration as a file, with the source of each value and \
             how each threshold was computed. `validate` reads the configuration like `run`, also from \
             standard input (`--config -`). `defaults` prints the default configuration of a mode.",
        ],
        exit: &[SUCCESS, ("2", "The configuration or a flag is invalid.")],
        environment: &[SETTINGS],
        files: &[CONFIG_FILE, DROP_INS],
        examples: &[
            (
                "nodepulse config defaults --mode node > /etc/nodepulse/config.yaml",
                "Begin with the defaults.",
            ),
            (
                "nodepulse config validate --config - < config.yaml",
                "Check a file before it is installed.",
            ),
        ],
        see_also: "nodepulse(8), nodepulse-check(1).",
    },
    Texts {
        command: "cleanup",
        description: &[
            "Never removes a Node or a Lease, nor what other programs wrote. It needs the permissions \
             `get` and `patch` on nodes and `patch` on nodes/status, and `list` on nodes for all Nodes. \
             It refuses to run while a daemon runs on this machine, which would write them again. \
             `--all-nodes` skips Nodes in node mode.",
        ],
        exit: &[
            SUCCESS,
            (
                "1",
                "A Node could not be cleaned (with `--all-nodes --taints-only`: the Nodes could not be \
                 listed), or a daemon runs on this machine.",
            ),
            USAGE,
        ],
        environment: &[SETTINGS],
        files: &[CONFIG_FILE, DROP_INS, SOCKET],
        examples: &[
            (
                "nodepulse cleanup --all-nodes --kubeconfig ~/.kube/config",
                "Remove them in the whole cluster, as the user of a kubeconfig.",
            ),
            (
                "nodepulse cleanup --stale 30m",
                "Remove what agents that no longer exist have left behind.",
            ),
        ],
        see_also: "nodepulse(8).",
    },
    Texts {
        command: "completion",
        description: &[
            "The script completes commands, flags, and their values. It is that of this version; the \
             packages install it.",
        ],
        exit: &[SUCCESS, USAGE],
        environment: &[],
        files: &[],
        examples: &[
            (
                "source <(nodepulse completion bash)",
                "Complete in this bash.",
            ),
            (
                "nodepulse completion bash > /usr/share/bash-completion/completions/nodepulse",
                "Complete in each bash.",
            ),
            (
                "nodepulse completion zsh > \"${fpath[1]}/_nodepulse\"",
                "Complete in each zsh.",
            ),
            (
                "nodepulse completion fish | source",
                "Complete in this fish.",
            ),
        ],
        see_also: "nodepulse(1).",
    },
    Texts {
        command: "man",
        description: &[
            "On a terminal, the page is printed as text; otherwise in the language of man(7).",
        ],
        exit: &[SUCCESS, USAGE],
        environment: &[],
        files: &[],
        examples: &[
            (
                "nodepulse man check",
                "Read a page where man(1) is not installed.",
            ),
            ("nodepulse man run | man -l -", "Read it with man(1)."),
        ],
        see_also: "nodepulse(1).",
    },
    Texts {
        command: "version",
        description: &[
            "With `-o json` also the size, the ABI and the SHA-256 digest of the eBPF object.",
        ],
        exit: &[SUCCESS, USAGE],
        environment: &[],
        files: &[],
        examples: &[(
            "nodepulse version -o json | jq -r .commit",
            "Print the commit.",
        )],
        see_also: "nodepulse(1).",
    },
];
