{{- /* A ClusterRole `name` with these `rules`, bound to `account`. */ -}}
{{- define "nodepulse.role" }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- include "nodepulse.roleMeta" . | nindent 2 }}
rules:
  {{- .rules | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "nodepulse.roleMeta" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .account }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- define "nodepulse.roleMeta" -}}
name: {{ .name }}
labels:
  {{- include "nodepulse.labels" (list .root .component) | nindent 2 }}
{{- with .annotations }}
annotations:
  {{- . | trim | nindent 2 }}
{{- end }}
{{- end }}

{{- define "nodepulse.agentRules" }}
# The agent's Node, once at the start and after a conflict when taints change.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get]
- apiGroups: [""]
  resources: [nodes/status]
  verbs: [patch]
# The pod of a cgroup that reached its limit.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [""]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{- define "nodepulse.taintRules" }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [patch]
{{- end }}

{{- define "nodepulse.cleanupRules" }}
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, list, patch]
- apiGroups: [""]
  resources: [nodes/status]
  verbs: [patch]
{{- end }}
