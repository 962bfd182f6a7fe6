//go:build ignore

// A lock of SET NX PX and two scripts over a socket, on one server, for which Go is enough. In a module of its own, beside lockchaos.go:
//
//	go mod init driver && go build -o driver lockchaos.go set_nx.go
//	lockchaos run --lock exec:./driver
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

const (
	releases = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('DEL',KEYS[1]) end return 0"
	extends  = "if redis.call('GET',KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE',KEYS[1],ARGV[2]) end return 0"
)

func main() {
	serve("set-nx", fields{"extend": true, "release_tells": true}, func(servers []string, timeout time.Duration) asker {
		// Each request has a connection of its own, so that no late reply is taken for that of another one.
		ask := func(want, command string, words ...any) error {
			conn, err := net.DialTimeout("tcp", servers[0], timeout)
			if err != nil {
				return err
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(timeout))
			_, _ = fmt.Fprintf(conn, command+"\r\n", words...) // else the reply is an error
			switch reply, err := bufio.NewReader(conn).ReadString('\n'); {
			case err != nil:
				return err
			case strings.HasPrefix(reply, "-"):
				return errors.New(reply)
			case strings.TrimSpace(reply) != want:
				return errNo
			}
			return nil
		}
		return func(_ context.Context, _, name string, lease time.Duration) (grant, error) {
			token := rand.Text()
			return grant{
				release: func(context.Context) error { return ask(":1", "EVAL %q 1 %q %q", releases, name, token) },
				extend: func(_ context.Context, lease time.Duration) error {
					return ask(":1", "EVAL %q 1 %q %q %d", extends, name, token, lease.Milliseconds())
				},
			}, ask("+OK", "SET %q %q NX PX %d", name, token, lease.Milliseconds())
		}
	})
}
