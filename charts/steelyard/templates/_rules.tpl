{{/* What the operator may do in each namespace that it looks at. docs/rbac.md says why, line by line. */}}
{{- define "steelyard.rules" -}}
- apiGroups: [steelyard.dev]
  resources: [balancedservices]
  verbs: [get, list, watch]
- apiGroups: [steelyard.dev]
  resources: [balancedservices/status]
  verbs: [patch]
- apiGroups: [steelyard.dev] # blockOwnerDeletion asks for it where OwnerReferencesPermissionEnforcement is on
  resources: [balancedservices/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [services, serviceaccounts, configmaps]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [discovery.k8s.io] # written for Services of mode Sidecar only
  resources: [endpointslices]
  verbs: [list, watch, create, patch, delete]
- apiGroups: [""] # what a Service leaves behind that loses its selector
  resources: [endpoints]
  verbs: [delete]
- apiGroups: [gateway.networking.k8s.io]
  resources: [referencegrants]
  verbs: [list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- if ne .Values.injection.mode "Disabled" }}
- apiGroups: [""] # metadata only, of those that ask for a sidecar: RBAC can't say that, the request does
  resources: [pods]
  verbs: [list, watch]
{{- end }}
{{- end }}

{{/* Cluster-wide in any case: a token review belongs to no namespace. */}}
{{- define "steelyard.clusterRules" -}}
- apiGroups: [authentication.k8s.io]
  resources: [tokenreviews]
  verbs: [create]
{{- if and (eq .Values.injection.mode "Webhook") (include "steelyard.keepsBundle" .) }}
- apiGroups: [admissionregistration.k8s.io]
  resources: [mutatingwebhookconfigurations]
  resourceNames: [{{ include "steelyard.webhook" . }}]
  verbs: [get, patch]
{{- end }}
{{- end }}

{{- define "steelyard.subject" -}}
- {kind: ServiceAccount, name: {{ include "steelyard.serviceAccount" . }}, namespace: {{ .Release.Namespace }}}
{{- end }}
