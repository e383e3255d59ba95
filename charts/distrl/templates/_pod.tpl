{{/*
The pod of every role.

Arguments: root, role, component, values (merged by distrl.role), args (of `distrl`), and where they apply
  command: what starts `distrl`, where the image's entry point does not
  phones: what phones the pod has (workers.*.phones)
  env: variables besides those of credentials and phones; the role's own come last, and win
  policy: true where the role needs the base model
  config: name of another ConfigMap than the release's
  restartPolicy: of a Job
*/}}
{{- define "distrl.podTemplate" -}}
{{- $root := .root -}}
{{- $values := .values -}}
{{- $phones := default dict .phones -}}
metadata:
  labels:
    {{- include "distrl.labels" . | nindent 4 }}
    {{- with $values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    distrl/config: {{ include "distrl.config" $root | sha256sum | trunc 16 | quote }}
    {{- with $values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ include "distrl.serviceAccountName" . | quote }}
  automountServiceAccountToken: false
  # A Service's variables would begin with DISTRL_ where the release does, and be read as settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "distrl.grace" (dict "root" $root "values" $values "phones" $phones) }}
  {{- with .restartPolicy }}
  restartPolicy: {{ . }}
  {{- end }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  {{- range $key := list "priorityClassName" "runtimeClassName" }}
  {{- with index $values $key }}
  {{ $key }}: {{ . | quote }}
  {{- end }}
  {{- end }}
  securityContext:
    {{- toYaml $values.podSecurityContext | nindent 4 }}
  {{- range $key := list "nodeSelector" "affinity" "tolerations" "topologySpreadConstraints" }}
  {{- with index $values $key }}
  {{ $key }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- $model := and .policy $root.Values.baseModel.image }}
  {{- $waits := include "distrl.waits" . }}
  {{- if or $model $waits $phones.simulated }}
  initContainers:
    {{- if $waits }}
    # A role ends where it finds no topics, and would be started again after longer and longer pauses.
    - name: wait
      image: {{ include "distrl.image" (dict "root" $root "image" $values.image) }}
      imagePullPolicy: {{ include "distrl.pullPolicy" (dict "root" $root "image" $values.image) }}
      args: [topics, wait, --role={{ index (include "distrl.rights" $root | fromYaml) .role }}, --config, /etc/distrl/config.yaml]
      workingDir: /var/lib/distrl
      env:
        - {name: HOME, value: /var/lib/distrl}
        {{- with include "distrl.kafkaCredentials" . | trim }}{{ . | nindent 8 }}{{ end }}
        {{- with $values.env }}{{ toYaml . | nindent 8 }}{{ end }}
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      # Those of the role, which begins when this has ended: a quota refuses a container without any.
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      volumeMounts:
        {{- include "distrl.mounts" . | nindent 8 }}
        {{- with $values.volumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
    {{- end }}
    {{- if $model }}
    - name: base-model
      image: {{ $root.Values.baseModel.image }}
      imagePullPolicy: {{ $root.Values.baseModel.pullPolicy }}
      command: [cp, -r, {{ printf "%s/." (trimSuffix "/" $root.Values.baseModel.path) | quote }}, /etc/distrl/base-model]
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      volumeMounts:
        - {name: base-model, mountPath: /etc/distrl/base-model}
    {{- end }}
    {{- with $phones.simulated }}
    # A native sidecar: it serves on loopback before the role starts, and until after the role has ended.
    - name: phones
      image: {{ include "distrl.image" (dict "root" $root "image" $values.image) }}
      imagePullPolicy: {{ include "distrl.pullPolicy" (dict "root" $root "image" $values.image) }}
      restartPolicy: Always
      args:
        - phones
        - --count={{ .count }}
        {{- range $name, $value := (include "distrl.config" $root | fromYaml).phones }}
        - {{ printf "--set=phones.%s=%s" $name (toJson $value) | quote }}
        {{- end }}
      env:
        - {name: HOME, value: /var/lib/distrl}
      workingDir: /var/lib/distrl
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      {{- with .resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: scratch, mountPath: /tmp, subPath: phones-tmp}
        - {name: scratch, mountPath: /var/lib/distrl, subPath: phones}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ .role }}
      image: {{ include "distrl.image" (dict "root" $root "image" $values.image) }}
      imagePullPolicy: {{ include "distrl.pullPolicy" (dict "root" $root "image" $values.image) }}
      {{- with .command }}
      command:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      args:
        {{- toYaml .args | nindent 8 }}
      workingDir: /var/lib/distrl
      env:
        - {name: HOME, value: /var/lib/distrl}
        {{- with include "distrl.credentials" . | trim }}{{ . | nindent 8 }}{{ end }}
        {{- with include "distrl.phoneVariables" $phones | trim }}{{ . | nindent 8 }}{{ end }}
        {{- with .env }}{{ toYaml . | nindent 8 }}{{ end }}
        {{- with $values.env }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- with include "distrl.probed" . | fromYaml }}
      {{- $port := .name }}
      ports:
        - {name: {{ $port }}, containerPort: {{ .port }}}
      {{- range $probe, $path := dict "startupProbe" "/livez" "livenessProbe" "/livez" "readinessProbe" "/readyz" }}
      {{ $probe }}:
        httpGet: {path: {{ $path }}, port: {{ $port }}}
        {{- toYaml (index $values $probe) | nindent 8 }}
      {{- end }}
      {{- end }}
      resources:
        {{- $resources := deepCopy $values.resources }}
        {{- with $phones.emulators }}
        {{- $device := dict .resourceName (.resources | default 1) }}
        {{- $resources = mergeOverwrite $resources (dict "limits" $device) }}
        {{- end }}
        {{- toYaml $resources | nindent 8 }}
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      volumeMounts:
        {{- include "distrl.mounts" . | nindent 8 }}
        {{- if and $phones $values.credentials.adb.existingSecret }}
        - {name: adb, mountPath: /etc/distrl/adb, readOnly: true}
        {{- end }}
        {{- if $model }}
        - {name: base-model, mountPath: /etc/distrl/base-model, readOnly: true}
        {{- end }}
        {{- with $values.volumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - name: config
      configMap: {name: {{ .config | default (include "distrl.fullname" $root) | quote }}}
    - name: scratch
      emptyDir: {sizeLimit: {{ $values.scratch }}}
    {{- with include "distrl.userCertificate" . }}
    - name: kafka-user
      secret: {secretName: {{ . }}, items: [{key: user.crt, path: user.crt}, {key: user.key, path: user.key}]}
    {{- end }}
    {{- range $name, $given := include "distrl.certificates" $root | fromYaml }}
    - name: {{ $name }}-certificate
      {{- if $given.secret }}
      secret: {secretName: {{ $given.secret | quote }}, items: [{key: {{ $given.key | quote }}, path: ca.crt}]}
      {{- else }}
      configMap: {name: {{ $given.configMap | quote }}, items: [{key: {{ $given.key | quote }}, path: ca.crt}]}
      {{- end }}
    {{- end }}
    {{- if and $phones $values.credentials.adb.existingSecret }}
    - name: adb
      secret: {secretName: {{ $values.credentials.adb.existingSecret | quote }}, items: [{key: {{ $values.credentials.adb.key | quote }}, path: adbkey}]}
    {{- end }}
    {{- if $model }}
    - name: base-model
      emptyDir: {sizeLimit: {{ $root.Values.baseModel.sizeLimit }}}
    {{- end }}
    {{- with $values.volumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end -}}

{{/*
No deadline for a rollout. Workers are ready once there is a version 0, which may take hours, and a Deployment that is not
ready after its deadline, 600 s unless given, is one that has failed to `helm --wait`, whatever its --timeout.
*/}}
{{- define "distrl.progressDeadline" -}}
progressDeadlineSeconds: 2147483647
{{- end -}}

{{/* The program's image; a role may have another one. Arguments: root, image. */}}
{{- define "distrl.image" -}}
{{- $own := default dict .image -}}
{{- $image := mergeOverwrite (deepCopy .root.Values.image) $own -}}
{{- if and (or $own.repository $own.tag) (not $own.digest) -}}
{{- $_ := set $image "digest" "" -}}{{/* it is of another image */}}
{{- end -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* When that image is pulled. Arguments: root, image. */}}
{{- define "distrl.pullPolicy" -}}
{{ (.image).pullPolicy | default .root.Values.image.pullPolicy }}
{{- end -}}

{{/* Not empty for a role that serves figures and probes. */}}
{{- define "distrl.monitored" -}}
{{- if has .role (list "learner" "feeder" "worker" "evaluator" "demonstrations") }}yes{{ end -}}
{{- end -}}

{{/* The port that a role's probes ask, and its name; empty for one without. Arguments: root, role, values. */}}
{{- define "distrl.probed" -}}
{{- if include "distrl.monitored" . -}}
{name: metrics, port: {{ (include "distrl.config" .root | fromYaml).monitoring.port }}}
{{- else if eq .role "viewer" -}}
{name: pages, port: {{ .values.port }}}
{{- end -}}
{{- end -}}

{{/* What each role talks to: it has credentials and ways out for these alone. */}}
{{- define "distrl.needs" -}}
learner: [kafka, store, tracing]
feeder: [kafka, tracing]
worker: [kafka, store, judge, modelServer, tracing, adb, phones]
evaluator: [kafka, store, judge, modelServer, adb, phones]
topics: [kafka]
doctor: [kafka, store]
demonstrations: [kafka, store]
viewer: [kafka, store]
{{- end -}}

{{/*
Not empty where a pod waits for the topics: a Job of the release makes them, or Strimzi, whose topics that Job compares.
Arguments: root, role.
*/}}
{{- define "distrl.waits" -}}
{{- if eq .role "topics" -}}
{{- if .root.Values.strimzi.enabled }}yes{{ end -}}
{{- else if ne .role "doctor" -}}
{{- include "distrl.together" .root -}}
{{- end -}}
{{- end -}}

{{/* What a container of the program mounts, to reach the brokers and to write. Arguments: root, role, values. */}}
{{- define "distrl.mounts" -}}
- {name: config, mountPath: /etc/distrl/config.yaml, subPath: config.yaml, readOnly: true}
- {name: scratch, mountPath: /tmp, subPath: tmp}
- {name: scratch, mountPath: /var/lib/distrl, subPath: state}
{{- range $name, $given := include "distrl.certificates" .root | fromYaml }}
- {name: {{ $name }}-certificate, mountPath: /etc/distrl/certificates/{{ $name }}, readOnly: true}
{{- end }}
{{- if include "distrl.userCertificate" . }}
- {name: kafka-user, mountPath: /etc/distrl/kafka-user, readOnly: true}
{{- end }}
{{- end -}}

{{/* The Secret with the certificate of the role's KafkaUser, where those log in by certificates. */}}
{{- define "distrl.userCertificate" -}}
{{- if eq .root.Values.strimzi.authentication "tls" }}{{ include "distrl.strimzi.userOf" . }}{{ end -}}
{{- end -}}

{{/* Variables with which the brokers know the role, from Secrets. Arguments: root, role, values. */}}
{{- define "distrl.kafkaCredentials" -}}
{{- $user := include "distrl.strimzi.userOf" . -}}
{{- if include "distrl.userCertificate" . }}
- {name: DISTRL_KAFKA__CLIENT__SSL__CERTIFICATE__LOCATION, value: /etc/distrl/kafka-user/user.crt}
- {name: DISTRL_KAFKA__CLIENT__SSL__KEY__LOCATION, value: /etc/distrl/kafka-user/user.key}
{{- else if $user }}
- {name: DISTRL_KAFKA__SASL_USERNAME, value: {{ $user | quote }}}
- {name: DISTRL_KAFKA__SASL_PASSWORD, valueFrom: {secretKeyRef: {name: {{ $user }}, key: password}}}
{{- else if .values.credentials.kafka.existingSecret }}
{{- with .values.credentials.kafka }}
{{- if .username }}
- {name: DISTRL_KAFKA__SASL_USERNAME, value: {{ .username | quote }}}
{{- else }}
- {name: DISTRL_KAFKA__SASL_USERNAME, valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .usernameKey | quote }}}}}
{{- end }}
- {name: DISTRL_KAFKA__SASL_PASSWORD, valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .passwordKey | quote }}}}}
{{- end }}
{{- end }}
{{- end -}}

