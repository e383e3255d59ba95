// Package netpol enforces NetworkPolicies on a node whose pods are routed: informers in, one table of nftables out.
//
// It is ours because those that networks come with replace the network, and the one that does not,
// kube-network-policies, needs the kernel's packet queue, which small kernels lack.
package netpol

import (
	"context"
	"fmt"
	"log"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	core "k8s.io/client-go/listers/core/v1"
	networking "k8s.io/client-go/listers/networking/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// Changes that come together, as those of a rollout, are one new table.
const gather = 50 * time.Millisecond

// NewCommand is the program `netpol`.
func NewCommand() *cobra.Command {
	var kubeconfig string
	command := &cobra.Command{
		Use:           "netpol",
		Short:         "enforces NetworkPolicies on this node with nftables",
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(command *cobra.Command, _ []string) error { return run(command.Context(), kubeconfig) },
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "how to reach the API server")
	return command
}

func run(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods, namespaces := factory.Core().V1().Pods(), factory.Core().V1().Namespaces()
	policies := factory.Networking().V1().NetworkPolicies()
	changed := make(chan struct{}, 1)
	changed <- struct{}{} // the table is there before the first policy, which shows that nftables can be written
	for _, informer := range []cache.SharedIndexInformer{pods.Informer(), namespaces.Informer(), policies.Informer()} {
		if _, err := informer.AddEventHandler(notify(changed)); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	applied := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		table, err := read(pods.Lister(), namespaces.Lister(), policies.Lister())
		if err != nil {
			return err
		}
		if table != applied {
			if err := apply(ctx, table); err != nil {
				return err
			}
			applied = table
		}
		time.Sleep(gather)
	}
}

// read makes the table of what the informers know.
func read(pods core.PodLister, namespaces core.NamespaceLister, policies networking.NetworkPolicyLister) (string, error) {
	world := World{Namespaces: map[string]labels.Set{}}
	var err error
	if world.Pods, err = pods.List(labels.Everything()); err != nil {
		return "", err
	}
	if world.Policies, err = policies.List(labels.Everything()); err != nil {
		return "", err
	}
	known, err := namespaces.List(labels.Everything())
	for _, namespace := range known {
		world.Namespaces[namespace.Name] = namespace.Labels
	}
	if err != nil {
		return "", err
	}
	return world.Table()
}

func notify(changed chan<- struct{}) cache.ResourceEventHandler {
	touch := func() {
		select {
		case changed <- struct{}{}:
		default: // one is waiting already
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { touch() },
		UpdateFunc: func(any, any) { touch() },
		DeleteFunc: func(any) { touch() },
	}
}

// apply replaces the table in one transaction: no packet passes between two of them.
func apply(ctx context.Context, table string) error {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(table)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s\n%s", err, out, table)
	}
	log.Printf("applied %d lines", strings.Count(table, "\n"))
	return nil
}
