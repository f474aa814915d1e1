// Command pause holds the namespaces of a Pod: it reaps children and ends on SIGTERM.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	got := make(chan os.Signal, 16)
	signal.Notify(got, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range got {
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
