{{/* Names and labels. */}}

{{- define "distrl.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* component: the role, or worker-POOL. Arguments: root, component. */}}
{{- define "distrl.name" -}}
{{ include "distrl.fullname" .root }}-{{ .component }}
{{- end -}}

{{/*
Labels by which pods are selected; they never change. Values that a user chooses are quoted here and elsewhere: 20261002, 1e5
and true are no strings in YAML. Arguments: root, role, component.
*/}}
{{- define "distrl.selector" -}}
app.kubernetes.io/name: {{ default .root.Chart.Name .root.Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
distrl/role: {{ .role }}
{{- end -}}

{{/* The run as a label, which may not end in a dash, as a run's name may. */}}
{{- define "distrl.runLabel" -}}
{{ (include "distrl.settings" . | fromYaml).run | trimAll "-" }}
{{- end -}}

{{- define "distrl.labels" -}}
{{ include "distrl.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: distrl
distrl/run: {{ include "distrl.runLabel" .root | quote }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* name, namespace and labels of an object of a component. Arguments: root, role, component. */}}
{{- define "distrl.metadata" -}}
name: {{ include "distrl.name" . }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "distrl.labels" . | nindent 2 }}
{{- end -}}

{{/* The annotations of a hook before an installation and an upgrade. It leaves nothing behind. Arguments: weight. */}}
{{- define "distrl.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/*
The name of a Job of the release. Nobody may change the template of its pods once it is there, so another template has
another name: by `helm template` and Argo CD every revision is the first. And so has another revision, as one that failed
is to be tried again. Arguments: those of distrl.podTemplate.
*/}}
{{- define "distrl.jobName" -}}
{{ include "distrl.name" . }}-{{ printf "%d %s" (int .root.Release.Revision) (include "distrl.podTemplate" .) | sha256sum | trunc 6 }}
{{- end -}}
