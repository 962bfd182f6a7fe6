package driver

// Group is the process group of the driver, whose leader it is.
func (d *Driver) Group() int { return d.group }

// LastWords is what is told of a log, however it is cut into writes.
func LastWords(log string) string {
	var l limitedLog
	for _, b := range []byte(log) {
		_, _ = l.Write([]byte{b})
	}
	return l.lastWords()
}
