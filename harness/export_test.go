package harness

// Group is the process group of a client that is a process of its own.
func (c *Client) Group() int { return c.process.Group() }
