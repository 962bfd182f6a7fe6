//go:build linux

package simredis_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockchaos/lockchaos/lock"
)

// sessions is how many there are in a random case.
const sessions = 3

// generator makes up steps.
type generator struct {
	*rand.Rand

	names   []string // of scripts
	scripts map[string]string
}

func newGenerator(seed uint64) *generator {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), scripts: lock.Scripts()}
	for n := range g.scripts {
		g.names = append(g.names, n)
	}
	slices.Sort(g.names)
	return g
}

func (g *generator) one(of ...string) string { return of[g.IntN(len(of))] }

func (g *generator) key() string { return g.one("{l}:a", "{l}:b", "{l}:c", "{l}:d") }

func (g *generator) text() string {
	return g.one("x", "y", "z", "", "10", "-3", "1.5", "5000", "a\x00\r\nb", strings.Repeat("long", 30), "9223372036854775807", "held r1 o1", "\xff")
}

func (g *generator) field() string { return g.one("x", "y", "z", "f", "10", "") }

func (g *generator) integer() string {
	if g.IntN(3) > 0 {
		return g.one("0", "1", "2", "3", "-1", "-2", "5", "10", "100")
	}
	return g.one("9223372036854775807", "-9223372036854775808", "9223372036854775808", "9223372036854775", "-9223372036854775",
		"01", "+1", " 1", "1 ", "", "1.5", "abc", "1e3", "-", "-0", "00", "2147483648", "0x10")
}

func (g *generator) small() string {
	if g.IntN(8) == 0 {
		return g.integer()
	}
	return g.one("0", "1", "2", "3", "5", "-1", "-2", "-3")
}

func (g *generator) float() string {
	if g.IntN(2) == 0 {
		return g.one("0", "1", "2", "3", "1.5", "-1", "2.5", "0.1")
	}
	return g.one("inf", "-inf", "+inf", "nan", "1e400", "1e-400", "0x10", "-0", "3.0e5", " 1", "1 ", "", "abc", "infinity", "1e3", "1e17", "1e20",
		"123456789012345678", ".5", "5.", "1e", "1_0", "-1e-5", "3.141592653589793", "0.30000000000000004", "1e308")
}

func (g *generator) bound() string {
	return g.one("", "(", "(", "(", "") + g.one(g.float(), g.float(), "-inf", "+inf", "1", "2", "(")
}

func (g *generator) millis() string {
	if g.IntN(4) > 0 {
		return g.one("100", "1000", "1500", "30000", "1")
	}
	return g.integer()
}

func (g *generator) absolute(unit int64) string {
	if g.IntN(4) == 0 {
		return g.integer()
	}
	return strconv.FormatInt(start/unit+int64(g.IntN(10000)-2000)*1_000_000/unit/10, 10)
}

// options takes some of several options, each of which is words.
func (g *generator) options(chance int, all ...[]string) []string {
	var out []string
	for _, i := range g.Perm(len(all)) {
		if g.IntN(chance) == 0 {
			out = append(out, all[i]...)
		}
	}
	return out
}

func words(w ...string) []string { return w }

func (g *generator) several(f func() string, most int) []string {
	out := make([]string, 1+g.IntN(most))
	for i := range out {
		out[i] = f()
	}
	return out
}

func (g *generator) pairs(a, b func() string, most int) []string {
	var out []string
	for range 1 + g.IntN(most) {
		out = append(out, a(), b())
	}
	return out
}

func join(lists ...[]string) []string { return slices.Concat(lists...) }

// command makes up a command on strings, keys or what there is in Redis.
func (g *generator) command() []string {
	k := g.key()
	expire := [][]string{{"EX", g.small()}, {"PX", g.millis()}, {"EXAT", g.absolute(1e6)}, {"PXAT", g.absolute(1e3)}}
	switch g.IntN(13) {
	case 0, 1:
		return g.stringCommand(k, expire)
	case 2, 3:
		return g.keyCommand(k)
	case 4, 5:
		return g.hashCommand(k)
	case 6, 7:
		return g.sortedSetCommand(k)
	case 8:
		return g.listCommand(k)
	case 9:
		return g.setCommand(k)
	case 10:
		return g.serverCommand()
	default:
		return g.script()
	}
}

