{{- define "lockkeeper.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* 50 characters, so that NAME-fleet and the pods' names stay names of hosts. */}}
{{- define "lockkeeper.fullname" -}}
{{- if .Values.fullnameOverride }}{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "lockkeeper.name" .) .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name (include "lockkeeper.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "lockkeeper.selector" -}}
app.kubernetes.io/name: {{ include "lockkeeper.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lockkeeper.labels" -}}
{{ include "lockkeeper.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "lockkeeper.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "lockkeeper.fullname" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}
{{- end }}
{{- end }}

{{- define "lockkeeper.image" -}}
{{- if .Values.image.digest }}{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else }}{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion | replace "+" "_" }}
{{- end }}
{{- end }}

{{- /* "true" or nothing: what follows from the values. */}}
{{- define "lockkeeper.fleet" -}}{{ if .Values.zookeeper.servers }}true{{ end }}{{- end }}
{{- define "lockkeeper.tls" -}}{{ if or .Values.tls.secret .Values.tls.certManager.issuer }}true{{ end }}{{- end }}
{{- define "lockkeeper.rules" -}}{{ if or .Values.access.rules .Values.access.existingSecret .Values.access.existingConfigMap }}true{{ end }}{{- end }}
{{- define "lockkeeper.stateful" -}}{{ if or (not (include "lockkeeper.fleet" .)) (include "lockkeeper.tls" .) }}true{{ end }}{{- end }}

{{- define "lockkeeper.tlsSecret" -}}
{{- .Values.tls.secret | default (printf "%s-tls" (include "lockkeeper.fullname" .)) }}
{{- end }}

{{- define "lockkeeper.port" -}}
{{- if .Values.service.port }}{{ .Values.service.port }}{{ else if include "lockkeeper.tls" . }}443{{ else }}80{{ end }}
{{- end }}

{{- /* The names that clients use, with commas between them. */}}
{{- define "lockkeeper.hosts" -}}
{{- $name := include "lockkeeper.fullname" . }}
{{- $hosts := list $name (printf "%s.%s" $name .Release.Namespace) (printf "%s.%s.svc" $name .Release.Namespace) (printf "%s.%s.svc.cluster.local" $name .Release.Namespace) }}
{{- if and .Values.ingress.enabled .Values.ingress.host }}{{ $hosts = append $hosts .Values.ingress.host }}{{ end }}
{{- concat $hosts .Values.hosts | uniq | join "," }}
{{- end }}

{{- /* What contradicts itself, or would be open unasked. */}}
{{- define "lockkeeper.check" -}}
{{- $a := .Values.access }}
{{- $rules := 0 }}
{{- range list (not (empty $a.rules)) (ne $a.existingSecret "") (ne $a.existingConfigMap "") $a.insecure }}{{ if . }}{{ $rules = add1 $rules }}{{ end }}{{ end }}
{{- if eq (int $rules) 0 }}{{ fail "\nerror: no rules of access are given\nhint: set access.rules (docs/operate/security.md), access.existingSecret or access.existingConfigMap; or access.insecure=true if every client that can reach a gateway may take and end every lock" }}{{ end }}
{{- if gt (int $rules) 1 }}{{ fail "\nerror: access says several times who may do what\nhint: set one of access.rules, access.existingSecret, access.existingConfigMap and access.insecure" }}{{ end }}
{{- $tls := 0 }}
{{- range list (ne .Values.tls.secret "") (ne .Values.tls.certManager.issuer "") .Values.tls.plaintext }}{{ if . }}{{ $tls = add1 $tls }}{{ end }}{{ end }}
{{- if and (eq (int $tls) 0) (not $a.insecure) }}{{ fail "\nerror: credentials must not cross a network without TLS\nhint: set tls.secret or tls.certManager.issuer; or tls.plaintext=true if something before the gateways speaks TLS with the clients" }}{{ end }}
{{- if gt (int $tls) 1 }}{{ fail "\nerror: tls says several things at once\nhint: set one of tls.secret, tls.certManager.issuer and tls.plaintext" }}{{ end }}
{{- if and $a.insecure .Values.tls.plaintext }}{{ fail "\nerror: tls.plaintext is about credentials, and with access.insecure there are none\nhint: leave tls.plaintext out" }}{{ end }}
{{- if and .Values.tls.clientAuthorities (not (include "lockkeeper.tls" .)) }}{{ fail "\nerror: tls.clientAuthorities needs TLS\nhint: set tls.secret or tls.certManager.issuer" }}{{ end }}
{{- if include "lockkeeper.fleet" . }}
{{- if not (or .Values.zookeeper.identity.secret .Values.zookeeper.tls.clientCertificate) }}{{ fail "\nerror: the fleet needs an identity toward ZooKeeper: without one every client of ZooKeeper can forge lease tokens\nhint: set zookeeper.identity.secret (values.yaml says how to make it), or zookeeper.tls with clientCertificate" }}{{ end }}
{{- if and .Values.zookeeper.tls.clientCertificate (not .Values.zookeeper.tls.secret) }}{{ fail "\nerror: zookeeper.tls.clientCertificate needs zookeeper.tls.secret\nhint: a Secret with ca.crt, tls.crt and tls.key" }}{{ end }}
{{- else if or .Values.zookeeper.identity.secret .Values.zookeeper.tls.secret .Values.zookeeper.tls.clientCertificate }}{{ fail "\nerror: zookeeper has an identity or TLS, and no servers\nhint: set zookeeper.servers, or leave both out: a gateway without servers has a store of its own" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.enabled) }}{{ fail "\nerror: metrics.serviceMonitor needs metrics.enabled\nhint: set metrics.enabled=true" }}{{ end }}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) }}{{ fail "\nerror: ingress.host is missing\nhint: set the name that clients use" }}{{ end }}
{{- $own := list "listen" "zk" "data-dir" "zk-auth-file" "zk-tls" "zk-ca-file" "zk-cert-file" "zk-key-file" "zk-connect-timeout" "insecure" "plaintext" "auth-file" "tls-cert-file" "tls-key-file" "tls-client-ca-file" "peer-ca-file" "allowed-hosts" "fleet-listen" "advertise" "metrics-listen" "embedded-listen" "drain-delay" "config" }}
{{- range $flag, $value := .Values.settings }}
{{- if has $flag $own }}{{ fail (printf "\nerror: settings must not have %s: the chart sets it from other values\nhint: values.yaml says which" $flag) }}{{ end }}
{{- end }}
{{- end }}

