{{/* Which roles a release has. */}}

{{/* Every role with its values, by role; pools of workers share one. */}}
{{- define "distrl.roles" -}}
{{- $roles := dict -}}
{{- if .Values.learner.enabled -}}
{{- $_ := set $roles "learner" (include "distrl.learner" . | fromYaml) -}}
{{- end -}}
{{- range $role := list "feeder" "viewer" "topics" "doctor" -}}
{{- $values := index $.Values $role -}}
{{- if $values.enabled -}}
{{- $_ := set $roles $role (include "distrl.role" (dict "root" $ "values" (list $values)) | fromYaml) -}}
{{- end -}}
{{- end -}}
{{- if or .Values.evaluator.enabled .Values.demo.enabled -}}
{{- $_ := set $roles "evaluator" (include "distrl.evaluator" . | fromYaml) -}}
{{- end -}}
{{- if or .Values.demonstrations.enabled .Values.demo.enabled -}}
{{- $_ := set $roles "demonstrations" (include "distrl.role" (dict "root" . "values" (list .Values.demonstrations)) | fromYaml) -}}
{{- end -}}
{{- if include "distrl.pools" . | fromYaml -}}
{{- $_ := set $roles "worker" (include "distrl.role" (dict "root" . "values" (list .Values.workerDefaults)) | fromYaml) -}}
{{- end -}}
{{- $roles | toYaml -}}
{{- end -}}

{{/* Not empty where Kafka or its users are objects of the release: nothing can run before them. */}}
{{- define "distrl.together" -}}
{{- if or .Values.demo.enabled .Values.strimzi.enabled }}yes{{ end -}}
{{- end -}}

{{/* Not empty where roles run before the release's objects are there. */}}
{{- define "distrl.hooks" -}}
{{- if and (not (include "distrl.together" .)) (or .Values.topics.enabled .Values.doctor.enabled) }}yes{{ end -}}
{{- end -}}

{{/* Workers that there may be at most, of all pools. */}}
{{- define "distrl.mostWorkers" -}}
{{- $workers := 0 -}}
{{- range include "distrl.pools" . | fromYaml -}}
{{- $workers = add $workers (ternary .scaling.replicas .scaling.maxReplicas (eq .scaling.type "fixed")) -}}
{{- end -}}
{{- $workers -}}
{{- end -}}

{{/*
How many pods the Deployment of a pool has now, while that number is Helm's own by server-side apply and no autoscaler has
set it; else empty. A pool that was fixed would lose its pods but one where Helm, whose number it was, no longer names one.
By client-side apply (Helm 3) a number that is named once would be taken away at the next upgrade, whoever has set it
since, so none is named. Arguments: root, component.
*/}}
{{- define "distrl.replicasNow" -}}
{{- with lookup "apps/v1" "Deployment" .root.Release.Namespace (include "distrl.name" .) -}}
{{- $applied := false -}}
{{- $scaled := false -}}
{{- range .metadata.managedFields -}}
{{- if hasKey (dig "fieldsV1" "f:spec" dict .) "f:replicas" -}}
{{- if eq (default "" .subresource) "scale" }}{{ $scaled = true }}{{ else if eq .operation "Apply" }}{{ $applied = true }}{{ end -}}
{{- end -}}
{{- end -}}
{{- if and $applied (not $scaled) }}{{ .spec.replicas }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* Annotations of what a role needs where it runs as a hook. Arguments: root, role. */}}
{{- define "distrl.hookOf" -}}
{{- if eq .role "doctor" -}}
helm.sh/hook: {{ ternary "pre-install,pre-upgrade,test" "test" (empty (include "distrl.together" .root)) }}
helm.sh/hook-weight: "-10"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- else if and (eq .role "topics") (not (include "distrl.together" .root)) -}}
{{ include "distrl.hook" (dict "weight" -10) }}
{{- end -}}
{{- end -}}
