package redistest

import (
	"context"

	"github.com/redis/go-redis/v9"
)

const fieldsLua = `
if redis.call('TYPE', KEYS[1]).ok ~= 'string' then return redis.call('HGETALL', KEYS[1]) end
local request, owner = string.match(redis.call('GET', KEYS[1]), '^held (%S+) (.*)$')
local time = redis.call('TIME')
local ends = time[1] * 1000 + math.floor(time[2] / 1000) + redis.call('PTTL', KEYS[1])
return {'owner', owner, request, string.format('%.0f', ends)}`

// Fields are those of a plain lock: of the hash that it is, or that the string
// stands for.
func Fields(ctx context.Context, t interface{ Fatal(args ...any) }, rdb redis.UniversalClient, key string) map[string]string {
	list, err := rdb.Eval(ctx, fieldsLua, []string{key}).StringSlice()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		all[list[i]] = list[i+1]
	}
	return all
}
