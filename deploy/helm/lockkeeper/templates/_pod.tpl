{{- define "lockkeeper.pod" -}}
{{- $secrets := include "lockkeeper.secrets" . | fromYamlArray }}
metadata:
  labels:
    {{- include "lockkeeper.labels" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "lockkeeper.account" . }}
  automountServiceAccountToken: false
  # The Service's name would otherwise give the pod variables LOCKKEEPER_..., which are the gateway's settings.
  enableServiceLinks: false
  # More than --drain-delay and the 15 s that the handover may take.
  terminationGracePeriodSeconds: 40
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- if .Values.topologySpreadConstraints }}
    {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels:
          {{- include "lockkeeper.selector" . | nindent 10 }}
    {{- end }}
  containers:
    - name: gateway
      image: {{ include "lockkeeper.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      env:
        {{- include "lockkeeper.settings" . | trim | nindent 8 }}
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {name: http, containerPort: 8080}
        {{- if include "lockkeeper.fleet" . }}
        - {name: fleet, containerPort: 8081}
        {{- end }}
        {{- if .Values.metrics.enabled }}
        - {name: metrics, containerPort: 9090}
        {{- end }}
      # Red when a restart would help: a loop stands still. ZooKeeper is not in it: an outage must not end every gateway.
      livenessProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ if include "lockkeeper.tls" . }}HTTPS{{ else }}HTTP{{ end }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 3
      # A store is read and checked whole at the start.
      startupProbe:
        httpGet: {path: /healthz, port: http, scheme: {{ if include "lockkeeper.tls" . }}HTTPS{{ else }}HTTP{{ end }}}
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 300
      # Red before everything has been read, while draining, and when this gateway alone cannot commit.
      readinessProbe:
        httpGet: {path: /readyz, port: http, scheme: {{ if include "lockkeeper.tls" . }}HTTPS{{ else }}HTTP{{ end }}}
        periodSeconds: 2
        timeoutSeconds: 2
        failureThreshold: 2
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      volumeMounts:
        # The image's volume of this name would otherwise be one of the node's own, unseen.
        - {name: unused, mountPath: /lockkeeper-data, readOnly: true}
        {{- if not (include "lockkeeper.fleet" .) }}
        - {name: data, mountPath: /data}
        {{- end }}
        {{- range $secrets }}
        - {name: {{ .name }}, mountPath: /etc/lockkeeper/{{ .name }}, readOnly: true}
        {{- end }}
        {{- if or .Values.access.rules .Values.access.existingConfigMap }}
        - {name: access, mountPath: /etc/lockkeeper/access, readOnly: true}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: unused
      emptyDir: {medium: Memory, sizeLimit: 1Mi}
    {{- range $secrets }}
    # Readable by the gateway's group, which fsGroup makes it, and by no other user.
    - name: {{ .name }}
      secret: {secretName: {{ .secret }}, defaultMode: 0400}
    {{- end }}
    {{- if .Values.access.rules }}
    - name: access
      configMap: {name: {{ include "lockkeeper.fullname" . }}-access}
    {{- else if .Values.access.existingConfigMap }}
    - name: access
      configMap: {name: {{ .Values.access.existingConfigMap }}}
    {{- end }}
    {{- with .Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
