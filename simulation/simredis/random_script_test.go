//go:build linux

package simredis_test

import (
	"strconv"
	"strings"

	"github.com/lockchaos/lockchaos/simulation/simredis"
)

// small are scripts about what the interpreter does.
var small = []string{
	"return {1,2.7,'a',false,true,{ok='fine'}}",
	"return {1,2,{3,'four',{5}},nil,6}",
	"return redis.call('GET',KEYS[1])",
	"return redis.call('SET',KEYS[1],ARGV[1])",
	"return redis.error_reply('MY err')",
	"return redis.error_reply('oops')",
	"return redis.error_reply('-WITH dash')",
	"return redis.error_reply()",
	"return redis.error_reply({})",
	"return {err='BAD thing'}",
	"return {err='oneword'}",
	"return {ok=ARGV[1]}",
	"return redis.pcall('HGET',KEYS[1],'x')",
	"local e = redis.pcall('HGET',KEYS[1],'x') if type(e) == 'table' and e.err then return e.err end return e",
	"return redis.call('HGET',KEYS[1],'x')",
	"\n\nreturn redis.call('HGET',KEYS[1],\n'x')",
	"local function f() return redis.call('HGET',KEYS[1],'x') end\n\nreturn f()",
	"local ok, e = pcall(redis.call,'HGET',KEYS[1],'x') if ok then return e end return e.err",
	"local ok, e = pcall(function() return nosuch end) return e",
	"local ok, e = pcall(error, 'x') return e",
	"local ok, e = pcall(error, {err='T x'}) return e",
	"error('mine')",
	"error('mine', 0)",
	"error({err='MY table'})",
	"error()",
	"return tostring(1/3)",
	"return 1/3 .. 'x' .. 10",
	"return 'a' .. 1000000000000000 .. 99999999999999 .. 100000000000000",
	"return {tostring(1e15), tostring(1e14), tostring(1e100), tostring(0/0), tostring(1/0), tostring(-1/0)}",
	"return {tostring(true), tostring(nil), type(tostring({}))}",
	"return {tonumber('10'), tonumber('0x10'), tonumber(' 5 '), tonumber('1e2'), tonumber('z',36), tonumber('ff',16), tonumber('7',8)}",
	"return {tonumber('x') == nil, tonumber('') == nil, tonumber('1_0') == nil, tonumber('0b1') == nil}",
	"return redis.call('SET',KEYS[1],1e15)",
	"return redis.call('SET',KEYS[1],0.1+0.2)",
	"redis.call('SET',KEYS[1],1234567890123456789) return redis.call('GET',KEYS[1])",
	"redis.call('SET',KEYS[1],-0) return redis.call('GET',KEYS[1])",
	"return redis.call('nosuch')",
	"return redis.call('CLIENT','nosuch')",
	"return redis.call('GET')",
	"return redis.call()",
	"return redis.call('GET',{})",
	"return redis.call('GET',true)",
	"return redis.call('MULTI')",
	"return redis.call('SUBSCRIBE','c')",
	"return redis.call('EVAL','return 1',0)",
	"local t = redis.call('HGETALL', KEYS[1]) return #t",
	"return redis.call('TYPE', KEYS[1]).ok",
	"return redis.call('TYPE', KEYS[1])",
	"return redis.status_reply('YES')",
	"return redis.status_reply()",
	"return redis.sha1hex('')",
	"return redis.sha1hex()",
	"return {string.sub('hello', '2', '3'), string.rep('x', '3'), string.len(1/3), string.sub(12345.5, 2), ('x'):rep('2')}",
	"return {math.floor('3.7'), math.max('10', 9), math.min(1, '0'), math.abs('-3'), math.pow('2', '3')}",
	"return {string.find(1/3, 3), string.match(12345, '%d%d'), string.upper(1e15), string.byte(7), string.char('65')}",
	"return {string.find('a1b', 1), string.gsub('a1b', 1, 2), table.concat({1, 2}, 3)}",
	"return {unpack({1, 2, 3}, '2')}",
	"return {tonumber('z', '36'), tonumber(5, 10), tonumber('5', 10), tonumber(nil)}",
	"return tonumber()",
	"return {math.floor('x')}",
	"return {string.sub('x', {})}",
	"return {math.fmod(-7, 3), math.mod(7, 3), math.modf(3.7), math.log10(100), math.sqrt(16)}",
	"for i = '1', 2 do return i end",
	"local n = 0 for i = 1, ARGV[1] do n = n + i if n > 10 then break end end return n",
	"return {'5' * '2', '3' + 4, 10 / '4', 2 ^ '3', 7 % '4', - '3'}",
	"local t = {1, 2, 3} return {#t, table.getn(t), table.maxn(t)}",
	"local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return t",
	"return string.format('%s %s', 1, 2.5)",
	"return string.format('%5s|%-5d|%05.1f', 1.5, '3', '2.25')",
	"return tostring(-1e15) .. tostring(123456.789e3) .. tostring(1e-5)",
	"return 2^31 .. ' ' .. 2^63",
	"return {1 == 1.0, '1' == 1, 'a' < 'b', 'Z' < 'a', '' < 'a'}",
	"return {10 % 3.5, -5 % 3, 5 % -3, 5.5 % 2}",
	"return {#{pcall(string.sub)}}",
	"return type(redis.pcall('LPUSH', KEYS[1]))",
	"local r = redis.call('HGETALL', KEYS[1]) local n = 0 for i = 1, #r, 2 do n = n + #r[i] end return n",
	"x = 1",
	"KEYS = 1",
	"redis.call = 1",
	"return print('x')",
	"return KEYS.x.y",
	"return KEYS + 1",
	"return #5",
	"return {} .. 'x'",
	"return nil .. 'x'",
	"local a = 'x' return a < 1",
	"return {} < {}",
	"local t = {} return t.x.y",
	"local t = {} t[nil] = 1",
	"return redis.replicate_commands()",
	"return redis.REDIS_VERSION_NUM",
	"return redis.log(redis.LOG_DEBUG,'x')",
	"return {redis.LOG_DEBUG, redis.LOG_WARNING}",
	"return redis.call('TIME')",
	"local a = redis.call('TIME') local b = redis.call('TIME') return {a[1] == b[1], a[2] == b[2]}",
	"local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)",
	"local t = redis.call('TIME') return string.format('%.0f', t[1] * 1000000 + t[2])",
	"local t = redis.call('TIME') return tostring(t[1] * 1000000 + t[2])",
	"return string.format('%d %5d|%-5d|%05d %+d', 3, 4, 5, 6, 7)",
	"return string.format('%s %10s|%-4s|%.2s', 'a', 'b', 'c', 'long')",
	"return string.format('%x %X %o %u %%', 255, 255, 8, 65)",
	"return string.format('%g %g %g %.3f %e %.0f', 0.1, 1e20, 100000, 2/3, 12345.678, 2.5)",
	"return string.format('%d', 'x')",
	"return string.format('%d')",
	"return string.format('%y', 1)",
	"return string.format('%s', true)",
	"return table.concat({1, 2.5, 'x'}, ',')",
	"return table.concat({1, {}, 3})",
	"return table.concat({1,2,3,4}, '-', 2, 3)",
	"return {string.match('held r o p', '^held (%S+) (.*)$')}",
	"return {string.find('a.b.c', '.', 1, true), string.find('abc', 'b()')}",
	"return {string.gsub('hello world', 'o', '0')}",
	"local n = 0 for w in string.gmatch('a bb ccc', '%a+') do n = n + #w end return n",
	"return {string.sub('hello', 2, -2), string.rep('ab', 3), string.upper('x'), string.len('xyz'), string.byte('A'), string.char(66), string.reverse('abc')}",
	"return {math.floor(-1.5), math.ceil(1.2), math.max(1,5,3), math.min(2,0), math.abs(-3), math.fmod(7,3), 7 % 3, -7 % 3, 2^10}",
	"return {math.random(1000), math.random(1000), math.random(5, 10), math.floor(math.random() * 1000000)}",
	"math.randomseed(7) return {math.random(1000), math.random(1000)}",
	"return {select('#', 1, nil, 3), select(2, 'a', 'b')}",
	"local t = {} table.insert(t, 'a') table.insert(t, 1, 'b') table.insert(t, 'c') table.remove(t, 2) return t",
	"local n = 0 for i, v in ipairs({1,2,nil,4}) do n = n + v end return n",
	"local n = 0 for k, v in pairs({a=1,b=2,3}) do n = n + v end return n",
	"return next({}) == nil",
	"return type(redis) .. type(KEYS) .. type(nil) .. type(1)",
	"return true",
	"return function() end",
	"return {function() end, 1}",
	"return",
	"",
	"return }{",
	"if then",
	"local r = {} for i = 1, 3 do r[i] = redis.call('INCR', KEYS[1]) end return r",
	"redis.call('SET', KEYS[1], 'x', 'PX', 100) return redis.call('PTTL', KEYS[1])",
	"redis.call('SET', KEYS[1], 'x') return redis.call('LPUSH', KEYS[1], 'y')",
	"return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')",
	"return redis.call('ZSCORE', KEYS[1], 'x')",
	"return redis.call('SMEMBERS', KEYS[1])",
	"return redis.call('PUBLISH', 'c', 'm')",
	"return redis.call('HSET', KEYS[1], 'a', 1.5, 'b', 3)",
	"local v = redis.call('GET', KEYS[1]) if v == false then return 'missing' end return v",
	"local a <const> = 1 return a",
	"rawset(_G, 'x', 1) return 1",
	"rawset(string, 'x', 1) return 1",
	"setmetatable(_G, nil) return 1",
	"string.format = 1 return 1",
	"local redis = {call=function() return 7 end} return redis.call('GET')",
	"local f = function(math) return math.floor end return f({floor=3})",
	"local s = string return s.upper('x')",
	"return {type(redis.call), type(string), type(math.floor), redis.nosuch == nil, string.nosuch == nil}",
	"local c = coroutine.create(function(a) local b = coroutine.yield(a + 1) return b * 2 end) local _, x = coroutine.resume(c, 1) local _, y = coroutine.resume(c, 10) return {x, y}",
	"return 7 // 2",
	"local t = setmetatable({}, {__index = function(_, k) return k end}) return t.hello",
	"return loadstring('return 5')()",
	"return assert(false, 'why')",
	"return assert(nil)",
	"return os.clock() > 0",
	"return string.dump == nil",
	"return 'abc' + 1",
	"local t = {} t[1.5] = 'x' t[1] = 'y' return t",
	"local t = {[2]='b'} return t",
	"return {{err='inner'}, {ok='inner'}}",
	"return string.rep('x', 5, ',')",
	"return tostring(12345678901234567890)",
	"for i = 3, 1, -1 do if i == 2 then return i end end",
	"local a, b = (function() return 1, 2 end)() return b",
	"return select(-1, 1, 2)",
	"return string.format('%i', 3.99)",
	"return #'a\\0b'",
	"return 'a\\065\\n'",
	"return [[long\nstring]]",
	"return {KEYS, ARGV}",
}

