{{- define "nodepulse.untaintHooks" }}
{{- if lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "nodepulse-taints" }}post-upgrade,{{ end }}post-rollback
{{- end }}

{{- define "nodepulse.cleanupHooks" }}
{{- if not .Values.config.taints }}{{ include "nodepulse.untaintHooks" . }},{{ end }}pre-delete,post-delete
{{- end }}

{{- define "nodepulse.cleanupJob" }}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    app.kubernetes.io/name: {{ .name }}
  annotations:
    helm.sh/hook: {{ .hooks }}
    helm.sh/hook-delete-policy: {{ .deletePolicy }}
spec:
  backoffLimit: 3
  # Less than Helm's timeout of 5 min.
  activeDeadlineSeconds: 240
  ttlSecondsAfterFinished: 600
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ .name }}
    spec:
      serviceAccountName: nodepulse-cleanup
      restartPolicy: Never
      enableServiceLinks: false
      nodeSelector:
        {{- toYaml .root.Values.nodeSelector | nindent 8 }}
      # The Job must run even if every node is tainted.
      tolerations:
        {{- toYaml .root.Values.tolerations | nindent 8 }}
      {{- if .root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml .root.Values.image.pullSecrets | nindent 8 }}
      {{- end }}
      containers:
        - name: cleanup
          {{- if .root.Values.image.digest }}
          image: {{ .root.Values.image.repository }}@{{ .root.Values.image.digest }}
          {{- else }}
          image: {{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
          {{- end }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: {{ .args }}
          resources:
            {{- toYaml .root.Values.resources | nindent 12 }}
          securityContext:
            runAsUser: 65534
            runAsGroup: 65534
            runAsNonRoot: true
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: {drop: [ALL]}
            seccompProfile: {type: RuntimeDefault}
{{- end }}