func (g *generator) stringCommand(k string, expire [][]string) []string {
	switch g.IntN(16) {
	case 0, 1, 2, 3:
		return join(words("SET", k, g.text()), g.options(6, append(expire, words("NX"), words("XX"), words("GET"), words("KEEPTTL"))...))
	case 4:
		return words("GET", k)
	case 5:
		return words(g.one("SETNX", "GETSET"), k, g.text())
	case 6:
		return words(g.one("SETEX", "PSETEX"), k, g.millis(), g.text())
	case 7:
		return words(g.one("GETDEL", "STRLEN"), k)
	case 9:
		return join(words("MGET"), g.several(g.key, 3))
	case 10:
		return join(words(g.one("MSET", "MSETNX")), g.pairs(g.key, g.text, 3))
	case 11:
		return words("GETRANGE", k, g.small(), g.small())
	case 12, 13:
		return words(g.one("INCR", "DECR"), k)
	}
	return words(g.one("INCRBY", "DECRBY"), k, g.integer())
}

func (g *generator) keyCommand(k string) []string {
	switch g.IntN(12) {
	case 0:
		return join(words(g.one("DEL", "UNLINK", "EXISTS", "TOUCH")), g.several(g.key, 3))
	case 1:
		return words(g.one("TYPE", "PERSIST"), k)
	case 2, 3:
		return words(g.one("TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"), k)
	case 4, 5:
		return join(words("PEXPIRE", k, g.millis()), g.options(6, words("NX"), words("XX"), words("GT"), words("LT"), words("what")))
	case 6:
		return join(words("EXPIRE", k, g.small()), g.options(6, words("NX"), words("XX"), words("GT"), words("LT")))
	case 7:
		return join(words("PEXPIREAT", k, g.absolute(1e3)), g.options(6, words("NX"), words("XX"), words("GT"), words("LT")))
	case 8:
		return join(words("EXPIREAT", k, g.absolute(1e6)), g.options(6, words("nx"), words("xx"), words("gt"), words("lt")))
	case 9, 10:
		return words("KEYS", g.one("*", "{l}:?", "{l}:[a-b]", "{l}:[^a]", "nothing", "*a", "{l}:\\a", "{l}:[", ""))
	}
	return join(words(g.one("FLUSHALL", "FLUSHDB")), g.options(4, words("SYNC"), words("ASYNC"), words("x")))
}

func (g *generator) hashCommand(k string) []string {
	switch g.IntN(12) {
	case 0, 1, 2:
		return join(words(g.one("HSET", "HSET", "HMSET"), k), g.pairs(g.field, g.text, 3))
	case 3:
		return words("HSETNX", k, g.field(), g.text())
	case 4:
		return words(g.one("HGET", "HEXISTS"), k, g.field())
	case 5:
		return join(words("HMGET", k), g.several(g.field, 3))
	case 6, 7:
		return join(words("HDEL", k), g.several(g.field, 3))
	case 8:
		return words(g.one("HLEN", "HKEYS", "HVALS"), k)
	case 9:
		return words("HGETALL", k)
	}
	return words("HINCRBY", k, g.field(), g.integer())
}

func (g *generator) sortedSetCommand(k string) []string {
	switch g.IntN(14) {
	case 0, 1, 2, 3:
		return join(words("ZADD", k), g.options(6, words("NX"), words("XX"), words("GT"), words("LT"), words("CH"), words("INCR")), g.pairs(g.float, g.field, 3))
	case 4:
		return words("ZINCRBY", k, g.float(), g.field())
	case 5:
		return words(g.one("ZSCORE", "ZRANK", "ZREVRANK"), k, g.field())
	case 6:
		return join(words(g.one("ZREM", "ZMSCORE"), k), g.several(g.field, 3))
	case 7:
		return words(g.one("ZCOUNT", "ZREMRANGEBYSCORE"), k, g.bound(), g.bound())
	case 8:
		return words("ZREMRANGEBYRANK", k, g.small(), g.small())
	case 9:
		return join(words(g.one("ZPOPMIN", "ZPOPMAX"), k), g.options(2, words(g.small())))
	case 10:
		return join(words(g.one("ZRANGE", "ZREVRANGE"), k, g.small(), g.small()), g.options(6, words("WITHSCORES"), words("REV"), words("BYSCORE"), words("LIMIT", g.small(), g.small())))
	case 11:
		return join(words("ZRANGE", k, g.bound(), g.bound(), "BYSCORE"), g.options(3, words("WITHSCORES"), words("REV"), words("LIMIT", g.small(), g.small())))
	case 12:
		return join(words(g.one("ZRANGEBYSCORE", "ZREVRANGEBYSCORE"), k, g.bound(), g.bound()), g.options(3, words("WITHSCORES"), words("LIMIT", g.small(), g.small())))
	}
	return words("ZCARD", k)
}

