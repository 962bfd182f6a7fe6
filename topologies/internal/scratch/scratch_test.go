//go:build linux

package scratch_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/lockchaos/lockchaos/internal/await"
	"github.com/lockchaos/lockchaos/internal/spawn"
	"github.com/lockchaos/lockchaos/topologies/internal/scratch"
)

// The test binary is also a program that makes a folder and is killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "holder" {
		hold()
		return
	}
	goleak.VerifyTestMain(m)
}

// hold makes a folder with a process in it, tells of it, and waits for its end.
func hold() {
	f, err := scratch.Make("test")
	if err != nil {
		fmt.Println(err) //nolint:forbidigo // to the test
		return
	}
	work := filepath.Join(f.Path, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		fmt.Println(err) //nolint:forbidigo // to the test
		return
	}
	cmd := exec.Command("sleep", "600")
	cmd.Dir = work
	if err := spawn.Start(cmd); err != nil {
		fmt.Println(err) //nolint:forbidigo // to the test
		return
	}
	fmt.Println(f.Path, cmd.Process.Pid) //nolint:forbidigo // to the test
	select {}
}

// holder starts such a program, and returns its folder and the process in it.
func holder(t *testing.T) (p *os.Process, path string, inside int) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "holder")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	path, pid, ok := strings.Cut(strings.TrimSpace(line), " ")
	require.True(t, ok, line)
	inside, err = strconv.Atoi(pid)
	require.NoError(t, err)
	return cmd.Process, path, inside
}

// gone waits until there is no folder and no process in it.
func gone(t *testing.T, path string, inside int) {
	t.Helper()
	require.Eventually(t, func() bool {
		_, err := os.Stat(path)
		cwd, _ := os.Readlink(fmt.Sprintf("/proc/%d/cwd", inside)) // none of one that is gone
		return os.IsNotExist(err) && !strings.HasPrefix(cwd, path)
	}, time.Minute, time.Millisecond)
}

func TestAFolderGoesWhenItIsClosed(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	f, err := scratch.Make("test")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(f.Path, "file"), nil, 0o600))
	require.NoError(t, f.Close())
	require.NoDirExists(t, f.Path)
}

func TestMakeFast_heedsTMPDIR(t *testing.T) {
	parent := t.TempDir()
	t.Setenv("TMPDIR", parent)
	f, err := scratch.MakeFast("test")
	require.NoError(t, err)
	require.Equal(t, parent, filepath.Dir(f.Path))
	require.NoError(t, f.Close())
	t.Setenv("TMPDIR", "")
	f, err = scratch.MakeFast("test")
	require.NoError(t, err)
	if _, err := os.Stat("/dev/shm"); err == nil {
		require.Equal(t, "/dev/shm", filepath.Dir(f.Path))
	}
	require.NoError(t, f.Close())
	require.NoDirExists(t, f.Path)
}

func TestAFolderGoesWithTheProcessThatMadeIt(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	p, path, inside := holder(t)
	require.DirExists(t, path)
	require.NoError(t, p.Kill())
	gone(t, path, inside)
}

// Each sweeps before it makes its own, and takes nobody else's.
func TestManyFoldersAreMadeAtOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 25 {
				f, err := scratch.Make("test")
				if !assert.NoError(t, err) {
					return
				}
				assert.DirExists(t, f.Path)
				assert.NoError(t, f.Close())
			}
		})
	}
	all.Wait()
}

// Where the reaper is killed as well, the next folder's maker tidies up, and
// touches none that is in use.
func TestTheNextOneRemovesWhatAKilledReaperLeft(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	p, path, _ := holder(t)
	_, living, other := holder(t)
	reaper := reaperOf(t, path)
	require.NoError(t, syscall.Kill(reaper, syscall.SIGKILL))
	require.NoError(t, p.Kill())
	require.Eventually(t, func() bool {
		f, err := scratch.Make("test")
		require.NoError(t, err)
		require.NoError(t, f.Close())
		_, err = os.Stat(path)
		return os.IsNotExist(err)
	}, time.Minute, time.Millisecond)
	require.DirExists(t, living)
	require.NoError(t, syscall.Kill(other, 0), "and works on")
}

// reaperOf finds the process that watches over a folder.
func reaperOf(t *testing.T, path string) int {
	t.Helper()
	found := 0
	require.NoError(t, await.Until(t.Context(), func() error {
		lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, line := range lines {
			args, err := os.ReadFile(line)
			if err == nil && strings.HasSuffix(string(args), "lockchaos-reaper\x00"+path+"\x00") {
				found, err = strconv.Atoi(filepath.Base(filepath.Dir(line)))
				return err
			}
		}
		return fmt.Errorf("nobody watches over %s", path)
	}))
	return found
}
