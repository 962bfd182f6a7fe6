package driver

// LastWords is what is told of a log, however it is cut into writes.
func LastWords(log string) string {
	var l limitedLog
	for _, b := range []byte(log) {
		_, _ = l.Write([]byte{b})
	}
	return l.lastWords()
}
