//go:build linux

package proxynet_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/internal/spawn"
)

// dialTo has this test binary dial the address and echo one line; dialAs says how.
const (
	dialTo = "LOCKCHAOS_TEST_DIAL"
	dialAs = "LOCKCHAOS_TEST_DIAL_AS"
)

// dialler dials as a client does that can't bind an address, when it is told to.
func dialler(at string) int {
	switch os.Getenv(dialAs) {
	case "grandchild": // as a shell does, or a JVM's helper
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), dialAs+"=itself")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		c.Stdin, c.Stdout = os.Stdin, os.Stdout
		if c.Run() != nil {
			return 1
		}
		return 0
	case "six": // as a JVM does
		host, port, _ := strings.Cut(at, ":")
		at = "[::ffff:" + host + "]:" + port
	default:
	}
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		return 1
	}
	c, err := net.Dial("tcp", at)
	if err != nil {
		fmt.Fprintln(os.Stdout, "reset")
		return 0
	}
	defer c.Close()
	_, _ = fmt.Fprintln(c, "hello")
	back := bufio.NewScanner(c)
	if !back.Scan() {
		fmt.Fprintln(os.Stdout, "reset")
		return 0
	}
	fmt.Fprintln(os.Stdout, back.Text())
	return 0
}

// A process group that was adopted is told from others wherever it dials from,
// and so are the processes that it started.
func TestFabric_Adopt(t *testing.T) {
	f, w, virtual := pair(t)
	ask := func(as string, adopt bool) string {
		c := exec.CommandContext(t.Context(), os.Args[0])
		c.Env = append(os.Environ(), dialTo+"="+virtual.String(), dialAs+"="+as)
		in, err := c.StdinPipe()
		require.NoError(t, err)
		var out strings.Builder
		c.Stdout = &out
		require.NoError(t, spawn.Start(c))
		if adopt {
			defer f.Adopt(c.Process.Pid, "caller")()
		}
		_, err = fmt.Fprintln(in, "go")
		require.NoError(t, err)
		require.NoError(t, c.Wait())
		return strings.TrimSpace(out.String())
	}
	for _, as := range []string{"itself", "grandchild", "six"} {
		require.Equal(t, "hello", ask(as, true), as)
		require.Equal(t, "reset", ask(as, false), as)
	}
	mend := w.Cut()
	require.NotEqual(t, "hello", ask("itself", true), "it passes the links of its endpoint")
	mend()
	require.Equal(t, "hello", ask("itself", true))
}
