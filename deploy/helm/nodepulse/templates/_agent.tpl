{{- /* The agents' pod, of a DaemonSet (`run`) and of `helm test` (`check`). */ -}}
{{- define "nodepulse.agentPod" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $stateDirectory := $values.config.stateDirectory | default "/run/nodepulse" -}}
{{- $historyDirectory := $values.config.historyDirectory | default "/var/lib/nodepulse/history" -}}
{{- $rootDirectory := $values.config.rootDirectory | default "/var/lib/kubelet" -}}
{{- $imagefsDirectory := $values.config.imagefsDirectory | default "/var/lib/containerd" -}}
serviceAccountName: {{ include "nodepulse.serviceAccount" $root }}
priorityClassName: {{ $values.priorityClassName }}
# The node's PID limits and number of tasks are only visible in its PID namespace.
hostPID: true
{{- include "nodepulse.podNetwork" $root }}
enableServiceLinks: false
terminationGracePeriodSeconds: 10
nodeSelector:
  {{- toYaml $values.nodeSelector | nindent 2 }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
tolerations:
  {{- toYaml $values.tolerations | nindent 2 }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if not .run }}
restartPolicy: Never
{{- end }}
containers:
  - name: nodepulse
    image: {{ include "nodepulse.image" $root }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args:
      {{- toYaml .args | nindent 6 }}
    env:
      - name: NODE_NAME
        valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
      {{- if $values.serve.enabled }}
      - name: POD_IP
        valueFrom: {fieldRef: {fieldPath: status.podIP}}
      - name: NODEPULSE_SERVE_ADDRESS
        value: $(POD_IP):{{ $values.serve.port }}
      {{- else }}
      - name: NODEPULSE_SERVE_ADDRESS
        value: "off"
      {{- end }}
      {{- with $values.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- if and .run $values.serve.enabled }}
    ports:
      - {name: metrics, containerPort: {{ $values.serve.port }}}
    # Not used again after the agent is ready. The pod is restarted only if the API server is
    # unavailable for more than half an hour.
    startupProbe:
      httpGet: {path: /readyz, port: metrics}
      periodSeconds: 2
      failureThreshold: 900
    # Does not depend on the API server. Each probe wakes the agent.
    livenessProbe:
      httpGet: {path: /livez, port: metrics}
      periodSeconds: 60
      timeoutSeconds: 5
    {{- end }}
    # If the agent refuses its configuration at the start, the pod's status contains the reason.
    terminationMessagePolicy: FallbackToLogsOnError
    resources:
      {{- toYaml $values.resources | nindent 6 }}
    # Kubernetes grants capabilities to root only. After its eBPF programs are attached, the
    # agent keeps only DAC_READ_SEARCH and restricts its files and system calls.
    securityContext:
      runAsUser: 0
      runAsGroup: 0
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
        add:
          - BPF
          - PERFMON
          - DAC_READ_SEARCH
          {{- with $values.extraCapabilities }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
      seccompProfile:
        {{- toYaml $values.seccompProfile | nindent 8 }}
      appArmorProfile:
        {{- toYaml $values.appArmorProfile | nindent 8 }}
      {{- with $values.seLinuxOptions }}
      seLinuxOptions:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    volumeMounts:
      - {name: config, mountPath: /etc/nodepulse, readOnly: true}
      - {name: state, mountPath: {{ $stateDirectory | quote }}}
      {{- if ne $historyDirectory "off" }}
      - {name: history, mountPath: {{ $historyDirectory | quote }}}
      - {name: pstore, mountPath: /var/lib/systemd/pstore, readOnly: true}
      {{- end }}
      # The runtime would mount only the container's cgroup here. With cgroup v1, each
      # controller is a mount below, hence recursively.
      - {name: cgroup, mountPath: /sys/fs/cgroup, readOnly: true, recursiveReadOnly: IfPossible}
      - {name: nodefs, mountPath: {{ $rootDirectory | quote }}, readOnly: true}
      {{- if ne $imagefsDirectory $rootDirectory }}
      - {name: imagefs, mountPath: {{ $imagefsDirectory | quote }}, readOnly: true}
      {{- end }}
      - {name: container-logs, mountPath: /var/log/containers, readOnly: true}
      {{- with $values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: config
    configMap: {name: {{ include "nodepulse.fullname" $root }}}
  # Kept when the pod is replaced, until the node reboots.
  - name: state
    hostPath: {path: {{ $stateDirectory | quote }}, type: DirectoryOrCreate}
  {{- if ne $historyDirectory "off" }}
  # Incidents, also of before a reboot.
  - name: history
    hostPath: {path: {{ $historyDirectory | quote }}, type: DirectoryOrCreate}
  # Where systemd moves the kernel's log of a panic.
  - name: pstore
    hostPath: {path: /var/lib/systemd/pstore, type: DirectoryOrCreate}
  {{- end }}
  - name: cgroup
    hostPath: {path: /sys/fs/cgroup, type: Directory}
  # An empty directory on the file system of the kubelet's directory, to read its size. No
  # pod's volume is visible in it.
  - name: nodefs
    hostPath: {path: {{ printf "%s/plugins/nodepulse.dev" $rootDirectory | quote }}, type: DirectoryOrCreate}
  {{- if ne $imagefsDirectory $rootDirectory }}
  # The same on the file system of the container images. No image is visible in it.
  - name: imagefs
    hostPath: {path: {{ printf "%s/nodepulse.dev" $imagefsDirectory | quote }}, type: DirectoryOrCreate}
  {{- end }}
  # Links, whose names contain the names of pods and containers. What they point to is not
  # mounted.
  - name: container-logs
    hostPath: {path: /var/log/containers, type: DirectoryOrCreate}
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
