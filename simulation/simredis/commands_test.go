//go:build linux

package simredis_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// The table of commands says the same of each command as a real server: how many
// arguments it has, where its keys are, whether it writes, and whether scripts
// may use it.
func TestCommandsAreThoseOfRedis(t *testing.T) {
	c := startReal(t).dial(t)
	mine := simredis.New(alone(func() int64 { return start }))
	list := mine.Do("COMMAND").([]any)
	require.Greater(t, len(list), 80)
	for _, e := range list {
		entry := e.([]any)
		name := entry[0].(string)
		words := strings.Split(c.do(t, "COMMAND", "INFO", name), "\r\n")
		require.Greater(t, len(words), 5, name)
		assert.Equal(t, fmt.Sprint(":", entry[1]), words[4], "arity of %s", name)
		var n int
		_, err := fmt.Sscanf(words[5], "*%d", &n)
		require.NoError(t, err)
		theirs := words[6 : 6+n]
		for _, flag := range []string{"write", "readonly", "noscript", "movablekeys"} {
			has := false
			for _, f := range entry[2].(simredis.Set) {
				has = has || f == simredis.Status(flag)
			}
			assert.Equal(t, has, strings.Contains(strings.Join(theirs, " ")+" ", "+"+flag+" "), "%s of %s", flag, name)
		}
		for i, at := range []int{3, 4, 5} {
			if strings.HasPrefix(name, "eval") {
				continue // they say so by movablekeys
			}
			assert.Equal(t, fmt.Sprint(":", entry[at]), words[6+n+i], "key position %d of %s", i, name)
		}
	}
}
