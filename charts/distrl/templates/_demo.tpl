{{/* The servers of a demo. */}}

{{/* The name of its broker, which advertises it: KEDA is in another namespace. */}}
{{- define "distrl.demo.broker" -}}
{{ include "distrl.fullname" . }}-kafka.{{ .Release.Namespace }}.svc
{{- end -}}

{{/*
One server of a demo: a StatefulSet of one with a volume, a headless Service and a NetworkPolicy.
Arguments: root, component, values, port, container (further keys of it), volumes, mounts.
*/}}
{{- define "distrl.demo.server" -}}
{{- $role := dict "root" .root "role" .component "component" .component -}}
{{- $defaults := .root.Values.defaults -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  {{- include "distrl.metadata" $role | nindent 2 }}
spec:
  replicas: 1
  serviceName: {{ include "distrl.name" $role }}
  # A demo leaves nothing behind.
  persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete, whenScaled: Retain}
  selector:
    matchLabels:
      {{- include "distrl.selector" $role | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "distrl.labels" $role | nindent 8 }}
    spec:
      automountServiceAccountToken: false
      enableServiceLinks: false
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets:
        {{- range . }}
        - name: {{ . | quote }}
        {{- end }}
      {{- end }}
      securityContext:
        {{- toYaml $defaults.podSecurityContext | nindent 8 }}
      containers:
        - name: {{ .component }}
          image: {{ .values.image }}
          imagePullPolicy: {{ .values.pullPolicy }}
          {{- toYaml .container | nindent 10 }}
          ports:
            - {name: {{ .component }}, containerPort: {{ .port }}}
          readinessProbe:
            tcpSocket: {port: {{ .port }}}
            periodSeconds: 2
          resources:
            {{- toYaml .values.resources | nindent 12 }}
          securityContext:
            {{- toYaml $defaults.securityContext | nindent 12 }}
          volumeMounts:
            - {name: data, mountPath: /data}
            - {name: scratch, mountPath: /tmp}
            {{- with .mounts }}{{ toYaml . | nindent 12 }}{{ end }}
      volumes:
        - name: scratch
          emptyDir: {sizeLimit: 1Gi}
        {{- with .volumes }}{{ toYaml . | nindent 8 }}{{ end }}
  volumeClaimTemplates:
    - apiVersion: v1
      kind: PersistentVolumeClaim
      metadata: {name: data}
      spec:
        accessModes: [ReadWriteOnce]
        resources: {requests: {storage: {{ .values.storage }}}}
---
apiVersion: v1
kind: Service
metadata:
  {{- include "distrl.metadata" $role | nindent 2 }}
spec:
  clusterIP: None
  # A broker reaches itself by this name before it is ready.
  publishNotReadyAddresses: true
  selector:
    {{- include "distrl.selector" $role | nindent 4 }}
  ports:
    - {name: {{ .component }}, port: {{ .port }}}
{{- if .root.Values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "distrl.metadata" $role | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "distrl.selector" $role | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - from:
        - podSelector:
            matchLabels: {app.kubernetes.io/instance: {{ .root.Release.Name | quote }}, app.kubernetes.io/part-of: distrl}
  egress:
    - to:
        - podSelector:
            matchLabels:
              {{- include "distrl.selector" $role | nindent 14 }}
    - ports:
        {{- include "distrl.dns.ports" .root | trim | nindent 8 }}
{{- end }}
{{- end -}}
