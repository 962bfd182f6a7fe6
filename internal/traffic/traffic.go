// Package traffic reads what a client and a Redis server say to each other on
// one connection, message by message, so that faults can be aimed at one of
// them: at a command, at its reply, at a message of a subscription.
//
// It speaks RESP2 and RESP3, https://redis.io/docs/latest/develop/reference/protocol-spec/,
// and knows just enough of Redis' commands to tell which reply is whose.
package traffic

import (
	"bytes"
	"strings"
)

// A Kind says what a message is.
type Kind int

// The kinds of message.
const (
	Command   Kind = iota + 1 // from the client
	Reply                     // to one command
	Published                 // to a subscriber; no command asked for it
)

// A Message is one of a conversation.
type Message struct {
	Kind Kind
	// Words are a command's name and arguments; of a reply, those of the command
	// that it answers, nil if that is not known; of a published message, its
	// kind, channel and text.
	Words []string
	// Error is what a reply says that is an error: "NOSCRIPT No matching script".
	Error string
}

// An Action is what becomes of a message. The zero Action lets it pass.
type Action struct {
	// Lost takes it out of its stream.
	Lost bool
	// Ends says what becomes of its connection then.
	Ends End
	// Until keeps it, and all that follows it in its stream, until it is closed.
	// Nil: it is not kept.
	Until <-chan struct{}
	// Passed is told once, of a message that was kept: true when it was passed
	// on, false when it can't be any more, because its connection ended. It has
	// room for that. Nil: it is not called.
	Passed chan<- bool
}

// An End is what becomes of a connection.
type End int

// The ends of a connection.
const (
	GoesOn     End = iota
	Resets         // both of its ends see a reset
	GoesSilent     // nothing more passes in the stream of the message, and no party is notified
)

// A Chunk is a part of a stream: a message, or bytes that are none, of which the
// Message has no Kind.
type Chunk struct {
	Message

	Data []byte
}

// longest is the longest message that is read. A connection with a longer one is
// read no further.
const longest = 16 << 20

// A Conversation reads both streams of one connection. Its zero value is one
// that begins. It is not safe for concurrent use.
type Conversation struct {
	up, down   []byte // the beginning of a message whose end has not come
	deaf       bool   // it is no conversation in RESP, or none that we follow
	asked      [][]string
	subscribed bool
}

// Upstream reads on in what the client says; nil: it says no more, and what was kept back
// because its message was not complete is passed on.
func (c *Conversation) Upstream(b []byte) []Chunk { return c.read(&c.up, b, c.command) }

// Downstream reads on so in what the server says.
func (c *Conversation) Downstream(b []byte) []Chunk { return c.read(&c.down, b, c.answer) }

// read cuts complete messages off a stream.
func (c *Conversation) read(kept *[]byte, b []byte, message func([]byte, value) Message) []Chunk {
	ended := b == nil
	b = append(*kept, b...)
	*kept = nil
	var pieces []Chunk
	for len(b) > 0 && !c.deaf && !ended {
		v, ok := parse(b)
		switch n := v.length; {
		case !ok || len(b) > longest:
			c.deaf = true
		case n == 0:
			*kept = b
			return pieces
		default:
			pieces = append(pieces, Chunk{message(b[:n], v), b[:n:n]})
			b = b[n:]
		}
	}
	if len(b) > 0 {
		pieces = append(pieces, Chunk{Data: b})
	}
	return pieces
}

// command notes what the client asks for.
func (c *Conversation) command(b []byte, v value) Message {
	words := v.all()
	if b[0] != '*' {
		words = strings.Fields(string(b)) // inline
	}
	if len(words) == 0 {
		return Message{}
	}
	switch strings.ToUpper(words[0]) {
	case "SYNC", "PSYNC", "MONITOR":
		c.deaf = true // what follows are no replies
	case "CLIENT":
		if len(words) > 1 && strings.EqualFold(words[1], "REPLY") {
			c.deaf = true
		}
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		c.subscribed = true
	default:
	}
	c.asked = append(c.asked, words)
	return Message{Kind: Command, Words: words}
}

// answer finds out what the server says, and to what.
func (c *Conversation) answer(b []byte, v value) Message {
	if b[0] == '\r' || b[0] == '\n' {
		return Message{}
	}
	if b[0] == '>' || b[0] == '*' && c.subscribed {
		words := append(v.all(), "")
		switch kind := words[0]; {
		case strings.HasSuffix(kind, "subscribe"): // or its end
			// A command to subscribe has a confirmation for each channel and no
			// other reply. The first one counts as that.
			if len(c.asked) > 0 && strings.EqualFold(c.asked[0][0], kind) {
				return Message{Kind: Reply, Words: c.next()}
			}
			return Message{}
		case b[0] == '>' || strings.HasSuffix(kind, "message"):
			return Message{Kind: Published, Words: words[:len(words)-1]}
		}
	}
	m := Message{Kind: Reply, Words: c.next()}
	if b[0] == '-' {
		m.Error = string(bytes.TrimRight(b[1:], "\r\n"))
	}
	return m
}

// next is the oldest command without an answer.
func (c *Conversation) next() (words []string) {
	if len(c.asked) > 0 {
		words, c.asked = c.asked[0], c.asked[1:]
	}
	return words
}
