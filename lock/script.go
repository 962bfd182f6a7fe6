package lock

import (
	"embed"
	"strings"
	"sync"

	"github.com/lockchaos/lockchaos/lock/internal/transport"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// Scripts returns the source of every script that this package runs, by the name
// of its file without the suffix: "acquire", "fair_release". A server names them
// by the SHA-1 of that, in SLOWLOG and MONITOR for instance, and can be given
// them ahead of their first use with SCRIPT LOAD.
func Scripts() map[string]string {
	parts := map[string]string{ // the files of each, in the order in which they are sent
		"acquire": "free kind hash tickets acquire", "extend": "kind extend", "release": "kind sole hash tickets release",
		"acquire_one": "kind acquire_one", "release_one": "kind release_one",
		"force": "kind hash tickets force", "inspect": "kind inspect",
		"fair_acquire": "kind hash fair_queue fair_acquire", "fair_release": "kind hash fair_queue fair_release",
		"fair_force": "kind hash fair_queue fair_force", "fair_waiters": "fair_waiters",
	}
	for _, step := range []string{"acquire", "extend", "release", "force", "inspect"} {
		parts["rw_"+step] = "rw_state rw_" + step
	}
	for _, step := range []string{"acquire", "extend", "release", "give", "size", "delete", "inspect"} {
		parts["semaphore_"+step] = "semaphore semaphore_" + step
	}
	for _, step := range []string{"set", "down", "count", "delete"} {
		parts["latch_"+step] = "latch_" + step
	}
	sources := map[string]string{}
	for name, files := range parts {
		for file := range strings.FieldsSeq(files) {
			text, _ := scriptFiles.ReadFile("scripts/" + file + ".lua")
			sources[name] += string(text)
		}
	}
	return sources
}

// scripts are all of them by name. To join them and to compute their digests is most of what a
// first client costs.
var scripts = sync.OnceValue(func() map[string]transport.Script { //nolint:gochecknoglobals // it never changes
	all := map[string]transport.Script{}
	for name, source := range Scripts() {
		all[name] = transport.NewScript(source)
	}
	return all
})

// on is a call of the script of that name. There is at least one key.
func on(name string, keys []string, args ...any) transport.Call {
	return transport.Call{Script: scripts()[name], Keys: keys, Args: args}
}
