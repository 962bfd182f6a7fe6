//go:build !linux

package proxynet

import (
	"errors"
	"net/netip"
)

// askKernel is for Linux, as processes as servers are.
func askKernel(netip.AddrPort, netip.AddrPort) (string, error) { return "", errors.ErrUnsupported }