func (g *generator) argument() string {
	return g.one("x", "y", "z", "1", "2", "3", "30000", "5000", "0", "chan", "", "held r1 o1", "o1", "r1", "100", "-1", "1.5", "1700000000500", g.text(), g.integer())
}

// matching makes up a call of string.match, with a pattern that is well formed and has no frontier (%f), which
// gopher-lua does not know.
func (g *generator) matching() []string {
	text, pattern := "", g.one("", "", "^")
	for range g.IntN(12) {
		text += g.one("a", "b", "A", "1", "23", " ", "(", ")", "%", "-", ".", "\x00", "\xe9", "\n", "ab", "((a)b)")
	}
	for range 1 + g.IntN(6) {
		pattern += g.one("a", "b", "1", " ", ".", "%a", "%d", "%l", "%s", "%u", "%w", "%x", "%p", "%c", "%z", "%A", "%S", "%D", "%%", "%(",
			"[ab]", "[^a]", "[a-z1]", "[%d%s]", "[]a]", "[^]]", "[a-]", "%b()", "()", "(a)", "(%d*)", "(.)",
			"(%a)", "(.-)", "(.*)", "]", "^", "\xe9")
		if !strings.HasSuffix(pattern, ")") {
			pattern += g.one("", "", "", "*", "+", "-", "?")
		}
	}
	pattern += g.one("", "", "$")
	return []string{
		"EVAL", "local t = {string.match(ARGV[1], ARGV[2], ARGV[3])} for i = 1, 8 do t[i] = tostring(t[i]) end return t", "0",
		text, pattern, "1",
	}
}

// script makes up a call of a script.
func (g *generator) script() []string {
	if g.IntN(20) == 0 {
		return g.matching()
	}
	source := small[g.IntN(len(small))]
	keys, args := 1, g.IntN(3)
	if g.IntN(3) > 0 {
		source = g.scripts[g.names[g.IntN(len(g.names))]]
		keys, args = 5, 8
		if g.IntN(4) == 0 {
			keys, args = g.IntN(6), g.IntN(9)
		}
	}
	count := strconv.Itoa(keys)
	if g.IntN(60) == 0 {
		count = g.integer()
	}
	list := []string{g.one("EVAL", "EVAL", "EVAL", "EVAL_RO"), source, count}
	if g.IntN(4) == 0 {
		list[0], list[1] = g.one("EVALSHA", "EVALSHA", "EVALSHA_RO"), simredis.Sha(source)
	}
	for range keys {
		list = append(list, g.key())
	}
	for range args {
		list = append(list, g.argument())
	}
	return list
}
