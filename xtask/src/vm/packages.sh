# Runs in the virtual machine, as root, once systemd has started. Each check prints one line.
set -u
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
unit=nodepulse.service
config=/etc/nodepulse/config.yaml

now() {
    read -r up _ </proc/uptime
    echo "${up%.*}${up#*.}0"
}

# check NAME COMMAND...: the command's last line is the detail.
check() {
    name=$1
    shift
    start=$(now)
    if detail=$("$@" 2>&1); then verdict=ok; else verdict=FAILED; fi
    [ "$verdict" = ok ] || printf '%s\n' "$detail"
    printf 'vm-test: %s %s %s %s\n' "$name" "$verdict" $(($(now) - start)) \
        "$(printf '%s' "$detail" | tail -n 1)"
}

# Prints what is expected and fails, unless both are equal.
equal() {
    [ "$1" = "$2" ] || { echo "expected $1, found $2"; return 1; }
}

state() { systemctl is-active "$unit"; }
enabled() { systemctl is-enabled "$unit"; }
pid() { systemctl show --property MainPID --value "$unit"; }

install() {
    dpkg -i /packages/old.deb &&
        equal active "$(state)" &&
        equal enabled "$(enabled)" &&
        equal notify "$(systemctl show --property Type --value "$unit")" &&
        nodepulse status >/dev/null &&
        systemctl show --property StatusText --value "$unit"
}

reload() {
    before=$(pid)
    echo 'evictionHard: {memory.available: 123Mi}' >>"$config"
    systemctl reload "$unit" &&
        equal "$before" "$(pid)" &&
        for _ in 1 2 3 4 5 6 7 8 9 10; do
            nodepulse explain | grep -q 123 && break
            sleep 1
        done
    nodepulse explain | grep 123 | head -n 1
}

# A service reaches its MemoryMax. Without an API server, the history has it, and the journal of the service.
is_in_history() { nodepulse history --unit hog.service --output json | grep -q '"settled":true'; }
service() {
    limit='in hog.service was killed because hog.service reached its memory limit of 32Mi'
    systemd-run --wait --collect --unit hog -p MemoryMax=32M -p MemorySwapMax=0 tail /dev/zero &&
        { echo "not killed"; return 1; }
    until_ok is_in_history >/dev/null || { nodepulse history; journalctl --unit "$unit" --output cat; return 1; }
    journalctl --sync
    for found in "--unit hog.service" SYSLOG_IDENTIFIER=nodepulse "MESSAGE_ID=587b2e343804407fbd7f2a4acac65aa0 OBJECT_SYSTEMD_UNIT=hog.service"; do
        # One or two words of each.
        journalctl --output cat $found | grep -q "$limit" ||
            { echo "not found by $found"; journalctl --output export SYSLOG_IDENTIFIER=nodepulse; return 1; }
    done
    equal 0 "$(journalctl --unit "$unit" --output cat | grep -c 'INFO.*OOM kill processes')" &&
        nodepulse history --unit hog.service | tail -n 1
}

# The other commands of docs/linux.md, and those of "Try it" in docs/install.md.
provoked() {
    all=$(nodepulse history --output json)
    echo "$all" | grep '"name":"nodepulse"' | grep -q 'its main process was not killed' &&
        echo "$all" | grep -q 'refused in cgroup /system.slice/run-u.*service: its limit is 32 tasks'
}
provoke() {
    file=/var/tmp/provoke
    for incident in oom pids "disk --file $file"; do
        nodepulse provoke $incident || { echo "provoke $incident: $?"; return 1; }
    done
    [ ! -e $file ] && until_ok provoked || { nodepulse history; return 1; }
}

history() {
    id=$(nodepulse history --unit hog.service --output json | sed 's/.*"id":"\([^"]*\)".*/\1/')
    for shown in "$id" "${id##*-}"; do
        nodepulse history "$shown" | grep -q '^Process [0-9]* (tail) in hog.service was killed because' ||
            { echo "no $shown"; nodepulse history; return 1; }
    done
    nodepulse history --since 24h | grep -q ' hog.service ' && ! nodepulse history --since 0s | grep ' hog.service ' &&
        nodepulse status | grep -q 'type: "MemoryLow"' && nodepulse explain | grep '^MemoryLow is False'
}

