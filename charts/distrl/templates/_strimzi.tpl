{{/* Users of a Kafka that Strimzi runs. */}}

{{/* The declared role (files/rights.yaml) as which each role of the chart works. */}}
{{- define "distrl.rights" -}}
learner: learner
feeder: feeder
worker: worker
evaluator: evaluator
viewer: viewer
topics: operator
doctor: operator
demonstrations: demonstrator
{{- end -}}

{{/* The KafkaUser of a declared role, and the Secret that Strimzi makes for it. Arguments: root, rights. */}}
{{- define "distrl.strimzi.user" -}}
{{ include "distrl.fullname" .root }}-{{ .rights }}
{{- end -}}

{{/* The KafkaUser of a role whose values name no Secret of their own; empty otherwise. Arguments: root, role, values. */}}
{{- define "distrl.strimzi.userOf" -}}
{{- if and .root.Values.strimzi.enabled (not .values.credentials.kafka.existingSecret) -}}
{{ include "distrl.strimzi.user" (dict "root" .root "rights" (index (include "distrl.rights" .root | fromYaml) .role)) }}
{{- end -}}
{{- end -}}

{{/*
How many processes have a user at most: Strimzi's quotas are of a user as a whole, and the declared ones of each process.
Arguments: root, rights.
*/}}
{{- define "distrl.strimzi.processes" -}}
{{ ternary (include "distrl.mostWorkers" .root | int | max 1) 1 (eq .rights "worker") }}
{{- end -}}