func (g *generator) listCommand(k string) []string {
	switch g.IntN(10) {
	case 9:
		return join(words(g.one("BLPOP", "BRPOP")), g.several(g.key, 3), words(g.one("0", "0", "0", "x", "-1", "1e400")))
	case 0, 1, 2:
		return join(words(g.one("LPUSH", "RPUSH"), k), g.several(g.text, 3))
	case 3:
		return join(words(g.one("LPOP", "RPOP"), k), g.options(2, words(g.small())))
	case 4:
		return words(g.one("LRANGE", "LTRIM"), k, g.small(), g.small())
	case 5:
		return words("LINDEX", k, g.small())
	case 6, 7:
		return words("LREM", k, g.small(), g.text())
	}
	return words("LLEN", k)
}

func (g *generator) setCommand(k string) []string {
	switch g.IntN(4) {
	case 0, 1:
		return join(words(g.one("SADD", "SADD", "SREM"), k), g.several(g.field, 3))
	case 2:
		return words("SISMEMBER", k, g.field())
	}
	return words(g.one("SMEMBERS", "SCARD"), k)
}

func (g *generator) channel() string { return g.one("c", "d", "{l}:a") }

func (g *generator) serverCommand() []string {
	switch g.IntN(13) {
	case 0:
		return words(g.one("TIME", "DBSIZE", "RESET", "PING", "QUITE", "SCRIPT", "CLIENT", "READONLY"))
	case 1:
		return words(g.one("PING", "ECHO"), g.text())
	case 2, 3:
		return words(g.one("MULTI", "EXEC", "EXEC", "DISCARD", "UNWATCH"))
	case 4:
		return join(words("WATCH"), g.several(g.key, 2))
	case 5:
		return join(words(g.one("SUBSCRIBE", "UNSUBSCRIBE")), g.several(g.channel, 2))
	case 6, 7:
		return words("PUBLISH", g.channel(), g.text())
	case 8:
		return join(words("PUBSUB", g.one("NUMSUB", "NUMSUB", "nosuch")), g.options(2, words(g.channel())))
	case 9:
		return words("SELECT", g.one("0", "0", "16", "-1", "x", "99999999999"))
	case 10:
		return words("CLIENT", g.one("SETNAME", "GETNAME", "nosuch", "setname"), g.one("n", "a b", ""))
	}
	return words("SCRIPT", g.one("EXISTS", "LOAD", "FLUSH", "nosuch", "KILL"), g.one("SYNC", "return 1", "return x", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "}{"))
}

// later is how long a session takes to its next command.
func (g *generator) later() time.Duration {
	switch g.IntN(12) {
	case 0:
		return time.Millisecond
	case 1:
		return 100 * time.Millisecond
	case 2:
		return time.Duration(g.IntN(2000)) * time.Millisecond
	case 3:
		return time.Duration(g.IntN(5_000_000)) * time.Microsecond
	}
	return 0
}

// spoil changes the number of arguments, or the letters of the name. BLPOP keeps
// its timeout: the clocks of a real server's timeouts can't be compared.
func (g *generator) spoil(args []string) []string {
	if strings.HasPrefix(args[0], "B") {
		return args
	}
	switch i := g.IntN(len(args)); g.IntN(40) {
	case 0:
		if i > 0 {
			return slices.Delete(slices.Clone(args), i, i+1)
		}
	case 1:
		return slices.Insert(slices.Clone(args), i+1, g.text())
	case 2, 3, 4, 5:
		args[0] = strings.ToLower(args[0])
	case 6:
		args[0] = strings.ToTitle(args[0][:1]) + strings.ToLower(args[0][1:])
	case 7:
		args[0] += g.one("-", " ", "\r\n", strings.Repeat("y", 200))
	}
	return args
}

// steps makes up a case. At its end, everything that the servers hold is read.
func (g *generator) steps(n int) []step {
	all := make([]step, 0, n+30)
	for i := range sessions {
		if g.IntN(2) == 0 {
			all = append(all, step{session: i, args: words("HELLO", g.one("2", "3", "3"))}) // its reply has an ID, which is left out
		}
	}
	scriptsOnly := g.IntN(3) == 0
	for range n {
		next := g.command
		if scriptsOnly {
			next = g.script
		}
		args := next()
		all = append(all, step{g.IntN(sessions), g.later(), g.spoil(args)})
	}
	for _, args := range dump("{l}:a", "{l}:b", "{l}:c", "{l}:d") {
		all = append(all, step{session: 0, args: args})
	}
	return all
}

// dump are commands that read all that a server holds in those keys.
func dump(keys ...string) [][]string {
	all := [][]string{{"DBSIZE"}}
	for _, k := range keys {
		all = append(all,
			words("TYPE", k),
			words("PEXPIRETIME", k),
			words("GET", k),
			words("HGETALL", k),
			words("SMEMBERS", k),
			words("ZRANGE", k, "0", "-1", "WITHSCORES"),
			words("LRANGE", k, "0", "-1"),
		)
	}
	return all
}
