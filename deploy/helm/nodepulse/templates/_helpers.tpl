{{- define "nodepulse.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 38 | trimSuffix "-" }}
{{- end }}

{{- /* A CronJob's name has 52 characters at most, and the longest suffix 14. */ -}}
{{- define "nodepulse.fullname" -}}
{{- $name := include "nodepulse.name" . -}}
{{- $full := contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name) -}}
{{ .Values.fullnameOverride | default $full | trunc 38 | trimSuffix "-" }}
{{- end }}


{{- /* Of the root and the component. */ -}}
{{- define "nodepulse.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "nodepulse.name" $root | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "nodepulse.labels" -}}
{{- $root := index . 0 -}}
{{ include "nodepulse.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "nodepulse.image" -}}
{{- $repository := required "image.repository: required; build the image with `cargo xtask image`, push it to your registry, and set --set image.repository=REGISTRY/nodepulse" .Values.image.repository -}}
{{- if .Values.image.digest -}}
{{ $repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{- define "nodepulse.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "nodepulse.fullname" .) }}
{{- else -}}
{{ required "serviceAccount.name: required if serviceAccount.create is false" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* A username, as in the admission policies. */ -}}
{{- define "nodepulse.user" -}}
system:serviceaccount:{{ (index . 0).Release.Namespace }}:{{ index . 1 }}
{{- end }}

{{- define "nodepulse.unprivileged" -}}
runAsUser: 65534
runAsGroup: 65534
runAsNonRoot: true
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "nodepulse.configFile" -}}
config.yaml: |
  apiVersion: nodepulse.dev/v1alpha1
  kind: NodepulseConfiguration
  {{- toYaml .Values.config | nindent 2 }}
{{- end }}

{{- /* Of a duration of the configuration, which has Go's format. */ -}}
{{- define "nodepulse.milliseconds" -}}
{{- $start := toDate "2006-01-02" "2000-01-01" -}}
{{- $end := mustDateModify . $start -}}
{{ ($end.Sub $start).Milliseconds }}
{{- end }}

{{- /* The network of the agents' pods and of the Jobs'. */ -}}
{{- define "nodepulse.podNetwork" }}
{{- if .Values.hostNetwork }}
hostNetwork: true
{{- end }}
{{- if or .Values.dnsPolicy .Values.hostNetwork }}
dnsPolicy: {{ .Values.dnsPolicy | default "ClusterFirstWithHostNet" }}
{{- end }}
{{- end }}

{{- /* The keys of the configuration whose change needs a restart, as `key=value` in JSON. */ -}}
{{- define "nodepulse.restartConfig" -}}
{{- range $key := .Files.Lines "files/restart-keys.txt" -}}
{{- $value := $.Values.config -}}
{{- range $part := splitList "." $key -}}
{{- if kindIs "map" $value -}}{{- $value = get $value $part -}}{{- else -}}{{- $value = "" -}}{{- end -}}
{{- end -}}
{{- if ne (toJson $value) "\"\"" -}}{{ $key }}={{ toJson $value }};{{- end -}}
{{- end -}}
{{- end }}
