package proxynet

// UnknownPeers is how many connections were refused because no link allows them.
func (f *Network) UnknownPeers() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unknownPeers
}
