package traffic_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/traffic"
)

// said is what was understood of a stream, a line for each message.
func said(pieces []traffic.Chunk) string {
	var lines []string
	for _, p := range pieces {
		words := strings.Join(p.Words, " ")
		switch p.Kind {
		case traffic.Command:
			lines = append(lines, "command "+words)
		case traffic.Reply:
			lines = append(lines, strings.TrimRight("reply to "+words+": "+p.Error, ": "))
		case traffic.Published:
			lines = append(lines, "published "+words)
		default:
			lines = append(lines, fmt.Sprintf("nothing %q", p.Data))
		}
	}
	return strings.Join(lines, "\n")
}

// resp is a command in RESP.
func resp(words ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(w), w)
	}
	return b.String()
}

func TestWhatIsSaidAndToWhat(t *testing.T) {
	tests := []struct {
		name, up, down   string
		wantUp, wantDown string
	}{
		{
			"a pipeline", resp("SET", "a", "1") + resp("GET", "a"), "+OK\r\n$1\r\n1\r\n",
			"command SET a 1\ncommand GET a", "reply to SET a 1\nreply to GET a",
		},
		{
			"nested replies", resp("HGETALL", "h") + resp("PING"), "%2\r\n+a\r\n*2\r\n:1\r\n$-1\r\n+b\r\n~1\r\n,1.5\r\n+PONG\r\n",
			"command HGETALL h\ncommand PING", "reply to HGETALL h\nreply to PING",
		},
		{
			"an attribute belongs to what follows", resp("GET", "a") + resp("PING"), "|1\r\n+ttl\r\n:3\r\n$1\r\n1\r\n+PONG\r\n",
			"command GET a\ncommand PING", "reply to GET a\nreply to PING",
		},
		{
			"an error", resp("EVALSHA", "abc", "0"), "-NOSCRIPT No matching script.\r\n",
			"command EVALSHA abc 0", "reply to EVALSHA abc 0: NOSCRIPT No matching script.",
		},
		{"inline", "PING\r\nSET a 1\n\r\n", "+PONG\r\n+OK\r\n", "command PING\ncommand SET a 1\nnothing \"\\r\\n\"", "reply to PING\nreply to SET a 1"},
		{
			"a subscriber in RESP2", resp("SUBSCRIBE", "c", "d") + resp("PING"),
			resp("subscribe", "c") + resp("subscribe", "d") + resp("message", "c", "hello") + resp("pong", ""),
			"command SUBSCRIBE c d\ncommand PING",
			"reply to SUBSCRIBE c d\nnothing \"*2\\r\\n$9\\r\\nsubscribe\\r\\n$1\\r\\nd\\r\\n\"\npublished message c hello\nreply to PING",
		},
		{
			"a subscriber in RESP3", resp("HELLO", "3") + resp("SUBSCRIBE", "c") + resp("GET", "a"),
			"%1\r\n+proto\r\n:3\r\n>3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n>3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n_\r\n",
			"command HELLO 3\ncommand SUBSCRIBE c\ncommand GET a",
			"reply to HELLO 3\npublished message c hi\nreply to SUBSCRIBE c\nreply to GET a",
		},
		{
			"a subscription that is refused", resp("SUBSCRIBE", "c") + resp("PING"), "-NOPERM no\r\n+PONG\r\n",
			"command SUBSCRIBE c\ncommand PING", "reply to SUBSCRIBE c: NOPERM no\nreply to PING",
		},
		{
			"the end of a subscription", resp("SUBSCRIBE", "c") + resp("UNSUBSCRIBE", "c"), resp("subscribe", "c") + ">3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n",
			"command SUBSCRIBE c\ncommand UNSUBSCRIBE c", "reply to SUBSCRIBE c\nreply to UNSUBSCRIBE c",
		},
		{"a server that hangs up", "", "-ERR max number of clients reached\r\n", "", "reply to : ERR max number of clients reached"},
		{"replication", resp("PSYNC", "?", "-1") + "rest", "anything", "command PSYNC ? -1\nnothing \"rest\"", "nothing \"anything\""},
		{"something else", "\x16\x03\x01", "\x16\x03", "nothing \"\\x16\\x03\\x01\"", "nothing \"\\x16\\x03\""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var c traffic.Conversation
			require.Equal(t, tt.wantUp, said(c.Upstream([]byte(tt.up))))
			require.Equal(t, tt.wantDown, said(c.Downstream([]byte(tt.down))))

			// The same in small bites.
			var slow traffic.Conversation
			var up, down []traffic.Chunk
			for i := range len(tt.up) {
				up = append(up, slow.Upstream([]byte(tt.up[i:i+1]))...)
			}
			for i := range len(tt.down) {
				down = append(down, slow.Downstream([]byte(tt.down[i:i+1]))...)
			}
			if !strings.Contains(tt.wantUp+tt.wantDown, "nothing") { // which is passed on as it comes
				require.Equal(t, tt.wantUp, said(up))
				require.Equal(t, tt.wantDown, said(down))
			}
		})
	}
}

// Whatever is said, and however it comes in, every byte goes out again, in order.
func FuzzNothingGetsLost(f *testing.F) {
	f.Add([]byte(resp("SET", "a", "1")+"PING\r\n"), []byte("+OK\r\n$4\r\nPONG\r\n>1\r\n+x\r\n"), uint8(3))
	f.Add([]byte("*1000000000\r\n"), []byte("$-5\r\n*-1\r\n"), uint8(1))
	f.Add([]byte("\r\n\n"), []byte("%1\r\n|1\r\n"), uint8(2))
	f.Add([]byte("*3\r\n$3\r\nSET\r\n$1\r\na\r\r\n"), []byte("*1\r\n\r\n"), uint8(3))
	f.Fuzz(func(t *testing.T, up, down []byte, bite uint8) {
		var c traffic.Conversation
		for _, stream := range []struct {
			all  []byte
			read func([]byte) []traffic.Chunk
		}{{up, c.Upstream}, {down, c.Downstream}} {
			var out bytes.Buffer
			for bite := range slices.Chunk(stream.all, int(bite)+1) {
				for _, p := range stream.read(bite) {
					out.Write(p.Data)
				}
			}
			for _, p := range stream.read(nil) {
				out.Write(p.Data)
			}
			if !bytes.Equal(out.Bytes(), stream.all) {
				t.Fatalf("%q became %q", stream.all, out.Bytes())
			}
		}
	})
}
