package bench

import (
	"bufio"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A cost is what was spent so far: by this process, and by all servers together.
type cost struct {
	at       time.Time
	client   time.Duration // processor time
	server   time.Duration
	commands int64 // that the servers ran, those of scripts included
	requests int64 // times that the servers read from a client
	in, out  int64 // bytes
}

func (c cost) minus(before cost) cost {
	return cost{
		c.at, c.client - before.client, c.server - before.server, c.commands - before.commands,
		c.requests - before.requests, c.in - before.in, c.out - before.out,
	}
}

// spent asks the servers, and the system about this process.
func spent(ctx context.Context, servers []*redis.Client) (cost, error) {
	var c cost
	for _, rdb := range servers {
		info, err := rdb.Do(ctx, "INFO", "stats", "commandstats", "cpu").Text()
		if err != nil {
			return c, fmt.Errorf("ask a server what it did: %w", err)
		}
		c.add(info)
	}
	var err error
	if c.client, err = processorTime(); err != nil {
		return c, fmt.Errorf("ask for the processor time: %w", err)
	}
	c.at = time.Now()
	return c, nil
}

// add reads what INFO says of one server.
func (c *cost) add(info string) {
	for lines := bufio.NewScanner(strings.NewReader(info)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimSpace(value)
		whole, _ := strconv.ParseInt(value, 10, 64)
		switch {
		case name == "total_reads_processed":
			c.requests += whole
		case name == "total_net_input_bytes":
			c.in += whole
		case name == "total_net_output_bytes":
			c.out += whole
		case name == "used_cpu_user", name == "used_cpu_sys":
			seconds, _ := strconv.ParseFloat(value, 64)
			c.server += time.Duration(seconds * float64(time.Second))
		case strings.HasPrefix(name, "cmdstat_") && name != "cmdstat_info":
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, _ := strconv.ParseInt(calls, 10, 64)
			c.commands += n
		}
	}
}
