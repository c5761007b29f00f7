{{- define "lometab.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "lometab.labels" -}}
app.kubernetes.io/name: lometab
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "lometab.selector" -}}
app.kubernetes.io/name: lometab
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end -}}

{{- define "lometab.image" -}}
{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}-{{ .target }}
{{- end -}}

{{- define "lometab.environment" -}}
- { name: LOMETAB_DATABASE_URL, value: {{ .Values.database.url | quote }} }
- { name: LOMETAB_DATABASE_PASSWORD_FILE, value: /run/secrets/lometab/postgres }
- { name: LOMETAB_BROKER_URL, value: {{ .Values.broker.url | quote }} }
- { name: LOMETAB_BROKER_PASSWORD_FILE, value: /run/secrets/lometab/redis }
{{- range $name, $value := merge (dict) .Values.settings (dict "LOMETAB_LOG_FORMAT" "json") }}
- { name: {{ $name }}, value: {{ $value | quote }} }
{{- end }}
{{- end -}}

{{- define "lometab.envFrom" -}}
{{- with .Values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "lometab.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: { type: RuntimeDefault }
{{- end -}}

{{- define "lometab.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end -}}

{{- define "lometab.mounts" -}}
- { name: tmp, mountPath: /tmp }
- { name: secrets, mountPath: /run/secrets/lometab, readOnly: true }
{{- end -}}

{{- define "lometab.volumes" -}}
- name: tmp
  emptyDir: { sizeLimit: {{ .temporary }} }
- name: secrets
  secret: { secretName: {{ .root.Values.secretName }}, defaultMode: 0440 }
{{- end -}}

{{- define "lometab.placement" -}}
automountServiceAccountToken: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "lometab.worker" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "lometab.name" .root }}-{{ .target }}
  labels: {{- include "lometab.labels" .root | nindent 4 }}
spec:
  {{- if not .root.Values.keda.enabled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  selector:
    matchLabels: {{- include "lometab.selector" (dict "root" .root "part" .target) | nindent 6 }}
  template:
    metadata:
      labels: {{- include "lometab.selector" (dict "root" .root "part" .target) | nindent 8 }}
    spec:
      {{- include "lometab.placement" .root | nindent 6 }}
      # For a checkpoint before it goes; the job goes on elsewhere.
      terminationGracePeriodSeconds: 60
      securityContext: {{- include "lometab.podSecurity" . | nindent 8 }}
      containers:
        - name: worker
          image: {{ include "lometab.image" . }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: [lometab, worker]
          env: {{- include "lometab.environment" .root | nindent 12 }}
          {{- include "lometab.envFrom" .root | nindent 10 }}
          ports:
            - { name: metrics, containerPort: 9090 }
          startupProbe:
            exec: { command: [lometab, worker, --check] }
            periodSeconds: 10
            timeoutSeconds: 15
            failureThreshold: 30
          livenessProbe:
            exec: { command: [lometab, worker, --check] }
            periodSeconds: 60
            timeoutSeconds: 15
            failureThreshold: 5
          resources: {{- toYaml .values.resources | nindent 12 }}
          securityContext: {{- include "lometab.security" . | nindent 12 }}
          volumeMounts: {{- include "lometab.mounts" . | nindent 12 }}
      volumes: {{- include "lometab.volumes" (dict "root" .root "temporary" .values.temporary) | nindent 8 }}
{{- end -}}

{{- define "lometab.scaler" -}}
{{- if not .root.Values.serviceMonitor.enabled }}
{{- fail "keda.enabled needs serviceMonitor.enabled: KEDA asks Prometheus for numbers that it has from there" }}
{{- end }}
{{- $labels := printf "{queue=%q,namespace=%q}" .queue .root.Release.Namespace }}
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata:
  name: {{ include "lometab.name" .root }}-{{ .target }}
  labels: {{- include "lometab.labels" .root | nindent 4 }}
spec:
  scaleTargetRef: { name: {{ include "lometab.name" .root }}-{{ .target }} }
  minReplicaCount: {{ .root.Values.keda.minReplicas }}
  maxReplicaCount: {{ .root.Values.keda.maxReplicas }}
  cooldownPeriod: 300
  triggers:
    - type: prometheus
      metadata:
        serverAddress: {{ .root.Values.keda.prometheus | quote }}
        # The number of workers itself: one for each that has a job, none of which is one
        # too many, and one for so many jobs that wait.
        query: {{ printf "ceil(max(lometab_queue_jobs%s) / %d) + max(lometab_busy_workers%s)" $labels (int .root.Values.keda.jobsPerWorker) $labels | quote }}
        threshold: "1"
{{- end -}}
