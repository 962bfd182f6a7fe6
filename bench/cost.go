package bench

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A cost is what was spent so far: by this process, and by all servers together.
type cost struct {
	client   time.Duration // processor time
	server   time.Duration
	commands int64 // that the servers ran, those of scripts included
	requests int64 // times that the servers read from a client
	in, out  int64 // bytes
}

func (c cost) minus(before cost) cost {
	return cost{
		c.client - before.client, c.server - before.server, c.commands - before.commands,
		c.requests - before.requests, c.in - before.in, c.out - before.out,
	}
}

// spent asks the servers, and the system about this process.
func spent(ctx context.Context, servers []*redis.Client) (cost, error) {
	var c cost
	for _, rdb := range servers {
		info, err := rdb.InfoMap(ctx, "stats", "commandstats", "cpu").Result()
		if err != nil {
			return c, fmt.Errorf("ask a server what it did: %w", err)
		}
		c.add(info)
	}
	var err error
	if c.client, err = processorTime(); err != nil {
		return c, fmt.Errorf("ask for the processor time: %w", err)
	}
	return c, nil
}

// add reads what INFO says of one server.
func (c *cost) add(info map[string]map[string]string) {
	count := func(text string) int64 {
		n, _ := strconv.ParseInt(text, 10, 64)
		return n
	}
	stats, cpu := info["Stats"], info["CPU"]
	c.requests += count(stats["total_reads_processed"])
	c.in += count(stats["total_net_input_bytes"])
	c.out += count(stats["total_net_output_bytes"])
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		used, _ := time.ParseDuration(cpu[name] + "s")
		c.server += used
	}
	for name, stat := range info["Commandstats"] {
		if name != "cmdstat_info" {
			calls, _, _ := strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
			c.commands += count(calls)
		}
	}
}
