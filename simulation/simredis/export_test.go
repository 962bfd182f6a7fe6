package simredis

// AppendCommand encodes a request.
func AppendCommand(b []byte, args ...string) []byte {
	b = appendHead(b, '*', len(args))
	for _, a := range args {
		b = appendBulk(b, a)
	}
	return b
}

// ForgetScripts is SCRIPT FLUSH.
func (s *Server) ForgetScripts() { s.scripts = map[string]*program{} }

// Blocked tells whether the session waits, as in WAIT. It takes requests while it waits
// and runs them afterwards.
func (c *Session) Blocked() bool { return c.blocked != nil }
