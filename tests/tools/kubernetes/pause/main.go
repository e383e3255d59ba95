// pause holds a pid namespace: a pod's sandbox, and the node itself. It reaps orphans and leaves on SIGINT or SIGTERM.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// More than one SIGCHLD may arrive while orphans are reaped.
	received := make(chan os.Signal, 16)
	signal.Notify(received, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range received {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
