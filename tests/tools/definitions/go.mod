// Not built: the definitions of operators' resources are in their source.
module distrl.tools/definitions

go 1.26.8

require (
	github.com/prometheus-operator/prometheus-operator v0.85.0
	sigs.k8s.io/lws v0.9.0
)
