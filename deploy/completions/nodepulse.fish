# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_nodepulse_global_optspecs
    string join \n h/help V/version
end

function __fish_nodepulse_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_nodepulse_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_nodepulse_using_subcommand
    set -l cmd (__fish_nodepulse_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c nodepulse -n "__fish_nodepulse_needs_command" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -s V -l version -d 'Print version'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "run" -d 'Run the agent'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "check" -d 'Check what this machine and the API server provide, with a remedy for each fault'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "status" -d 'Print the node status of the running daemon, or compute it if none is running'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "explain" -d 'Print why each condition has its status'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "history" -d 'Print the incidents of this machine: OOM kills, refused forks, unhealthy disks, conditions'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "provoke" -d 'Cause one real incident on purpose, to see how it is reported'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "record" -d 'Record what the running daemon observes and decides'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "config" -d 'Print or check the configuration'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "cleanup" -d 'Remove nodepulse\'s conditions and taints from this Node, or from all Nodes'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "completion" -d 'Print a script that completes calls of nodepulse in a shell'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "man" -d 'Print a manual page'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "version" -d 'Print the version'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "help" -d 'Print the help of a command'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it exists]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l kubelet-config -d 'Kubelet configuration file; its keys apply unless nodepulse\'s configuration sets them' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l mode -d 'Write conditions alongside a kubelet, or manage the whole Node [default: companion]' -r -f -a "companion\t''
