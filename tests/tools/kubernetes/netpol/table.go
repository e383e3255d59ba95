package netpol

import (
	"fmt"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// World is what policies are about. Pods of other namespaces are there too: a policy may name them as peers.
type World struct {
	Pods       []*core.Pod
	Namespaces map[string]labels.Set
	Policies   []*networking.NetworkPolicy
}

// Traffic that a pod's own policies judge: what comes to it, or what leaves it.
type direction struct {
	name string // of its chains
	peer string // the field of a packet that holds the other side
	kind networking.PolicyType
}

var (
	ingress = direction{"in", "saddr", networking.PolicyTypeIngress}
	egress  = direction{"out", "daddr", networking.PolicyTypeEgress}
)

// Table is the whole table as `nft -f` reads it: a chain for each isolated pod and direction, and who jumps there.
//
// Packets from pod to pod pass the forward hook, with a Service's address already replaced; those from a pod to the
// node, where the API server is, pass the input hook. What the node sends to its pods (probes) is always allowed.
func (w World) Table() (string, error) {
	pods := slices.DeleteFunc(slices.Clone(w.Pods), func(pod *core.Pod) bool { return !addressed(pod) })
	slices.SortFunc(pods, func(a, b *core.Pod) int { return strings.Compare(a.Status.PodIP, b.Status.PodIP) })
	var chains strings.Builder
	jumps := map[direction][]string{}
	for _, pod := range pods {
		for _, d := range []direction{ingress, egress} {
			rules, isolated, err := w.rules(d, pod, pods)
			if err != nil {
				return "", err
			}
			if !isolated {
				continue
			}
			chain := d.name + "-" + strings.ReplaceAll(pod.Status.PodIP, ".", "-")
			fmt.Fprintf(&chains, "  chain %s {\n    %s\n  }\n", chain, strings.Join(append(rules, "drop"), "\n    "))
			jumps[d] = append(jumps[d], pod.Status.PodIP+" : jump "+chain)
		}
	}
	out, in := verdicts("saddr", jumps[egress]), verdicts("daddr", jumps[ingress])
	return "table inet netpol\ndelete table inet netpol\ntable inet netpol {\n" + chains.String() +
		hook("forward", out+in) + hook("input", out) + "}\n", nil
}

func hook(name, rules string) string {
	return fmt.Sprintf("  chain %s {\n    type filter hook %s priority filter; policy accept;\n"+
		"    ct state established,related accept\n%s  }\n", name, name, rules)
}

func verdicts(field string, jumps []string) string {
	if len(jumps) == 0 {
		return ""
	}
	return fmt.Sprintf("    ip %s vmap { %s }\n", field, strings.Join(jumps, ", "))
}

// rules of one pod and direction, and whether any policy isolates it there.
func (w World) rules(d direction, pod *core.Pod, pods []*core.Pod) (rules []string, isolated bool, err error) {
	for _, policy := range w.Policies {
		selected, err := matches(&policy.Spec.PodSelector, pod.Labels)
		if err != nil {
			return nil, false, err
		}
		if policy.Namespace != pod.Namespace || !selected || !slices.Contains(policy.Spec.PolicyTypes, d.kind) {
			continue
		}
		isolated = true
		for _, rule := range allowed(d, policy) {
			more, err := w.allow(d, rule, policy.Namespace, pod, pods)
			if err != nil {
				return nil, false, err
			}
			rules = append(rules, more...)
		}
	}
	slices.Sort(rules)
	return slices.Compact(rules), isolated, nil
}

// A rule of a policy; ingress and egress have the same form.
type rule struct {
	peers []networking.NetworkPolicyPeer
	ports []networking.NetworkPolicyPort
}

func allowed(d direction, policy *networking.NetworkPolicy) (rules []rule) {
	if d == ingress {
		for _, r := range policy.Spec.Ingress {
			rules = append(rules, rule{r.From, r.Ports})
		}
		return rules
	}
	for _, r := range policy.Spec.Egress {
		rules = append(rules, rule{r.To, r.Ports})
	}
	return rules
}

// allow gives the matches of one rule. A port's name means that of the pod which is connected to.
func (w World) allow(d direction, r rule, namespace string, pod *core.Pod, pods []*core.Pod) (rules []string, err error) {
	add := func(peer string, server *core.Pod) {
		for _, port := range ports(r.ports, server) {
			rules = append(rules, strings.Join(strings.Fields(peer+" "+port+" return"), " "))
		}
	}
	server := func(peer *core.Pod) *core.Pod {
		if d == ingress {
			return pod
		}
		return peer
	}
	if len(r.peers) == 0 {
		add("", server(nil))
	}
	for _, peer := range r.peers {
		if block := peer.IPBlock; block != nil {
			match := fmt.Sprintf("ip %s %s", d.peer, block.CIDR)
			if len(block.Except) > 0 {
				match += fmt.Sprintf(" ip %s != { %s }", d.peer, strings.Join(block.Except, ", "))
			}
			add(match, server(nil))
			continue
		}
		for _, other := range pods {
			selected, err := w.selects(peer, other, namespace)
			if err != nil {
				return nil, err
			}
			if selected {
				add(fmt.Sprintf("ip %s %s", d.peer, other.Status.PodIP), server(other))
			}
		}
	}
	return rules, nil
}

func (w World) selects(peer networking.NetworkPolicyPeer, pod *core.Pod, namespace string) (bool, error) {
	if peer.NamespaceSelector == nil {
		if pod.Namespace != namespace {
			return false, nil
		}
	} else if selected, err := matches(peer.NamespaceSelector, w.Namespaces[pod.Namespace]); err != nil || !selected {
		return false, err
	}
	if peer.PodSelector == nil {
		return true, nil
	}
	return matches(peer.PodSelector, pod.Labels)
}

func matches(selector *meta.LabelSelector, set labels.Set) (bool, error) {
	compiled, err := meta.LabelSelectorAsSelector(selector)
	return err == nil && compiled.Matches(set), err
}

// ports gives a match for each; none are all. A name that the server lacks matches nothing.
func ports(wanted []networking.NetworkPolicyPort, server *core.Pod) (found []string) {
	if len(wanted) == 0 {
		return []string{""}
	}
	for _, port := range wanted {
		protocol := "tcp"
		if port.Protocol != nil {
			protocol = strings.ToLower(string(*port.Protocol))
		}
		switch {
		case port.Port == nil:
			found = append(found, "meta l4proto "+protocol)
		case port.Port.Type == intstr.Int && port.EndPort != nil:
			found = append(found, fmt.Sprintf("%s dport %d-%d", protocol, port.Port.IntVal, *port.EndPort))
		case port.Port.Type == intstr.Int:
			found = append(found, fmt.Sprintf("%s dport %d", protocol, port.Port.IntVal))
		case server != nil:
			for _, number := range named(server, port.Port.StrVal, protocol) {
				found = append(found, fmt.Sprintf("%s dport %d", protocol, number))
			}
		}
	}
	return found
}

func named(pod *core.Pod, name, protocol string) (numbers []int32) {
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.Name == name && strings.EqualFold(string(port.Protocol), protocol) {
				numbers = append(numbers, port.ContainerPort)
			}
		}
	}
	return numbers
}

func addressed(pod *core.Pod) bool {
	over := pod.Status.Phase == core.PodSucceeded || pod.Status.Phase == core.PodFailed
	return pod.Status.PodIP != "" && !pod.Spec.HostNetwork && !over
}
