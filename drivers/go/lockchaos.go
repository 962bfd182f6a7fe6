//go:build ignore

// The driver protocol for a lock in Go whose module must not have the versions that lockchaos needs: copy this file beside it, where
// package driver would lift them. Each request is answered by a goroutine of its own.
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

// A grant is what a library granted. extend is nil where it has none, and until where it does not say how long the grant lasts.
type grant struct {
	release func(ctx context.Context) error
	extend  func(ctx context.Context, lease time.Duration) error
	until   func() time.Time
}

// A request is what lockchaos asks.
type request struct {
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

// An asker asks for a lock once, for a client.
type asker func(ctx context.Context, client, lock string, lease time.Duration) (grant, error)

// serve answers until the run is over. open is given the addresses of the servers and the time that clients wait for one. Where a
// client gives a request up, which it may be told of that promises cancel, the context ends.
func serve(name string, promises fields, open func(servers []string, timeout time.Duration) asker) {
	conn, err := net.Dial("unix", os.Getenv("LOCKCHAOS_SOCKET"))
	if err != nil {
		log.Fatal(err)
	}
	var mu sync.Mutex // of the connection and the maps
	holds, cancels := map[string]grant{}, map[int64]context.CancelFunc{}
	say := func(q request, f fields) {
		f["re"] = q.ID
		line, _ := json.Marshal(f)
		mu.Lock()
		defer mu.Unlock()
		delete(cancels, q.ID)
		fmt.Fprintf(conn, "%s\n", line)
	}
	var ask asker
	answer := func(ctx context.Context, q request, g grant) {
		f, err, sent := fields{"result": "ok"}, error(nil), time.Now()
		lease := time.Duration(q.Lease) * time.Millisecond
		switch {
		case q.Op == "ping":
		case q.Op == "acquire":
			if g, err = ask(ctx, q.Client, q.Lock, lease); err == nil {
				hold := fmt.Sprint("h", q.ID)
				f["hold"] = hold
				mu.Lock()
				holds[hold] = g
				mu.Unlock()
			}
		case q.Op == "release":
			err = g.release(ctx)
		case q.Op == "extend" && g.extend != nil:
			err = g.extend(ctx, lease)
		default:
			f["result"] = "unsupported"
		}
		if err == nil && g.until != nil && q.Op != "release" {
			f["valid_ms"] = max(0, g.until().Sub(sent).Milliseconds())
		}
		if errors.Is(err, errNo) {
			f = fields{"result": "fail", "why": err.Error()}
		} else if err != nil {
			f = fields{"result": "info", "why": err.Error()}
		}
		say(q, f)
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var q request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			log.Fatal(err)
		}
		switch q.Op {
		case "hello":
			if len(q.Servers) > 0 {
				var at []string
				for _, s := range q.Servers {
					at = append(at, s.Addr)
				}
				ask = open(at, time.Duration(q.Timeout)*time.Millisecond)
			}
			say(q, fields{"protocol": 2, "name": name, "language": "go", "parallel": 32, "keys": []string{"{name}"}, "promises": promises})
		case "cancel":
			mu.Lock()
			if end := cancels[q.ID]; end != nil {
				end()
			}
			mu.Unlock()
		default:
			ctx, end := context.WithTimeout(context.Background(), 5*time.Second)
			mu.Lock()
			cancels[q.ID] = end
			g := holds[q.Hold]
			mu.Unlock()
			go func() {
				defer end()
				answer(ctx, q, g)
			}()
		}
	}
}