# The agent ends in one boot and starts in another.
boot_id=/proc/sys/kernel/random/boot_id
has_boot() { nodepulse history --boot=-1 >/dev/null 2>&1; }
boot() {
    has_boot && { echo "there was none"; return 1; }
    cat /proc/sys/kernel/random/uuid >/run/boot_id
    mount --bind /run/boot_id $boot_id && systemctl kill --signal KILL "$unit"
    until_ok has_boot >/dev/null
    page=$(nodepulse history --boot=-1)
    umount $boot_id
    # Both waits were read.
    echo "$page" | grep -q '^PowerLossOrReset' && echo "$page" | grep -q 'min .*i  .*%  .*%  ' && systemctl restart "$unit" &&
        echo "$page" | tail -n 1 || { echo "$page"; return 1; }
}

upgrade() {
    before=$(pid)
    dpkg --force-confold -i /packages/new.deb || return 1
    [ "$before" != "$(pid)" ] || { echo "not restarted"; return 1; }
    equal active "$(state)" &&
        grep -q 123Mi "$config" &&
        grep -q upgraded "$config.dpkg-dist" &&
        dpkg-query --show nodepulse
}

policy() {
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod 755 /usr/sbin/policy-rc.d
    before=$(pid)
    dpkg --force-confold -i /packages/new.deb
    rm /usr/sbin/policy-rc.d
    equal "$before" "$(pid)" && equal active "$(state)" && echo "not restarted"
}

disabled() {
    systemctl disable "$unit" 2>/dev/null
    dpkg --force-confold -i /packages/new.deb && equal disabled "$(enabled)" && echo "still disabled"
}

killed() {
    systemctl start "$unit"
    before=$(pid)
    kill -KILL "$before"
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        sleep 1
        after=$(pid)
        [ "$after" != 0 ] && [ "$after" != "$before" ] && [ "$(state)" = active ] && break
    done
    equal active "$(state)" && [ "$(pid)" != "$before" ] && echo "restarted"
}

remove() {
    dpkg -r nodepulse &&
        equal inactive "$(state)" &&
        [ ! -e /usr/bin/nodepulse ] && grep 123Mi "$config"
}

purge() {
    dpkg -P nodepulse || return 1
    rm -f "$config.dpkg-dist"
    left=$(find /etc /run /var/lib /usr -path '*nodepulse*' ! -path '/var/lib/dpkg/info/*' 2>/dev/null)
    [ -z "$left" ] || { echo "left:" $left; return 1; }
    equal not-found "$(systemctl show --property LoadState --value "$unit")" && echo "nothing is left"
}

journal() {
    journalctl --sync
    errors=$(journalctl --unit "$unit" --priority err --output cat)
    [ -z "$errors" ] || { echo "$errors"; return 1; }
    journalctl --unit "$unit" --output cat | grep -c Started
}

# Runs a command until it succeeds, and prints after how many milliseconds that was.
until_ok() {
    since=$(now)
    until "$@"; do
        [ $(($(now) - since)) -lt 60000 ] || { echo "not within a minute: $*"; return 1; }
        sleep 0.1
    done
    echo "$(($(now) - since)) ms"
}

of_node() { /packages/kubectl-nodepulse --kubeconfig /run/api/kubeconfig "$@" 2>&1; }
# Ready is printed only if it is not True.
is_ready() { page=$(of_node packages) && echo "$page" | grep -q renewed && ! echo "$page" | grep -q ' Ready='; }
is_shutting_down() { of_node packages | grep -A 1 ' Ready=False' | grep -q 'node is shutting down'; }
locks() { systemd-inhibit --list --no-legend --no-pager; }
is_delayed_by() { locks | grep -q "^$1 .*shutdown.* delay"; }
is_not_delayed_by() { ! is_delayed_by "$1"; }

node() {
    mkdir -p /run/api /etc/nodepulse
    systemd-run --quiet --unit testapi /packages/testapi --dir /run/api --node packages &&
        until_ok test -s /run/api/kubeconfig-packages || return 1
    cp /run/api/kubeconfig-packages /etc/nodepulse/kubeconfig
    dpkg --force-confold -i /packages/new.deb || return 1
    cat >"$config" <<EOF
apiVersion: nodepulse.dev/v1alpha1
kind: NodepulseConfiguration
mode: node
kubeconfig: /etc/nodepulse/kubeconfig
nodeName: packages
nodeIP: 127.0.0.1
EOF
    systemctl start dbus systemd-logind containerd && systemctl restart "$unit" && until_ok is_ready || { of_node packages; return 1; }
}