{{/* Variables with credentials, from Secrets. Arguments: root, role, values. */}}
{{- define "distrl.credentials" -}}
{{- $needs := index (include "distrl.needs" .root | fromYaml) .role -}}
{{- $given := .values.credentials -}}
{{- if and .root.Values.demo.enabled (has "store" $needs) }}
{{- $demo := dict "existingSecret" (printf "%s-s3" (include "distrl.fullname" .root)) "accessKey" "access-key" "secretKey" "secret-key" }}
{{- $given = mergeOverwrite (deepCopy $given) (dict "store" $demo) }}
{{- end }}
{{- include "distrl.kafkaCredentials" . }}
{{- if and (has "store" $needs) $given.store.existingSecret }}
{{- with $given.store }}
- {name: DISTRL_STORE__ACCESS_KEY, valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .accessKey | quote }}}}}
- {name: DISTRL_STORE__SECRET_KEY, valueFrom: {secretKeyRef: {name: {{ .existingSecret | quote }}, key: {{ .secretKey | quote }}}}}
{{- end }}
{{- end }}
{{- if and (has "judge" $needs) $given.judge.existingSecret }}
- {name: DISTRL_JUDGE__API_KEY, valueFrom: {secretKeyRef: {name: {{ $given.judge.existingSecret | quote }}, key: {{ $given.judge.apiKey | quote }}}}}
{{- end }}
{{- if and (has "modelServer" $needs) (default dict $given.modelServer).existingSecret }}
- {name: DISTRL_POLICY__SERVER__API_KEY, valueFrom: {secretKeyRef: {name: {{ $given.modelServer.existingSecret | quote }}, key: {{ $given.modelServer.apiKey | quote }}}}}
{{- end }}
{{- if and (has "phones" $needs) $given.adb.existingSecret }}
- {name: ADB_VENDOR_KEYS, value: /etc/distrl/adb/adbkey}
{{- end }}
{{- end -}}

{{/* Variables that say which phones a pod has. */}}
{{- define "distrl.phoneVariables" -}}
{{- with .addresses }}
- {name: DISTRL_DEVICES__ADDRESSES, value: {{ toJson . | quote }}}
{{- end }}
{{- with .simulated }}
- {name: DISTRL_DEVICES__ADDRESSES, value: {{ list (printf "127.0.0.1:26000-%d" (add 25999 (int .count))) | toJson | quote }}}
{{- end }}
{{- with .emulators }}
- {name: DISTRL_DEVICES__EMULATORS__AVD, value: {{ .avd | quote }}}
- {name: DISTRL_DEVICES__EMULATORS__COUNT, value: {{ .count | quote }}}
{{- with .snapshot }}
- {name: DISTRL_DEVICES__EMULATORS__SNAPSHOT, value: {{ . | quote }}}
{{- end }}
{{- end }}
{{- end -}}

{{/* Arguments: root, role, values. */}}
{{- define "distrl.serviceAccountName" -}}
{{- .values.serviceAccount.name | default (printf "%s-%s" (include "distrl.fullname" .root) .role) -}}
{{- end -}}
