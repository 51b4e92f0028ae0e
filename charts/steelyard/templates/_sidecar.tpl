{{/* A value of YAML as a CEL literal. A string that begins with `=` is an expression. Literals of one map or list must
     have one type, hence dyn. */}}
{{- define "steelyard.cel" -}}
{{- if kindIs "map" . -}}
  { {{- $map := . }}{{ range $index, $key := keys . | sortAlpha }}{{ if $index }}, {{ end }}{{ toJson $key }}: dyn({{ include "steelyard.cel" (index $map $key) }}){{ end -}} }
{{- else if kindIs "slice" . -}}
  [ {{- range $index, $each := . }}{{ if $index }}, {{ end }}dyn({{ include "steelyard.cel" $each }}){{ end -}} ]
{{- else if and (kindIs "string" .) (hasPrefix "=" .) -}}
  {{ trimPrefix "=" . }}
{{- else if kindIs "float64" . -}}
  {{ int64 . }}
{{- else -}}
  {{ toJson . }}
{{- end -}}
{{- end }}

{{/* The sidecar's container as controller/injection/sidecar.py makes it, of the policy's variables. */}}
{{- define "steelyard.sidecar" -}}
name: steelyard
image: {{ include "steelyard.image" (dict "root" . "image" .Values.proxy.image) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
restartPolicy: Always
args:
  - proxy
  - --control=https://{{ include "steelyard.controller" . }}.{{ .Release.Namespace }}.svc:{{ .Values.controller.service.port }}
  - ="--namespace=" + request.namespace
  - =variables.argument
  - --cluster-domain={{ .Values.clusterDomain }}
  - --start-timeout={{ .Values.injection.startTimeout }}
  - --token-file=/var/run/secrets/steelyard.dev/token
  - --ca-file=/etc/steelyard/ca/ca.crt
  - --snapshots=/var/lib/steelyard
  - ="--admin=127.0.0.1:" + string(variables.ports[0])
  - ="--health=[::]:" + string(variables.ports[1])
  - ="--forward-proxy=127.0.0.1:" + string(variables.ports[2])
  - --identity=$(POD_UID)
  - --pod-address=$(POD_IP)
env:
  - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
  - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
ports: [{name: sidecar-health, containerPort: "=variables.ports[1]", protocol: TCP}]
startupProbe: {httpGet: {path: /readyz, port: "=variables.ports[1]"}, periodSeconds: 1, timeoutSeconds: 2, failureThreshold: {{ add 20 (int64 (ceil .Values.injection.startTimeout)) }}}
livenessProbe: {httpGet: {path: /healthz, port: "=variables.ports[1]"}, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3}
readinessProbe: {httpGet: {path: /readyz, port: "=variables.ports[1]"}, periodSeconds: 5, timeoutSeconds: 2, failureThreshold: 2}
resources: {{ .Values.injection.resources | default dict | toJson }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
volumeMounts:
  - {name: steelyard-snapshots, mountPath: /var/lib/steelyard}
  - {name: steelyard-token, mountPath: /var/run/secrets/steelyard.dev, readOnly: true}
  - {name: steelyard-ca, mountPath: /etc/steelyard/ca, readOnly: true}
{{- end }}

{{- define "steelyard.sidecarVolumes" -}}
steelyard-snapshots: {name: steelyard-snapshots, emptyDir: {sizeLimit: 64Mi}}
steelyard-token:
  name: steelyard-token
  projected: {sources: [{serviceAccountToken: {audience: steelyard.dev/discovery, expirationSeconds: 3600, path: token}}]}
steelyard-ca: {name: steelyard-ca, configMap: {name: steelyard-ca, optional: true}}
{{- end }}

{{/* Which pods a policy looks at: those of the webhook. */}}
{{- define "steelyard.askingPods" -}}
resourceRules:
  - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE], scope: Namespaced}
objectSelector:
  matchLabels: {steelyard.dev/inject: enabled}
namespaceSelector:
  matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system, kube-node-lease, {{ .Release.Namespace }}]}
    - {key: steelyard.dev/inject, operator: NotIn, values: [disabled]}
    {{- with .Values.watchNamespaces }}
    - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
    {{- end }}
matchPolicy: Equivalent
{{- end }}

{{/* What an author can say about the sidecar, and what the pod's own containers listen on. */}}
{{- define "steelyard.wishes" -}}
- name: annotations
  expression: object.metadata.?annotations.orValue({})
- name: own # admin, health, forward proxy
  expression: >-
    [["steelyard.dev/admin-port", "19911"], ["steelyard.dev/health-port", "19912"], ["steelyard.dev/forward-proxy-port", "19915"]]
    .map(each, each[0] in variables.annotations ? variables.annotations[each[0]].trim() : each[1])
- name: excluded
  expression: >-
    ("steelyard.dev/exclude-ports" in variables.annotations ? variables.annotations["steelyard.dev/exclude-ports"].split(",") : [])
    .map(each, each.trim()).filter(each, each != "")
- name: declared
  expression: >-
    object.spec.containers.map(c, c.?ports.orValue([]).filter(p, p.?protocol.orValue("TCP") == "TCP").map(p, p.containerPort)).flatten()
    + object.spec.?initContainers.orValue([]).filter(c, c.name != "steelyard")
    .map(c, c.?ports.orValue([]).filter(p, p.?protocol.orValue("TCP") == "TCP").map(p, p.containerPort)).flatten()
- name: readable # else the other policy refuses the pod
  expression: >-
    (variables.own + variables.excluded).all(each, each.matches("^[0-9]{1,5}$") && int(each) > 0 && int(each) < 65536)
{{- end }}

{{/* The BalancedService that a policy is evaluated for, and whether it is one for this pod. */}}
{{- define "steelyard.wished" -}}
- name: name
  expression: string(params.metadata.name)
- name: wanted
  expression: >-
    params.spec.proxy.mode == "Sidecar" && params.?status.?sidecar.?address.orValue("").startsWith("127.")
    && (!("steelyard.dev/services" in variables.annotations)
    || variables.annotations["steelyard.dev/services"].split(",").exists(each, each.trim() == variables.name))
- name: taken
  expression: >-
    params.spec.ports.map(each, int(each.port)).filter(port, port in variables.declared
    || variables.excluded.exists(each, int(each) == port) || int(variables.own[1]) == port)
{{- end }}
