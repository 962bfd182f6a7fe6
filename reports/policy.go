package reports

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// scriptHash is the source in a Content-Security-Policy that allows an inline script with that text, and no
// other: a page has names and values of another author, which must not run whatever becomes of their escaping.
func scriptHash(js string) string {
	sum := sha256.Sum256([]byte(js))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// allowScript puts a policy into a page of porcupine's, which has one script and none of its own: its data has
// no "<" that is not escaped.
func allowScript(page []byte) ([]byte, error) {
	const begin, end, head = "<script>", "</script>", "<head>"
	_, rest, _ := bytes.Cut(page, []byte(begin))
	script, rest, found := bytes.Cut(rest, []byte(end))
	if !found || bytes.Contains(rest, []byte("<script")) || !bytes.Contains(page, []byte(head)) {
		return nil, fmt.Errorf("want a page with one %s", begin)
	}
	policy := fmt.Sprintf(`%s
    <meta http-equiv="Content-Security-Policy" content="default-src 'none';style-src 'unsafe-inline';script-src %s">`, head, scriptHash(string(script)))
	return bytes.Replace(page, []byte(head), []byte(policy), 1), nil
}
