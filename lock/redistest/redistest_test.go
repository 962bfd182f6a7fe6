package redistest_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/lockchaos/lockchaos/lock/internal/require"
	"github.com/lockchaos/lockchaos/lock/redistest"
)

// A server ends with its test, and with the process, however that ends.
func TestServersEnd(t *testing.T) {
	const how = "LOCKCHAOS_TEST_ENDS"
	if way := os.Getenv(how); way != "" {
		fmt.Fprintln(os.Stdout, redistest.Start(t).Client(t, nil).Options().Addr)
		if way == "panic" {
			go panic("as it was told")
		}
		select {}
	}
	var s *redistest.Server
	t.Run("with a test", func(t *testing.T) {
		s = redistest.Start(t)
		require.NoError(t, s.Client(t, nil).Set(t.Context(), "a", 1, 0).Err())
	})
	_, err := s.Dial(t.Context())
	require.Error(t, err)

	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends a process with its parent")
	}
	for _, way := range []string{"panic", "kill"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestServersEnd$")
		cmd.Env = append(os.Environ(), how+"="+way)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		socket, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		socket = strings.TrimSpace(socket)
		if way == "kill" {
			require.NoError(t, cmd.Process.Kill())
		}
		require.Error(t, cmd.Wait())
		redistest.Await(t, "the server to be gone", func() bool {
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "unix", socket)
			if err == nil {
				_ = conn.Close()
			}
			return err != nil
		})
		require.NoError(t, os.RemoveAll(filepath.Dir(socket)))
	}
}
