// CoreDNS as the test cluster needs it: names of Services, a cache, errors. Its own main package links every plugin
// there is, among them the SDKs of three clouds, which would double the time to build.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
)

func main() { coremain.Run() }
