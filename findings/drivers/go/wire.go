//go:build ignore

// The driver protocol, for the locks beside this file: each request is answered by a goroutine of its own. It needs nothing of
// lockchaos, so that the module has the versions that are under test.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"time"
)

// errNo is a definite answer: not granted, not held. Any other error is an unknown outcome.
var errNo = errors.New("the library says no")

// A grant is what a library granted.
type grant struct {
	release func(ctx context.Context) error
	extend  func(ctx context.Context, lease time.Duration) error
}

type question struct {
	ID      int64  `json:"id"`
	Op      string `json:"op"`
	Client  string `json:"client"`
	Lock    string `json:"lock"`
	Hold    string `json:"hold"`
	Lease   int64  `json:"lease_ms"`
	Timeout int64  `json:"timeout_ms"`
	Servers []struct {
		Addr string `json:"addr"`
	} `json:"servers"`
}

type fields map[string]any

type clientKey struct{}

// clientOf is the name of the client that asks.
func clientOf(ctx context.Context) string { return ctx.Value(clientKey{}).(string) }

// serve answers until the run is over. open is given the addresses of the servers and the time that clients wait for one; what it
// returns asks for a lock once.
func serve(name string, promises fields, open func(servers []string, timeout time.Duration) func(ctx context.Context, lock string, lease time.Duration) (grant, error)) {
	conn, err := net.Dial("unix", os.Getenv("LOCKCHAOS_SOCKET"))
	if err != nil {
		log.Fatal(err)
	}
	var mu sync.Mutex // of the connection and the holds
	holds := map[string]grant{}
	say := func(q question, f fields) {
		f["re"] = q.ID
		line, _ := json.Marshal(f)
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(conn, "%s\n", line)
	}
	var ask func(ctx context.Context, lock string, lease time.Duration) (grant, error)
	answer := func(q question) {
		ctx, cancel := context.WithTimeout(context.WithValue(context.Background(), clientKey{}, q.Client), 5*time.Second)
		defer cancel()
		lease, err := time.Duration(q.Lease)*time.Millisecond, error(nil)
		f := fields{"result": "ok"}
		mu.Lock()
		g := holds[q.Hold]
		mu.Unlock()
		switch q.Op {
		case "acquire":
			if g, err = ask(ctx, q.Lock, lease); err == nil {
				f["hold"] = fmt.Sprint("h", q.ID)
				mu.Lock()
				holds[fmt.Sprint("h", q.ID)] = g
				mu.Unlock()
			}
		case "release":
			err = g.release(ctx)
		case "extend":
			if g.extend == nil {
				say(q, fields{"result": "unsupported"})
				return
			}
			err = g.extend(ctx, lease)
		}
		if errors.Is(err, errNo) {
			f = fields{"result": "fail", "why": err.Error()}
		} else if err != nil {
			f = fields{"result": "info", "why": err.Error()}
		}
		say(q, f)
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			log.Fatal(err)
		}
		if q.Op != "hello" {
			go answer(q)
			continue
		}
		if len(q.Servers) > 0 {
			var at []string
			for _, s := range q.Servers {
				at = append(at, s.Addr)
			}
			ask = open(at, time.Duration(q.Timeout)*time.Millisecond)
		}
		say(q, fields{"protocol": 1, "name": name, "language": "go", "parallel": 32, "keys": []string{"{name}"}, "promises": promises})
	}
}
