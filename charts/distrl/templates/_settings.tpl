{{/* The program's settings: what the file says that the pods read, and what is in force. */}}

{{/* What config.yaml holds: values.config, and what follows from other values. */}}
{{- define "distrl.config" -}}
{{- $config := mergeOverwrite (dict
      "logging" (dict "format" "json")
      "monitoring" (dict "port" 9400 "host" "0.0.0.0")) (deepCopy .Values.config) -}}
{{- if .Values.demo.enabled -}}
{{- $fullname := include "distrl.fullname" . -}}
{{- $demo := dict
      "kafka" (dict "bootstrap" (printf "%s:9092" (include "distrl.demo.broker" .)))
      "store" (dict "url" (printf "s3://%s-s3:9000/distrl" $fullname))
      "devices" (dict "settle_unchanged_s" 0) -}}
{{- $config = mergeOverwrite $demo $config -}}
{{- end -}}
{{- if .Values.strimzi.enabled -}}
{{- $protocol := ternary "SSL" "SASL_SSL" (eq .Values.strimzi.authentication "tls") -}}
{{- $config = mergeOverwrite (dict "kafka" (dict "security_protocol" $protocol)) $config -}}
{{- end -}}
{{- $derived := dict -}}
{{- $certificates := include "distrl.certificates" . | fromYaml -}}
{{- if $certificates.kafka -}}
{{- $_ := set $derived "kafka" (dict "ssl_ca" "/etc/distrl/certificates/kafka/ca.crt") -}}
{{- end -}}
{{- if $certificates.store -}}
{{- $_ := set $derived "store" (dict "ca" "/etc/distrl/certificates/store/ca.crt") -}}
{{- end -}}
{{- if .Values.baseModel.image -}}
{{- $_ := set $derived "policy" (dict "base_model" "/etc/distrl/base-model") -}}
{{- end -}}
{{- mergeOverwrite $config $derived | toYaml -}}
{{- end -}}

{{/* Every setting in force: the program's defaults (files/defaults.yaml), and the above over them. */}}
{{- define "distrl.settings" -}}
{{- mergeOverwrite (.Files.Get "files/defaults.yaml" | fromYaml) (include "distrl.config" . | fromYaml) | toYaml -}}
{{- end -}}

{{/* The private authorities that are given, by name; of brokers that Strimzi runs, it publishes theirs. */}}
{{- define "distrl.certificates" -}}
{{- $found := dict -}}
{{- if .Values.strimzi.enabled -}}
{{- $_ := set $found "kafka" (dict "secret" (printf "%s-cluster-ca-cert" .Values.strimzi.cluster) "key" "ca.crt") -}}
{{- end -}}
{{- range $name, $given := .Values.certificates -}}
{{- if or $given.secret $given.configMap -}}
{{- $_ := set $found $name $given -}}
{{- end -}}
{{- end -}}
{{- $found | toYaml -}}
{{- end -}}

{{/* The brokers' addresses for who is in another namespace: a name without a dot is a Service of the release's own. */}}
{{- define "distrl.bootstrapElsewhere" -}}
{{- $namespace := .Release.Namespace -}}
{{- $addresses := list -}}
{{- range splitList "," (include "distrl.settings" . | fromYaml).kafka.bootstrap -}}
{{- $addresses = append $addresses (regexReplaceAll "^([^.:\\[]+):" (trim .) (printf "${1}.%s.svc:" $namespace)) -}}
{{- end -}}
{{- join "," $addresses -}}
{{- end -}}

{{/* The ports at which names are asked, as a NetworkPolicy has them. Arguments: the root. */}}
{{- define "distrl.dns.ports" -}}
{{- range prepend (.Values.networkPolicy.dns.ports | default list) 53 }}
- {port: {{ . }}, protocol: UDP}
- {port: {{ . }}, protocol: TCP}
{{- end }}
{{- end -}}

{{/* Ports of a comma-separated list of addresses, as YAML. */}}
{{- define "distrl.ports" -}}
{{- $ports := list -}}
{{- range splitList "," . -}}
{{- $ports = append $ports (regexFind "[0-9]+$" (trim .) | int) -}}
{{- end -}}
{{- $ports | uniq | toYaml -}}
{{- end -}}

{{/* The port of a URL; that of its scheme unless it names one. */}}
{{- define "distrl.urlPort" -}}
{{- $named := regexFind ":[0-9]+(/|$)" . -}}
{{- if $named -}}
{{ $named | trimPrefix ":" | trimSuffix "/" }}
{{- else -}}
{{ ternary 443 80 (or (hasPrefix "https://" .) (hasPrefix "s3s://" .)) }}
{{- end -}}
{{- end -}}

