// CoreDNS with the plugins that a cluster on one machine needs; the stock program links three clouds' clients.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"

	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/ready"
)

func init() {
	// A query meets them in this order.
	dnsserver.Directives = []string{"bind", "health", "ready", "errors", "log", "cache", "kubernetes"}
}

func main() { coremain.Run() }
