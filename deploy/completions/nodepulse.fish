# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_nodepulse_global_optspecs
    string join \n h/help
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

complete -c nodepulse -n "__fish_nodepulse_needs_command" -s h -l help -d 'Print help'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "run" -d 'Run the agent'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "check" -d 'Tell what this machine and this cluster offer, and what to do about the rest'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "config" -d 'Print or check the configuration'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "cleanup" -d 'Take our conditions and taints off this Node, or off all of them'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "status" -d 'Print the status that would be sent: of the daemon that runs, or as computed now'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "explain" -d 'Print why each condition has its status'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "version" -d 'Print the version'
complete -c nodepulse -n "__fish_nodepulse_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it is there]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l kubelet-config -d 'A kubelet\'s configuration, for the keys that mean the same here' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l mode -d 'What to write: `node` is the whole Node, its status and its Lease' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l kubeconfig -d 'How to reach the API server; without it and outside a cluster nothing is sent' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l node-name -d 'Name of the Node [default: `NODE_NAME`, else the host name]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l node-ip -d 'This node\'s addresses: one, or one of each family' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l node-labels -d 'Labels of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l register-with-taints -d 'Taints of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l eviction-hard -d 'Thresholds that begin a condition' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l eviction-soft -d 'Thresholds that begin a condition and reserve nothing; each needs a grace period' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l eviction-soft-grace-period -d 'For how long a kubelet would not evict; delays no condition' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l eviction-minimum-reclaim -d 'How far above its threshold a signal must come' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l eviction-pressure-transition-period -d 'How long a condition stays after its signal is well again' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l register-node -d 'Whether the Node is created where it is missing' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l provider-id -d '`spec.providerID` of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l enable-controller-attach-detach -d 'Whether volumes are attached by the controller' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l node-status-update-frequency -d 'How often the status is computed' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l max-pods -d 'Capacity `pods`' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l pods-per-core -d 'A second limit on capacity `pods`; 0 is none' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l system-reserved -d 'Taken off allocatable' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l kube-reserved -d 'Taken off allocatable as well' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l reserved-system-cpus -d 'CPUs that are not for pods' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l cgroup-root -d 'The cgroup under which the pods cgroup is' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l cgroup-driver -d 'How the pods cgroup is called [default: as it is found]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l enforce-node-allocatable -d 'With `pods`, thresholds hold for the pods cgroup too' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l root-directory -d 'Its file system is nodefs' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l kernel-tier -d 'Where kernel facts come from' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l serve-address -d 'Where metrics and health are served [default: 127.0.0.1:20260]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l sandbox -d 'Whether rights are given up after the start' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l state-directory -d 'What is remembered from one start to the next' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l log-level -d 'How much is logged' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l log-format -d 'How a log line looks' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l take-over -d 'Start although a kubelet seems to look after this node'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l allow-ready-without-runtime -d 'Ready is True although no container runtime is configured'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l once -d 'Say once how the node is, and end: 0 if the API server has it, else 1'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -l dry-run -d 'Print what would be sent instead of sending it. Only reads'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand run" -s h -l help -d 'Print help'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -s o -l output -d 'How it is printed' -r -f -a "text\t'For people'
json\t'One object'"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it is there]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l kubelet-config -d 'A kubelet\'s configuration, for the keys that mean the same here' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l mode -d 'What to write: `node` is the whole Node, its status and its Lease' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l kubeconfig -d 'How to reach the API server; without it and outside a cluster nothing is sent' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l node-name -d 'Name of the Node [default: `NODE_NAME`, else the host name]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l node-ip -d 'This node\'s addresses: one, or one of each family' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l node-labels -d 'Labels of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l register-with-taints -d 'Taints of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l eviction-hard -d 'Thresholds that begin a condition' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l eviction-soft -d 'Thresholds that begin a condition and reserve nothing; each needs a grace period' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l eviction-soft-grace-period -d 'For how long a kubelet would not evict; delays no condition' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l eviction-minimum-reclaim -d 'How far above its threshold a signal must come' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l eviction-pressure-transition-period -d 'How long a condition stays after its signal is well again' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l register-node -d 'Whether the Node is created where it is missing' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l provider-id -d '`spec.providerID` of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l enable-controller-attach-detach -d 'Whether volumes are attached by the controller' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l node-status-update-frequency -d 'How often the status is computed' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l max-pods -d 'Capacity `pods`' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l pods-per-core -d 'A second limit on capacity `pods`; 0 is none' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l system-reserved -d 'Taken off allocatable' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l kube-reserved -d 'Taken off allocatable as well' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l reserved-system-cpus -d 'CPUs that are not for pods' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l cgroup-root -d 'The cgroup under which the pods cgroup is' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l cgroup-driver -d 'How the pods cgroup is called [default: as it is found]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l enforce-node-allocatable -d 'With `pods`, thresholds hold for the pods cgroup too' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l root-directory -d 'Its file system is nodefs' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l kernel-tier -d 'Where kernel facts come from' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l serve-address -d 'Where metrics and health are served [default: 127.0.0.1:20260]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l sandbox -d 'Whether rights are given up after the start' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l state-directory -d 'What is remembered from one start to the next' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l log-level -d 'How much is logged' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l log-format -d 'How a log line looks' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l take-over -d 'Start although a kubelet seems to look after this node'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -l allow-ready-without-runtime -d 'Ready is True although no container runtime is configured'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand check" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and not __fish_seen_subcommand_from print validate defaults help" -s h -l help -d 'Print help'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and not __fish_seen_subcommand_from print validate defaults help" -f -a "print" -d 'Print what holds, as a file that says the same; where each value comes from is in a comment'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and not __fish_seen_subcommand_from print validate defaults help" -f -a "validate" -d 'Check it, as `run` would on any machine; `--config -` reads standard input'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and not __fish_seen_subcommand_from print validate defaults help" -f -a "defaults" -d 'Print what holds where nobody says anything'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and not __fish_seen_subcommand_from print validate defaults help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it is there]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l kubelet-config -d 'A kubelet\'s configuration, for the keys that mean the same here' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l mode -d 'What to write: `node` is the whole Node, its status and its Lease' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l kubeconfig -d 'How to reach the API server; without it and outside a cluster nothing is sent' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l node-name -d 'Name of the Node [default: `NODE_NAME`, else the host name]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l node-ip -d 'This node\'s addresses: one, or one of each family' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l node-labels -d 'Labels of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l register-with-taints -d 'Taints of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l eviction-hard -d 'Thresholds that begin a condition' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l eviction-soft -d 'Thresholds that begin a condition and reserve nothing; each needs a grace period' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l eviction-soft-grace-period -d 'For how long a kubelet would not evict; delays no condition' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l eviction-minimum-reclaim -d 'How far above its threshold a signal must come' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l eviction-pressure-transition-period -d 'How long a condition stays after its signal is well again' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l register-node -d 'Whether the Node is created where it is missing' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l provider-id -d '`spec.providerID` of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l enable-controller-attach-detach -d 'Whether volumes are attached by the controller' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l node-status-update-frequency -d 'How often the status is computed' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l max-pods -d 'Capacity `pods`' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l pods-per-core -d 'A second limit on capacity `pods`; 0 is none' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l system-reserved -d 'Taken off allocatable' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l kube-reserved -d 'Taken off allocatable as well' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l reserved-system-cpus -d 'CPUs that are not for pods' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l cgroup-root -d 'The cgroup under which the pods cgroup is' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l cgroup-driver -d 'How the pods cgroup is called [default: as it is found]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l enforce-node-allocatable -d 'With `pods`, thresholds hold for the pods cgroup too' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l root-directory -d 'Its file system is nodefs' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l kernel-tier -d 'Where kernel facts come from' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l serve-address -d 'Where metrics and health are served [default: 127.0.0.1:20260]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l sandbox -d 'Whether rights are given up after the start' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l state-directory -d 'What is remembered from one start to the next' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l log-level -d 'How much is logged' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l log-format -d 'How a log line looks' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l take-over -d 'Start although a kubelet seems to look after this node'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -l allow-ready-without-runtime -d 'Ready is True although no container runtime is configured'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from print" -s h -l help -d 'Print help'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it is there]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l kubelet-config -d 'A kubelet\'s configuration, for the keys that mean the same here' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l mode -d 'What to write: `node` is the whole Node, its status and its Lease' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l kubeconfig -d 'How to reach the API server; without it and outside a cluster nothing is sent' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l node-name -d 'Name of the Node [default: `NODE_NAME`, else the host name]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l node-ip -d 'This node\'s addresses: one, or one of each family' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l node-labels -d 'Labels of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l register-with-taints -d 'Taints of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l eviction-hard -d 'Thresholds that begin a condition' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l eviction-soft -d 'Thresholds that begin a condition and reserve nothing; each needs a grace period' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l eviction-soft-grace-period -d 'For how long a kubelet would not evict; delays no condition' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l eviction-minimum-reclaim -d 'How far above its threshold a signal must come' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l eviction-pressure-transition-period -d 'How long a condition stays after its signal is well again' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l register-node -d 'Whether the Node is created where it is missing' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l provider-id -d '`spec.providerID` of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l enable-controller-attach-detach -d 'Whether volumes are attached by the controller' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l node-status-update-frequency -d 'How often the status is computed' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l max-pods -d 'Capacity `pods`' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l pods-per-core -d 'A second limit on capacity `pods`; 0 is none' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l system-reserved -d 'Taken off allocatable' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l kube-reserved -d 'Taken off allocatable as well' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l reserved-system-cpus -d 'CPUs that are not for pods' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l cgroup-root -d 'The cgroup under which the pods cgroup is' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l cgroup-driver -d 'How the pods cgroup is called [default: as it is found]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l enforce-node-allocatable -d 'With `pods`, thresholds hold for the pods cgroup too' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l root-directory -d 'Its file system is nodefs' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l kernel-tier -d 'Where kernel facts come from' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l serve-address -d 'Where metrics and health are served [default: 127.0.0.1:20260]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l sandbox -d 'Whether rights are given up after the start' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l state-directory -d 'What is remembered from one start to the next' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l log-level -d 'How much is logged' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l log-format -d 'How a log line looks' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l take-over -d 'Start although a kubelet seems to look after this node'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -l allow-ready-without-runtime -d 'Ready is True although no container runtime is configured'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from validate" -s h -l help -d 'Print help'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from defaults" -l mode -d 'The mode, which some defaults depend on' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from defaults" -s h -l help -d 'Print help'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "print" -d 'Print what holds, as a file that says the same; where each value comes from is in a comment'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "validate" -d 'Check it, as `run` would on any machine; `--config -` reads standard input'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "defaults" -d 'Print what holds where nobody says anything'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand config; and __fish_seen_subcommand_from help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it is there]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l kubelet-config -d 'A kubelet\'s configuration, for the keys that mean the same here' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l mode -d 'What to write: `node` is the whole Node, its status and its Lease' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l kubeconfig -d 'How to reach the API server; without it and outside a cluster nothing is sent' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l node-name -d 'Name of the Node [default: `NODE_NAME`, else the host name]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l node-ip -d 'This node\'s addresses: one, or one of each family' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l node-labels -d 'Labels of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l register-with-taints -d 'Taints of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l eviction-hard -d 'Thresholds that begin a condition' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l eviction-soft -d 'Thresholds that begin a condition and reserve nothing; each needs a grace period' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l eviction-soft-grace-period -d 'For how long a kubelet would not evict; delays no condition' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l eviction-minimum-reclaim -d 'How far above its threshold a signal must come' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l eviction-pressure-transition-period -d 'How long a condition stays after its signal is well again' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l register-node -d 'Whether the Node is created where it is missing' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l provider-id -d '`spec.providerID` of a new Node' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l enable-controller-attach-detach -d 'Whether volumes are attached by the controller' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l node-status-update-frequency -d 'How often the status is computed' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l max-pods -d 'Capacity `pods`' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l pods-per-core -d 'A second limit on capacity `pods`; 0 is none' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l system-reserved -d 'Taken off allocatable' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l kube-reserved -d 'Taken off allocatable as well' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l reserved-system-cpus -d 'CPUs that are not for pods' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l cgroup-root -d 'The cgroup under which the pods cgroup is' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l cgroup-driver -d 'How the pods cgroup is called [default: as it is found]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l enforce-node-allocatable -d 'With `pods`, thresholds hold for the pods cgroup too' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l root-directory -d 'Its file system is nodefs' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l kernel-tier -d 'Where kernel facts come from' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l serve-address -d 'Where metrics and health are served [default: 127.0.0.1:20260]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l sandbox -d 'Whether rights are given up after the start' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l state-directory -d 'What is remembered from one start to the next' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l log-level -d 'How much is logged' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l log-format -d 'How a log line looks' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l all-nodes -d 'Clean every Node of the cluster instead of this one'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l taints-only -d 'Remove taints alone; the conditions stay. With --all-nodes, a Node that fails is told and is no failure'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l force -d 'Clean although a daemon runs here, which may write again what is removed'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l take-over -d 'Start although a kubelet seems to look after this node'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -l allow-ready-without-runtime -d 'Ready is True although no container runtime is configured'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand cleanup" -s h -l help -d 'Print help'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand status" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it is there]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand status" -l state-directory -d 'Where the daemon\'s control socket is [default: /run/nodepulse]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand status" -l mode -d 'What to look as, where no daemon runs' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand status" -s o -l output -d 'How to print it' -r -f -a "yaml\t''
json\t''"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand status" -s h -l help -d 'Print help'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand explain" -l config -d 'Configuration file [default: /etc/nodepulse/config.yaml, if it is there]' -r -F
complete -c nodepulse -n "__fish_nodepulse_using_subcommand explain" -l state-directory -d 'Where the daemon\'s control socket is [default: /run/nodepulse]' -r
complete -c nodepulse -n "__fish_nodepulse_using_subcommand explain" -s o -l output -d 'How to print it' -r -f -a "text\t'For people'
json\t'One object'"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand version" -s o -l output -d 'How it is printed' -r -f -a "text\t'For people'
json\t'One object'"
complete -c nodepulse -n "__fish_nodepulse_using_subcommand version" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand help; and not __fish_seen_subcommand_from run check config cleanup status explain version help" -f -a "run" -d 'Run the agent'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand help; and not __fish_seen_subcommand_from run check config cleanup status explain version help" -f -a "check" -d 'Tell what this machine and this cluster offer, and what to do about the rest'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand help; and not __fish_seen_subcommand_from run check config cleanup status explain version help" -f -a "config" -d 'Print or check the configuration'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand help; and not __fish_seen_subcommand_from run check config cleanup status explain version help" -f -a "cleanup" -d 'Take our conditions and taints off this Node, or off all of them'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand help; and not __fish_seen_subcommand_from run check config cleanup status explain version help" -f -a "status" -d 'Print the status that would be sent: of the daemon that runs, or as computed now'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand help; and not __fish_seen_subcommand_from run check config cleanup status explain version help" -f -a "explain" -d 'Print why each condition has its status'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand help; and not __fish_seen_subcommand_from run check config cleanup status explain version help" -f -a "version" -d 'Print the version'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand help; and not __fish_seen_subcommand_from run check config cleanup status explain version help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "print" -d 'Print what holds, as a file that says the same; where each value comes from is in a comment'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "validate" -d 'Check it, as `run` would on any machine; `--config -` reads standard input'
complete -c nodepulse -n "__fish_nodepulse_using_subcommand help; and __fish_seen_subcommand_from config" -f -a "defaults" -d 'Print what holds where nobody says anything'
