{{/* Phones: what is impossible, and where they are. */}}

{{/* Fails unless `phones` is of exactly one kind. Arguments: where, phones. */}}
{{- define "distrl.validatePhones" -}}
{{- $kinds := list -}}
{{- range $kind := list "addresses" "emulators" "simulated" -}}
{{- if index (default dict $.phones) $kind }}{{ $kinds = append $kinds $kind }}{{ end -}}
{{- end -}}
{{- if ne (len $kinds) 1 -}}
{{- fail (printf "%s.phones: needs exactly one of addresses, emulators and simulated; it has %s" .where (join " and " $kinds | default "none")) -}}
{{- end -}}
{{- range $address := (default dict $.phones).addresses -}}
{{- $ports := regexFind "[0-9]+(-[0-9]+)?$" $address | splitList "-" -}}
{{- if or (lt (first $ports | int) 1) (gt (last $ports | int) 65535) (gt (first $ports | int) (last $ports | int)) -}}
{{- fail (printf "%s.phones.addresses: %q has no port, nor a range of ports, from 1 to 65535" $.where $address) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails for a pool that cannot work. Arguments: name, values, given (its own values alone). */}}
{{- define "distrl.validatePool" -}}
{{- $where := printf "workers.%s" .name -}}
{{- include "distrl.validatePhones" (dict "where" $where "phones" .values.phones) -}}
{{- $scaling := .values.scaling -}}
{{- if and .values.phones.addresses (or (ne $scaling.type "fixed") (gt (int $scaling.replicas) 1)) -}}
{{- fail (printf "%s.scaling: phones.addresses belong to one pod, and another would find all of them held; make a pool for each pod, with its own addresses" $where) -}}
{{- end -}}
{{- if and (ne $scaling.type "fixed") (lt (int $scaling.maxReplicas) (int $scaling.minReplicas)) -}}
{{- fail (printf "%s.scaling.maxReplicas: %v is less than minReplicas, %v" $where $scaling.maxReplicas $scaling.minReplicas) -}}
{{- end -}}
{{- if (default dict .given.serviceAccount).annotations -}}
{{- fail (printf "%s.serviceAccount.annotations: pools share the ServiceAccount of workers; set workerDefaults.serviceAccount.annotations, or make an account for this pool yourself and name it in %s.serviceAccount.name" $where $where) -}}
{{- end -}}
{{- end -}}

{{/* Tasks that wait for each pod of a pool: two for each of its phones, so that none is idle. Argument: phones. */}}
{{- define "distrl.lagThreshold" -}}
{{- mul 2 (int (default .emulators .simulated).count) -}}
{{- end -}}

{{/* Ports of all addresses that a role's pods connect to, as those of a NetworkPolicy. Arguments: root, role. */}}
{{- define "distrl.phonePorts" -}}
{{- $addresses := list -}}
{{- if eq .role "worker" -}}
{{- range $name, $values := include "distrl.pools" .root | fromYaml -}}
{{- $addresses = concat $addresses (default list $values.phones.addresses) -}}
{{- end -}}
{{- else if eq .role "evaluator" -}}
{{- $addresses = default list (include "distrl.evaluator" .root | fromYaml).phones.addresses -}}
{{- end -}}
{{- $ports := list -}}
{{- range $addresses -}}
{{- $range := regexFind "[0-9]+(-[0-9]+)?$" . | splitList "-" -}}
{{- $port := dict "port" (first $range | int) "protocol" "TCP" -}}
{{- if gt (len $range) 1 -}}
{{- $_ := set $port "endPort" (last $range | int) -}}
{{- end -}}
{{- $ports = append $ports $port -}}
{{- end -}}
{{- $ports | uniq | toYaml -}}
{{- end -}}
