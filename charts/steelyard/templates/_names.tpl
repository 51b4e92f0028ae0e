{{/* The release's name, with `steelyard` in it; short enough for what is appended. */}}
{{- define "steelyard.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains "steelyard" .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-steelyard" .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Of the operator's Deployment, Service, roles, Lease and Secret. */}}
{{- define "steelyard.controller" -}}
{{ include "steelyard.fullname" . }}-controller
{{- end }}

{{/* Of the webhook configuration: it belongs to no namespace. */}}
{{- define "steelyard.webhook" -}}
{{ .Release.Namespace }}-{{ include "steelyard.controller" . }}
{{- end }}

{{- define "steelyard.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "steelyard.controller" .) }}
{{- end }}

{{- define "steelyard.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "steelyard.selector" . }}
{{- end }}

{{/* Immutable in a Deployment: it holds what can never change. */}}
{{- define "steelyard.selector" -}}
app.kubernetes.io/name: steelyard
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: controller
{{- end }}

{{/* What the operator labels the pods of its proxies with. */}}
{{- define "steelyard.proxySelector" -}}
app.kubernetes.io/name: steelyard
app.kubernetes.io/component: proxy
{{- end }}

{{/* image reference of (dict "root" $ "image" .Values.….image) */}}
{{- define "steelyard.image" -}}
{{- with .root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ .image.repository }}
{{- if .image.digest }}@{{ .image.digest }}{{ else }}:{{ .image.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Where the test object of `helm test` lives: in a namespace that the operator looks at. */}}
{{- define "steelyard.testNamespace" -}}
{{- if or (not .Values.watchNamespaces) (has .Release.Namespace .Values.watchNamespaces) }}
{{- .Release.Namespace }}
{{- else }}
{{- first .Values.watchNamespaces }}
{{- end }}
{{- end }}

{{/* How the proxies, and the API server, call the operator. */}}
{{- define "steelyard.host" -}}
{{ include "steelyard.controller" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{/* The Secret that others keep the operator's certificate in; empty: it makes one itself. */}}
{{- define "steelyard.tlsSecret" -}}
{{- $own := include "steelyard.controller" . }}
{{- with .Values.certificates }}
{{- if eq .secretName $own }}
{{- fail (printf "certificates.secretName: %s is the Secret that the operator keeps its own keys in; give another" $own) }}
{{- else if eq .mode "Secret" }}
{{- .secretName }}
{{- else if eq .mode "CertManager" }}
{{- .secretName | default (printf "%s-tls" $own) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Not empty if the operator writes whom the API server trusts for the webhook. */}}
{{- define "steelyard.keepsBundle" -}}
{{- with .Values.certificates }}
{{- if or (eq .mode "SelfManaged") (and (eq .mode "Secret") (not .caBundle)) }}yes{{ end }}
{{- end }}
{{- end }}
