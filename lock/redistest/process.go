package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A process is a running redis-server.
type process struct {
	dir    string
	socket string
	pid    int
	ended  chan struct{}
	signal func() // to end
}

// patience bounds how long a server may take to start.
const patience = time.Minute

// launch starts a server in a directory, which is its own.
func launch(dir string, args []string) (*process, error) {
	p := &process{dir: dir, socket: filepath.Join(dir, "s"), ended: make(chan struct{})}
	_ = os.Remove(p.socket) // of a server that was killed
	args = append([]string{
		"--port", "0", "--unixsocket", p.socket, "--dir", dir,
		"--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0",
	}, args...)
	started := make(chan error)
	go func() {
		defer close(p.ended)
		unlock := lockThread()
		defer unlock()
		cmd := exec.CommandContext(context.Background(), "redis-server", args...)
		dieWithParent(cmd)
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
			p.signal = func() { _ = cmd.Process.Kill() }
		}
		started <- err
		if err == nil {
			_ = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	if err := p.ready(); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

// ready waits until the server answers.
func (p *process) ready() error {
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		conn, err := (&net.Dialer{}).DialContext(context.Background(), "unix", p.socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-p.ended:
			return errors.New("redis-server ended")
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("redis-server is not there after %v: %w", patience, err)
		}
	}
}

// kill ends the process and waits until it is gone.
func (p *process) kill() {
	p.signal()
	<-p.ended
}
