{{- define "nodepulse.untaintHooks" }}
{{- if lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" (printf "%s-taints" (include "nodepulse.fullname" .)) }}post-upgrade,{{ end }}post-rollback
{{- end }}

{{- define "nodepulse.cleanupHooks" }}
{{- if not .Values.config.taints }}{{ include "nodepulse.untaintHooks" . }},{{ end }}pre-delete,post-delete
{{- end }}

{{- define "nodepulse.cleanupHook" }}
helm.sh/hook: {{ include "nodepulse.cleanupHooks" . }}
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- /* The flag that limits `cleanup --all-nodes` to the Nodes of this release, as a JSON list. */ -}}
{{- define "nodepulse.selectorFlag" -}}
{{- $labels := list -}}
{{- range $key, $value := .Values.nodeSelector -}}
{{- $labels = append $labels (printf "%s=%s" $key $value) -}}
{{- end -}}
{{- ternary (list (printf "--selector=%s" (join "," $labels))) list (gt (len $labels) 0) | toJson -}}
{{- end }}

{{- /* A Job of the component `component`, which runs `args` as `account`. */ -}}
{{- define "nodepulse.job" }}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ include "nodepulse.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "nodepulse.labels" (list .root .component) | nindent 4 }}
  annotations:
    helm.sh/hook: {{ .hooks }}
    helm.sh/hook-delete-policy: {{ .deletePolicy }}
    helm.sh/hook-output-log-policy: hook-failed
spec:
  backoffLimit: {{ .backoffLimit }}
  # Less than Helm's timeout of 5 min.
  activeDeadlineSeconds: 240
  ttlSecondsAfterFinished: 600
  template:
    metadata:
      labels:
        {{- include "nodepulse.selector" (list .root .component) | nindent 8 }}
    spec:
      {{- include "nodepulse.jobPod" . | nindent 6 }}
{{- end }}

{{- /* Where a Job runs: on any node that can run the image, if possible on one that `nodeSelector` selects.
       There may be none, for example in a pool that an autoscaler has emptied. */ -}}
{{- define "nodepulse.jobPlacement" -}}
{{- $labels := .Values.nodeSelector -}}
nodeSelector:
  {{- pick $labels "kubernetes.io/os" "kubernetes.io/arch" | toYaml | nindent 2 }}
{{- with omit $labels "kubernetes.io/os" "kubernetes.io/arch" }}
affinity:
  nodeAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        preference:
          matchExpressions:
            {{- range $key, $value := . }}
            - {key: {{ $key | quote }}, operator: In, values: [{{ $value | quote }}]}
            {{- end }}
{{- end }}
{{- end }}

{{- /* With the configuration `config`, if there is one. Without `account`, without a token. */ -}}
{{- define "nodepulse.jobPod" -}}
{{- $values := .root.Values -}}
{{- if .account -}}
serviceAccountName: {{ .account }}
{{- else -}}
automountServiceAccountToken: false
{{- end }}
{{- include "nodepulse.podNetwork" .root }}
restartPolicy: Never
enableServiceLinks: false
{{ include "nodepulse.jobPlacement" .root }}
# The Job must run even if every node is tainted.
tolerations:
  {{- toYaml $values.tolerations | nindent 2 }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .component }}
    image: {{ include "nodepulse.image" .root }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args:
      {{- toYaml .args | nindent 6 }}
    terminationMessagePolicy: FallbackToLogsOnError
    resources:
      {{- toYaml $values.resources | nindent 6 }}
    securityContext:
      {{- include "nodepulse.unprivileged" . | nindent 6 }}
    {{- if .config }}
    volumeMounts:
      - {name: config, mountPath: /etc/nodepulse, readOnly: true}
    {{- end }}
{{- if .config }}
volumes:
  - name: config
    configMap: {name: {{ .config }}}
{{- end }}
{{- end }}
