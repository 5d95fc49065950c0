#!/bin/bash
# Makes the recordings of this folder again: when the state of the subjects has another form, they
# can no longer be replayed. Needs root, cgroup v1 for memory, kubectl, and a disk named in $DISK.
#
#   cargo build --workspace --exclude agent-ebpf --bins && tests/recordings/record.sh
set -u
cd "$(dirname "$0")/../.."
programs=$PWD/target/debug
disk=${DISK:-vda}
work=$(mktemp -d -p "$PWD/target")
tree=nodepulse-recordings
memory=/sys/fs/cgroup/memory/$tree
# The API server for tests gives these UIDs to the first two pods.
checkout=kubepods/burstable/pod00000000-0000-4000-8000-000000000005
web=$checkout/3b5c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c8d0f1e2a4b6c
database=kubepods/besteffort/pod00000000-0000-4000-8000-000000000006
table=$database/8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c8d0f1e2a4b6c3b5c

cleanup() {
    kill $(jobs -p) 2>/dev/null
    wait
    find "$memory" -depth -type d -exec rmdir {} \; 2>/dev/null
    rm -rf "$work"
}
trap cleanup EXIT

mkdir -p "$memory/$web" "$memory/$table"
echo $((32 << 20)) >"$memory/$checkout/memory.limit_in_bytes"

"$programs/testapi" --dir "$work" --node worker 2>"$work/api.log" &
api=$!
until [ -e "$work/kubeconfig-worker" ]; do sleep 0.1; done
kube="kubectl --kubeconfig $work/kubeconfig"
for pod in "checkout $web" "database $table"; do
    set -- $pod
    $kube create --validate=false -f - <<END
apiVersion: v1
kind: Pod
metadata: {name: $1, namespace: default}
spec: {nodeName: worker, containers: [{name: app, image: i, resources: {limits: {memory: 32Mi}}}]}
status: {phase: Running, containerStatuses: [{name: app, containerID: "containerd://${2##*/}", image: i, imageID: i, ready: true, restartCount: 0}]}
END
done

configure() {
    cat >"$work/config.yaml" <<END
apiVersion: nodepulse.dev/v1alpha1
kind: NodepulseConfiguration
mode: node
takeOver: "true"
nodeName: worker
allowReadyWithoutRuntime: "true"
cgroupRoot: /$tree
enforceNodeAllocatable: [none]
diskIO: {slowFor: 1s, minStall: 1%, devices: {$disk: {slow: 300us}}}
$1
END
}
configure ""
"$programs/nodepulse" run --config "$work/config.yaml" --kubeconfig "$work/kubeconfig" \
    --state-directory "$work/state" --history-directory off 2>"$work/agent.log" &
agent=$!
sleep 4

record() {
    "$programs/nodepulse" record "$work/$1" --state-directory "$work/state" &
    recorder=$!
    sleep 1
}
end() {
    sleep "$1"
    kill -INT $recorder
    wait $recorder
}
eat() { "$programs/provoke" eat "$memory/$web" $((256 << 20)) java 2>/dev/null; }

record kills
for _ in 1 2 3 4 5 6; do eat; done
end 3

record outage
kill -STOP $api
for _ in 1 2 3; do eat; sleep 1; done
sleep 12
kill -CONT $api
end 12

record reload
configure "evictionHard: {memory.available: 99%}"
kill -HUP $agent
sleep 3
configure ""
kill -HUP $agent
end 2

dd if=/dev/zero of="$work/data" bs=1M count=64 status=none
dd if=/dev/zero of="$work/table" bs=1M count=8 status=none
sync
record slow-disk
"$programs/provoke" load "$memory/$web" saturate "$work/data" 16 25 &
"$programs/provoke" load "$memory/$table" database "$work/table" 25 &
end 25

tasks=$(ls -d /proc/[0-9]*/task/* | wc -l)
most=$(sort -n /proc/sys/kernel/pid_max /proc/sys/kernel/threads-max | head -1)
configure "evictionHard: {pid.available: \"$((most - tasks - 300))\"}"
kill -HUP $agent
sleep 3
record pid-bomb
"$programs/provoke" crowd "$memory/$table" 600 &
crowd=$!
sleep 4
kill $crowd
end 4

for name in kills outage reload slow-disk pid-bomb; do
    rm -f "tests/recordings/$name.jsonl"
    "$programs/nodepulse-replay" --anonymize "tests/recordings/$name.jsonl" "$work/$name"
done