{{- /* A setting as the gateway reads it: 1000000, where YAML's number would become 1e+06. */}}
{{- define "lockkeeper.number" -}}
{{- if and (kindIs "float64" .) (eq . (floor .)) }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{- /* Settings are variables and not flags: so commands that are run in the pod (gateway token create) have them, too. */}}
{{- define "lockkeeper.settings" -}}
{{- if include "lockkeeper.fleet" . }}
- name: POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
- name: POD_HOST
  valueFrom:
    fieldRef: {fieldPath: status.podIP}
{{- end }}
- {name: LOCKKEEPER_LISTEN, value: ":8080"}
- {name: LOCKKEEPER_ALLOWED_HOSTS, value: {{ include "lockkeeper.hosts" . | quote }}}
{{- if include "lockkeeper.fleet" . }}
- {name: LOCKKEEPER_ZK, value: {{ .Values.zookeeper.servers | quote }}}
# A pod that waits for ZooKeeper is better than one that is started again and again.
- {name: LOCKKEEPER_ZK_CONNECT_TIMEOUT, value: "0"}
# On SIGTERM /readyz is red for so long before requests are refused: time for the endpoints to change everywhere.
- {name: LOCKKEEPER_DRAIN_DELAY, value: 10s}
{{- if .Values.zookeeper.identity.secret }}
- {name: LOCKKEEPER_ZK_AUTH_FILE, value: /etc/lockkeeper/zk/{{ .Values.zookeeper.identity.key }}}
{{- end }}
{{- if .Values.zookeeper.tls.secret }}
- {name: LOCKKEEPER_ZK_TLS, value: "true"}
- {name: LOCKKEEPER_ZK_CA_FILE, value: /etc/lockkeeper/zk-tls/ca.crt}
{{- if .Values.zookeeper.tls.clientCertificate }}
- {name: LOCKKEEPER_ZK_CERT_FILE, value: /etc/lockkeeper/zk-tls/tls.crt}
- {name: LOCKKEEPER_ZK_KEY_FILE, value: /etc/lockkeeper/zk-tls/tls.key}
{{- end }}
{{- end }}
# Where the others find this very pod; the Service does not lead to the fleet's port.
- {name: LOCKKEEPER_FLEET_LISTEN, value: ":8081"}
{{- if include "lockkeeper.tls" . }}
- {name: LOCKKEEPER_ADVERTISE, value: https://$(POD_NAME).{{ include "lockkeeper.fullname" . }}-fleet.{{ .Release.Namespace }}.svc:8081}
- {name: LOCKKEEPER_PEER_CA_FILE, value: /etc/lockkeeper/tls/ca.crt}
{{- else }}
- {name: LOCKKEEPER_ADVERTISE, value: {{ if .Values.ipv6 }}"[$(POD_HOST)]:8081"{{ else }}"$(POD_HOST):8081"{{ end }}}
{{- end }}
{{- else }}
- {name: LOCKKEEPER_DATA_DIR, value: /data/lockkeeper}
{{- end }}
{{- if include "lockkeeper.rules" . }}
- {name: LOCKKEEPER_AUTH_FILE, value: /etc/lockkeeper/access/auth.yaml}
{{- end }}
{{- if .Values.tls.plaintext }}
- {name: LOCKKEEPER_PLAINTEXT, value: "true"}
{{- end }}
{{- if include "lockkeeper.tls" . }}
- {name: LOCKKEEPER_TLS_CERT_FILE, value: /etc/lockkeeper/tls/tls.crt}
- {name: LOCKKEEPER_TLS_KEY_FILE, value: /etc/lockkeeper/tls/tls.key}
{{- end }}
{{- if .Values.tls.clientAuthorities }}
- {name: LOCKKEEPER_TLS_CLIENT_CA_FILE, value: /etc/lockkeeper/clients/ca.crt}
{{- end }}
{{- if .Values.metrics.enabled }}
- {name: LOCKKEEPER_METRICS_LISTEN, value: ":9090"}
{{- end }}
{{- if or .Values.access.insecure .Values.metrics.enabled }}
{{- if not .Values.access.insecure }}
# For the metrics alone: --listen has rules.
{{- end }}
- {name: LOCKKEEPER_INSECURE, value: "true"}
{{- end }}
- {name: LOCKKEEPER_LOG_FORMAT, value: {{ index .Values.settings "log-format" | default "json" }}}
{{- range $flag, $value := omit .Values.settings "log-format" }}
- {name: LOCKKEEPER_{{ $flag | replace "-" "_" | upper }}, value: {{ include "lockkeeper.number" $value | quote }}}
{{- end }}
{{- end }}

{{- /* name, Secret and path of each Secret that is mounted. */}}
{{- define "lockkeeper.secrets" -}}
{{- with .Values.zookeeper.identity.secret }}
- {name: zk, secret: {{ . }}}
{{- end }}
{{- with .Values.zookeeper.tls.secret }}
- {name: zk-tls, secret: {{ . }}}
{{- end }}
{{- if include "lockkeeper.tls" . }}
- {name: tls, secret: {{ include "lockkeeper.tlsSecret" . }}}
{{- end }}
{{- with .Values.tls.clientAuthorities }}
- {name: clients, secret: {{ . }}}
{{- end }}
{{- with .Values.access.existingSecret }}
- {name: access, secret: {{ . }}}
{{- end }}
{{- end }}
