_nodepulse() {
    local i cur prev opts cmd
    COMPREPLY=()
    if [[ "${BASH_VERSINFO[0]}" -ge 4 ]]; then
        cur="$2"
    else
        cur="${COMP_WORDS[COMP_CWORD]}"
    fi
    prev="$3"
    cmd=""
    opts=""

    for i in "${COMP_WORDS[@]:0:COMP_CWORD}"
    do
        case "${cmd},${i}" in
            ",$1")
                cmd="nodepulse"
                ;;
            nodepulse,check)
                cmd="nodepulse__subcmd__check"
                ;;
            nodepulse,cleanup)
                cmd="nodepulse__subcmd__cleanup"
                ;;
            nodepulse,config)
                cmd="nodepulse__subcmd__config"
                ;;
            nodepulse,explain)
                cmd="nodepulse__subcmd__explain"
                ;;
            nodepulse,help)
                cmd="nodepulse__subcmd__help"
                ;;
            nodepulse,run)
                cmd="nodepulse__subcmd__run"
                ;;
            nodepulse,status)
                cmd="nodepulse__subcmd__status"
                ;;
            nodepulse,version)
                cmd="nodepulse__subcmd__version"
                ;;
            nodepulse__subcmd__config,defaults)
                cmd="nodepulse__subcmd__config__subcmd__defaults"
                ;;
            nodepulse__subcmd__config,help)
                cmd="nodepulse__subcmd__config__subcmd__help"
                ;;
            nodepulse__subcmd__config,print)
                cmd="nodepulse__subcmd__config__subcmd__print"
                ;;
            nodepulse__subcmd__config,validate)
                cmd="nodepulse__subcmd__config__subcmd__validate"
                ;;
            nodepulse__subcmd__config__subcmd__help,defaults)
                cmd="nodepulse__subcmd__config__subcmd__help__subcmd__defaults"
                ;;
            nodepulse__subcmd__config__subcmd__help,help)
                cmd="nodepulse__subcmd__config__subcmd__help__subcmd__help"
                ;;
            nodepulse__subcmd__config__subcmd__help,print)
                cmd="nodepulse__subcmd__config__subcmd__help__subcmd__print"
                ;;
            nodepulse__subcmd__config__subcmd__help,validate)
                cmd="nodepulse__subcmd__config__subcmd__help__subcmd__validate"
                ;;
            nodepulse__subcmd__help,check)
                cmd="nodepulse__subcmd__help__subcmd__check"
                ;;
            nodepulse__subcmd__help,cleanup)
                cmd="nodepulse__subcmd__help__subcmd__cleanup"
                ;;
            nodepulse__subcmd__help,config)
                cmd="nodepulse__subcmd__help__subcmd__config"
                ;;
            nodepulse__subcmd__help,explain)
                cmd="nodepulse__subcmd__help__subcmd__explain"
                ;;
            nodepulse__subcmd__help,help)
                cmd="nodepulse__subcmd__help__subcmd__help"
                ;;
            nodepulse__subcmd__help,run)
                cmd="nodepulse__subcmd__help__subcmd__run"
                ;;
            nodepulse__subcmd__help,status)
                cmd="nodepulse__subcmd__help__subcmd__status"
                ;;
            nodepulse__subcmd__help,version)
                cmd="nodepulse__subcmd__help__subcmd__version"
                ;;
            nodepulse__subcmd__help__subcmd__config,defaults)
                cmd="nodepulse__subcmd__help__subcmd__config__subcmd__defaults"
                ;;
            nodepulse__subcmd__help__subcmd__config,print)
                cmd="nodepulse__subcmd__help__subcmd__config__subcmd__print"
                ;;
            nodepulse__subcmd__help__subcmd__config,validate)
                cmd="nodepulse__subcmd__help__subcmd__config__subcmd__validate"
                ;;
            *)
                ;;
        esac
    done

    case "${cmd}" in
        nodepulse)
            opts="-h --help run check config cleanup status explain version help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 1 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__check)
            opts="-o -h --output --config --kubelet-config --mode --kubeconfig --node-name --node-ip --node-labels --register-with-taints --eviction-hard --eviction-soft --eviction-soft-grace-period --eviction-minimum-reclaim --eviction-pressure-transition-period --register-node --provider-id --enable-controller-attach-detach --node-status-update-frequency --max-pods --pods-per-core --system-reserved --kube-reserved --reserved-system-cpus --take-over --allow-ready-without-runtime --cgroup-root --cgroup-driver --enforce-node-allocatable --root-directory --kernel-tier --serve-address --sandbox --state-directory --log-level --log-format --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kubelet-config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -W "companion node" -- "${cur}"))
                    return 0
                    ;;
                --kubeconfig)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-ip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-labels)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --register-with-taints)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-hard)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-soft)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-soft-grace-period)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-minimum-reclaim)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-pressure-transition-period)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --register-node)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --provider-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --enable-controller-attach-detach)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --node-status-update-frequency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-pods)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pods-per-core)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --system-reserved)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kube-reserved)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reserved-system-cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-root)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-driver)
                    COMPREPLY=($(compgen -W "systemd cgroupfs" -- "${cur}"))
                    return 0
                    ;;
                --enforce-node-allocatable)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --root-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kernel-tier)
                    COMPREPLY=($(compgen -W "auto btf kmsg files" -- "${cur}"))
                    return 0
                    ;;
                --serve-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -W "auto off require" -- "${cur}"))
                    return 0
                    ;;
                --state-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__cleanup)
            opts="-h --all-nodes --selector --taints-only --stale --force --config --kubelet-config --mode --kubeconfig --node-name --node-ip --node-labels --register-with-taints --eviction-hard --eviction-soft --eviction-soft-grace-period --eviction-minimum-reclaim --eviction-pressure-transition-period --register-node --provider-id --enable-controller-attach-detach --node-status-update-frequency --max-pods --pods-per-core --system-reserved --kube-reserved --reserved-system-cpus --take-over --allow-ready-without-runtime --cgroup-root --cgroup-driver --enforce-node-allocatable --root-directory --kernel-tier --serve-address --sandbox --state-directory --log-level --log-format --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --selector)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --stale)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kubelet-config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -W "companion node" -- "${cur}"))
                    return 0
                    ;;
                --kubeconfig)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-ip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-labels)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --register-with-taints)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-hard)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-soft)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-soft-grace-period)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-minimum-reclaim)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-pressure-transition-period)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --register-node)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --provider-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --enable-controller-attach-detach)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --node-status-update-frequency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-pods)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pods-per-core)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --system-reserved)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kube-reserved)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reserved-system-cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-root)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-driver)
                    COMPREPLY=($(compgen -W "systemd cgroupfs" -- "${cur}"))
                    return 0
                    ;;
                --enforce-node-allocatable)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --root-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kernel-tier)
                    COMPREPLY=($(compgen -W "auto btf kmsg files" -- "${cur}"))
                    return 0
                    ;;
                --serve-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -W "auto off require" -- "${cur}"))
                    return 0
                    ;;
                --state-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__config)
            opts="-h --help print validate defaults help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__config__subcmd__defaults)
            opts="-h --mode --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --mode)
                    COMPREPLY=($(compgen -W "companion node" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__config__subcmd__help)
            opts="print validate defaults help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__config__subcmd__help__subcmd__defaults)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__config__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__config__subcmd__help__subcmd__print)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__config__subcmd__help__subcmd__validate)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__config__subcmd__print)
            opts="-h --config --kubelet-config --mode --kubeconfig --node-name --node-ip --node-labels --register-with-taints --eviction-hard --eviction-soft --eviction-soft-grace-period --eviction-minimum-reclaim --eviction-pressure-transition-period --register-node --provider-id --enable-controller-attach-detach --node-status-update-frequency --max-pods --pods-per-core --system-reserved --kube-reserved --reserved-system-cpus --take-over --allow-ready-without-runtime --cgroup-root --cgroup-driver --enforce-node-allocatable --root-directory --kernel-tier --serve-address --sandbox --state-directory --log-level --log-format --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kubelet-config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -W "companion node" -- "${cur}"))
                    return 0
                    ;;
                --kubeconfig)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-ip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-labels)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --register-with-taints)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-hard)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-soft)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-soft-grace-period)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-minimum-reclaim)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-pressure-transition-period)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --register-node)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --provider-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --enable-controller-attach-detach)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --node-status-update-frequency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-pods)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pods-per-core)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --system-reserved)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kube-reserved)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reserved-system-cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-root)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-driver)
                    COMPREPLY=($(compgen -W "systemd cgroupfs" -- "${cur}"))
                    return 0
                    ;;
                --enforce-node-allocatable)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --root-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kernel-tier)
                    COMPREPLY=($(compgen -W "auto btf kmsg files" -- "${cur}"))
                    return 0
                    ;;
                --serve-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -W "auto off require" -- "${cur}"))
                    return 0
                    ;;
                --state-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__config__subcmd__validate)
            opts="-h --config --kubelet-config --mode --kubeconfig --node-name --node-ip --node-labels --register-with-taints --eviction-hard --eviction-soft --eviction-soft-grace-period --eviction-minimum-reclaim --eviction-pressure-transition-period --register-node --provider-id --enable-controller-attach-detach --node-status-update-frequency --max-pods --pods-per-core --system-reserved --kube-reserved --reserved-system-cpus --take-over --allow-ready-without-runtime --cgroup-root --cgroup-driver --enforce-node-allocatable --root-directory --kernel-tier --serve-address --sandbox --state-directory --log-level --log-format --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kubelet-config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -W "companion node" -- "${cur}"))
                    return 0
                    ;;
                --kubeconfig)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-ip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-labels)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --register-with-taints)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-hard)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-soft)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-soft-grace-period)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-minimum-reclaim)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-pressure-transition-period)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --register-node)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --provider-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --enable-controller-attach-detach)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --node-status-update-frequency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-pods)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pods-per-core)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --system-reserved)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kube-reserved)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reserved-system-cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-root)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-driver)
                    COMPREPLY=($(compgen -W "systemd cgroupfs" -- "${cur}"))
                    return 0
                    ;;
                --enforce-node-allocatable)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --root-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kernel-tier)
                    COMPREPLY=($(compgen -W "auto btf kmsg files" -- "${cur}"))
                    return 0
                    ;;
                --serve-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -W "auto off require" -- "${cur}"))
                    return 0
                    ;;
                --state-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__explain)
            opts="-o -h --config --state-directory --output --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__help)
            opts="run check config cleanup status explain version help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__help__subcmd__check)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__help__subcmd__cleanup)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__help__subcmd__config)
            opts="print validate defaults"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__help__subcmd__config__subcmd__defaults)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__help__subcmd__config__subcmd__print)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__help__subcmd__config__subcmd__validate)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 4 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__help__subcmd__explain)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__help__subcmd__help)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__help__subcmd__run)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__help__subcmd__status)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__help__subcmd__version)
            opts=""
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 3 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__run)
            opts="-h --config --kubelet-config --mode --kubeconfig --node-name --node-ip --node-labels --register-with-taints --eviction-hard --eviction-soft --eviction-soft-grace-period --eviction-minimum-reclaim --eviction-pressure-transition-period --register-node --provider-id --enable-controller-attach-detach --node-status-update-frequency --max-pods --pods-per-core --system-reserved --kube-reserved --reserved-system-cpus --take-over --allow-ready-without-runtime --cgroup-root --cgroup-driver --enforce-node-allocatable --root-directory --kernel-tier --serve-address --sandbox --state-directory --log-level --log-format --once --dry-run --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kubelet-config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -W "companion node" -- "${cur}"))
                    return 0
                    ;;
                --kubeconfig)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-name)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-ip)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --node-labels)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --register-with-taints)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-hard)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-soft)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-soft-grace-period)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-minimum-reclaim)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --eviction-pressure-transition-period)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --register-node)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --provider-id)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --enable-controller-attach-detach)
                    COMPREPLY=($(compgen -W "true false" -- "${cur}"))
                    return 0
                    ;;
                --node-status-update-frequency)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --max-pods)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --pods-per-core)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --system-reserved)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kube-reserved)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --reserved-system-cpus)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-root)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --cgroup-driver)
                    COMPREPLY=($(compgen -W "systemd cgroupfs" -- "${cur}"))
                    return 0
                    ;;
                --enforce-node-allocatable)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --root-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --kernel-tier)
                    COMPREPLY=($(compgen -W "auto btf kmsg files" -- "${cur}"))
                    return 0
                    ;;
                --serve-address)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --sandbox)
                    COMPREPLY=($(compgen -W "auto off require" -- "${cur}"))
                    return 0
                    ;;
                --state-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --log-level)
                    COMPREPLY=($(compgen -W "error warn info debug trace" -- "${cur}"))
                    return 0
                    ;;
                --log-format)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__status)
            opts="-o -h --config --state-directory --mode --output --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --config)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --state-directory)
                    COMPREPLY=($(compgen -f "${cur}"))
                    return 0
                    ;;
                --mode)
                    COMPREPLY=($(compgen -W "companion node" -- "${cur}"))
                    return 0
                    ;;
                --output)
                    COMPREPLY=($(compgen -W "yaml json" -- "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -W "yaml json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
        nodepulse__subcmd__version)
            opts="-o -h --output --help"
            if [[ ${cur} == -* || ${COMP_CWORD} -eq 2 ]] ; then
                COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
                return 0
            fi
            case "${prev}" in
                --output)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                -o)
                    COMPREPLY=($(compgen -W "text json" -- "${cur}"))
                    return 0
                    ;;
                *)
                    COMPREPLY=()
                    ;;
            esac
            COMPREPLY=( $(compgen -W "${opts}" -- "${cur}") )
            return 0
            ;;
    esac
}

if [[ "${BASH_VERSINFO[0]}" -eq 4 && "${BASH_VERSINFO[1]}" -ge 4 || "${BASH_VERSINFO[0]}" -gt 4 ]]; then
    complete -F _nodepulse -o nosort -o bashdefault -o default nodepulse
else
    complete -F _nodepulse -o bashdefault -o default nodepulse
fi
