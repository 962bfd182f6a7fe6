package process

import (
	"net"
	"net/netip"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// masterName is how the sentinels call what they watch.
const masterName = "mymaster"

// observerTimeout bounds how long a look at a server may take; a paused one
// does not answer.
const observerTimeout = 200 * time.Millisecond

// dialsBeforePause is the size of the connection pools. It is no number of
// connections: go-redis stops dialling for a second once as many dials have
// failed, and a server that comes back must be seen at once.
const dialsBeforePause = 4096

// observerOptions are those of a connection past every fault.
func observerOptions(at netip.AddrPort) *redis.Options {
	return &redis.Options{
		Addr:                     at.String(),
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              observerTimeout,
		ReadTimeout:              observerTimeout,
		WriteTimeout:             observerTimeout,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		PoolSize:                 dialsBeforePause,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// clientTimeout is how long a client waits for a reply. It is short, so that
// a client behind a cut link finds out within the run.
const clientTimeout = time.Second

// clientOptions are those of a service's client: they answer for what was
// asked once, because a retry that the caller does not see makes the outcome
// of a request unknowable.
func clientOptions(from netip.Addr, servers []string, sentinels bool) *redis.UniversalOptions {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}, Timeout: clientTimeout}
	o := &redis.UniversalOptions{
		Addrs:                    servers,
		Dialer:                   dialer.DialContext,
		MaxRetries:               -1,
		DialerRetries:            1,
		DialTimeout:              clientTimeout,
		ReadTimeout:              clientTimeout,
		WriteTimeout:             clientTimeout,
		ContextTimeoutEnabled:    true,
		DisableIdentity:          true,
		PoolSize:                 dialsBeforePause,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if sentinels {
		o.MasterName = masterName
	}
	return o
}
