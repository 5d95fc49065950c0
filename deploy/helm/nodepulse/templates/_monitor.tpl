{{- /* A PodMonitor or ServiceMonitor with its values `monitor`; `endpoints` is the key of its list. */ -}}
{{- define "nodepulse.monitor" }}
{{- if not .root.Values.serve.enabled }}
{{- fail (printf "%s.enabled: there is nothing to scrape if serve.enabled is false" .key) }}
{{- end }}
apiVersion: monitoring.coreos.com/v1
kind: {{ .kind }}
metadata:
  name: {{ include "nodepulse.fullname" .root }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "nodepulse.labels" (list .root "agent") | nindent 4 }}
    {{- with .monitor.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  selector:
    matchLabels:
      {{- include "nodepulse.selector" (list .root "agent") | nindent 6 }}
  {{ .endpoints }}:
    - port: metrics
      path: /metrics
      # Each scrape wakes the agent.
      interval: {{ .monitor.interval }}
      {{- with .monitor.scrapeTimeout }}
      scrapeTimeout: {{ . }}
      {{- end }}
      # `namespace` and `pod` of a series about a pod are that pod's, not the agent's.
      honorLabels: {{ .monitor.honorLabels }}
      relabelings:
        # The alerts require this job name.
        - {targetLabel: job, replacement: nodepulse}
        {{- with .monitor.relabelings }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .monitor.metricRelabelings }}
      metricRelabelings:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
