package topologies

import "time"

// A Toxic is an effect on the data of a link, by the words of toxiproxy's API: see
// https://github.com/Shopify/toxiproxy#toxics. Each fault that lasts on a link is one, but for a cut, which disables the proxy. A
// reset_peer is no Toxic: see [Proxy].Reset.
type Toxic struct {
	Type       string
	Attributes map[string]int64
}

// Latency delays data, give or take the jitter. Both are rounded to whole milliseconds.
func Latency(latency, jitter time.Duration) Toxic {
	return Toxic{"latency", map[string]int64{"latency": latency.Milliseconds(), "jitter": jitter.Milliseconds()}}
}

// Rate lets so many kilobytes a second pass, of 1000 bytes each.
func Rate(rate int) Toxic { return Toxic{"bandwidth", map[string]int64{"rate": int64(rate)}} }

// SlowClose passes the end of a stream on so much later, so that the other end of the connection learns late that it was closed.
func SlowClose(delay time.Duration) Toxic {
	return Toxic{"slow_close", map[string]int64{"delay": delay.Milliseconds()}}
}

// Hold stops the data and keeps it, as a partition with TCP's retransmission does: what was kept is delivered, in order, when
// it is mended. It is lockchaos' own toxic, which a toxiproxy server has if it is lockchaos-toxiproxy.
func Hold() Toxic { return Toxic{TypeHold, nil} }

// TypeHold is the type of [Hold].
const TypeHold = "hold"
