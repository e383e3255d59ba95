// manifests reads Kubernetes objects as YAML on standard input and prints what is wrong with them: a field or a value that
// Kubernetes' own types do not have, or a pod that Pod Security "restricted" refuses. It ends with status 1 if anything is.
//
// Kinds of others (custom resources) are counted and not looked at.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

func main() {
	wrong, sound, unknown, err := look(bufio.NewReader(os.Stdin))
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	for _, each := range wrong {
		fmt.Println(each)
	}
	fmt.Printf("%d sound, %d of other kinds, %d wrong\n", sound, unknown, len(wrong))
	if len(wrong) > 0 {
		os.Exit(1)
	}
}

func look(input *bufio.Reader) (wrong []string, sound, unknown int, err error) {
	options := json.SerializerOptions{Yaml: true, Strict: true}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, options)
	restricted, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, 0, 0, err
	}
	level := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	documents := yaml.NewYAMLReader(input)
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return wrong, sound, unknown, nil
		}
		if err != nil {
			return wrong, sound, unknown, err
		}
		if strings.TrimSpace(string(document)) == "" {
			continue
		}
		object, kind, err := strict.Decode(document, nil, nil)
		switch {
		case runtime.IsNotRegisteredError(err):
			unknown++
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("%v: %v", kind, err))
		default:
			found := refusals(object, restricted, level)
			wrong = append(wrong, found...)
			if len(found) == 0 {
				sound++
			}
		}
	}
}

func refusals(object runtime.Object, restricted policy.Evaluator, level api.LevelVersion) (found []string) {
	template, name := template(object)
	if template == nil {
		return nil
	}
	for _, result := range restricted.EvaluatePod(level, &template.ObjectMeta, &template.Spec) {
		if !result.Allowed {
			found = append(found, fmt.Sprintf("%s: %s (%s)", name, result.ForbiddenReason, result.ForbiddenDetail))
		}
	}
	return found
}

func template(object runtime.Object) (*corev1.PodTemplateSpec, string) {
	switch own := object.(type) {
	case *appsv1.Deployment:
		return &own.Spec.Template, own.Name
	case *appsv1.StatefulSet:
		return &own.Spec.Template, own.Name
	case *batchv1.Job:
		return &own.Spec.Template, own.Name
	}
	return nil, ""
}