# Each fault is there when the unit starts. The agent reports it and, once it has passed, has its first status at
# the API server by itself.
credentials=/etc/nodepulse
is_active() { [ "$(state)" = active ]; }
is_reported() { since | grep -q "$1"; }
# fault REASON BEGIN END
fault() {
    systemctl stop "$unit" && set_cursor && "$2" && systemctl start --no-block "$unit" &&
        until_ok is_reported "$1" >/dev/null
    found=$?
    "$3"
    [ "$found" = 0 ] || { echo "$2: no $1 in:"; since; return 1; }
    took=$(until_ok is_active) || { since; return 1; }
    took=${took% ms}
    [ "$took" -lt $((10000 + load)) ] || { since; echo "$2: $took ms, loading $load ms"; return 1; }
    equal 0 "$(systemctl show --property NRestarts --value "$unit")" || { since; return 1; }
    printf '%s' "$2 $took ms, "
}

hide_kubeconfig() { mv "$credentials/kubeconfig" "$credentials/kept"; }
show_kubeconfig() { cp "$credentials/kept" "$credentials/kubeconfig"; }
of_kubeconfig() { sed -n "s/.*client-$1-data: //p" "$credentials/kept" | base64 -d; }
hide_certificate() {
    rm -f "$credentials/crt"
    of_kubeconfig key >"$credentials/key"
    sed -e "s|client-certificate-data: .*|client-certificate: crt|" -e "s|client-key-data: .*|client-key: key|" \
        "$credentials/kept" >"$credentials/kubeconfig"
}
show_certificate() { of_kubeconfig certificate >"$credentials/crt"; }
# plugin COMMAND: what it runs before it prints the credentials.
plugin() {
    rm -f "$credentials/good"
    cat >"$credentials/plugin" <<EOF
#!/bin/sh
cd $credentials || exit 1
$1
pem() { awk '{ printf "%s\\\\n", \$0 }' "\$1"; }
printf '{"status": {"clientCertificateData": "%s", "clientKeyData": "%s"}}' "\$(pem crt)" "\$(pem key)"
EOF
    chmod 755 "$credentials/plugin"
    exec="exec: {apiVersion: client.authentication.k8s.io/v1, command: $credentials/plugin}"
    sed -e "s|client-certificate-data: .*|$exec|" -e '/client-key-data/d' \
        "$credentials/kept" >"$credentials/kubeconfig"
}
fail_plugin() { plugin '[ -e good ] || exit 7'; }
hang_plugin() { plugin 'until [ -e good ]; do sleep 0.2; done'; }
mend_plugin() { touch "$credentials/good"; }
limit_tasks() { systemctl set-property --runtime "$unit" TasksMax=1; }
permit_tasks() { systemctl set-property --runtime "$unit" TasksMax=infinity; }
lock_state() { exec 8>>/run/nodepulse/lock && flock 8; }
unlock_state() { exec 8>&-; }
start_second() {
    printf 'apiVersion: nodepulse.dev/v1alpha1\nkind: NodepulseConfiguration\nserve: {address: "off"}\n' >/run/second.yaml
    systemd-run --quiet --unit second --property Type=notify nodepulse run --config /run/second.yaml
}
stop_second() { systemctl stop second; }

# An emulated processor takes 9 to 19 s to load the kernel programs: what waits before that may take as much longer.
load=0
measure_load() {
    systemctl stop "$unit" && systemctl start --no-block "$unit" && load=$(until_ok is_active) && load=${load% ms}
}

faults() {
    fault 'No such file' hide_kubeconfig show_kubeconfig &&
        fault 'No such file' hide_certificate show_certificate &&
        fault 'exit status: 7' fail_plugin mend_plugin &&
        fault 'not done within' hang_plugin mend_plugin &&
        show_kubeconfig &&
        fault 'cannot start the log thread' limit_tasks permit_tasks &&
        measure_load &&
        fault 'uses the state directory' lock_state unlock_state &&
        fault 'another nodepulse (PID' start_second stop_second
}

