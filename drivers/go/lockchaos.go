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
	"net"
	"os"
	"runtime/debug"
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

type request struct {
	ID                     int64
	Op, Client, Lock, Hold string
	Lease                  int64 `json:"lease_ms"`
	Timeout                int64 `json:"timeout_ms"`
	Servers                []struct{ Addr string }
}

type fields map[string]any

// An asker asks for a lock once, for a client.
type asker func(ctx context.Context, client, lock string, lease time.Duration) (grant, error)

// version is that of the library with which this program was built; empty where its module is none of those.
func version(module string) string {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == module && m.Replace != nil {
			return m.Version + " => " + m.Replace.Path + " " + m.Replace.Version
		} else if m.Path == module {
			return m.Version
		}
	}
	return ""
}

// serve answers until the run is over. The name of a library is the path of its module. open is given the addresses of the servers and
// the time that clients wait for one.
func serve(name string, promises fields, open func(servers []string, timeout time.Duration) asker) {
	conn, err := net.Dial("unix", os.Getenv("LOCKCHAOS_SOCKET"))
	if err != nil {
		panic(err)
	}
	var ask asker
	var holds sync.Map
	answers := make(chan fields)
	go func() {
		for out := json.NewEncoder(conn); ; {
			_ = out.Encode(<-answers) // else the run is over
		}
	}()
	answer := func(q request) {
		f, err, sent := fields{"re": q.ID, "result": "ok"}, error(nil), time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		g := grant{}
		if held, is := holds.Load(q.Hold); is {
			g = held.(grant)
		}
		switch lease := time.Duration(q.Lease) * time.Millisecond; {
		case q.Op == "ping":
		case q.Op == "acquire":
			if g, err = ask(ctx, q.Client, q.Lock, lease); err == nil {
				f["hold"] = fmt.Sprint("h", q.ID)
				holds.Store(f["hold"], g)
			}
		case q.Op == "release":
			err = g.release(ctx)
		case q.Op == "extend" && g.extend != nil:
			err = g.extend(ctx, lease)
		default:
			f["result"] = "unsupported"
		}
		switch {
		case errors.Is(err, errNo):
			f = fields{"re": q.ID, "result": "fail", "why": err.Error()}
		case err != nil:
			f = fields{"re": q.ID, "result": "info", "why": err.Error()}
		case g.until != nil && q.Op != "release":
			f["valid_ms"] = max(0, g.until().Sub(sent).Milliseconds())
		}
		answers <- f
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var q request
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			panic(err)
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
		answers <- fields{"re": q.ID, "protocol": 2, "name": name, "version": version(name), "language": "go", "parallel": 32, "keys": []string{"{name}"}, "promises": promises}
	}
}
