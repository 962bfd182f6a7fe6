package locktests

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// fake is a Redis server in a bubble of virtual time: it knows the scripts by
// their digests, and answers as it is told.
type fake struct {
	names map[string]string // of the scripts, by digest

	mu     sync.Mutex
	began  time.Time
	calls  []string // "extend at 10s"
	answer func(script string) string
}

const (
	granted  = "*2\r\n:1\r\n:1\r\n"
	yes      = ":1\r\n"
	no       = ":0\r\n"
	readOnly = "-READONLY You can't write against a read only replica.\r\n"
)

// allGood grants, extends and releases.
func allGood(script string) string {
	if script == "acquire" {
		return granted
	}
	return yes
}

// withFakes runs a test with servers in a bubble of virtual time, and a client of each.
func withFakes(t *testing.T, n int, run func(t *testing.T, f []*fake, clients []redis.UniversalClient)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var fakes []*fake
		var clients []redis.UniversalClient
		for i := range n {
			f := &fake{names: map[string]string{}, began: time.Now(), answer: allGood}
			for _, name := range []string{"acquire", "extend", "release"} {
				f.names[digest(t, name)] = name
			}
			fakes = append(fakes, f)
			clients = append(clients, redis.NewClient(&redis.Options{
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
				Addr:                     fmt.Sprintf("fake:%d", i), MaxRetries: -1, DisableIdentity: true, Protocol: 2,
				ReadTimeout: time.Hour, // so that nothing but the lock's client gives up
				Dialer: func(context.Context, string, string) (net.Conn, error) {
					client, server := net.Pipe()
					go f.serve(server)
					return client, nil
				},
			}))
		}
		defer func() { // also when the test fails: a bubble that is left panics, and ends all tests
			for _, rdb := range clients {
				_ = rdb.Close()
			}
			time.Sleep(24 * time.Hour) // until everything that sleeps has seen it
		}()
		run(t, fakes, clients)
	})
}

// answers sets how a script is answered from now on.
func (f *fake) answers(answer func(script string) string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// log lists the calls of a script since the server started.
func (f *fake) log(script string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var at []string
	for _, c := range f.calls {
		if name, when, _ := strings.Cut(c, " at "); name == script {
			at = append(at, when)
		}
	}
	return at
}

func (f *fake) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	replies := make(chan string, 1000) // a pipe has no buffer, and a pipeline is written in one go
	defer close(replies)
	go func() {
		for reply := range replies {
			_, _ = io.WriteString(conn, reply)
		}
	}()
	r := bufio.NewReader(conn)
	for {
		args, err := readCommand(r)
		if err != nil {
			return
		}
		reply := "-ERR unknown command\r\n"
		if name := ""; strings.EqualFold(args[0], "evalsha") {
			f.mu.Lock()
			name = f.names[args[1]]
			f.calls = append(f.calls, fmt.Sprintf("%s at %v", name, time.Since(f.began)))
			answer := f.answer
			f.mu.Unlock()
			reply = answer(name)
		}
		replies <- reply
	}
}

func readCommand(r *bufio.Reader) ([]string, error) {
	n, err := readLength(r)
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := readLength(r)
		if err != nil {
			return nil, err
		}
		b := make([]byte, size+2)
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, err
		}
		args[i] = string(b[:size])
	}
	return args, nil
}

func readLength(r *bufio.Reader) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