node\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l kubeconfig -d 'Kubeconfig for the API server; without it nothing is sent, except in a pod' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l bootstrap-kubeconfig -d 'Node mode: kubeconfig with which the node\'s first client certificate is requested' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l cert-dir -d 'Node mode: directory of the requested client certificate and its key [default: /var/lib/nodepulse/pki]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l node-name -d 'Name of the Node [default: `NODE_NAME`, else the host name]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l node-ip -d 'Addresses of the node: one, or one of each family [default: from the host name, else the default route]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l node-labels -d 'Labels of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l register-with-taints -d 'Taints of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l eviction-hard -d 'Hard eviction thresholds: a condition becomes True below them' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l eviction-soft -d 'Soft eviction thresholds, which reserve nothing; each requires a grace period' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l eviction-soft-grace-period -d 'Grace periods of soft thresholds; they do not delay conditions' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l eviction-minimum-reclaim -d 'Amount by which a signal must exceed its threshold again' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l eviction-pressure-transition-period -d 'How long a condition stays True after its threshold is no longer exceeded [default: 5m]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l register-node -d 'Create the Node if it does not exist [default: true]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l provider-id -d '`spec.providerID` of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l enable-controller-attach-detach -d 'Let the controller manager attach and detach volumes [default: true]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l node-status-update-frequency -d 'Interval at which the node status is computed [default: 10s]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l max-pods -d 'Maximum number of pods (capacity `pods`) [default: 110]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l pods-per-core -d 'Maximum number of pods per core; 0 means no limit [default: 0]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l system-reserved -d 'Resources reserved for the system, subtracted from allocatable' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l kube-reserved -d 'Resources reserved for Kubernetes, subtracted from allocatable' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l reserved-system-cpus -d 'CPUs reserved for the system and Kubernetes' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l runtime-endpoint -d 'Socket of the container runtime (CRI v1); only node mode uses it [default: auto]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l cgroup-root -d 'Parent of the pods cgroup [default: /]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l cgroup-driver -d 'The kubelet\'s cgroup driver, which names the pods cgroup [default: detected]' -r -f -a "systemd\t''
cgroupfs\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l enforce-node-allocatable -d 'With `pods`, thresholds apply to the pods cgroup too [default: pods]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l root-directory -d 'The kubelet\'s root directory, on nodefs [default: /var/lib/kubelet]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l kernel-tier -d 'Source of kernel data: eBPF, kernel log or files [default: auto]' -r -f -a "auto\t''
btf\t''
kmsg\t''
files\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l serve-address -d 'Address of the metrics and health endpoints [default: 127.0.0.1:20260]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l sandbox -d 'Drop privileges after start-up [default: auto]' -r -f -a "auto\t''
off\t''
require\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l state-directory -d 'Directory of the state file and the control socket [default: /run/nodepulse]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l history-directory -d 'Directory in which incidents are recorded, for `nodepulse history` [default: /var/lib/nodepulse/history]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l sinks-journald -d 'Record incidents in systemd\'s journal [default: auto]' -r -f -a "auto\t''
on\t''
off\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l sinks-otlp-endpoint -d 'OpenTelemetry collector to which incidents are sent, as logs over OTLP/HTTP' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l sinks-webhooks -d 'Webhooks to which incidents are sent, as CloudEvents in JSON, at most four' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l log-level -d 'Log level [default: info]' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l log-format -d 'Log format [default: text]' -r -f -a "text\t''
json\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l take-over -d 'Start although a kubelet appears to manage this node'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l allow-ready-without-runtime -d 'Report Ready without a container runtime'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l once -d 'Send the status once and exit: 0 if the API server accepted it, else 1'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l dry-run -d 'Print write requests instead of sending them'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -s o -l output -d 'Output format' -r -f -a "text\t'Plain text'
json\t'A JSON object'"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it exists]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l kubelet-config -d 'Kubelet configuration file; its keys apply unless nodepulse\'s configuration sets them' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l mode -d 'Write conditions alongside a kubelet, or manage the whole Node [default: companion]' -r -f -a "companion\t''
node\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l kubeconfig -d 'Kubeconfig for the API server; without it nothing is sent, except in a pod' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l bootstrap-kubeconfig -d 'Node mode: kubeconfig with which the node\'s first client certificate is requested' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l cert-dir -d 'Node mode: directory of the requested client certificate and its key [default: /var/lib/nodepulse/pki]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l node-name -d 'Name of the Node [default: `NODE_NAME`, else the host name]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l node-ip -d 'Addresses of the node: one, or one of each family [default: from the host name, else the default route]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l node-labels -d 'Labels of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l register-with-taints -d 'Taints of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l eviction-hard -d 'Hard eviction thresholds: a condition becomes True below them' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l eviction-soft -d 'Soft eviction thresholds, which reserve nothing; each requires a grace period' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l eviction-soft-grace-period -d 'Grace periods of soft thresholds; they do not delay conditions' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l eviction-minimum-reclaim -d 'Amount by which a signal must exceed its threshold again' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l eviction-pressure-transition-period -d 'How long a condition stays True after its threshold is no longer exceeded [default: 5m]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l register-node -d 'Create the Node if it does not exist [default: true]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l provider-id -d '`spec.providerID` of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l enable-controller-attach-detach -d 'Let the controller manager attach and detach volumes [default: true]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l node-status-update-frequency -d 'Interval at which the node status is computed [default: 10s]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l max-pods -d 'Maximum number of pods (capacity `pods`) [default: 110]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l pods-per-core -d 'Maximum number of pods per core; 0 means no limit [default: 0]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l system-reserved -d 'Resources reserved for the system, subtracted from allocatable' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l kube-reserved -d 'Resources reserved for Kubernetes, subtracted from allocatable' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l reserved-system-cpus -d 'CPUs reserved for the system and Kubernetes' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l runtime-endpoint -d 'Socket of the container runtime (CRI v1); only node mode uses it [default: auto]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l cgroup-root -d 'Parent of the pods cgroup [default: /]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l cgroup-driver -d 'The kubelet\'s cgroup driver, which names the pods cgroup [default: detected]' -r -f -a "systemd\t''
cgroupfs\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l enforce-node-allocatable -d 'With `pods`, thresholds apply to the pods cgroup too [default: pods]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l root-directory -d 'The kubelet\'s root directory, on nodefs [default: /var/lib/kubelet]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l kernel-tier -d 'Source of kernel data: eBPF, kernel log or files [default: auto]' -r -f -a "auto\t''
btf\t''
kmsg\t''
files\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l serve-address -d 'Address of the metrics and health endpoints [default: 127.0.0.1:20260]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l sandbox -d 'Drop privileges after start-up [default: auto]' -r -f -a "auto\t''
off\t''
require\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l state-directory -d 'Directory of the state file and the control socket [default: /run/nodepulse]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l history-directory -d 'Directory in which incidents are recorded, for `nodepulse history` [default: /var/lib/nodepulse/history]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l sinks-journald -d 'Record incidents in systemd\'s journal [default: auto]' -r -f -a "auto\t''
on\t''
off\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l sinks-otlp-endpoint -d 'OpenTelemetry collector to which incidents are sent, as logs over OTLP/HTTP' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l sinks-webhooks -d 'Webhooks to which incidents are sent, as CloudEvents in JSON, at most four' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l log-level -d 'Log level [default: info]' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l log-format -d 'Log format [default: text]' -r -f -a "text\t''
json\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l take-over -d 'Start although a kubelet appears to manage this node'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l allow-ready-without-runtime -d 'Report Ready without a container runtime'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand status" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it exists]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand status" -l state-directory -d 'Directory of the daemon\'s control socket [default: /run/nodepulse]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand status" -l mode -d 'Mode to assume if no daemon is running' -r -f -a "companion\t''
node\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand status" -s o -l output -d 'Output format' -r -f -a "yaml\t''
json\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand explain" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it exists]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand explain" -l state-directory -d 'Directory of the daemon\'s control socket [default: /run/nodepulse]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand explain" -s o -l output -d 'Output format' -r -f -a "text\t'Plain text'
json\t'A JSON object'"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand history" -l boot -d 'Print how a boot ended: -1 is the last one, -2 the one before' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand history" -l since -d 'Print only incidents of the last time. Example: 1h' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand history" -l pod -d 'Print only incidents of this pod, or of all pods of a namespace' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand history" -l unit -d 'Print only incidents of this systemd unit' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand history" -s o -l output -d 'Output format' -r -f -a "text\t'A table; of one incident, YAML'
json\t'One JSON object per line'"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand history" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it exists]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand history" -l history-directory -d 'Directory of the history [default: /var/lib/nodepulse/history]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand history" -s f -l follow -d 'Print the incidents that are recorded from now on, when they are complete'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand history" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand provoke" -l file -d 'Only for `disk`: a new file on that disk. It is removed at the end' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand provoke" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand record" -l duration -d 'Stop after this time, instead of when interrupted. Example: 10m' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand record" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it exists]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand record" -l state-directory -d 'Directory of the daemon\'s control socket [default: /run/nodepulse]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand record" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and not __fish_seen_subcommand_from print validate defaults" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and not __fish_seen_subcommand_from print validate defaults" -f -a "print" -d 'Print the effective configuration as a file, with the source of each value in a comment'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and not __fish_seen_subcommand_from print validate defaults" -f -a "validate" -d 'Check the configuration; `--config -` reads standard input'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and not __fish_seen_subcommand_from print validate defaults" -f -a "defaults" -d 'Print the default configuration'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it exists]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l kubelet-config -d 'Kubelet configuration file; its keys apply unless nodepulse\'s configuration sets them' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l mode -d 'Write conditions alongside a kubelet, or manage the whole Node [default: companion]' -r -f -a "companion\t''
node\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l kubeconfig -d 'Kubeconfig for the API server; without it nothing is sent, except in a pod' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l bootstrap-kubeconfig -d 'Node mode: kubeconfig with which the node\'s first client certificate is requested' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l cert-dir -d 'Node mode: directory of the requested client certificate and its key [default: /var/lib/nodepulse/pki]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l node-name -d 'Name of the Node [default: `NODE_NAME`, else the host name]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l node-ip -d 'Addresses of the node: one, or one of each family [default: from the host name, else the default route]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l node-labels -d 'Labels of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l register-with-taints -d 'Taints of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l eviction-hard -d 'Hard eviction thresholds: a condition becomes True below them' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l eviction-soft -d 'Soft eviction thresholds, which reserve nothing; each requires a grace period' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l eviction-soft-grace-period -d 'Grace periods of soft thresholds; they do not delay conditions' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l eviction-minimum-reclaim -d 'Amount by which a signal must exceed its threshold again' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l eviction-pressure-transition-period -d 'How long a condition stays True after its threshold is no longer exceeded [default: 5m]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l register-node -d 'Create the Node if it does not exist [default: true]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l provider-id -d '`spec.providerID` of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l enable-controller-attach-detach -d 'Let the controller manager attach and detach volumes [default: true]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l node-status-update-frequency -d 'Interval at which the node status is computed [default: 10s]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l max-pods -d 'Maximum number of pods (capacity `pods`) [default: 110]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l pods-per-core -d 'Maximum number of pods per core; 0 means no limit [default: 0]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l system-reserved -d 'Resources reserved for the system, subtracted from allocatable' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l kube-reserved -d 'Resources reserved for Kubernetes, subtracted from allocatable' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l reserved-system-cpus -d 'CPUs reserved for the system and Kubernetes' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l runtime-endpoint -d 'Socket of the container runtime (CRI v1); only node mode uses it [default: auto]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l cgroup-root -d 'Parent of the pods cgroup [default: /]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l cgroup-driver -d 'The kubelet\'s cgroup driver, which names the pods cgroup [default: detected]' -r -f -a "systemd\t''
cgroupfs\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l enforce-node-allocatable -d 'With `pods`, thresholds apply to the pods cgroup too [default: pods]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l root-directory -d 'The kubelet\'s root directory, on nodefs [default: /var/lib/kubelet]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l kernel-tier -d 'Source of kernel data: eBPF, kernel log or files [default: auto]' -r -f -a "auto\t''
btf\t''
kmsg\t''
files\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l serve-address -d 'Address of the metrics and health endpoints [default: 127.0.0.1:20260]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l sandbox -d 'Drop privileges after start-up [default: auto]' -r -f -a "auto\t''
off\t''
require\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l state-directory -d 'Directory of the state file and the control socket [default: /run/nodepulse]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l history-directory -d 'Directory in which incidents are recorded, for `nodepulse history` [default: /var/lib/nodepulse/history]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l sinks-journald -d 'Record incidents in systemd\'s journal [default: auto]' -r -f -a "auto\t''
on\t''
off\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l sinks-otlp-endpoint -d 'OpenTelemetry collector to which incidents are sent, as logs over OTLP/HTTP' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l sinks-webhooks -d 'Webhooks to which incidents are sent, as CloudEvents in JSON, at most four' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l log-level -d 'Log level [default: info]' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l log-format -d 'Log format [default: text]' -r -f -a "text\t''
json\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l take-over -d 'Start although a kubelet appears to manage this node'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l allow-ready-without-runtime -d 'Report Ready without a container runtime'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it exists]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l kubelet-config -d 'Kubelet configuration file; its keys apply unless nodepulse\'s configuration sets them' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l mode -d 'Write conditions alongside a kubelet, or manage the whole Node [default: companion]' -r -f -a "companion\t''
node\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l kubeconfig -d 'Kubeconfig for the API server; without it nothing is sent, except in a pod' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l bootstrap-kubeconfig -d 'Node mode: kubeconfig with which the node\'s first client certificate is requested' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l cert-dir -d 'Node mode: directory of the requested client certificate and its key [default: /var/lib/nodepulse/pki]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l node-name -d 'Name of the Node [default: `NODE_NAME`, else the host name]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l node-ip -d 'Addresses of the node: one, or one of each family [default: from the host name, else the default route]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l node-labels -d 'Labels of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l register-with-taints -d 'Taints of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l eviction-hard -d 'Hard eviction thresholds: a condition becomes True below them' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l eviction-soft -d 'Soft eviction thresholds, which reserve nothing; each requires a grace period' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l eviction-soft-grace-period -d 'Grace periods of soft thresholds; they do not delay conditions' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l eviction-minimum-reclaim -d 'Amount by which a signal must exceed its threshold again' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l eviction-pressure-transition-period -d 'How long a condition stays True after its threshold is no longer exceeded [default: 5m]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l register-node -d 'Create the Node if it does not exist [default: true]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l provider-id -d '`spec.providerID` of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l enable-controller-attach-detach -d 'Let the controller manager attach and detach volumes [default: true]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l node-status-update-frequency -d 'Interval at which the node status is computed [default: 10s]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l max-pods -d 'Maximum number of pods (capacity `pods`) [default: 110]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l pods-per-core -d 'Maximum number of pods per core; 0 means no limit [default: 0]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l system-reserved -d 'Resources reserved for the system, subtracted from allocatable' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l kube-reserved -d 'Resources reserved for Kubernetes, subtracted from allocatable' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l reserved-system-cpus -d 'CPUs reserved for the system and Kubernetes' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l runtime-endpoint -d 'Socket of the container runtime (CRI v1); only node mode uses it [default: auto]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l cgroup-root -d 'Parent of the pods cgroup [default: /]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l cgroup-driver -d 'The kubelet\'s cgroup driver, which names the pods cgroup [default: detected]' -r -f -a "systemd\t''
cgroupfs\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l enforce-node-allocatable -d 'With `pods`, thresholds apply to the pods cgroup too [default: pods]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l root-directory -d 'The kubelet\'s root directory, on nodefs [default: /var/lib/kubelet]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l kernel-tier -d 'Source of kernel data: eBPF, kernel log or files [default: auto]' -r -f -a "auto\t''
btf\t''
kmsg\t''
files\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l serve-address -d 'Address of the metrics and health endpoints [default: 127.0.0.1:20260]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l sandbox -d 'Drop privileges after start-up [default: auto]' -r -f -a "auto\t''
off\t''
require\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l state-directory -d 'Directory of the state file and the control socket [default: /run/nodepulse]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l history-directory -d 'Directory in which incidents are recorded, for `nodepulse history` [default: /var/lib/nodepulse/history]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l sinks-journald -d 'Record incidents in systemd\'s journal [default: auto]' -r -f -a "auto\t''
on\t''
off\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l sinks-otlp-endpoint -d 'OpenTelemetry collector to which incidents are sent, as logs over OTLP/HTTP' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l sinks-webhooks -d 'Webhooks to which incidents are sent, as CloudEvents in JSON, at most four' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l log-level -d 'Log level [default: info]' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l log-format -d 'Log format [default: text]' -r -f -a "text\t''
json\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l take-over -d 'Start although a kubelet appears to manage this node'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l allow-ready-without-runtime -d 'Report Ready without a container runtime'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from defaults" -l mode -d 'The mode, on which some defaults depend' -r -f -a "companion\t''
node\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from defaults" -s h -l help -d 'Print help'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l selector -d 'With --all-nodes: only Nodes with these labels. Example: kubernetes.io/os=linux,pool=gpu' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l stale -d 'Clean every Node of the cluster whose agent does not exist any more' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it exists]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l kubelet-config -d 'Kubelet configuration file; its keys apply unless nodepulse\'s configuration sets them' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l mode -d 'Write conditions alongside a kubelet, or manage the whole Node [default: companion]' -r -f -a "companion\t''
node\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l kubeconfig -d 'Kubeconfig for the API server; without it nothing is sent, except in a pod' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l bootstrap-kubeconfig -d 'Node mode: kubeconfig with which the node\'s first client certificate is requested' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l cert-dir -d 'Node mode: directory of the requested client certificate and its key [default: /var/lib/nodepulse/pki]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l node-name -d 'Name of the Node [default: `NODE_NAME`, else the host name]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l node-ip -d 'Addresses of the node: one, or one of each family [default: from the host name, else the default route]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l node-labels -d 'Labels of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l register-with-taints -d 'Taints of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l eviction-hard -d 'Hard eviction thresholds: a condition becomes True below them' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l eviction-soft -d 'Soft eviction thresholds, which reserve nothing; each requires a grace period' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l eviction-soft-grace-period -d 'Grace periods of soft thresholds; they do not delay conditions' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l eviction-minimum-reclaim -d 'Amount by which a signal must exceed its threshold again' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l eviction-pressure-transition-period -d 'How long a condition stays True after its threshold is no longer exceeded [default: 5m]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l register-node -d 'Create the Node if it does not exist [default: true]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l provider-id -d '`spec.providerID` of a new Node' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l enable-controller-attach-detach -d 'Let the controller manager attach and detach volumes [default: true]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l node-status-update-frequency -d 'Interval at which the node status is computed [default: 10s]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l max-pods -d 'Maximum number of pods (capacity `pods`) [default: 110]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l pods-per-core -d 'Maximum number of pods per core; 0 means no limit [default: 0]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l system-reserved -d 'Resources reserved for the system, subtracted from allocatable' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l kube-reserved -d 'Resources reserved for Kubernetes, subtracted from allocatable' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l reserved-system-cpus -d 'CPUs reserved for the system and Kubernetes' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l runtime-endpoint -d 'Socket of the container runtime (CRI v1); only node mode uses it [default: auto]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l cgroup-root -d 'Parent of the pods cgroup [default: /]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l cgroup-driver -d 'The kubelet\'s cgroup driver, which names the pods cgroup [default: detected]' -r -f -a "systemd\t''
cgroupfs\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l enforce-node-allocatable -d 'With `pods`, thresholds apply to the pods cgroup too [default: pods]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l root-directory -d 'The kubelet\'s root directory, on nodefs [default: /var/lib/kubelet]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l kernel-tier -d 'Source of kernel data: eBPF, kernel log or files [default: auto]' -r -f -a "auto\t''
btf\t''
kmsg\t''
files\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l serve-address -d 'Address of the metrics and health endpoints [default: 127.0.0.1:20260]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l sandbox -d 'Drop privileges after start-up [default: auto]' -r -f -a "auto\t''
off\t''
require\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l state-directory -d 'Directory of the state file and the control socket [default: /run/nodepulse]' -r -f -a "(__fish_complete_directories)"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l history-directory -d 'Directory in which incidents are recorded, for `nodepulse history` [default: /var/lib/nodepulse/history]' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l sinks-journald -d 'Record incidents in systemd\'s journal [default: auto]' -r -f -a "auto\t''
on\t''
off\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l sinks-otlp-endpoint -d 'OpenTelemetry collector to which incidents are sent, as logs over OTLP/HTTP' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l sinks-webhooks -d 'Webhooks to which incidents are sent, as CloudEvents in JSON, at most four' -r -f
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l log-level -d 'Log level [default: info]' -r -f -a "error\t''
warn\t''
info\t''
debug\t''
trace\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l log-format -d 'Log format [default: text]' -r -f -a "text\t''
json\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l all-nodes -d 'Clean every Node of the cluster instead of this one'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l taints-only -d 'Remove only taints. With --all-nodes: report Nodes that fail, but exit 0'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l force -d 'Run although a daemon is running here, which may write them again'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l take-over -d 'Start although a kubelet appears to manage this node'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l allow-ready-without-runtime -d 'Report Ready without a container runtime'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand completion" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand man" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand version" -s o -l output -d 'Output format' -r -f -a "text\t'Plain text'
json\t'A JSON object'"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand version" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand help" -s h -l help -d 'Print help'