{{/*
A role's values: `defaults`, under its own; a demo asks for less. Arguments: root, values (a list, the last wins).
*/}}
{{- define "distrl.role" -}}
{{- $merged := deepCopy .root.Values.defaults -}}
{{- $credentials := include "distrl.credentialsOver" (list .root.Values.credentials .root.Values.defaults.credentials) | fromYaml -}}
{{- /* Whole: minAvailable over maxUnavailable would be both, and {} none. */ -}}
{{- $budget := default dict .root.Values.defaults.podDisruptionBudget -}}
{{- range .values -}}
{{- $merged = mergeOverwrite $merged (deepCopy .) -}}
{{- $credentials = include "distrl.credentialsOver" (list $credentials .credentials) | fromYaml -}}
{{- if kindIs "map" .podDisruptionBudget }}{{ $budget = .podDisruptionBudget }}{{ end -}}
{{- end -}}
{{- if .root.Values.demo.enabled -}}
{{- $_ := set $merged "resources" (mergeOverwrite (deepCopy $merged.resources) (dict "requests" .root.Values.demo.requests)) -}}
{{- end -}}
{{- $_ := set $merged "credentials" $credentials -}}
{{- $_ := set $merged "podDisruptionBudget" $budget -}}
{{- $merged | toYaml -}}
{{- end -}}

{{/*
Credentials under those of the next level. A user is of its Secret: where that level names another one and no user, the user
is the one in it. Arguments: a list of both.
*/}}
{{- define "distrl.credentialsOver" -}}
{{- $under := first . -}}
{{- $over := default dict (last .) -}}
{{- $merged := mergeOverwrite (deepCopy $under) (deepCopy $over) -}}
{{- $own := default dict $over.kafka -}}
{{- if and $own.existingSecret (ne $own.existingSecret $under.kafka.existingSecret) -}}
{{- $_ := set $merged.kafka "username" (default "" $own.username) -}}
{{- end -}}
{{- $merged | toYaml -}}
{{- end -}}

{{/*
The budget of a pool that is given none, by its own values, workerDefaults or defaults. Workers that are not ready (before
version 0, or while no phone answers) do no work that an eviction would interrupt; without AlwaysAllow they block the
drain of their node until they are ready. A share, rounded up: of 100 workers one is often away, and with a budget of one
the drains of all nodes would wait for it.
*/}}
{{- define "distrl.poolBudget" -}}
maxUnavailable: 10%
unhealthyPodEvictionPolicy: AlwaysAllow
{{- end -}}

{{/* The pools of workers by name, as they are given. */}}
{{- define "distrl.givenPools" -}}
{{- $pools := .Values.workers -}}
{{- if and .Values.demo.enabled (not $pools) -}}
{{- $pools = .Values.demo.workers -}}
{{- end -}}
{{- $pools | toYaml -}}
{{- end -}}

{{/* The pools of workers by name, each over workerDefaults and defaults. */}}
{{- define "distrl.pools" -}}
{{- $least := dict -}}
{{- if not .Values.defaults.podDisruptionBudget -}}
{{- $_ := set $least "podDisruptionBudget" (include "distrl.poolBudget" . | fromYaml) -}}
{{- end -}}
{{- $merged := dict -}}
{{- range $name, $pool := include "distrl.givenPools" . | fromYaml -}}
{{- $values := include "distrl.role" (dict "root" $ "values" (list $least $.Values.workerDefaults $pool)) | fromYaml -}}
{{- $_ := set $merged $name $values -}}
{{- end -}}
{{- $merged | toYaml -}}
{{- end -}}

{{/* The evaluator's values. */}}
{{- define "distrl.evaluator" -}}
{{- $values := include "distrl.role" (dict "root" . "values" (list .Values.evaluator)) | fromYaml -}}
{{- if and .Values.demo.enabled (not $values.phones) -}}
{{- $_ := set $values "phones" (dict "simulated" (dict "count" .Values.demo.evaluationPhones)) -}}
{{- end -}}
{{- $values | toYaml -}}
{{- end -}}

{{/*
Seconds that a role may take from SIGTERM on. With phones: running episodes have worker.drain_timeout_s; a step that is
under way then ends within the deadlines of two operations and a settling; the rest is the last commit and leaving the
group. A request to a model server that is under way ends within its deadline. Without: the update that is under way. Arguments: root, values, phones.
*/}}
{{- define "distrl.grace" -}}
{{- $settings := include "distrl.settings" .root | fromYaml -}}
{{- if .values.terminationGracePeriodSeconds -}}
{{ .values.terminationGracePeriodSeconds | int }}
{{- else if .phones -}}
{{- $drain := $settings.worker.drain_timeout_s -}}
{{- if $settings.judge.endpoint }}{{ $drain = maxf $drain $settings.judge.timeout_s }}{{ end -}}
{{- if $settings.policy.server.endpoint }}{{ $drain = addf $drain $settings.policy.server.timeout_s }}{{ end -}}
{{ addf $drain (mulf 2 $settings.devices.operation_timeout_s) $settings.devices.settle_timeout_s 20 | ceil | int }}
{{- else -}}
300
{{- end -}}
{{- end -}}
