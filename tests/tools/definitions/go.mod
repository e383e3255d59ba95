// Not built: the definitions of the Prometheus operator's resources are in its source.
module distrl.tools/definitions

go 1.26.8

require github.com/prometheus-operator/prometheus-operator v0.85.0