of_runtime() { ctr --namespace k8s.io "$@"; }
has_image() { nodepulse status | grep -q "sizeBytes: $1\$"; }
# The size is that of the manifest and of everything that it lists.
images() {
    nodepulse status | grep -q 'containerRuntimeVersion: "*containerd://1' || { nodepulse status; return 1; }
    of_runtime images import /packages/image.tar >/dev/null || return 1
    digest=$(of_runtime images ls | awk 'NR == 2 { print $3 }')
    manifest=$(of_runtime content get "$digest")
    size=$((${#manifest} $(echo "$manifest" | grep -o '"size":[0-9]*' | sed 's/"size":/+ /')))
    until_ok has_image "$size" || { echo "no $size"; of_runtime images ls; nodepulse status; return 1; }
    nodepulse status | sed -n '/images:/,/sizeBytes:/p' | paste -s -d ' '
}

is_without_runtime() { of_node packages | grep -A 1 ' Ready=False' | grep -q 'container runtime'; }
runtime() {
    before=$(pid)
    systemctl stop containerd && false=$(until_ok is_without_runtime) || { of_node packages; return 1; }
    systemctl start containerd && true=$(until_ok is_ready) || { of_node packages; return 1; }
    equal "$before" "$(pid)" && echo "Ready was False after $false, and True $true after its start"
}

# set_nodefs TARGET: all of the disk `ext4` is below nodefs, or nothing but errors.
set_nodefs() {
    dmsetup suspend --noflush --nolockfs nodefs && dmsetup load nodefs --table "0 131072 $1" && dmsetup resume nodefs
}
fails() { of_node packages | grep -A 1 ' DiskFailing=True' | grep 'file system errors: nodefs (/var/lib/kubelet on dm-0)'; }
# No disk has an error, and ext4 keeps the mount writable: it has aborted its journal.
aborted() {
    disk=$(grep -lx 'ext4 *' /sys/class/nvme/*/serial) && disk=/dev/${disk#/sys/class/nvme/} && disk=${disk%/serial}n1 &&
        insmod /packages/dm-mod.ko && dmsetup create nodefs --table "0 131072 linear $disk 0" &&
        mkdir -p /var/lib/kubelet && mount -o errors=continue /dev/dm-0 /var/lib/kubelet &&
        systemctl restart "$unit" && until_ok is_ready || { dmsetup table; of_node packages; return 1; }
    before=$(pid)
    set_cursor
    set_nodefs error
    for n in 1 2 3 4 5; do echo $n >"/var/lib/kubelet/$n"; sync; done 2>/dev/null
    noticed=$(until_ok fails)
    failed=$?
    [ "$failed" = 0 ] || { of_node packages; cat /sys/fs/ext4/*/errors_count /proc/mounts; since; }
    umount /var/lib/kubelet
    dmsetup remove nodefs
    [ "$failed" = 0 ] && equal "$before" "$(pid)" && systemctl restart "$unit" && until_ok is_ready >/dev/null && echo $noticed
}

set_cursor() { cursor=$(journalctl --lines 0 --show-cursor | sed -n 's/^-- cursor: //p'); }
# Without an address nothing reaches the API server.
since() { journalctl --unit "$unit" --output cat --after-cursor "$cursor"; }
fails_to_renew() { since | grep -q 'lease.*will retry'; }
# It is renewed every 10 s.
renews() { of_node packages | grep -q 'renewed [0-9]s ago'; }
network() {
    before=$(pid)
    set_cursor
    ip link set lo down && until_ok fails_to_renew
    failed=$?
    ip link set lo up
    [ "$failed" = 0 ] && until_ok is_ready && until_ok renews && equal "$before" "$(pid)"
}

lock() {
    until_ok is_delayed_by nodepulse && locks | grep '^nodepulse '
}

# The lock ended with logind, and the agent takes another.
logind() {
    before=$(pid)
    systemctl restart systemd-logind && until_ok is_delayed_by nodepulse && equal "$before" "$(pid)" &&
        locks | grep '^nodepulse '
}

# The agent connects to the new bus.
connects() { since | grep -q 'connected to logind'; }
dbus() {
    before=$(pid)
    set_cursor
    systemctl restart dbus && until_ok connects && is_delayed_by nodepulse && equal "$before" "$(pid)" &&
        locks | grep '^nodepulse '
}

# The checks delay the shutdown themselves, until they have seen what the agent does.
shutdown() {
    systemd-inhibit --what=shutdown --mode=delay --who=checks sleep infinity >/dev/null 2>&1 &
    until_ok is_delayed_by checks && systemctl poweroff || return 1
    false=$(until_ok is_shutting_down) || { of_node packages; return 1; }
    released=$(until_ok is_not_delayed_by nodepulse) || { locks; return 1; }
    is_delayed_by checks && echo "Ready was False after $false, the lock released $released later"
}

read -r up _ </proc/uptime
echo "vm-kernel: $(uname -r) ${up%.*}000"
echo "vm-plan: install reload service provoke history boot upgrade policy disabled killed remove purge journal node faults aborted images runtime network lock logind dbus shutdown"
check install install
check reload reload
check service service
check provoke provoke
check history history
check boot boot
check upgrade upgrade
check policy policy
check disabled disabled
check killed killed
check remove remove
check purge purge
check journal journal
check node node
check faults faults
check aborted aborted
check images images
check runtime runtime
check network network
check lock lock
check logind logind
check dbus dbus
check shutdown shutdown
journalctl --unit "$unit" --no-pager --output short-monotonic | sed 's/^/vm-journal: /'
echo vm-done
