//go:build !linux

package proxynet

import (
	"errors"
	"net/netip"
)

// socketInode and groupOf are for Linux, as processes as servers are.
func socketInode(netip.AddrPort, netip.AddrPort) (string, error) { return "", errors.ErrUnsupported }

func groupOf(int) int { return 0 }
