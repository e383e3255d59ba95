{{/* The learner, whose ranks compute together. */}}

{{/* Its values, as a pod of it has them: `ranks` times what each rank asks for. */}}
{{- define "distrl.learner" -}}
{{- $values := include "distrl.role" (dict "root" . "values" (list .Values.learner)) | fromYaml -}}
{{- if gt (int $values.ranks) 1 -}}
{{- range $kind := list "requests" "limits" -}}
{{- range $name, $amount := index $values.resources $kind -}}
{{- $_ := set (index $values.resources $kind) $name (include "distrl.times" (list $amount $values.ranks)) -}}
{{- end -}}
{{- end -}}
{{- if and (gt (int $values.ranks) 1) (gt (int $values.pods) 1) -}}
{{- /* Nothing answers before torchrun has started the ranks, and it starts none before those of all pods have met. */ -}}
{{- $probe := default dict $values.startupProbe -}}
{{- $more := divf (include "distrl.learner.meeting" . | int) (default 10 $probe.periodSeconds) | ceil | int -}}
{{- $_ := set $probe "failureThreshold" (add (default 3 $probe.failureThreshold | int) $more) -}}
{{- $_ := set $values "startupProbe" $probe -}}
{{- end -}}
{{- if include "distrl.gpus" . -}}
{{- /* NCCL exchanges through it, and a container has 64 MB: its documentation, "Troubleshooting", shared memory. */ -}}
{{- $_ := set $values "volumes" (append $values.volumes (dict "name" "shared-memory" "emptyDir" (dict "medium" "Memory" "sizeLimit" "1Gi"))) -}}
{{- $_ := set $values "volumeMounts" (append $values.volumeMounts (dict "name" "shared-memory" "mountPath" "/dev/shm")) -}}
{{- end -}}
{{- end -}}
{{- $values | toYaml -}}
{{- end -}}

{{/*
What makes its pods. A LeaderWorkerSet of another name than the StatefulSet, whose own StatefulSet has its name: one can take
the other's place. Not longer: a StatefulSet's name has 52 characters at most.
*/}}
{{- define "distrl.learner.name" -}}
{{ include "distrl.fullname" . }}-{{ ternary "learners" "learner" (gt (int .Values.learner.pods) 1) }}
{{- end -}}

{{/* Arguments of `distrl`. Given: its values. */}}
{{- define "distrl.learner.args" -}}
- learner
- --config
- /etc/distrl/config.yaml
{{- if and (eq (int .pods) 1) (gt (int .ranks) 1) }}
- --ranks={{ .ranks }}
{{- end }}
{{- end -}}

{{/*
What starts the ranks of a pod among several. LWS_* are the LeaderWorkerSet's own. One rank gets its place from its command, and
not from its container's variables, which a `distrl learner --verify` in the pod would have too. Arguments: root, values.
*/}}
{{- define "distrl.learner.launcher" -}}
{{- if gt (int .values.ranks) 1 -}}
- torchrun
- --nnodes={{ .values.pods }}
- --nproc-per-node={{ .values.ranks }}
- --node-rank=$(LWS_WORKER_INDEX)
- --master-addr=$(LWS_LEADER_ADDRESS)
- --master-port={{ include "distrl.learner.port" . }}
- --max-restarts=0
- --rdzv-conf=timeout={{ include "distrl.learner.meeting" .root }}
- --shutdown-timeout={{ include "distrl.grace" . }}
- --no-python
{{- else -}}
- env
- MASTER_ADDR=$(LWS_LEADER_ADDRESS)
- MASTER_PORT={{ include "distrl.learner.port" . }}
- WORLD_SIZE={{ .values.pods }}
- RANK=$(LWS_WORKER_INDEX)
{{- end }}
- distrl
{{- end -}}

{{/* Seconds for which torchrun waits for all pods: those that the ranks have to connect, and its own limit at least. */}}
{{- define "distrl.learner.meeting" -}}
{{ max 900 ((include "distrl.settings" . | fromYaml).monitoring.stuck_s | ceil | int) }}
{{- end -}}

{{/* Where rank 0 waits for those of other pods. */}}
{{- define "distrl.learner.port" -}}
29500
{{- end -}}

{{/* An amount as Kubernetes writes it, so many times. Arguments: a list of both. */}}
{{- define "distrl.times" -}}
{{- $amount := toString (first .) -}}
{{- $number := regexFind "^[0-9.]+" $amount -}}
{{ mulf (float64 $number) (last .) }}{{ trimPrefix $number $amount }}
{{- end -}}

{{/* The GPUs that each rank asks for, as a mapping of names to numbers. */}}
{{- define "distrl.gpus" -}}
{{- $resources := (include "distrl.role" (dict "root" . "values" (list .Values.learner)) | fromYaml).resources -}}
{{- range $kind := list "requests" "limits" -}}
{{- range $name, $amount := index $resources $kind -}}
{{- if hasSuffix "/gpu" $name }}
{{ $name }}: {{ $amount }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
